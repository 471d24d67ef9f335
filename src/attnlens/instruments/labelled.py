"""Labelled data as instruments take them: checked once, and split into folds that are paired.

Rows are (n, p); tokens are (n, L, t), L tokens of dimension t a row. Labels are numbers
(regression) or classes.

**Folds.** Every row is tested once: test sets are disjoint, so the noise of test rows is
independent between folds. A fold's other rows come in a random order, of which a learner with
sample size n sees the first n, so sizes are nested and all learners see the same rows. With classes
the order is stratified: the first rows are one of each class, and every prefix holds the classes in
proportion.

**Overlap.** Training sets of size n from two of K folds of N rows share, on average, the part
o = n K(K − 2)/(N (K − 1)²). Errors of replicates that share all of it are correlated, and s²/K is
then too small a variance of their mean: no unbiased estimate exists (Bengio and Grandvalet, JMLR
2004). Nadeau and Bengio (Machine Learning 2003) add the ratio of test to training rows, here
1/(K − 1), to 1/K; we add o/(K − 1), which is theirs when training sets are as large as can be, and
nothing when they hardly overlap. The tests measure the coverage that follows.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attnlens import checks

TASKS = ("regression", "classification")
MOST_CLASSES = 20  # whole numbers with more values than this are taken as measurements
FEWEST_ROWS = 20


class Labelled(NamedTuple):
    """Inputs (n, p) or (n, L, t) and labels (n,): numbers, or class numbers 0 … classes − 1."""

    inputs: Float[np.ndarray, "rows ..."]
    labels: np.ndarray
    classes: int  # 0 in regression
    inferred: bool

    @property
    def tokens(self) -> bool:
        return self.inputs.ndim == 3

    def __str__(self) -> str:
        what = f"classification, {self.classes} classes" if self.classes else "regression"
        shape = " × ".join(map(str, self.inputs.shape[1:]))
        return f"{what}{' (inferred)' if self.inferred else ''}, {len(self.inputs)} rows of {shape}"


class Fold(NamedTuple):
    """Row numbers: what may be trained on, in order, and what is tested on."""

    train: Int[np.ndarray, " train"]
    test: Int[np.ndarray, " test"]


def labelled(inputs: Any, labels: Any, task: str | None = None) -> Labelled:
    """Data that can be used, or `BadInput` that says why not."""
    if task is not None:
        checks.one_of("task", task, TASKS)
    try:
        x = np.asarray(inputs, float)
    except (ValueError, TypeError) as error:
        raise checks.BadInput(
            "X must be numbers in rows of equal length, (n, p) or (n, L, t), but it cannot be made "
            "into such an array; encode text as numbers and pad or cut ragged rows."
        ) from error
    if x.ndim not in (2, 3):
        raise checks.BadInput(
            f"X must have the shape (n, p) or (n, L, t), but {x.shape} came; reshape it."
        )
    y = np.asarray(labels)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != x.shape[:1]:
        raise checks.BadInput(
            f"y must be one label a row of X, {x.shape[0]} of them, but the shape {y.shape} came."
        )
    if len(x) < FEWEST_ROWS:
        raise checks.BadInput(
            f"a learning curve needs at least {FEWEST_ROWS} rows, but {len(x)} came; collect more."
        )
    if not np.isfinite(x).all():
        where = int(np.argwhere(~np.isfinite(x))[0][0])
        raise checks.BadInput(
            f"X must be finite, but row {where} holds NaN or infinity; drop or impute such rows."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise checks.BadInput(
            "y must be finite, but it holds NaN or infinity; drop rows without a label."
        )
    chosen = task or _task(y)
    if chosen == "classification":
        names, numbers = np.unique(y.astype(str) if y.dtype == object else y, return_inverse=True)
        _check_classes(names, np.bincount(numbers))
        return Labelled(x, numbers.astype(np.int32), len(names), task is None)
    try:
        y = y.astype(float)
    except (ValueError, TypeError) as error:
        raise checks.BadInput(
            "regression needs y as numbers, but it holds text; give task='classification'."
        ) from error
    if np.ptp(y) == 0:
        raise checks.BadInput(
            f"y must vary, but every label is {y[0]:g}; there is nothing to learn from it."
        )
    return Labelled(x, y, 0, task is None)


def _task(y: np.ndarray) -> str:
    if y.dtype.kind not in "iufb":
        return "classification"
    values = np.unique(y)
    few = len(values) <= MOST_CLASSES and bool((values == np.round(values)).all())
    return "classification" if y.dtype.kind == "b" or few else "regression"


def _check_classes(names: np.ndarray, counts: np.ndarray) -> None:
    if len(names) < 2:
        raise checks.BadInput(
            f"y must hold at least two classes, but every label is {names[0]}; give "
            f"task='regression' if these are numbers."
        )
    if counts.min() < 2:
        raise checks.BadInput(
            f"each class needs at least two rows, one to train and one to test on, but class "
            f"{names[counts.argmin()]} has one; drop it, or give task='regression'."
        )


def folds(data: Labelled, count: int, seed: int) -> list[Fold]:
    """`count` disjoint test sets, each with the other rows in a random, stratified order."""
    checks.whole("folds", count, at_least=3)
    rows = len(data.inputs)
    if count > rows // 2:
        raise checks.BadInput(
            f"folds must leave two test rows each, so at most {rows // 2} for {rows} rows, but "
            f"{count} came."
        )
    random = np.random.default_rng(seed)
    labels = data.labels if data.classes else np.zeros(rows, int)
    # Dealt like cards, one class after the other: folds differ by a row of each class at most.
    shuffled = random.permutation(rows)
    dealt = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return [
        Fold(_stratified(np.setdiff1d(dealt, test), labels, random), np.sort(test))
        for test in (dealt[i::count] for i in range(count))
    ]


def _stratified(
    rows: Int[np.ndarray, " rows"], labels: np.ndarray, random: np.random.Generator
) -> Int[np.ndarray, " rows"]:
    """A random order in which every prefix holds the classes in proportion, one of each first.

    The i-th of a class's m rows is due at (i + u)/m, u uniform for each class; its first row at a
    negative time.
    """
    order = random.permutation(rows)
    due = np.empty(len(order))
    for value in np.unique(labels[order]):
        own = np.flatnonzero(labels[order] == value)
        due[own] = (np.arange(len(own)) + random.uniform()) / len(own)
        due[own[0]] -= 2
    return order[np.argsort(due, kind="stable")]


def inflation(
    sizes: Float[np.ndarray, " sizes"], rows: int, count: int
) -> Float[np.ndarray, " sizes"]:
    """What to multiply s/√K with, for the overlap of training sets: see the module's docstring."""
    overlap = sizes * count * (count - 2) / (rows * (count - 1) ** 2)
    return np.sqrt(1 + count / (count - 1) * overlap)


