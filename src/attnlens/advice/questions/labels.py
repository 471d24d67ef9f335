"""Which model needs the fewest labels, how many does it take, and what would more of them buy?

n(ε) is the number of labels at which a model's expected error is ε (`learning_curve`).

**Which model needs the fewest labels? has one rule, `fewest_labels`.** A model is *shown* to need
fewer labels than the others if, for each other model, the whole 95 % interval of the ratio of the
two n(ε) lies on the side where the first needs fewer. If model m truly needs the fewest, another
model b is shown by mistake only if the interval of the pair (m, b) lies wholly on the wrong side,
which happens in at most 2.5 % of cases. So with two models the wrong one is shown in at most 2.5 %
of cases, with three in at most 5 %, with M in at most (M − 1) · 2.5 %. Among models that cannot be
distinguished the simplest is chosen. A model that is not shown to do better than ignoring the
inputs is never named.

`attnlens samples` and `advise` share this rule. A simpler rule would name the model with the
smallest n(ε) if all ratios exclude 1, and otherwise nothing. This rule also requires that the model
learns anything at all, and if some models cannot be distinguished it still says what is shown about
the others. If ratios of n(ε) do not distinguish models, their errors with all labels may: a model
whose error with all labels is shown to be larger, paired by fold, is no candidate. If a model is
not shown to learn while another one is, its training failed and it has no n(ε).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from attnlens.advice.comparisons import NEGLIGIBLE
from attnlens.advice.phrases import QuestionWords, estimate_reading, format_number, join_names
from attnlens.core.readings import LEVEL, Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import implied_error
from attnlens.core.status import Status
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.forecast import REACH
from attnlens.instruments.samples.sample_size import SampleSize

SIMPLEST_FIRST = ("baseline", "known-attention", "self-attention", "multi-layer")
FEWEST = QuestionWords(Question.FEWEST_LABELS, "Which model needs the fewest labels?")
MORE = QuestionWords(Question.MORE_LABELS, "How many more labels are needed?")
ABOVE = 1.5  # the default ε divided by the error of the best model; see `default_goal`


class Goal(NamedTuple):
    """The error ε for which labels are counted, and the rule that chose it, in words."""

    error: float
    rule: str = "as requested"


class ModelChoice(NamedTuple):
    """The model that later questions use, and whether it is shown to learn anything at all."""

    model: str
    learned: bool
    curves: LearningCurves  # learning curves whose target error is the goal


def default_goal(curves: LearningCurves, trivial: float) -> Goal:
    """The ε that `advise` uses if the user gives none, and its rule in words.

    It is 1.5 times the error of the best model with all labels of the curve, so that its n(ε) lies
    well inside the curve; or, if that is smaller, the geometric mean of the model's error and
    `trivial`, the error of ignoring the inputs. If no test row was wrong, the error of one wrong
    row is used instead of zero.
    """
    last = _last_readings(curves)
    learned = _learned(last, trivial)
    names = sorted(learned, key=lambda n: last[n].value)
    if not names:
        return Goal(trivial, "that of ignoring the inputs")
    # An error below one wrong row in all folds together cannot be measured.
    least = 1 / curves.test_rows if curves.test_rows else 0.0
    reached = max(last[names[0]].value, least)
    near, halfway = ABOVE * reached, math.sqrt(reached * trivial)
    if near <= halfway:
        return Goal(near, f"{ABOVE} times what {names[0]} reaches")
    return Goal(halfway, f"the geometric mean of what {names[0]} and ignoring the inputs reach")


def fewest_labels(curves: LearningCurves, goal: Goal, trivial: float) -> tuple[ModelChoice, Answer]:
    """Which model needs the fewest labels for the goal? See the module's docstring for the rule.

    trivial: the error of a prediction that ignores the inputs (`trials.trivial_error`).
    """
    target = goal.error
    if curves.target_error != target:
        curves = dataclasses.replace(curves, target_error=target)  # the figure marks it
    last = _last_readings(curves)
    learned = _learned(last, trivial)
    errors = ", ".join(f"{name} {curves.error_text(name)}" for name in last)
    today = f"error with {curves.sizes[-1]:,} labels: {errors}"
    if not learned:
        evidence = f"{today}; ignoring the inputs: {trivial:.3g}"
        why = "no model is shown to do better than one that ignores the inputs"
        answer = FEWEST.unknown(evidence, why, {_key(n): r for n, r in last.items()})
        return ModelChoice(_by_simplicity([*curves])[0], False, curves), answer
    needs = curves.samples(target)
    # A model that diverged at some size, or learns nothing, has no n(ε) and is compared with none.
    trained = [name for name in learned if needs[name].status is not Status.NOT_FINITE]
    best = min(learned, key=lambda name: needs[name].value if name in trained else math.inf)
    untrained = _untrained(curves, learned, trivial)
    if needs[best].status is Status.NOT_REACHED:
        best = min(learned, key=lambda name: last[name].value)
        why = f"none reaches {target:.3g}, not with {REACH:.0f} times the labels either"
        answer = FEWEST.unknown(today, why, {_key(n): r for n, r in last.items()})
        return ModelChoice(best, True, curves), answer
    ratios = {name: curves.ratio(name, best, target) for name in trained if name != best}
    close = [name for name, ratio in ratios.items() if not ratio.low > 1]
    larger = _larger_errors(curves, [best, *close])
    sizes = ", ".join(f"{name} {needs[name]}" for name in learned)
    evidence = f"labels for error {target:.3g} ({goal.rule}): {sizes}; {today}"
    readings = {_key(n): estimate_reading(needs[n], last[n].count) for n in learned}
    readings |= {
        f"{_key(n)}_over_{_key(best)}": estimate_reading(e, last[n].count)
        for n, e in ratios.items()
    }
    beaten = _by_simplicity([name for name in ratios if name not in close])
    against = (
        f"; {beaten[0]} needs {_bounded_times(ratios[beaten[0]])} the labels" if beaten else ""
    )
    against += untrained
    candidates = [name for name in _by_simplicity([best, *close]) if name not in larger]
    if len(candidates) == 1:
        words = f"{candidates[0]}{_larger_words(curves, larger)}{against}"
        readings |= {f"{_key(name)}_more_error": error for name, error in larger.items()}
        answer = FEWEST.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
        return ModelChoice(candidates[0], True, curves), answer
    chosen = candidates[0]
    comparable = all(name in SIMPLEST_FIRST for name in candidates)
    advice = f"take {chosen}, the simplest" if comparable else "take the simplest of them"
    tie = f"{join_names(candidates)} cannot be distinguished; {advice}"
    answer = FEWEST.unknown(evidence, f"{tie}{untrained}", readings)
    if beaten:
        words = f"{chosen if comparable else join_names(candidates)}{against}; {tie}"
        answer = FEWEST.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
    return ModelChoice(chosen, True, curves), answer


def more_labels(choice: ModelChoice, error: float | None, total: int) -> Answer:
    """How many labels beyond the user's `total` reach `error`; None: half of the present error."""
    curves = choice.curves
    today, most = curves[choice.model].readings[-1], curves.sizes[-1]
    goal = error if error is not None else 0.5 * today.value
    what = f"error {goal:.3g}" + ("" if error is not None else ", half of today's")
    if not choice.learned:
        return MORE.unknown(f"no model learns from {most:,} labels yet")
    if error is None and curves.test_rows and today.value <= 1 / curves.test_rows:
        evidence = f"{choice.model} with {most:,} labels"
        words, readings = "none: no test row was wrong", {"error": today}
        if not curves.none_wrong_at(choice.model):
            words = "none: one test row was wrong, and half of that cannot be measured"
        return MORE.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
    needed = curves.samples(goal)[choice.model]
    doubled = curves.more_labels(most)[choice.model][1]
    evidence = (
        f"labels of {choice.model} for {what}: {needed}; {total:,} are here; with twice the "
        f"{most:,} it trained on the error goes from {today.value:.3g} to {doubled}"
    )
    readings = {"labels": estimate_reading(needed, today.count)}
    if needed.status is Status.NOT_REACHED:
        words = f"more than {format_number(REACH * most)} labels for {what}, if it is ever reached"
        return MORE.answer(AnswerOutcome.VALUE, words, evidence, known=False, readings=readings)
    if needed.value <= total:
        doubt = "" if needed.high <= total else ", though the interval goes beyond"
        words = f"none for {what}{doubt}"
        return MORE.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
    low, high = (max(0.0, end - total) for end in (needed.low, needed.high))
    words = f"about {format_number(needed.value - total)} more for {what}"
    if math.isinf(high):
        return MORE.unknown(evidence, f"{words}, without an upper end", readings)
    words += f" (95 % interval {format_number(low)} to {format_number(high)})"
    return MORE.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def labels_needed(
    curves: LearningCurves, name: str, estimate: SampleSize, trivial: float = math.inf
) -> Answer:
    """How many labels does this model need for the target error?

    trivial: the error of ignoring the inputs. If a model is not shown to do better while another
    one is, the answer says that it did not train.
    """
    goal = f"{curves.quantity} {curves.target_error:.3g}"
    words = f"How many labels does {name} need for {goal}?"
    question = QuestionWords(Question.LABELS_NEEDED, words, name)
    last, most = curves[name].readings[-1], curves.sizes[-1]
    evidence = (
        f"{curves.quantity}: {curves.error_text(name)} with {most:,} labels, {last.count} folds"
    )
    readings = {"error with most labels": last}
    learned = learned_models(curves, trivial)
    if learned and name not in learned:
        why = f"it did not train; ignoring the inputs has the error {trivial:.3g}"
        return question.unknown(evidence, why, readings)
    if not math.isfinite(estimate.value):
        bound = f", more than {_whole(estimate.low)} (95 %)" if estimate.low > 0 else ""
        why = f"not with the {most:,} that were tried{bound}, if ever"
        return question.unknown(evidence, why, readings)
    readings["labels"] = estimate_reading(estimate, last.count)
    if estimate.status is Status.AT_MOST:
        words = (
            f"at most {_whole(estimate.high)}; {curves.sizes[0]:,} are the fewest that were tried"
        )
        return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
    words = f"about {_whole(estimate.value)} (95 % interval {_interval(estimate, _whole)})"
    if estimate.status is Status.OK and estimate.high > most:
        words += f"; its upper end is a forecast from at most {most:,}"
    if estimate.status is Status.EXTRAPOLATED:
        words += f", forecast from at most {most:,}"
    return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def label_ratio(curves: LearningCurves, first: str, second: str) -> Answer:
    """How many times as many labels as model `second` does model `first` need?"""
    words = f"How many times the labels of {second} does {first} need?"
    question = QuestionWords(Question.LABEL_RATIO, words, first)
    ratio = curves.ratio(first, second)
    evidence = f"paired over {len(curves.errors[first])} folds, for {curves.target_error:.3g}"
    if not math.isfinite(ratio.value):
        return question.unknown(evidence, ratio.status.sentence())
    readings = {"ratio": estimate_reading(ratio, len(curves.errors[first]))}
    if ratio.status is Status.AT_LEAST and not ratio.low > 1:
        why = f"it may need fewer: the 95 % interval starts at {format_number(ratio.low)}"
        return question.unknown(evidence, why, readings)
    if ratio.status is Status.AT_MOST and not ratio.high < 1:
        why = f"it may need more: the 95 % interval ends at {format_number(ratio.high)}"
        return question.unknown(evidence, why, readings)
    if ratio.status in (Status.AT_LEAST, Status.AT_MOST):
        words = f"{ratio} times as many (95 %)"
    else:
        words = f"{format_number(ratio.value)} times as many ({_interval(ratio)})"
    words += ", a forecast" if ratio.status is Status.EXTRAPOLATED else ""
    return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def gain_of_labels(curves: LearningCurves, more: int) -> Answer:
    """What error would each model reach with `more` more labels?"""
    words = f"What would {more:,} more labels buy, beyond {curves.sizes[-1]:,}?"
    question = QuestionWords(Question.GAIN_OF_LABELS, words)
    changes, readings = [], {}
    for name, (today, later) in curves.more_labels(more).items():
        changes.append(f"{name}: {today.value:.3g} → {later.value:.3g} ({_interval(later)})")
        folds = len(curves.errors[name])
        error = implied_error(later.low, later.high, folds)
        readings[name] = Reading(later.value, error, folds)
    evidence = (
        "forecast by a power law with a floor, with a prior from other curves; 95 % intervals"
    )
    tests = []
    for name, (expected, measured) in curves.back_test().items():
        tests.append(
            f"{name} {expected.value:.3g} ({_interval(expected)}), measured {measured.value:.3g}"
        )
        readings[f"{name}_back_test"] = estimate_reading(expected, measured.count)
    if tests:
        evidence += f"; back-test, {curves.sizes[-1]:,} labels from fewer: {'; '.join(tests)}"
    words = "; ".join(changes)
    return question.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


