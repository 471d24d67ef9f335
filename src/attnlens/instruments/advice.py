"""What B's guidelines say about a data set, each tried out on it by paired folds.

    attention   self-attention instead of a plain network of the same width
    sparsity    non-negative gates on the inputs, under an ℓ₁ penalty (B.guideline-sparsity)
    low rank    queries and keys a quarter as wide as tokens (B.guideline-low-rank; tokens only)

The effect is the log ratio of test errors, with the guideline over without, on the same folds; its
interval is a t interval over folds, widened where their training rows overlap (see `labelled`), at
a level of 1 − 0.05/(number of guidelines), so that all hold together with 95 %. A guideline is
recommended when its whole interval lies below 0, advised against when above, and otherwise there
is no evidence on these data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jax import Array

from attnlens import checks
from attnlens.networks import Baseline, Gated
from attnlens.records import Figure, Point, Reading, Series
from attnlens.statistics import mean_reading, t_interval

from . import learners
from .labelled import Fold, Labelled, inflation, labelled
from .labelled import folds as split

FOLDS = 8
STARTS = 4  # attention has bad local minima: of so many starts the best by training loss counts
PENALTY = 0.1  # on gates, for standardised inputs and labels: B.guideline-sparsity's
WORDS = {
    "attention": "use self-attention instead of a plain network",
    "sparsity": f"put gates on the inputs, with an ℓ₁ penalty of {PENALTY} on their sum",
    "low rank": "make queries and keys a quarter as wide as tokens",
}


@dataclass(frozen=True)
class Recommendation:
    """One guideline: what to do, the measured log ratio of errors, its interval, the verdict."""

    name: str
    words: str
    effect: Reading
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "recommended"
        return "advised against" if self.low > 0 else "no evidence on this data"

    def __str__(self) -> str:
        change, low, high = (100 * math.expm1(v) for v in (self.effect.value, self.low, self.high))
        told = f"error {change:+.0f} %, interval {low:+.0f} to {high:+.0f} %"
        return f"{self.name}: {self.verdict} ({self.words}: {told})"


@dataclass(frozen=True)
class Guidelines:
    """The recommendations for one data set, at one number of labels."""

    data: str
    labels: int
    recommendations: tuple[Recommendation, ...]

    def __getitem__(self, name: str) -> Recommendation:
        found = {each.name: each for each in self.recommendations}
        return found[checks.one_of("the guideline", name, found)]

    def __str__(self) -> str:
        head = f"Guidelines for {self.data}, with {self.labels} labels to train on"
        return "\n".join([head, *(f"  {each}" for each in self.recommendations)])

    def figure(self) -> Figure:
        """Log ratios of errors with their intervals, one guideline after the other."""
        series = [
            Series(each.name, (Point(float(i), each.effect.value, (each.high - each.low) / 2),))
            for i, each in enumerate(self.recommendations, 1)
        ]
        title = "Log ratio of test errors with a guideline over without (below 0: it helps)"
        names = tuple(each.name for each in self.recommendations)
        return Figure(title, "", "log ratio", tuple(series), False, False, names)

    def plot(self) -> Any:
        """The recommendations as a matplotlib figure."""
        return self.figure().plot()


def guidelines(
    X: Any,
    y: Any,
    *,
    task: str | None = None,
    labels: int | None = None,
    hidden: int = 16,
    folds: int = FOLDS,
    starts: int = STARTS,
    seed: int = 0,
    training: Mapping[str, Any] | None = None,
) -> Guidelines:
    """Which of B's guidelines pay on these data, each with its evidence.

        effect = E log [error with the guideline / error without], on the same folds

    X, y, task, hidden, folds, starts, seed and training are those of `learning_curve`. `labels` is
    how many rows to train on, all that the folds leave by default: guidelines matter most when
    labels are few.

    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(40, 3))
    >>> found = guidelines(X, random.normal(size=40), starts=1, training={"steps": 20})
    >>> [each.name for each in found.recommendations]
    ['attention', 'sparsity']
    """
    data = labelled(X, y, task)
    checks.whole("hidden", hidden, at_least=1)
    checks.whole("starts", starts, at_least=1)
    checks.whole("seed", seed)
    settings = learners.settings(training)
    parts = split(data, folds, seed)
    most = min(len(fold.train) for fold in parts)
    rows = most if labels is None else checks.whole("labels", labels, at_least=max(4, data.classes))
    if rows > most:
        raise checks.BadInput(
            f"labels must be at most the {most} rows that {folds} folds leave to train on, but "
            f"{labels} came."
        )
    run = partial(_errors, data, parts, rows, (seed, starts), settings)
    attention, plain = (
        run(*learners.built_in(name, data, hidden)) for name in ("self-attention", "baseline")
    )
    shape = learners.built_in("baseline", data, hidden)[0].keywords
    gates = run(partial(gated, **shape), "flat", l1_gates=(0.0, PENALTY))
    ratios = {"attention": attention / plain, "sparsity": gates[:, 1:] / gates[:, :1]}
    if data.tokens:
        narrow = max(1, data.inputs.shape[2] // 4)
        narrowed = run(*learners.built_in("self-attention", data, hidden, query_dim=narrow))
        ratios["low rank"] = narrowed / attention
    widened = float(inflation(np.array([float(rows)]), len(data.inputs), folds)[0])
    found = [
        _recommend(name, np.log(each[:, 0]), widened, len(ratios)) for name, each in ratios.items()
    ]
    return Guidelines(str(data), rows, tuple(found))


def gated(key: Array, **shape: int) -> Gated:
    """The baseline behind gates on its inputs; the constant feature has one too."""
    return Gated(Baseline(key, **shape), shape=(shape["features"],))


def _errors(
    data: Labelled,
    parts: list[Fold],
    rows: int,
    drawn: tuple[int, int],
    settings: Mapping[str, Any],
    make: Any,
    layout: str,
    **penalties: Any,
) -> np.ndarray:
    """Errors (fold, penalty); a fold without a wrong row counts half a wrong one."""
    given = {**settings, **penalties}
    seed, starts = drawn
    errors = learners.network_errors(make, layout, data, parts, (rows,), seed, given, starts)
    return (
        np.maximum(errors, 0.5 / max(len(fold.test) for fold in parts)) if data.classes else errors
    )


def _recommend(name: str, logs: np.ndarray, widened: float, count: int) -> Recommendation:
    reading = mean_reading(logs)
    reading = replace(reading, standard_error=reading.standard_error * widened)
    low, high = t_interval(reading, 1 - 0.05 / count)
    return Recommendation(name, WORDS[name], reading, low, high)
