"""How many labels an error costs on a user's own data: `learning_curve`, told in plain words.

Every model is trained on the same nested samples of the same folds. What lies beyond the largest
sample is extrapolated by a power law with a floor, and the answer says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlens import checks
from attnlens.data import Loaded, embedded
from attnlens.instruments import learning_curve
from attnlens.instruments.labelled import Labelled, labelled
from attnlens.instruments.learning import LearningCurves
from attnlens.instruments.sample_size import Estimate
from attnlens.networks.blocks import Progress
from attnlens.records import Answer, Reading, Sheet

from .budget import sample
from .phrases import number, reading_of, unknown

ROWS = 10_000  # learning goes on for a fixed number of steps: more rows would not be gone through
# Numbers held at a time. Attention keeps a score for each pair of tokens of each test row, at each
# of eight sizes: 2^25 of them times eight sizes are a gigabyte. Each of eight folds has a copy of
# the training rows: half a gigabyte.
MOST_SCORES, MOST_INPUTS = 2**25, 2**24
MOST_TOKENS = 256  # with more, attention is left out unless it is asked for
FEWEST = "Which model needs the fewest labels?"
SECONDS_BETWEEN_LINES = 5.0


def samples(
    loaded: Loaded,
    *,
    error: float | None = None,
    models: Sequence[str] | Mapping[str, Any] | None = None,
    more: int | None = None,
    rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> Sheet:
    """How many labels each model needs for an error, how they compare, what more would buy.

    loaded: what `attnlens.data.read` returned, with a target. error: an error rate, or for numbers
        the squared error as a share of the variance; left out, a tenth above what all models reach.
    models, settings: as `attnlens.learning_curve` takes them. more: labels to be bought, as many
        again by default. rows: of a larger table so many are used. progress: is given a line of
        text now and then while models are trained.

    Returns a `Sheet`; n(ε), its interval and the fitted a n^(−b) + c are those of `learning_curve`.
    """
    if error is not None:
        checks.positive("error", error)
    if loaded.y is None:
        raise checks.BadInput(
            "labels are counted for a column that is predicted, but none was named; give target."
        )
    loaded = embedded(loaded, seed=seed)
    data = labelled(loaded.X, loaded.y, loaded.task)
    models, left_out = _affordable(models, data)
    used = sample(data, _rows(data, models, checks.whole("rows", rows, 1)), seed)
    if progress is not None:
        settings["training"] = {"progress": Told(progress), **settings.get("training", {})}
    curves = learning_curve(
        used.inputs, used.labels, models=models, target_error=error, task=loaded.task, seed=seed,
        **settings,
    )  # fmt: skip
    told = curves.samples()
    answers = [_fewest(curves, told)] if len(told) > 1 else []
    answers += [_needed(curves, name, estimate) for name, estimate in told.items()]
    # The one with the smallest n(ε) first; each pair is compared once.
    first, *others = sorted(told, key=lambda name: told[name].value)
    answers += [_compared(curves, other, first) for other in others]
    k = curves.sizes[-1] if more is None else checks.whole("more", more, 1)
    answers.append(_bought(curves, k))
    facts = [*loaded.facts]
    if not data.tokens:
        facts.append(
            ("tokens", f"for attention, each of the {data.inputs.shape[1]} columns is one")
        )
    facts.append(("learning curves", _spent(curves, len(used.inputs), len(data.inputs))))
    if left_out:
        facts.append(("models", left_out))
    title = f"Labels for {curves.quantity} {curves.target_error:.3g} on {loaded.dataset.name}"
    return Sheet(title, tuple(facts), tuple(answers), (curves.figure(),))


class Told:
    """A `fit` progress function that says a line every few seconds."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.fits, self.shown, self.before = say, 0, time.monotonic(), 0.0

    def __call__(self, now: Progress) -> None:
        if now.seconds < self.before:  # a new training began
            self.fits += 1
        self.before = now.seconds
        if time.monotonic() - self.shown < SECONDS_BETWEEN_LINES:
            return
        self.shown = time.monotonic()
        left = "" if now.seconds_left is None else f", about {now.seconds_left:.0f} s left"
        self.say(f"training {self.fits + 1}: step {now.step:,} of {now.steps:,}{left}")


def _affordable(models: Any, data: Labelled) -> tuple[Any, str]:
    tokens = data.inputs.shape[1]
    if models is not None or tokens <= MOST_TOKENS:
        return models, ""
    said = (
        f"baseline only: attention among {tokens:,} tokens costs their square; it can be asked for"
    )
    return ["baseline"], said


