"""The guidelines of lens B (ICLR 2021 submission), each tested on a data set with paired folds.

    attention   self-attention instead of a plain network of the same width
    sparsity    non-negative gates on the inputs, with an ℓ₁ penalty
    low rank    queries and keys a quarter as wide as tokens (tokens only)

`CLAIMS` names the claims behind each guideline. They say where it helps: attention if labels depend
on which tokens match; sparsity if few features matter and there are fewer labels than features; low
rank if the product of queries and keys has a low rank. The claims promise nothing for other data,
so each guideline is tested on the data at hand.

The effect of a guideline is the log of the ratio (test error with the guideline)/(test error
without it), on the same folds. "Without" means the strongest alternative that the claim names: for
gates with a penalty, the best of no gates and unpenalised gates, each with the usual ℓ₂ penalty and
with the ℓ₂ penalty of the claim. The best alternative is the one with the lowest mean log test
error, a choice that works against the recommendation. The interval of an effect is a t interval
over folds, with the variance inflation factor of overlapping training sets (see `labelled`), at the
level 1 − 0.05/(number of guidelines), so that all intervals hold jointly with 95 % (Bonferroni). A
guideline is recommended if its whole interval lies below 0 and advised against if it lies above 0;
otherwise there is no evidence on these data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jax import Array

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Reading
from attnlens.core.statistics import mean_reading
from attnlens.networks import Baseline, Gated

from . import learners
from .labelled import Fold, Labelled, inflation, labelled, split_folds

FOLDS = 8
RIDGE = 3e-2  # the ℓ₂ penalty of claim B.guideline-sparsity, with and without gates
# Attention has bad local minima, which the training loss reveals (claim B.restarts, with eight
# starts), so the start with the lowest training loss is used.
STARTS = 4
# The ℓ₁ penalty on gates for standardised inputs and labels, as in claim B.guideline-sparsity.
PENALTY = 0.1
WORDS = {
    "attention": "use self-attention instead of a plain network",
    "sparsity": f"put gates on the inputs, with an ℓ₁ penalty of {PENALTY} on their sum",
    "low rank": "make queries and keys a quarter as wide as tokens",
}
CLAIMS = {
    "attention": ("B.self-attention", "B.misspecified"),
    "sparsity": ("B.guideline-sparsity",),
    "low rank": ("B.guideline-low-rank",),
}
"""The claims that say where each guideline helps, by its name."""


@dataclass(frozen=True)
class Recommendation:
    """One guideline: what to do, the measured log ratio of errors, its interval and the verdict."""

    name: str
    words: str
    effect: Reading
    low: float
    high: float

    @property
    def claims(self) -> tuple[str, ...]:
        """The ids of the claims behind the guideline (`attnlens claims` shows them)."""
        return CLAIMS[self.name]

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "recommended"
        return "advised against" if self.low > 0 else "no evidence on this data"

    def __str__(self) -> str:
        change, low, high = (100 * math.expm1(v) for v in (self.effect.value, self.low, self.high))
        evidence = f"error {change:+.0f} %, interval {low:+.0f} to {high:+.0f} %"
        evidence = f"{evidence}; {' and '.join(self.claims)}"
        return f"{self.name}: {self.verdict} ({self.words}: {evidence})"


@dataclass(frozen=True)
class Guidelines(Tabular):
    """The recommendations for one data set, at one number of labels."""

    data: str
    labels: int
    recommendations: tuple[Recommendation, ...]

    def __getitem__(self, name: str) -> Recommendation:
        by_name = {item.name: item for item in self.recommendations}
        return by_name[checks.one_of("the guideline", name, by_name)]

    def __str__(self) -> str:
        head = f"Guidelines for {self.data}, with {self.labels} labels to train on"
        return "\n".join([head, *(f"  {item}" for item in self.recommendations)])

    def rows(self) -> list[dict[str, Any]]:
        """One row per recommendation: log(error with the guideline / error without)."""
        return [
            {
                "name": item.name,
                "verdict": item.verdict,
                **item.effect.row(),
                "low": item.low,
                "high": item.high,
            }
            for item in self.recommendations
        ]

    def figure(self) -> Figure:
        """Log ratios of errors with their intervals, one point per guideline."""
        series = [
            Series(item.name, (Point.between(float(i), item.effect.value, item.low, item.high),))
            for i, item in enumerate(self.recommendations, 1)
        ]
        title = "Log ratio of test errors with a guideline over without (below 0: it helps)"
        names = tuple(item.name for item in self.recommendations)
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
    """Which of lens B's guidelines help on these data, each with its evidence.

        effect = E log [error with the guideline / error without], on the same folds

    X, y, task, hidden, folds, starts, seed and training are as in `learning_curve`. `labels` is the
    number of rows to train on, by default all training rows of a fold; guidelines matter most if
    there are few labels.

    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(40, 3))
    >>> result = guidelines(X, random.normal(size=40), starts=1, training={"steps": 20})
    >>> [item.name for item in result.recommendations]
    ['attention', 'sparsity']
    """
    data = labelled(X, y, task)
    checks.whole("hidden", hidden, at_least=1, at_most=10_000)
    checks.whole("starts", starts, at_least=1, at_most=1_000)
    checks.seed_number("seed", seed)
    settings = learners.settings(training)
    parts = split_folds(data, folds, seed)
    most = min(len(fold.train) for fold in parts)
    rows = most if labels is None else checks.whole("labels", labels, at_least=max(4, data.classes))
    if rows > most:
        raise checks.BadInput(
            f"labels must be at most {most}, the training rows of each of {folds} folds; got "
            f"{labels}."
        )
    run = partial(_errors, data, parts, rows, (seed, starts), settings)
    attention = run(*learners.built_in("self-attention", data, hidden))
    usual = float(np.ravel(settings.get("l2", learners.TRAINING["l2"]))[0])
    make, layout = learners.built_in("baseline", data, hidden)
    plain = run(make, layout, l2=(usual, RIDGE))
    gates = run(partial(gated, **make.keywords), "flat", l2=(usual, RIDGE), l1_gates=(0.0, PENALTY))
    # Columns of `gates`: for each ℓ₂ penalty, first without and then with the ℓ₁ penalty.
    without = np.concatenate([plain, gates[:, [0, 2]]], axis=1)
    strongest = without[:, [np.log(without).mean(0).argmin()]]
    ratios = {"attention": attention / plain[:, :1], "sparsity": gates[:, [3]] / strongest}
    if data.tokens:
        narrow = max(1, data.inputs.shape[2] // 4)
        narrowed = run(*learners.built_in("self-attention", data, hidden, query_dim=narrow))
        ratios["low rank"] = narrowed / attention
    factor = float(inflation(np.array([float(rows)]), len(data.inputs), folds)[0])
    recommendations = [
        _recommend(name, np.log(values[:, 0]), factor, len(ratios))
        for name, values in ratios.items()
    ]
    return Guidelines(str(data), rows, tuple(recommendations))


def gated(key: Array, **shape: int) -> Gated:
    """Return a baseline with gates on its inputs, including the constant feature."""
    return Gated(Baseline(key, **shape), shape=(shape["features"],))


def _errors(
    data: Labelled,
    parts: list[Fold],
    rows: int,
    seed_and_starts: tuple[int, int],
    settings: Mapping[str, Any],
    make: Any,
    layout: str,
    **penalties: Any,
) -> np.ndarray:
    """Return errors (fold, penalty); in a fold without a wrong row, half a row counts as wrong."""
    training = {**settings, **penalties}
    seed, starts = seed_and_starts
    errors = learners.network_errors(make, layout, data, parts, (rows,), seed, training, starts)
    return (
        np.maximum(errors, 0.5 / max(len(fold.test) for fold in parts)) if data.classes else errors
    )


def _recommend(name: str, logs: np.ndarray, factor: float, count: int) -> Recommendation:
    reading = mean_reading(logs)
    reading = replace(reading, standard_error=reading.standard_error * factor)
    low, high = reading.interval(1 - 0.05 / count)
    return Recommendation(name, WORDS[name], reading, low, high)
