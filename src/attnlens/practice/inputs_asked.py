"""Questions about the inputs: does their order matter, how many of them does it take?

Each is asked of the chosen model, by folds that are paired. *Order*: the error when every row's
tokens (or standardised columns) are mixed among each other, against the error as they stand; of
sequences also `exchangeability`, which needs no labels. *Length*: with the first or the last k
tokens, or the k most important columns, a model keeps the share

    (e₀ − e_k) / (e₀ − e_all),    e₀ the error of ignoring the inputs

of what it gains from all of them. k are gone through from the longest down and are enough as long
as the share is shown to be above nine tenths: so the first that is not ends it, and however many k
are tried, one is called enough by mistake in 2.5 % of cases at most (tests in a fixed order). Which
end of a sequence is kept is decided by the longest k, once; a fold chooses its columns on its own
training rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlens.instruments import exchangeability
from attnlens.instruments.exchange import LEVEL, Exchangeability
from attnlens.records import Answer, Curve, Figure, Reading

from .budget import Deadline
from .model_choice import Choice
from .phrases import Change, Share, unknown
from .subjects import MOST_ASIDE, Subject, important
from .trials import Trial

ORDER = "Does token order matter?"
CONTEXT = "How long must the context be?"
COLUMNS = "How many columns does it take?"
ENOUGH = 0.9  # of what is gained from all of them
LENGTHS = 3  # besides the full one, in the first round; each is another network to compile
MOST_SEQUENCES = 200  # for the permutation test, which is exact at every size


def order(subject: Subject, trial: Trial, choice: Choice) -> Answer:
    """Does it matter which place a value stands in?"""
    random = np.random.default_rng(trial.seed)
    inputs = trial.data.inputs
    if not trial.data.tokens:  # columns have scales of their own
        spread = inputs.std(0)
        inputs = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1.0)
    plain = trial.data._replace(inputs=inputs)
    mixed = plain._replace(inputs=random.permuted(inputs, axis=1) if inputs.ndim == 2 else
                           _shuffled(inputs, random))  # fmt: skip
    both = [partial(trial.errors, choice.model, data) for data in (mixed, plain)]
    change = trial.change(*trial.at_once(both))
    readings = {"log_error_ratio": change.reading}
    if subject.sequences is None:
        return _of_columns(choice, change, readings)
    few = [each for each in subject.sequences if len(each) > 1][:MOST_SEQUENCES]
    if not few:
        return unknown(ORDER, "no sequence has two tokens")
    found = exchangeability(few, wealth=False, seed=trial.seed)
    readings["p_value"] = Reading(found.value, found.standard_error, found.count)
    readings |= {name: _plain(effect) for name, effect in found.effects.items()}
    return _of_tokens(choice, change, found, readings)


def _shuffled(tokens: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each row's tokens in an order of its own; zeros that fill a row up stay at its end.

    >>> tokens = np.arange(1.0, 4)[None, :, None] * [[[1.0], [1.0], [0.0]]]
    >>> sorted(_shuffled(tokens, np.random.default_rng(0))[0, :, 0].tolist()[:2])
    [1.0, 2.0]
    """
    places = np.arange(tokens.shape[1])
    length = ((tokens != 0).any(2) * (places + 1)).max(1)
    keys = random.random(tokens.shape[:2])
    keys = np.where(places < length[:, None], keys, 1.0 + places)
    return np.take_along_axis(tokens, keys.argsort(1)[:, :, None], axis=1)


def _of_columns(choice: Choice, change: Change, readings: dict[str, Reading]) -> Answer:
    said = f"{choice.model}, each row's values mixed among its columns: {change}"
    if not choice.learned or not change.usable:
        return unknown(ORDER, said, **readings)
    if change.worse:
        answer = "which column a value stands in does; the columns' own order carries nothing"
        return Answer(ORDER, answer, said, readings=readings)
    if change.better or change.none:
        answer = "no, not even which column is which: columns are interchangeable"
        return Answer(ORDER, answer, said, readings=readings)
    return unknown(ORDER, said, **readings)