# -- helpers ---------------------------------------------------------------------------------------


def _last_readings(curves: LearningCurves) -> dict[str, Reading]:
    return {name: curves[name].readings[-1] for name in curves}


def learned_models(curves: LearningCurves, trivial: float) -> list[str]:
    """The models whose error with all labels is shown to be below that of ignoring the inputs."""
    return _learned(_last_readings(curves), trivial)


def _untrained(curves: LearningCurves, learned: list[str], trivial: float) -> str:
    names = [name for name in curves if name not in learned]
    if not names:
        return ""
    errors = ", ".join(f"{name} {curves.error_text(name)}" for name in names)
    return f"; did not train: {errors}, where ignoring the inputs has {trivial:.3g}"


def _larger_errors(curves: LearningCurves, names: list[str]) -> dict[str, Reading]:
    """The models whose error with all labels is shown to be larger than that of the best model in
    `names`, each with the difference; Bonferroni over the comparisons. Differences below 5 % of
    the error are ignored."""
    best = min(names, key=lambda name: curves[name].readings[-1].value)
    differences = {name: curves.difference(name, best) for name in names if name != best}
    level = 1 - (1 - LEVEL) / max(len(differences), 1)
    least = NEGLIGIBLE * curves[best].readings[-1].value
    return {n: d for n, d in differences.items() if d.interval(level)[0] > 0 and d.value > least}


def _larger_words(curves: LearningCurves, larger: Mapping[str, Reading]) -> str:
    listing = ", ".join(f"that of {name} by {error.value:.2g}" for name, error in larger.items())
    return f"; with {curves.sizes[-1]:,} labels its error is below {listing}" if larger else ""


def _learned(last: Mapping[str, Reading], trivial: float) -> list[str]:
    """The models whose error is shown to be below that of ignoring the inputs."""
    return [name for name, reading in last.items() if reading.interval()[1] < trivial]


def _by_simplicity(names: list[str]) -> list[str]:
    """The package's own models from the simplest on, then others in the order given."""
    own = [name for name in SIMPLEST_FIRST if name in names]
    return own + [name for name in names if name not in own]


def _bounded_times(ratio: SampleSize) -> str:
    return f"{ratio} times (95 %)" if ratio.status is Status.AT_LEAST else f"{ratio} times"


def _interval(estimate: SampleSize, write: Callable[[float], str] = format_number) -> str:
    high = write(estimate.high) if math.isfinite(estimate.high) else "no upper end"
    return f"{write(estimate.low)} to {high}"


def _whole(labels: float) -> str:
    return f"{round(labels):,}"


def _key(name: str) -> str:
    return name.replace("-", "_")