def usable_sizes(sizes: Any, data: Labelled, parts: list[Fold], count: int) -> tuple[int, ...]:
    """The sample sizes: those given, if they can be had, or `count` log-spaced ones."""
    most = min(len(fold.train) for fold in parts)
    least = max(4, 2 * data.classes)
    if sizes is None:
        return tuple(np.unique(np.geomspace(least, most, count).round().astype(int)).tolist())
    sizes = tuple(checks.whole("each size", size, at_least=1) for size in sizes)
    if len(sizes) < 2 or any(b <= a for a, b in pairwise(sizes)):
        raise checks.BadInput(
            f"sizes must be at least two increasing whole numbers, such as (16, 64), but {sizes} "
            f"came."
        )
    if sizes[-1] > most:
        raise checks.BadInput(
            f"sizes must be at most the {most} rows that {len(parts)} folds leave to train on, but "
            f"{sizes[-1]} came; give smaller sizes or more rows."
        )
    if sizes[0] < max(2, data.classes):
        raise checks.BadInput(
            f"sizes must be at least {max(2, data.classes)}, so that every class is there, but "
            f"{sizes[0]} came."
        )
    return sizes


def middle(values: Float[np.ndarray, " numbers"]) -> tuple[float, float]:
    """Mean and standard deviation, the latter one where nothing varies."""
    spread = float(values.std())
    return float(values.mean()), spread if spread > 0 and math.isfinite(spread) else 1.0
