"""How many tokens, or columns, are enough?

With the first or the last k tokens, or the k most important columns, the chosen model keeps the
share

    (e₀ − e_k) / (e₀ − e_all),    e₀ the error of ignoring the inputs

of its gain from all of them, where e_k is its error with k of them and e_all with all. k is tried
from the largest down; k tokens are enough if the whole 95 % interval of the share lies above nine
tenths. The sequence ends at the first k that is not enough, so however many k are tried, a k is
called enough by mistake in at most 2.5 % of cases (tests in a fixed order). The largest k decides
once whether the first or the last tokens are kept. Each fold chooses its columns on its own
training rows; the answer names the columns with the smallest mean rank over folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attnlens.advice.budget import Deadline
from attnlens.advice.comparisons import KeptShare
from attnlens.advice.phrases import QuestionWords, join_names
from attnlens.advice.subjects import MOST_ROWS_TO_RANK, column_ranking
from attnlens.advice.trials import Trial
from attnlens.core.drawing import Figure
from attnlens.core.readings import Curve
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import mean_reading

from .labels import ModelChoice

CONTEXT = QuestionWords(Question.CONTEXT, "How long must the context be?")
COLUMNS = QuestionWords(Question.COLUMNS, "How many columns does it take?")
MOST_NAMES = 8  # columns that an answer names at most
ENOUGH = 0.9  # share of the gain from all of them
LENGTHS = 3  # values of k in the first round besides all; each means one more network to compile


def tokens_needed(
    trial: Trial, choice: ModelChoice, deadline: Deadline, names: Sequence[str] = ()
) -> tuple[Answer, Figure | None]:
    """How many tokens, or columns, are enough? See the module's docstring for the rule.

    names: the names of the columns, if the tokens are columns.
    """
    question = CONTEXT if trial.data.tokens else COLUMNS
    whole = trial.data.inputs.shape[1]
    unit = "tokens" if trial.data.tokens else "columns"
    if whole == 1:
        evidence = f"the data have 1 of the {unit}"
        return question.answer(AnswerOutcome.VALUE, "1: there is no more", evidence), None
    if not choice.learned:
        return question.unknown(f"no model learns from all {whole} {unit}"), None
    # Even steps on a logarithmic scale, so that small k are close together.
    count = LENGTHS + max(0, trial.effort.sizes - 4)
    shorter = np.unique(np.geomspace(1, whole, count + 1).round().astype(int))[:-1]
    shortened = _ShortenedInputs(trial, choice.model)
    errors = {whole: shortened.errors(whole)}
    shares: dict[int, KeptShare] = {}
    enough, too_few, unbroken = whole, 0, True
    for k in reversed(shorter.tolist()):
        deadline()
        errors[k] = shortened.errors(k)
        shares[k] = trial.kept_share(errors[k], errors[whole])
        unbroken = unbroken and shares[k].low > ENOUGH
        enough = k if unbroken else enough
        if shares[k].high < ENOUGH:  # even fewer tokens cannot be enough
            too_few = k
            break
    listing = "; ".join(f"{k} {unit} keep {shares[k]}" for k in sorted(shares))
    evidence = f"{choice.model}, of what it gains from all {whole}: {listing}"
    readings = {f"share_kept_{k}": share.reading for k, share in sorted(shares.items())}
    figure = _figure(trial, errors, unit)
    if enough < whole:
        bound = f"; {too_few} are too few" if too_few else ""
        columns = shortened.columns(enough, names)
        named = f": {join_names(columns)}" if columns else ""
        words = f"{enough} of {whole}, {shortened.which} ones, are enough{named}{bound}"
        return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings), figure
    if too_few and too_few == max(shares):
        words = f"all {whole}, or nearly: {shortened.which} {too_few} are too few"
        return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings), figure
    why = f"more than {too_few}" if too_few else ""
    return question.unknown(evidence, why, readings), figure


class _ShortenedInputs:
    """Errors of a model that sees only some of the tokens or columns.

    which: which tokens or columns are kept, in words. last: whether the last tokens are kept; None
        until the largest k has decided.
    """

    def __init__(self, trial: Trial, model: str):
        self.trial, self.model, self.which = trial, model, "the most important"
        self.last: bool | None = None
        self.rankings = [
            column_ranking(trial.data, fold.train[:MOST_ROWS_TO_RANK], trial.seed)
            for fold in trial.folds
            if not trial.data.tokens
        ]

    def columns(self, count: int, names: Sequence[str]) -> list[str]:
        """The names of the most important columns, by their mean rank over folds."""
        if not self.rankings or not names:
            return []
        ranks = np.argsort(self.rankings, axis=1).mean(0)
        chosen = [names[int(i)] for i in np.argsort(ranks, kind="stable")[:count]]
        more = len(chosen) - MOST_NAMES
        return chosen if more <= 0 else [*chosen[:MOST_NAMES], f"{more} more"]

    def errors(self, count: int) -> np.ndarray:
        trial, data = self.trial, self.trial.data
        if not data.tokens:
            jobs = [
                partial(
                    trial.errors,
                    self.model,
                    data._replace(inputs=data.inputs[:, np.sort(columns[:count])]),
                    [fold],
                    seed=trial.seed + i,
                )
                for i, (fold, columns) in enumerate(zip(trial.folds, self.rankings, strict=True))
            ]
            return np.concatenate(trial.at_once(jobs))
        if count == data.inputs.shape[1]:
            return trial.errors(self.model)
        sides = [last for last in (False, True) if self.last in (None, last)]
        cuts = [data.inputs[:, -count:] if last else data.inputs[:, :count] for last in sides]
        jobs = [partial(trial.errors, self.model, data._replace(inputs=inputs)) for inputs in cuts]
        errors = dict(zip(sides, trial.at_once(jobs), strict=True))
        if self.last is None:
            self.last = bool(errors[True].mean() < errors[False].mean())
            self.which = "the last" if self.last else "the first"
        return errors[self.last]


def _figure(trial: Trial, errors: dict[int, np.ndarray], unit: str) -> Figure:
    counts = sorted(errors)
    readings = tuple(mean_reading(errors[k]) for k in counts)
    return Curve(f"{unit} kept", trial.quantity, tuple(map(float, counts)), readings).figure()
