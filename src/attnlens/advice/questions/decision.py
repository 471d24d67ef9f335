"""What should be used on these data, what does attention itself add, what would more labels buy?

**The rule.** Every contender (model) is trained on the same rows of the same folds. The one with
the smallest mean error is compared with each of the others by paired differences of errors, with
Student's t over folds, standard errors inflated for overlapping training sets, and Bonferroni over
the M − 1 comparisons of M contenders. The cheapest contender that is not shown to be worse is
recommended (`contenders.CHEAPEST_FIRST`). So a more expensive model is recommended only if it is
shown to be better than every cheaper one. If the cheapest model is in truth as good as the best,
another one is recommended in at most about 5 % of cases (in 1.8 % of 4,000 simulated contests of
five equal contenders).

**What attention adds** is the difference in error between a transformer and the same transformer,
trained in the same way, in which every token attends to all tokens with equal weights. A comparison
with another kind of model would also measure everything else in which the two models differ.

**Twice the labels.** The error changes by a factor e^r, paired by fold, from half of the labels to
all of them. If the error follows a power law without a floor, e(n) ∝ n^(−b), twice the labels
change it by the same factor again. If the learning curve has begun to level off, they change it by
less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnlens.advice.contenders import ATTENTION, TRANSFORMER, UNIFORM, by_cost
from attnlens.advice.phrases import QuestionWords
from attnlens.core.drawing import Figure, Series
from attnlens.core.readings import LEVEL, Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import mean_reading
from attnlens.core.status import Status

DECISION = QuestionWords(Question.DECISION, "What should be used on these data?")
ADDED = QuestionWords(Question.ATTENTION, "What does attention itself add?")
DOUBLED = QuestionWords(Question.TWICE_THE_LABELS, "What would twice the labels buy?")


class Contest(NamedTuple):
    """The test errors of all contenders, one per fold, with `labels` training rows."""

    errors: Mapping[str, np.ndarray]
    labels: int
    inflation: float  # factor on standard errors, because folds share training rows
    trivial: float  # the error of ignoring the inputs
    quantity: str

    def reading(self, name: str) -> Reading:
        return _inflated(self.errors[name], self.inflation)

    def difference(self, first: str, second: str) -> Reading:
        """The error of contender `first` minus that of `second`, paired by fold."""
        return _inflated(self.errors[first] - self.errors[second], self.inflation)


class RankedContender(NamedTuple):
    """A contender, its error, and that error minus the error of the recommended contender."""

    name: str
    error: Reading
    difference: Reading
    tied: bool  # not shown to be worse than the contender with the smallest error


class Decision(NamedTuple):
    """The recommended model, and all contenders from the smallest mean error on."""

    model: str
    learned: bool  # the model is shown to be better than ignoring the inputs
    ranking: tuple[RankedContender, ...]

    def of(self, name: str) -> RankedContender:
        return next(ranked for ranked in self.ranking if ranked.name == name)


def decide(contest: Contest) -> Decision:
    """The recommended contender; see the module's docstring for the rule."""
    errors = {name: contest.reading(name) for name in contest.errors if name != UNIFORM}
    usable = [name for name, error in errors.items() if error.status is Status.OK]
    if not usable:
        return Decision(by_cost([*errors])[0], False, ())
    best = min(usable, key=lambda name: errors[name].value)
    level = 1 - (1 - LEVEL) / max(len(usable) - 1, 1)
    behind = {name: contest.difference(name, best) for name in usable}
    tied = [name for name in usable if not behind[name].interval(level)[0] > 0]
    model = by_cost(tied)[0]
    ranking = tuple(
        RankedContender(name, errors[name], contest.difference(name, model), name in tied)
        for name in sorted(usable, key=lambda name: errors[name].value)
    )
    return Decision(model, errors[model].interval()[1] < contest.trivial, ranking)


def decision(contest: Contest) -> tuple[Decision, Answer]:
    """What should be used on these data?"""
    result = decide(contest)
    listing = ", ".join(f"{r.name} {_error(r.error)}" for r in result.ranking)
    evidence = (
        f"{contest.quantity} with {contest.labels:,} labels, mean ± standard error over folds: "
        f"{listing}; ignoring the inputs: {contest.trivial:.3g}"
    )
    readings = {_key(r.name): r.error for r in result.ranking}
    readings |= {
        f"{_key(r.name)}_minus_{_key(result.model)}": r.difference
        for r in result.ranking
        if r.name != result.model
    }
    if not result.learned:
        why = "no contender is shown to do better than ignoring the inputs"
        return result, DECISION.unknown(evidence, why, readings)
    own = result.of(result.model)
    reached = f"{contest.quantity} {own.error.value:.3g} with {contest.labels:,} labels"
    words = f"use {result.model}: {reached}{_against(result)}"
    return result, DECISION.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def _against(result: Decision) -> str:
    """Compare with the best contender of the other kind: with attention, or without it."""
    attends = result.model in ATTENTION
    others = [r for r in result.ranking if (r.name in ATTENTION) != attends]
    if not others:
        return ""
    other = others[0]
    kind = "without attention" if attends else "with attention"
    name = f"the best contender {kind}, {other.name}, has {other.error.value:.3g}"
    if other.tied:
        return f"; {name}, which is not shown to differ"
    low, high = other.difference.interval()
    return f"; {name}, {other.difference.value:.2g} more (95 % interval {low:.2g} to {high:.2g})"


