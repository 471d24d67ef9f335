"""`samples`: how many labels an error costs on a user's own data, as a sheet.

Every model is trained on the same nested samples of the same folds (`learning_curve`). Beyond the
largest sample the curve is a forecast (`instruments.samples.forecast`), and the answer says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlens.core import checks
from attnlens.core.notebook import notebook_line
from attnlens.core.sheets import Sheet
from attnlens.data import Loaded, embedded
from attnlens.instruments import learning_curve
from attnlens.instruments.samples import learners
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import Labelled, labelled
from attnlens.training.groups import Progress

from .budget import sample_rows
from .questions import labels
from .trials import trivial_error

ROWS = 10_000  # training takes a fixed number of steps, too few to use more rows
# Limits of the numbers in memory. Attention keeps a score per pair of tokens of each test row, for
# each of eight sizes: 2^25 scores times eight sizes take a gigabyte. Each of eight folds has a copy
# of the training rows: 2^24 inputs take half a gigabyte.
MOST_SCORES, MOST_INPUTS = 2**25, 2**24
MOST_TOKENS = 256  # with more, attention is left out unless the user names it
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
    """How many labels each model needs for an error, how models compare, what more labels buy.

    loaded: what `attnlens.data.read` returned, with a target. error: an error rate, or for numbers
        the squared error as a share of the variance; if not given, a tenth above the smallest error
        that a model reaches.
    models, settings: as `attnlens.learning_curve` takes them. more: how many labels might be
        bought; by default the largest size of the curves. rows: rows used of a larger table.
        progress: a function that receives a line of text every few seconds during training.

    Returns a `Sheet`; n(ε), its interval and the law a n^(−b) + c are those of `learning_curve`.
    """
    if error is not None:
        checks.positive("error", error)
    if loaded.y is None:
        raise checks.BadInput(
            "labels are counted for a column that is predicted, but none was named; give target."
        )
    loaded = embedded(loaded, seed=seed)
    data = labelled(loaded.X, loaded.y, loaded.task)
    models, models_fact = _affordable_models(models, data)
    used = sample_rows(data, affordable_rows(data, models, checks.whole("rows", rows, 1)), seed)
    progress = notebook_line(progress)
    if progress is not None:
        settings["training"] = {"progress": ProgressLines(progress), **settings.get("training", {})}
    curves = learning_curve(
        used.inputs,
        used.labels,
        models=models,
        target_error=error,
        task=loaded.task,
        seed=seed,
        **settings,
    )
    sizes = curves.samples()
    answers, trivial = [], trivial_error(used)
    learned = labels.learned_models(curves, trivial) or [*sizes]
    if len(sizes) > 1:
        rule = "as requested" if error is not None else "a tenth above what the best reaches"
        goal = labels.Goal(curves.target_error, rule)
        answers.append(labels.fewest_labels(curves, goal, trivial)[1])
    answers += [labels.labels_needed(curves, name, size, trivial) for name, size in sizes.items()]
    # The model with the smallest n(ε) is compared with each of the others.
    best, *others = sorted(learned, key=lambda name: sizes[name].value)
    answers += [labels.label_ratio(curves, other, best) for other in others]
    count = curves.sizes[-1] if more is None else checks.whole("more", more, 1)
    answers.append(labels.gain_of_labels(curves, count))
    facts = [*loaded.facts]
    if not data.tokens:
        columns = data.inputs.shape[1]
        facts.append(("tokens", f"for attention, each of the {columns} columns is one"))
    facts.append(("learning curves", _curves_fact(curves, len(used.inputs), len(data.inputs))))
    if models_fact:
        facts.append(("models", models_fact))
    title = f"Labels for {curves.quantity} {curves.target_error:.3g} on {loaded.dataset.name}"
    return Sheet(title, tuple(facts), tuple(answers), (curves.figure(),))


class ProgressLines:
    """A `fit` progress function that passes on a line of text every few seconds."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.finished_fits = say, 0
        self.last_line, self.last_seconds = time.monotonic(), 0.0

    def __call__(self, now: Progress) -> None:
        if now.seconds < self.last_seconds:  # a new training began
            self.finished_fits += 1
        self.last_seconds = now.seconds
        if time.monotonic() - self.last_line < SECONDS_BETWEEN_LINES:
            return
        self.last_line = time.monotonic()
        left = "" if now.seconds_left is None else f", about {now.seconds_left:.0f} s left"
        self.say(f"training {self.finished_fits + 1}: step {now.step:,} of {now.steps:,}{left}")


def _affordable_models(models: Any, data: Labelled) -> tuple[Any, str]:
    """The models to train, and a sentence that is not empty if attention was left out."""
    tokens = data.inputs.shape[1]
    if models is not None or tokens <= MOST_TOKENS:
        return models, ""
    fact = (
        f"baseline only: attention among {tokens:,} tokens costs their square; it can be asked for"
    )
    return ["baseline"], fact


def affordable_rows(data: Labelled, models: Any, rows: int) -> int:
    tokens = data.inputs.shape[1]
    width = math.prod(data.inputs.shape[1:]) + tokens
    room = MOST_SCORES // tokens**2 if _attends(models) else rows
    return max(1, min(rows, room, MOST_INPUTS // width))


def _attends(models: Any) -> bool:
    """Whether one of the models, in the form of `learning_curve`, scores each pair of tokens.

    A function that makes a user's network counts as one that does; an estimator does not.
    """
    if models is None or not isinstance(models, Mapping | Sequence):
        return True  # the default models attend; anything else is refused later
    chosen = models.values() if isinstance(models, Mapping) else models
    return any(
        model in learners.ATTENDING if isinstance(model, str) else not hasattr(model, "predict")
        for model in chosen
    )


def _curves_fact(curves: LearningCurves, used: int, available: int) -> str:
    folds = len(next(iter(curves.errors.values())))
    part = "all" if used == available else f"{used:,} at random of {available:,}"
    sizes = f"{len(curves.sizes)} sizes from {curves.sizes[0]:,} to {curves.sizes[-1]:,} labels"
    return f"{part} rows, {folds} folds, {sizes}"