def _of_tokens(
    choice: Choice, change: Change, found: Exchangeability, readings: dict[str, Reading]
) -> Answer:
    effects = ", ".join(
        f"{name} {e.value:.2g} ± {e.standard_error:.1g}"
        for name, e in found.effects.items() if e.status == "ok"
    )  # fmt: skip
    evidence = (
        f"exchangeability of {found.details['sequences']} sequences: p = {found.value:.2g}"
        f"{f' ({effects})' if effects else ''}; {choice.model} with tokens shuffled: {change}"
    )
    moved = found.value <= LEVEL
    if choice.learned and change.worse:
        return Answer(ORDER, "yes, for the label: shuffled tokens predict it less well", evidence,
                      readings=readings)  # fmt: skip
    if moved:
        label = (
            "; for the label it does not"
            if choice.learned and (change.none or change.better)
            else "; whether it does for the label is not known yet"
        )
        answer = f"yes, tokens depend on their place or neighbours{label}"
        return Answer(ORDER, answer, evidence, readings=readings)
    if choice.learned and (change.none or change.better):
        answer = "no: neither the tokens nor the label depend on it"
        return Answer(ORDER, answer, evidence, readings=readings)
    answer = "no sign of it among the tokens; whether it does for the label is not known yet"
    return Answer(ORDER, answer, evidence, known=False, readings=readings)


def length(trial: Trial, choice: Choice, deadline: Deadline) -> tuple[Answer, Figure | None]:
    """How many tokens, or columns, are enough?"""
    question = CONTEXT if trial.data.tokens else COLUMNS
    whole = trial.data.inputs.shape[1]
    what = "tokens" if trial.data.tokens else "columns"
    if whole == 1:
        return Answer(question, "1: there is no more", f"the data have 1 of the {what}"), None
    if not choice.learned:
        return unknown(question, f"no model learns from all {whole} {what}"), None
    # Evenly on a logarithmic scale: fine where few are kept; each is another network to compile.
    count = LENGTHS + max(0, trial.effort.sizes - 4)
    shorter = np.unique(np.geomspace(1, whole, count + 1).round().astype(int))[:-1]
    keep = _Keep(trial, choice.model)
    errors = {whole: keep(whole)}
    shares: dict[int, Share] = {}
    enough, short, unbroken = whole, 0, True
    for k in reversed(shorter.tolist()):
        deadline()
        errors[k] = keep(k)
        shares[k] = trial.share(errors[k], errors[whole])
        unbroken = unbroken and shares[k].low > ENOUGH
        enough = k if unbroken else enough
        if shares[k].high < ENOUGH:  # fewer will not do better
            short = k
            break
    told = "; ".join(f"{k} {what} keep {shares[k]}" for k in sorted(shares))
    evidence = f"{choice.model}, of what it gains from all {whole}: {told}"
    readings = {f"share_kept_{k}": share.reading for k, share in sorted(shares.items())}
    figure = _figure(trial, errors, what)
    if enough < whole:
        less = f"; {short} are too few" if short else ""
        said = f"{enough} of {whole}, {keep.words} ones, are enough{less}"
        return Answer(question, said, evidence, readings=readings), figure
    if short and short == max(shares):
        said = f"all {whole}, or nearly: {keep.words} {short} are too few"
        return Answer(question, said, evidence, readings=readings), figure
    return unknown(question, evidence, f"more than {short}" if short else "", **readings), figure


class _Keep:
    """Errors with some tokens or columns only."""

    def __init__(self, trial: Trial, model: str):
        self.trial, self.model, self.words = trial, model, "the most important"
        self.last = None  # whether the last tokens are kept; not decided yet
        self.ranked = [
            important(trial.data, fold.train[:MOST_ASIDE], trial.seed)
            for fold in trial.parts if not trial.data.tokens
        ]  # fmt: skip

    def __call__(self, count: int) -> np.ndarray:
        trial, data = self.trial, self.trial.data
        if not data.tokens:
            own = [
                partial(
                    trial.errors, self.model,
                    data._replace(inputs=data.inputs[:, np.sort(columns[:count])]),
                    [fold], seed=trial.seed + i,
                )
                for i, (fold, columns) in enumerate(zip(trial.parts, self.ranked, strict=True))
            ]  # fmt: skip
            return np.concatenate(trial.at_once(own))
        if count == data.inputs.shape[1]:
            return trial.errors(self.model)
        wanted = [last for last in (False, True) if self.last in (None, last)]
        cut = [data.inputs[:, -count:] if last else data.inputs[:, :count] for last in wanted]
        own = [partial(trial.errors, self.model, data._replace(inputs=inputs)) for inputs in cut]
        ends = dict(zip(wanted, trial.at_once(own), strict=True))
        if self.last is None:
            self.last = bool(ends[True].mean() < ends[False].mean())
            self.words = "the last" if self.last else "the first"
        return ends[self.last]


def _figure(trial: Trial, errors: dict[int, np.ndarray], what: str) -> Figure:
    from attnlens.statistics import mean_reading

    at = sorted(errors)
    readings = tuple(mean_reading(errors[k]) for k in at)
    return Curve(f"{what} kept", trial.quantity, tuple(map(float, at)), readings).figure()


def _plain(effect: Reading) -> Reading:
    return Reading(effect.value, effect.standard_error, effect.count, effect.status)
