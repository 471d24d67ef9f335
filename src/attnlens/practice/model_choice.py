"""Which model needs the fewest labels, and how many more are needed.

n(ε) is the number of labels at which a model's error is ε (`learning_curve`). One model is *shown*
to need fewer labels than the others when, for each of the others, the whole 95 % interval of the
ratio of their n(ε) lies on its side: each comparison errs that way in 2.5 % of cases, two of them
together in 5 % at most. Of those that are not told apart the simplest is taken.

ε is the user's. Left out, it is one and a half times what the baseline reaches with all the labels
that it is given here, so that n(ε) lies well inside the curve, or halfway (geometrically) from
there to what ignoring the inputs achieves, if that is less; of the best model, where the baseline
learns nothing. Where no test row was wrong, one wrong row stands for what was reached.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from attnlens import checks
from attnlens.instruments import learning_curve
from attnlens.instruments.labelled import usable_sizes
from attnlens.instruments.learning import LearningCurves
from attnlens.instruments.sample_size import FARTHEST, Estimate
from attnlens.records import Answer, Reading

from .phrases import UNKNOWN, listed, number, reading_of, unknown
from .trials import Trial

MODELS = ("baseline", "self-attention", "multi-layer")  # from the simplest on
ABOVE = 1.5
FEWEST = "Which model needs the fewest labels?"
MORE = "How many more labels are needed?"


class Choice(NamedTuple):
    """What the other questions are asked about: a model, and whether it learns anything at all."""

    model: str
    learned: bool
    curves: LearningCurves
    target: float
    rule: str


def compared(trial: Trial, error: float | None) -> tuple[Choice, Answer]:
    """The paired learning curves of all models, and which needs the fewest labels."""
    least = 2 * max(4, 2 * trial.data.classes)  # twice the smallest size that is tried
    if trial.labels < least:
        raise checks.BadInput(
            f"{len(trial.data.inputs)} rows of {trial.data.classes} classes are too few to learn "
            f"from: folds must leave {least} to train on, and leave {trial.labels}; collect more."
        )
    sizes = usable_sizes(None, trial.data, trial.parts, trial.effort.sizes)
    curves = learning_curve(
        trial.data.inputs, trial.data.labels, models=MODELS, sizes=sizes,
        task="classification" if trial.data.classes else "regression", hidden=trial.hidden,
        folds=len(trial.parts), starts=trial.effort.starts, seed=trial.seed,
        training=trial.training,
    )  # fmt: skip
    return judged(trial, curves, error)


def judged(trial: Trial, curves: LearningCurves, error: float | None) -> tuple[Choice, Answer]:
    """The same, from curves."""
    last = {name: curves[name].readings[-1] for name in curves}
    learned = [name for name, reading in last.items() if trial.learned(reading)]
    target, rule = (error, "as asked") if error is not None else _target(trial, last, learned)
    curves = dataclasses.replace(curves, target_error=target)  # drawn with the curves
    told = ", ".join(f"{name} {curves.said(name)}" for name in last)
    now = f"error with {curves.sizes[-1]:,} labels: {told}"
    if not learned:
        evidence = f"{now}; ignoring the inputs: {trial.trivial:.3g}"
        why = "no model is shown to do better than one that ignores the inputs"
        answer = unknown(FEWEST, evidence, why, **{_key(n): r for n, r in last.items()})
        return Choice(MODELS[0], False, curves, target, rule), answer
    needs = curves.samples(target)
    best = min(learned, key=lambda name: needs[name].value)
    rivals = {name: curves.ratio(name, best, target) for name in curves if name != best}
    close = [name for name, ratio in rivals.items() if not ratio.low > 1]
    sizes = ", ".join(f"{name} {needs[name]}" for name in curves)
    if needs[best].status == "not reached":
        best = min(learned, key=lambda name: last[name].value)
        why = f"none reaches {target:.3g}, not with {FARTHEST:.0f} times the labels either"
        answer = unknown(FEWEST, now, why, **{_key(n): r for n, r in last.items()})
        return Choice(best, True, curves, target, rule), answer
    evidence = f"labels for error {target:.3g} ({rule}): {sizes}; {now}"
    readings = {_key(n): reading_of(e, last[n].count) for n, e in needs.items()}
    readings |= {
        f"{_key(n)}_over_{_key(best)}": reading_of(e, last[n].count) for n, e in rivals.items()
    }
    beaten = [name for name in MODELS if name in rivals and name not in close]
    apart = [name for name in MODELS if name in (best, *close)]
    simplest = next(name for name in apart if name in learned)
    first = f"; {beaten[0]} needs {_times(rivals[beaten[0]])} the labels" if beaten else ""
    if not close:
        answer = Answer(FEWEST, f"{best}{first}", evidence, readings=readings)
        return Choice(best, True, curves, target, rule), answer
    pair = f"{listed(apart)} are not told apart; take {simplest}, the simplest"
    said = f"{simplest}{first}; {pair}" if beaten else f"{UNKNOWN}: {pair}"
    answer = Answer(FEWEST, said, evidence, known=bool(beaten), readings=readings)
    return Choice(simplest, True, curves, target, rule), answer


def more_labels(trial: Trial, choice: Choice, error: float | None) -> Answer:
    """How many labels beyond those at hand reach ε; without an ε, half of the error of today."""
    now = choice.curves[choice.model].readings[-1]
    goal = error if error is not None else 0.5 * now.value
    what = f"error {goal:.3g}" + ("" if error is not None else ", half of today's")
    if not choice.learned:
        return unknown(MORE, f"no model learns from {choice.curves.sizes[-1]:,} labels yet")
    if error is None and trial.data.classes and now.value <= 1 / len(trial.data.labels):
        evidence = f"{choice.model} with {choice.curves.sizes[-1]:,} labels"
        return Answer(MORE, "none: no test row was wrong", evidence, readings={"error": now})
    needed = choice.curves.samples(goal)[choice.model]
    doubled = choice.curves.more_labels(choice.curves.sizes[-1])[choice.model][1]
    most = choice.curves.sizes[-1]
    evidence = (
        f"labels of {choice.model} for {what}: {needed}; {trial.total:,} are here; with twice the "
        f"{most:,} it trained on the error goes from {now.value:.3g} to {doubled}"
    )
    reading = {"labels": reading_of(needed, now.count)}
    if needed.status == "not reached":
        said = f"more than {number(FARTHEST * most)} labels for {what}, if it is ever reached"
        return Answer(MORE, said, evidence, known=False, readings=reading)
    if needed.value <= trial.total:
        sure = "" if needed.high <= trial.total else ", though the interval goes beyond"
        return Answer(MORE, f"none for {what}{sure}", evidence, readings=reading)
    low, high = (max(0.0, end - trial.total) for end in (needed.low, needed.high))
    said = f"about {number(needed.value - trial.total)} more for {what}"
    if math.isinf(high):
        return unknown(MORE, evidence, f"{said}, without an upper end", **reading)
    said += f" (95 % interval {number(low)} to {number(high)})"
    return Answer(MORE, said, evidence, readings=reading)


def _target(trial: Trial, last: dict[str, Reading], learned: list[str]) -> tuple[float, str]:
    """ε by the module's rule, and the rule in words."""
    names = [n for n in ("baseline", *sorted(learned, key=lambda n: last[n].value)) if n in learned]
    if not names:
        return trial.trivial, "that of ignoring the inputs"
    # Less than one wrong row in all folds together cannot be seen.
    least = 1 / len(trial.data.labels) if trial.data.classes else 0.0
    reached = max(last[names[0]].value, least)
    near, halfway = ABOVE * reached, math.sqrt(reached * trial.trivial)
    if near <= halfway:
        return near, f"{ABOVE} times what {names[0]} reaches"
    return halfway, f"the geometric mean of what {names[0]} and ignoring the inputs reach"


def _times(ratio: Estimate) -> str:
    if ratio.status == "at least":
        return f"at least {number(ratio.value)} times (95 % interval from {number(ratio.low)})"
    return f"{ratio} times"


def _key(name: str) -> str:
    return name.replace("-", "_")
