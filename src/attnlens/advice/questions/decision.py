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

**Twice the labels.** The errors of the recommended contender with an eighth, a quarter and a half
of the labels (or on its learning curve, if it has one), and with all of them, are continued by
`attnlens.instruments.samples.forecast`. A gain is shown if the 95 % interval of the change from all
labels to twice as many lies below zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnlens.advice.contenders import ATTENTION, TRANSFORMER, UNIFORM, by_cost
from attnlens.advice.phrases import QuestionWords
from attnlens.core.drawing import Figure, Series
from attnlens.core.readings import LEVEL, BoundedReading, Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import implied_error, mean_reading
from attnlens.core.status import Status
from attnlens.instruments.samples.forecast import forecast_draws
from attnlens.instruments.samples.sample_size import interval

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
    missing: tuple[str, ...] = ()  # contenders that were not trained so far

    def with_errors(self, errors: Mapping[str, np.ndarray]) -> Contest:
        """A copy with the errors of more contenders, which are no longer missing."""
        missing = tuple(name for name in self.missing if name not in errors)
        return self._replace(errors=errors, missing=missing)

    def reading(self, name: str) -> Reading:
        return _inflated(self.errors[name], self.inflation)

    def difference(self, first: str, second: str) -> Reading:
        """The error of contender `first` minus that of `second`, paired by fold."""
        return _inflated(self.errors[first] - self.errors[second], self.inflation)


class ContenderCurve(NamedTuple):
    """Test errors (fold, size) of one contender with growing numbers of labels."""

    sizes: tuple[int, ...]
    errors: np.ndarray
    inflation: tuple[float, ...]  # factors on standard errors, because folds share training rows
    test_rows: int  # of all folds together if the errors are error rates, else 0


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
    left_out = f"; not trained so far: {', '.join(contest.missing)}" if contest.missing else ""
    if not result.learned:
        why = f"no contender is shown to do better than ignoring the inputs{left_out}"
        return result, DECISION.unknown(evidence, why, readings)
    own = result.of(result.model)
    reached = f"{contest.quantity} {own.error.value:.3g} with {contest.labels:,} labels"
    words = f"use {result.model}: {reached}{_against(result)}{left_out}"
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


def twice_the_labels(model: str, curve: ContenderCurve) -> Answer:
    """What would twice (and four times) the labels buy? See the module's docstring."""
    labels, folds = curve.sizes[-1], len(curve.errors)
    today = _inflated(curve.errors[:, -1], curve.inflation[-1])
    means = curve.errors.mean(0)
    if not (np.isfinite(means) & (means > 0)).all():
        return DOUBLED.unknown(f"{model} with {labels:,} labels", "no test row was wrong")
    sizes = np.array(curve.sizes, float)
    (draws,) = forecast_draws(sizes, curve.errors[None], np.array(curve.inflation), curve.test_rows)
    now, twice, four = (draws.extrapolated(float(times * labels)) for times in (1, 2, 4))
    if curve.test_rows:
        twice, four = np.minimum(twice, 1.0), np.minimum(four, 1.0)
    change = _forecast_reading(np.log(twice / now), folds)
    expected, further = _forecast_reading(twice, folds), _forecast_reading(four, folds)
    listing = ", ".join(
        f"{mean:.3g} with {size:,}" for mean, size in zip(means, curve.sizes, strict=True)
    )
    evidence = (
        f"{model}, errors by labels: {listing}; forecast with {4 * labels:,}: {_span(further)}"
    )
    readings = {
        "error_now": today,
        "error_with_twice": expected,
        "error_with_four_times": further,
        "log_change": change,
    }
    if change.high >= 0:
        words = (
            f"no gain is shown: error {_span(expected)} is forecast with {2 * labels:,} labels, "
            f"{today.value:.3g} was measured with {labels:,}"
        )
        return DOUBLED.answer(AnswerOutcome.NO_SIGN, words, evidence, readings=readings)
    words = (
        f"error {_span(expected)} instead of {today.value:.3g}, with {2 * labels:,} labels instead "
        f"of {labels:,}"
    )
    return DOUBLED.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def _forecast_reading(draws: np.ndarray, folds: int) -> BoundedReading:
    """The estimate, which is the first of `draws`, with the 95 % interval of the others."""
    low, high = interval(draws[1:])
    return BoundedReading(
        float(draws[0]), implied_error(low, high, folds), folds, low=low, high=high
    )


def _span(reading: BoundedReading) -> str:
    return f"{reading.value:.3g} (95 % interval {reading.low:.3g} to {reading.high:.3g})"


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