def attention_adds(contest: Contest) -> Answer:
    """What does attention itself add? Compares transformers with learned and uniform attention."""
    change = contest.difference(TRANSFORMER, UNIFORM)
    with_it, without = contest.reading(TRANSFORMER), contest.reading(UNIFORM)
    evidence = (
        f"{contest.quantity} of a transformer {_error(with_it)}, of the same one with every weight "
        f"of attention equal {_error(without)}"
    )
    readings = {"difference": change, "attention": with_it, "uniform_attention": without}
    if change.status is not Status.OK:
        return ADDED.unknown(evidence, "a network diverged", readings)
    low, high = change.interval()
    span = f"95 % interval {low:+.2g} to {high:+.2g}"
    if high < 0:
        words = f"it lowers the {contest.quantity} by {-change.value:.2g} ({span})"
        return ADDED.answer(AnswerOutcome.YES, words, evidence, readings=readings)
    if low > 0:
        words = f"nothing: it raises the {contest.quantity} by {change.value:.2g} ({span})"
        return ADDED.answer(AnswerOutcome.NO, words, evidence, readings=readings)
    words = f"no effect is shown: it changes the {contest.quantity} by {change.value:+.2g} ({span})"
    return ADDED.answer(AnswerOutcome.NO_SIGN, words, evidence, readings=readings)


def twice_the_labels(
    model: str, half: np.ndarray, whole: np.ndarray, labels: int, inflation: float
) -> Answer:
    """What would twice the labels buy, from the errors with half of the labels and with all?"""
    today = _inflated(whole, inflation)
    usable = np.isfinite(half) & np.isfinite(whole) & (half > 0) & (whole > 0)
    if not usable.all():
        return DOUBLED.unknown(f"{model} with {labels:,} labels", "a fold had no wrong row")
    change = _inflated(np.log(whole / half), inflation)
    low, high = change.interval()
    before = float(np.mean(half))
    expected = Reading(
        today.value * math.exp(change.value),
        today.value * math.exp(change.value) * change.standard_error,  # delta method
        change.count,
    )
    evidence = (
        f"{model}: {before:.3g} with {labels // 2:,} labels, {today.value:.3g} with {labels:,}; "
        f"the same factor again gives {expected.value:.3g}"
    )
    readings = {"error_now": today, "error_with_twice": expected, "log_change": change}
    ends = [today.value * math.exp(end) for end in (low, high)]
    if high >= 0:
        words = (
            f"no gain is shown: half of the labels had the error {before:.3g}, all of them "
            f"{today.value:.3g}"
        )
        return DOUBLED.answer(AnswerOutcome.NO_SIGN, words, evidence, readings=readings)
    words = (
        f"error {expected.value:.3g} instead of {today.value:.3g} with {2 * labels:,} labels "
        f"(95 % interval {ends[0]:.3g} to {ends[1]:.3g}), if it keeps falling as from "
        f"{labels // 2:,} to {labels:,}"
    )
    return DOUBLED.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def figure(contest: Contest, result: Decision) -> Figure:
    """The error of every contender with its interval, the smallest first."""
    points = tuple(ranked.error.point(place) for place, ranked in enumerate(result.ranking, 1))
    names = tuple(ranked.name for ranked in result.ranking)
    title = f"{contest.quantity} of every contender with {contest.labels:,} labels"
    series = (Series("mean over folds, 95 % interval", points),)
    return Figure(title, "contender", contest.quantity, series, False, False, names)


def _inflated(values: np.ndarray, inflation: float) -> Reading:
    mean = mean_reading(values)
    return Reading(mean.value, mean.standard_error * inflation, mean.count, mean.status)


def _error(reading: Reading) -> str:
    return f"{reading.value:.3g} ± {reading.standard_error:.1g}"


def _key(name: str) -> str:
    return name.replace("-", "_")
