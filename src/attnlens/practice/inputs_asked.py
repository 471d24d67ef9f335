"""Questions about the inputs: does their order matter, how many of them does it take?

Each is asked of the chosen model, by folds that are paired. *Order*: the error when every row's
tokens (or standardised columns) are mixed among each other, against the error as they stand; of
sequences also `exchangeability`, which needs no labels. *Length*: the error with only the first or
the last k tokens, or with the k most important columns, against all of them; what is enough is the
smallest k whose error is shown to be less than a tenth above that of all. Which end of a sequence
is kept is decided by the longest k, once; a fold chooses its columns on its own training rows.
"""

from __future__ import annotations

import math

import numpy as np

from attnlens.instruments import exchangeability
from attnlens.instruments.exchange import LEVEL, Exchangeability
from attnlens.records import Answer, Curve, Figure, Reading

from .budget import Deadline
from .model_choice import Choice
from .phrases import Change, unknown
from .subjects import MOST_ASIDE, Subject, important
from .trials import Trial

ORDER = "Does token order matter?"
CONTEXT = "How long must the context be?"
COLUMNS = "How many columns does it take?"
ENOUGH = 1.1  # times the error with all of them
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
    change = trial.change(trial.errors(choice.model, mixed), trial.errors(choice.model, plain))
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
    # Quarters of what is left: fine where few are kept, and never more shapes than rounds pay for.
    count = LENGTHS + max(0, trial.effort.sizes - 4)
    shorter = np.unique(np.geomspace(1, whole, count + 1).round().astype(int))[:-1]
    keep = _Keep(trial, choice.model)
    errors = {whole: keep(whole)}
    for k in reversed(shorter.tolist()):
        deadline()
        errors[k] = keep(k)
    changes = {k: trial.change(own, errors[whole]) for k, own in errors.items() if k != whole}
    enough = min((k for k, c in changes.items() if c.high < math.log(ENOUGH)), default=whole)
    short = max((k for k, c in changes.items() if c.low > 0 and k < enough), default=0)
    evidence = f"{choice.model}, against all {whole}: " + "; ".join(
        f"{k} {what}: {changes[k]}" for k in sorted(changes)
    )
    readings = {f"log_error_ratio_{k}": c.reading for k, c in sorted(changes.items())}
    figure = _figure(trial, errors, what)
    kept = keep.words
    if enough < whole:
        between = f", {short} are too few" if short else ""
        said = f"{enough} ({kept}) of {whole} are enough{between}"
        return Answer(question, said, evidence, readings=readings), figure
    if short and short == max(changes):
        said = f"all {whole}: {kept} {short} already lose"
        return Answer(question, said, evidence, readings=readings), figure
    why = f"more than {short}" if short else ""
    return unknown(question, evidence, why, **readings), figure


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
                trial.errors(
                    self.model, data._replace(inputs=data.inputs[:, np.sort(columns[:count])]),
                    [fold], seed=trial.seed + i,
                )
                for i, (fold, columns) in enumerate(zip(trial.parts, self.ranked, strict=True))
            ]  # fmt: skip
            return np.concatenate(own)
        if count == data.inputs.shape[1]:
            return trial.errors(self.model)
        ends = {
            last: trial.errors(self.model, data._replace(
                inputs=data.inputs[:, -count:] if last else data.inputs[:, :count]))
            for last in (False, True) if self.last in (None, last)
        }  # fmt: skip
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
