"""Stationary points: where the gradient of the training objective vanishes, and what is there.

A stationary point is a parameter with ‖∇L‖ ≤ tolerance in float64. For each: its loss, the extreme
eigenvalues of the Hessian, its index (how many of them are negative) and its test error. Points
that are the same network are merged and counted. A start that does not get there is listed apart,
with how far it came, and is never counted as a point. `newton` has the steps and their sources.
That all of them predict well is what lens B says.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from attnlens import checks
from attnlens.records import Figure, Point, Series

from . import newton, symmetries
from .ensemble import _check_model, _data, _rows
from .losses import Loss, named
from .newton import DENSE, Found, Problem
from .parameters import Layout
from .settings import Recipe, Settings
from .training import Data

KINDS = ("minima", "any")
BLOCK = 8  # starts a call
LOWEST = 8  # eigenvalues sought at the lower end where the Hessian is only multiplied with


@dataclasses.dataclass(frozen=True)
class StationaryPoint:
    """One point. `index` counts negative eigenvalues: 0 at a local minimum (flat directions apart).

    An eigenvalue counts as negative below −(100 ‖g‖ + 10 P ε λ_max): that is what the remaining
    gradient along a curved orbit of symmetries and the rounding of the eigenvalues can explain.
    Beyond `newton.DENSE` parameters only the lowest eigenvalues are computed, and the index is a
    lower bound where all of them are negative. `starts` lists the starts that ended here.

    >>> point = StationaryPoint(np.zeros(2), 0.1, 1e-9, -0.5, 2.0, 1, 0.2, 40, (0, 3))
    >>> "a saddle" if point.index else "a minimum"
    'a saddle'
    """

    vector: np.ndarray
    loss: float
    gradient_norm: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    index: int
    test_loss: float
    steps: int
    starts: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class StationaryPoints:
    """All points found, lowest loss first, and the starts that did not converge.

    `stationary_points` makes one; `model(point)` is a point as a network.

    >>> from functools import partial
    >>> from attnlens.networks import Baseline
    >>> recipe = Recipe.of(partial(Baseline, features=1, hidden=1))
    >>> StationaryPoints((), (), starts=4, tolerance=1e-8, recipe=recipe).converged_share
    1.0
    """

    points: tuple[StationaryPoint, ...]
    not_converged: tuple[StationaryPoint, ...]
    starts: int
    tolerance: float
    recipe: Recipe

    @property
    def converged_share(self) -> float:
        """The share of starts that reached the tolerance."""
        return 1 - len(self.not_converged) / self.starts

    @property
    def minima(self) -> tuple[StationaryPoint, ...]:
        return tuple(point for point in self.points if point.index == 0)

    @property
    def saddles(self) -> tuple[StationaryPoint, ...]:
        return tuple(point for point in self.points if point.index > 0)

    def model(self, point: StationaryPoint) -> Any:
        """A point as a network."""
        return Layout.of(self.recipe).restore(point.vector)

    def __str__(self) -> str:
        return (
            f"{len(self.minima)} minima and {len(self.saddles)} saddles from {self.starts} starts; "
            f"{len(self.not_converged)} did not reach a gradient norm of {self.tolerance:.0e}."
        )

    def figure(self) -> Figure:
        """Test loss against index, a point each; training loss where none was held out."""
        tested = all(math.isfinite(point.test_loss) for point in self.points)
        quantity = "test loss" if tested else "training loss"
        points = tuple(
            Point(1 + point.index, point.test_loss if tested else point.loss)
            for point in self.points
        )
        names = tuple(map(str, range(1 + max((point.index for point in self.points), default=0))))
        return Figure(
            f"Stationary points from {self.starts} starts", "index (negative eigenvalues)",
            quantity, (Series("found", points),), log_x=False, log_y=all(p.y > 0 for p in points),
            names=names,
        )  # fmt: skip

    def plot(self) -> Any:
        """The map as a matplotlib figure."""
        return self.figure().plot()


class Task(NamedTuple):
    """A block of starts: plain data that can be sent to another process."""

    problem: Problem
    seeds: np.ndarray | None
    vectors: np.ndarray | None
    data: Data
    test: Data | None
    l2: float


def stationary_points(
    make: Any,
    inputs: Any,
    targets: Any,
    *,
    loss: str | Loss = "squared",
    l2: float = 0.0,
    starts: int | np.ndarray = 16,
    seed: int = 0,
    kind: str = "minima",
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    test: tuple[Any, Any] | None = None,
    merge_within: float = 1e-4,
    dense: bool | None = None,
    block: int = BLOCK,
    map: Callable[..., Iterable[Any]] | None = None,
) -> StationaryPoints:
    """Stationary points of mean loss + l2·‖w‖² from many starts, in float64.

        ∇L(w) = 0 for  L(w) = (1/n) Σ_i ℓ(model_w(x_i), y_i) + λ₂ ‖w‖²

    inputs, targets: arrays (n, …), samples along the first axis.
    make: a function of a random key that returns a network.
    starts: how many random starts, drawn from seeds `seed`, `seed` + 1, …; or the starting
        parameters themselves, one row a start (`Fitted.vectors`, say).
    kind: "minima" descends (a saddle that attracts the descent is still reported as one); "any"
        minimises the gradient norm, which leads to saddles as well.
    dense: whether to form Hessians; by default up to 3000 parameters, and beyond only products
        with them, inside conjugate gradients.
    merge_within: relative distance, modulo the network's symmetries, below which two points are
        one. A gradient of 1e−8 leaves a point uncertain by 1e−8 over the curvature there.
    block, map: starts run in blocks through `map(function, blocks)`, as in `fit`.

    Without a penalty the loss of a network can fall for ever along a valley that leads to infinity;
    such starts do not converge, and are reported so. A small `l2` closes the valleys.

    >>> from functools import partial
    >>> from attnlens.networks import Baseline
    >>> x = np.linspace(-1, 1, 20).reshape(20, 1)
    >>> make = partial(Baseline, features=1, hidden=1)
    >>> found = stationary_points(make, x, x**2, l2=1e-3, starts=4)
    >>> found.converged_share
    1.0
    """
    checks.one_of("kind", kind, KINDS)
    checks.positive("tolerance", tolerance)
    checks.positive("merge_within", merge_within)
    checks.whole("max_steps", max_steps, at_least=1)
    checks.whole("block", block, at_least=1)
    if not (np.isfinite(l2) and l2 >= 0):
        raise checks.BadInput(f"l2 must be a number of at least 0, but {l2!r} came.")
    named(loss)
    recipe = Recipe.of(make)
    size = Layout.of(recipe).size
    data = _data("the data", inputs, targets, "float64", per_seed=False)
    _rows("the data", data)
    _check_model(_settings(loss), recipe, data)
    tested = None if test is None else _data("test", *test, "float64", per_seed=False)
    data = jax.tree.map(lambda leaf: leaf[0], data)
    tested = None if tested is None else jax.tree.map(lambda leaf: leaf[0], tested)
    given = _starts(starts, checks.whole("seed", seed), size)
    formed = size <= DENSE if dense is None else dense
    problem = Problem(recipe, loss, tolerance, max_steps, kind == "any", formed)
    width = min(block, len(given))
    tasks = []
    for first in range(0, len(given), width):
        part = given[first : first + width]
        part = np.concatenate([part, np.repeat(part[-1:], width - len(part), axis=0)])
        seeds, vectors = (part, None) if part.ndim == 1 else (None, part)
        tasks.append(Task(problem, seeds, vectors, data, tested, float(l2)))
    ended = list((map or _here)(run, tasks))
    joined: Any = [np.concatenate(parts)[: len(given)] for parts in zip(*ended, strict=True)]
    found = Found(*joined)
    return _report(problem, found, data, float(l2), merge_within)


def run(task: Task) -> Found:
    """One block of starts, from start to end, as NumPy arrays."""
    with jax.enable_x64(True):
        found = newton.search(*task[:5], np.float64(task.l2))
        return jax.tree.map(np.asarray, found)


def _here(function: Callable[..., Any], tasks: Iterable[Any]) -> list[Any]:
    return [function(task) for task in tasks]


def _settings(loss: str | Loss) -> Settings:
    return Settings(
        loss=loss, steps=1, batch=None, learning_rate=1.0, schedule="constant", warmup=0,
        optimiser="sgd", clip=None, entropy_warmup=0, penalised_gates=False,
        penalised_entropy=False, validation_share=0.0, patience=None, every=1, dtype="float64",
        transform=None,
    )  # fmt: skip


def _starts(starts: int | np.ndarray, seed: int, size: int) -> np.ndarray:
    if isinstance(starts, (int, np.integer)):
        checks.whole("starts", int(starts), at_least=1)
        return np.arange(seed, seed + int(starts), dtype=np.uint32)
    given = np.asarray(starts, np.float64)
    if given.ndim != 2 or given.shape[1] != size or not len(given):
        raise checks.BadInput(
            f"starts must be a whole number or an array of shape (starts, {size}), one row of "
            f"parameters a start, but shape {given.shape} came."
        )
    return given


def _report(problem: Problem, found: Any, data: Data, l2: float, within: float) -> StationaryPoints:
    reached = np.isfinite(found.loss) & (found.gradient_norm <= problem.tolerance)
    places = np.flatnonzero(reached)
    merged = symmetries.groups(
        found.loss[places], found.shared[places], found.units[places], within
    )

    def point(i: int, starts: tuple[int, ...], counted: bool) -> StationaryPoint:
        norm, eigenvalues = float(found.gradient_norm[i]), found.eigenvalues[i]
        if counted and not problem.dense:
            eigenvalues = _extremes(problem, found.vector[i], data, l2)
        largest = float(np.max(eigenvalues))
        noise = 100 * norm + 10 * found.vector.shape[1] * np.finfo(float).eps * abs(largest)
        return StationaryPoint(
            found.vector[i], float(found.loss[i]), norm, float(np.min(eigenvalues)), largest,
            int(np.sum(eigenvalues < -noise)), float(found.test_loss[i]), int(found.steps[i]),
            starts,
        )  # fmt: skip

    # Of the starts that ended at a point the one with the smallest gradient stands for it.
    points = []
    for group in merged:
        own = [int(places[i]) for i in group]
        best = min(own, key=lambda i: found.gradient_norm[i])
        points.append(point(best, tuple(sorted(own)), True))
    lost = tuple(point(int(i), (int(i),), False) for i in np.flatnonzero(~reached))
    total = len(found.loss)
    return StationaryPoints(tuple(points), lost, total, problem.tolerance, problem.recipe)


def _extremes(problem: Problem, vector: np.ndarray, data: Data, l2: float) -> np.ndarray:
    """The lowest eigenvalues and the largest one, from products with the Hessian (Lanczos)."""

    def times(direction: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            at = (vector, np.ravel(direction), data, np.float64(l2))
            return np.asarray(newton.hessian_times(problem, *at))

    size = vector.size
    make: Any = LinearOperator  # its own types describe subclasses
    operator = make((size, size), matvec=times, dtype=np.float64)
    ends = []
    for which, count in (("SA", min(LOWEST, size - 1)), ("LA", 1)):
        try:
            ends.append(eigsh(operator, count, which=which, return_eigenvectors=False))
        except ArpackNoConvergence as error:
            ends.append(error.eigenvalues if len(error.eigenvalues) else np.array([np.nan]))
    return np.concatenate(ends)
