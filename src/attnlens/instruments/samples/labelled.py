"""Labelled data: checked once, and split into folds that all learners share.

Rows are (n, p); tokens are (n, L, t), L tokens of dimension t per row. Labels are numbers
(regression) or classes.

**Folds.** Every row is tested once: test sets are disjoint, so the noise of test rows is
independent between folds. The other rows of a fold are in a random order, and a learner with sample
size n is trained on the first n: samples are nested, and all learners are trained on the same rows.
With classes the order is stratified: the first rows are one of each class, and every prefix
contains the classes in proportion. Rows with equal inputs are tested in the same fold, so that no
model is tested on a copy of a training row. The exception are data with so few different rows that
a fold would have too few test rows, or no training row of a class.

**Variance inflation.** Training sets of size n from two of K folds of N rows share, on average, the
fraction o = n K(K − 2)/(N (K − 1)²). Errors of folds with overlapping training sets are correlated,
so s²/K, with s² the variance over folds, underestimates the variance of their mean, and no unbiased
estimate exists (Bengio and Grandvalet, JMLR 2004). Nadeau and Bengio (Machine Learning, 2003)
replace 1/K by 1/K plus the ratio of test to training rows, which is 1/(K − 1) here. This module
replaces 1/K by 1/K + o/(K − 1): nearly the same if training sets are as large as possible, and
nearly 1/K if they hardly overlap. The tests measure the resulting coverage.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attnlens.core import arrays, checks
from attnlens.core.labels import are_class_numbers

TASKS = ("regression", "classification")
FEWEST_ROWS = 20


class Labelled(NamedTuple):
    """Inputs (n, p) or (n, L, t) and labels (n,): numbers, or class numbers 0 … classes − 1."""

    inputs: Float[np.ndarray, "rows ..."]
    labels: np.ndarray
    classes: int  # number of classes; 0 for regression
    inferred: bool  # whether regression or classification was inferred from the labels
    texts: np.ndarray | None = None  # the texts, if rows are texts

    @property
    def tokens(self) -> bool:
        return self.inputs.ndim == 3

    def take(self, rows: np.ndarray) -> Labelled:
        """Return the data of these rows."""
        texts = None if self.texts is None else self.texts[rows]
        return self._replace(inputs=self.inputs[rows], labels=self.labels[rows], texts=texts)

    def __str__(self) -> str:
        what = f"classification, {self.classes} classes" if self.classes else "regression"
        shape = " × ".join(map(str, self.inputs.shape[1:]))
        return f"{what}{' (inferred)' if self.inferred else ''}, {len(self.inputs)} rows of {shape}"


class Fold(NamedTuple):
    """Row numbers of a fold: training rows, in the order in which they are used, and test rows."""

    train: Int[np.ndarray, " train"]
    test: Int[np.ndarray, " test"]


def labelled(inputs: Any, labels: Any, task: str | None = None) -> Labelled:
    """Check inputs and labels and return them; raises `BadInput` if they cannot be used."""
    if task is not None:
        checks.one_of("task", task, TASKS)
    x = arrays.numbers("X", inputs)
    if x.ndim not in (2, 3) or 0 in x.shape[1:]:
        raise checks.BadInput(
            f"X must have the shape (n, p) or (n, L, t); got {x.shape}; reshape it."
        )
    y = arrays.labels("y", labels)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != x.shape[:1]:
        raise checks.BadInput(
            f"y must have one label per row of X, {x.shape[0]} in all; got the shape {y.shape}."
        )
    if len(x) < FEWEST_ROWS:
        raise checks.BadInput(
            f"a learning curve needs at least {FEWEST_ROWS} rows; got {len(x)}; collect more."
        )
    if not np.isfinite(x).all():
        where = int(np.argwhere(~np.isfinite(x))[0][0])
        raise checks.BadInput(
            f"X must be finite, but row {where} has NaN or infinity; drop or impute such rows."
        )
    arrays.moderate("X", x)
    chosen = task or _task(y)
    if chosen == "classification":
        names, numbers = np.unique(y, return_inverse=True)
        _check_classes(names, np.bincount(numbers))
        return Labelled(x, numbers.astype(np.int32), len(names), task is None)
    if y.dtype.kind not in arrays.NUMBERS:
        raise checks.BadInput(
            "regression needs y as numbers; got text or dates; give task='classification'."
        )
    y = arrays.moderate("y", y.astype(float))
    if np.ptp(y) == 0:
        raise checks.BadInput(
            f"y must vary, but every label is {y[0]:g}; there is nothing to learn from it."
        )
    return Labelled(x, y, 0, task is None)


def _task(y: np.ndarray) -> str:
    if y.dtype.kind not in "iufb":
        return "classification"
    return "classification" if y.dtype.kind == "b" or are_class_numbers(y) else "regression"


def _check_classes(names: np.ndarray, counts: np.ndarray) -> None:
    if len(names) < 2:
        raise checks.BadInput(
            f"y must have at least two classes, but every label is {names[0]}; give "
            f"task='regression' if these are numbers."
        )
    if counts.min() < 2:
        raise checks.BadInput(
            f"each class needs at least two rows, one to train and one to test on, but class "
            f"{names[counts.argmin()]} has one; drop it, or give task='regression'."
        )


def split_folds(
    data: Labelled, count: int, seed: int, groups: Int[np.ndarray, " rows"] | None = None
) -> list[Fold]:
    """Return `count` folds: disjoint test sets, and the other rows in a random, stratified order.

    groups: one group number per row; rows of a group are tested in the same fold. By default, rows
        with equal inputs are a group.
    """
    checks.whole("folds", count, at_least=3)
    rows = len(data.inputs)
    if count > rows // 2:
        raise checks.BadInput(
            f"folds must have two test rows each, so be at most {rows // 2} for {rows} rows; got "
            f"{count}."
        )
    labels = data.labels if data.classes else np.zeros(rows, int)
    together = _equal_rows(data.inputs) if groups is None else groups
    tests = _test_rows(together, labels, count, np.random.default_rng(seed))
    if not _usable(tests, labels):
        if groups is not None:
            raise checks.BadInput(
                f"groups must leave each of {count} folds two test rows and training rows of every "
                f"class; got {len(np.unique(groups))} groups; give fewer folds."
            )
        tests = _test_rows(np.arange(rows), labels, count, np.random.default_rng(seed))
    random = np.random.default_rng(seed)
    random.permutation(rows)
    everything = np.arange(rows)
    return [
        Fold(_stratified(np.setdiff1d(everything, test), labels, random), np.sort(test))
        for test in tests
    ]


def _equal_rows(inputs: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Return for each row the number of the first row with equal inputs."""
    first: dict[bytes, int] = {}
    flat = np.ascontiguousarray(inputs.reshape(len(inputs), -1)) + 0.0  # turns −0 into 0
    return np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(flat)])