def _rows(data: Labelled, models: Any, rows: int) -> int:
    tokens = data.inputs.shape[1]
    width = math.prod(data.inputs.shape[1:]) + tokens
    attends = models is None or any("attention" in str(m) or m == "multi-layer" for m in models)
    room = MOST_SCORES // tokens**2 if attends else rows
    return max(1, min(rows, room, MOST_INPUTS // width))


def _spent(curves: LearningCurves, used: int, there: int) -> str:
    folds = len(next(iter(curves.errors.values())))
    part = "all" if used == there else f"{used:,} at random of {there:,}"
    sizes = f"{len(curves.sizes)} sizes from {curves.sizes[0]:,} to {curves.sizes[-1]:,} labels"
    return f"{part} rows, {folds} folds, {sizes}"


def _needed(curves: LearningCurves, name: str, estimate: Estimate) -> Answer:
    """n(ε) of one model."""
    goal = f"{curves.quantity} {curves.target_error:.3g}"
    question = f"How many labels does {name} need for {goal}?"
    last = curves[name].readings[-1]
    evidence = (
        f"{curves.quantity}: {curves.said(name)} with {curves.sizes[-1]:,} labels, "
        f"{last.count} folds"
    )
    readings = {"error with most labels": last}
    if not math.isfinite(estimate.value):
        tried = f"not with the {curves.sizes[-1]:,} that were tried"
        reach = f", more than {_whole(estimate.low)} (95 %)" if estimate.low > 0 else ""
        return unknown(question, evidence, f"{tried}{reach}, if ever", **readings)
    readings["labels"] = reading_of(estimate, last.count)
    if estimate.status == "at most":
        said = f"at most {_whole(estimate.value)}, the fewest that were tried"
        return Answer(question, said, evidence, readings=readings)
    said = f"about {_whole(estimate.value)} (95 % interval {_ends(estimate, _whole)})"
    if estimate.status == "ok" and estimate.high > curves.sizes[-1]:
        said += f"; its upper end is extrapolated from at most {curves.sizes[-1]:,}"
    if estimate.status == "extrapolated":
        said += f", extrapolated by a power law from at most {curves.sizes[-1]:,}"
    return Answer(question, said, evidence, readings=readings)


def _fewest(curves: LearningCurves, told: Mapping[str, Estimate]) -> Answer:
    """The model with the smallest n(ε), if the data tell it apart from the next."""
    reached = sorted((e.value, name) for name, e in told.items() if math.isfinite(e.value))
    evidence = "; ".join(f"{name}: {_labels(estimate)}" for name, estimate in told.items())
    if not reached:
        return unknown(FEWEST, evidence, "none reaches the error")
    best = reached[0][1]
    ratios = {name: curves.ratio(name, best) for name in told if name != best}
    surely = all(ratio.low > 1 for ratio in ratios.values())
    if not surely:
        return unknown(FEWEST, evidence, f"{best} comes out first, not for certain")
    return Answer(FEWEST, best, evidence)


def _compared(curves: LearningCurves, first: str, other: str) -> Answer:
    question = f"How many times the labels of {other} does {first} need?"
    ratio = curves.ratio(first, other)
    evidence = f"paired over {len(curves.errors[first])} folds, for {curves.target_error:.3g}"
    if not math.isfinite(ratio.value):
        return unknown(question, evidence, ratio.status)
    said = "extrapolated" if ratio.status == "extrapolated" else ""
    readings = {"ratio": reading_of(ratio, len(curves.errors[first]))}
    words = f"{_times(ratio)}{', ' + said if said else ''}"
    return Answer(question, words, evidence, readings=readings)


def _bought(curves: LearningCurves, more: int) -> Answer:
    now = curves.sizes[-1]
    question = f"What would {more:,} more labels buy, beyond {now:,}?"
    parts, readings = [], {}
    for name, (today, later) in curves.more_labels(more).items():
        parts.append(f"{name}: {today.value:.3g} → {later.value:.3g} ({_ends(later)})")
        folds = len(curves.errors[name])
        readings[name] = Reading(later.value, (later.high - later.low) / 3.92, folds)
    evidence = "extrapolated by the fitted power law with a floor; 95 % intervals"
    return Answer(question, "; ".join(parts), evidence, readings=readings)


def _times(ratio: Estimate) -> str:
    if ratio.status in ("at least", "at most"):
        return f"{ratio.status} {number(ratio.value)} times as many"
    return f"{number(ratio.value)} times as many ({_ends(ratio)})"


def _labels(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return "not known"
    bound = "at most " if estimate.status == "at most" else ""
    beyond = ", extrapolated" if estimate.status == "extrapolated" else ""
    return f"{bound}{_whole(estimate.value)} labels{beyond}"


def _ends(estimate: Estimate, told: Callable[[float], str] = number) -> str:
    high = told(estimate.high) if math.isfinite(estimate.high) else "no upper end"
    return f"{told(estimate.low)} to {high}"


def _whole(labels: float) -> str:
    return f"{round(labels):,}"