def _test_rows(
    groups: Int[np.ndarray, " rows"], labels: np.ndarray, count: int, random: np.random.Generator
) -> list[np.ndarray]:
    """Return the test rows of every fold; rows of one group are in one fold.

    Groups sorted by class, large ones first, are assigned to folds in turn: if every row is a group
    of its own, the number of rows of a class differs by at most one between folds.
    """
    units, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    shuffled = random.permutation(len(units))
    dealt = shuffled[np.lexsort((-sizes[shuffled], labels[units[shuffled]]))]
    return [np.flatnonzero(np.isin(number, dealt[i::count])) for i in range(count)]


def _usable(tests: list[np.ndarray], labels: np.ndarray) -> bool:
    """Whether every fold has at least two test rows, and training rows of every class."""
    counts = np.bincount(labels)
    return all(
        len(test) > 1 and bool((counts > np.bincount(labels[test], minlength=len(counts))).all())
        for test in tests
    )


def _stratified(
    rows: Int[np.ndarray, " rows"], labels: np.ndarray, random: np.random.Generator
) -> Int[np.ndarray, " rows"]:
    """Return rows in a random order in which every prefix has about the same shares of classes.

    The first rows are one of each class. Rows are sorted by a position: (i + u)/m for row i of the
    m rows of a class, where u is uniform on [0, 1) and drawn once per class. Subtracting 2 from the
    position of the first row of each class puts these rows first.
    """
    order = random.permutation(rows)
    position = np.empty(len(order))
    for value in np.unique(labels[order]):
        own = np.flatnonzero(labels[order] == value)
        position[own] = (np.arange(len(own)) + random.uniform()) / len(own)
        position[own[0]] -= 2
    return order[np.argsort(position, kind="stable")]


def inflation(
    sizes: Float[np.ndarray, " sizes"], rows: int, count: int
) -> Float[np.ndarray, " sizes"]:
    """Return the factor √(1 + K o/(K − 1)) by which the standard error s/√K is multiplied, because
    training sets overlap (after Nadeau and Bengio, 2003); see the module's docstring.

    sizes: the numbers n of training rows. rows: N. count: K.
    """
    overlap = sizes * count * (count - 2) / (rows * (count - 1) ** 2)
    return np.sqrt(1 + count / (count - 1) * overlap)


def usable_sizes(
    sizes: Any, data: Labelled, parts: list[Fold], count: int, least_share: float = 0.0
) -> tuple[int, ...]:
    """Check the given sample sizes and return them; if `sizes` is None, return `count` log-spaced
    sizes, of which the smallest is at least `least_share` of the largest."""
    most = min(len(fold.train) for fold in parts)
    least = max(4, 2 * data.classes, math.ceil(least_share * most))
    if sizes is None:
        return tuple(np.unique(np.geomspace(least, most, count).round().astype(int)).tolist())
    sizes = tuple(checks.whole("each size", size, at_least=1) for size in sizes)
    if len(sizes) < 2 or any(b <= a for a, b in pairwise(sizes)):
        raise checks.BadInput(
            f"sizes must be at least two increasing whole numbers, such as (16, 64); got {sizes}."
        )
    if sizes[-1] > most:
        raise checks.BadInput(
            f"sizes must be at most {most}, the training rows of each of {len(parts)} folds; got "
            f"{sizes[-1]}; give smaller sizes or more rows."
        )
    if sizes[0] < max(2, data.classes):
        raise checks.BadInput(
            f"sizes must be at least {max(2, data.classes)}, so that every class occurs; got "
            f"{sizes[0]}."
        )
    return sizes


def mean_and_spread(values: Float[np.ndarray, " numbers"]) -> tuple[float, float]:
    """Return mean and standard deviation of values; 1 as standard deviation if they do not vary."""
    spread = float(values.std())
    return float(values.mean()), spread if spread > 0 and math.isfinite(spread) else 1.0
