"""Stationary points: where the gradient of the training objective vanishes, and what is there.

A stationary point is a vector of parameters with ‖∇L‖ ≤ tolerance in float64. For each: its loss,
the extreme eigenvalues of the Hessian, its index (the number of negative eigenvalues) and its test
error. Points that represent the same network are merged and counted. A start that does not converge
is listed separately, with the gradient norm it reached, and is never counted as a point. `newton`
describes the steps and cites their sources. Lens B (ICLR 2021 submission) says that all stationary
points predict well (docs/theory.md, section "B Models and predictions").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.notebook import notebook_bar
from attnlens.networks.layout import Layout
from attnlens.networks.losses import Loss, named

from . import newton, symmetries
from .data import Data, as_data, check_model, row_count
from .newton import DENSE, Problem, SearchResult
from .settings import Recipe, TrainingSettings

KINDS = ("minima", "any")
GROUP_SIZE = 8  # starts per call of the compiled search
LOWEST = 8  # number of lowest eigenvalues that are computed if the Hessian is not formed


@dataclasses.dataclass(frozen=True)
class StationaryPoint:
    """A stationary point. `index` is the number of negative eigenvalues, 0 at a local minimum.

    An eigenvalue counts as negative below −(100 ‖g‖ + 10 P ε λ_max), where P is the number of
    parameters. Negative values closer to zero can be due to the remaining gradient along a curved
    orbit of symmetries and to the rounding of the eigenvalues; they count as flat directions. With
    more than `newton.DENSE` parameters, only the lowest eigenvalues are computed; if all of them
    are negative, the index is a lower bound. `starts` lists the starts that ended at this point.

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
class StationaryPoints(Tabular):
    """The stationary points, lowest loss first, and the starts that did not converge.

    `stationary_points` returns this object; `model(point)` returns a point as a network.

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
        """Return the network with the parameters of `point`."""
        return Layout.of(self.recipe).restore(point.vector)

    def __str__(self) -> str:
        return (
            f"{len(self.minima)} minima and {len(self.saddles)} saddles from {self.starts} starts; "
            f"{len(self.not_converged)} did not reach a gradient norm of {self.tolerance:.0e}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per point, then one per start that did not converge."""
        return [
            {
                "converged": converged,
                "index": point.index,
                "loss": point.loss,
                "test_loss": point.test_loss,
                "gradient_norm": point.gradient_norm,
                "smallest_eigenvalue": point.smallest_eigenvalue,
                "largest_eigenvalue": point.largest_eigenvalue,
                "starts": len(point.starts),
            }
            for converged, points in ((True, self.points), (False, self.not_converged))
            for point in points
        ]

    def figure(self) -> Figure:
        """Test loss against index, one dot per point; training loss if there are no test data."""
        tested = all(math.isfinite(point.test_loss) for point in self.points)
        quantity = "test loss" if tested else "training loss"
        points = tuple(
            Point(1 + point.index, point.test_loss if tested else point.loss)
            for point in self.points
        )
        names = tuple(map(str, range(1 + max((point.index for point in self.points), default=0))))
        return Figure(
            f"Stationary points from {self.starts} starts",
            "index (negative eigenvalues)",
            quantity,
            (Series("stationary points", points),),
            log_x=False,
            log_y=all(p.y > 0 for p in points),
            names=names,
        )

    def plot(self) -> Any:
        """Return `figure()`, drawn with matplotlib."""
        return self.figure().plot()


class SearchTask(NamedTuple):
    """A group of starts: plain data that can be sent to another process."""

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
    block: int = GROUP_SIZE,
    map: Callable[..., Iterable[Any]] | None = None,
) -> StationaryPoints:
    """Stationary points of mean loss + l2·‖w‖² from many starts, in float64.

        ∇L(w) = 0 for  L(w) = (1/n) Σ_i ℓ(model_w(x_i), y_i) + λ₂ ‖w‖²

    inputs, targets: arrays (n, …), samples along the first axis.
    make: a function of a random key that returns a network.
    starts: how many random starts, drawn from seeds `seed`, `seed` + 1, …; or the starting
        parameters themselves, one row per start (`Fitted.vectors`, for example).
    kind: "minima" descends (a descent that ends at a saddle is reported as a saddle); "any"
        minimises the gradient norm, which leads to saddles as well.
    dense: whether to form Hessians, by default for up to 3000 parameters; otherwise only products
        with them are computed, inside conjugate gradients.
    merge_within: relative distance, modulo the network's symmetries, below which two points count
        as one. With a gradient norm of 1e−8, the error of a point is about 1e−8 divided by the
        curvature there.
    block, map: starts run in groups of `block` through `map(function, groups)`, as in `fit`; a
        notebook shows a bar of the finished groups.

    Without a penalty, the loss of a network can fall without end while its parameters grow to
    infinity; such starts do not converge, and are reported as such. A small `l2` prevents this.

    >>> from functools import partial
    >>> from attnlens.networks import Baseline
    >>> x = np.linspace(-1, 1, 20).reshape(20, 1)
    >>> make = partial(Baseline, features=1, hidden=1)
    >>> points = stationary_points(make, x, x**2, l2=1e-3, starts=4)
    >>> points.converged_share
    1.0
    """
    checks.one_of("kind", kind, KINDS)
    checks.positive("tolerance", tolerance)
    checks.positive("merge_within", merge_within)
    checks.whole("max_steps", max_steps, at_least=1)
    checks.whole("block", block, at_least=1)
    if not (np.isfinite(l2) and l2 >= 0):
        raise checks.BadInput(f"l2 must be a number of at least 0; got {l2!r}.")
    named(loss)
    recipe = Recipe.of(make)
    size = Layout.of(recipe).size
    data = as_data("the data", inputs, targets, "float64", per_seed=False)
    row_count("the data", data)
    check_model(TrainingSettings(loss=loss, dtype="float64").complete(), recipe, data)
    test_data = None if test is None else as_data("test", *test, "float64", per_seed=False)
    data = jax.tree.map(lambda leaf: leaf[0], data)
    test_data = None if test_data is None else jax.tree.map(lambda leaf: leaf[0], test_data)
    seeds_or_vectors = _starts(starts, checks.seed_number("seed", seed), size)
    formed = size <= DENSE if dense is None else dense
    problem = Problem(recipe, loss, tolerance, max_steps, kind == "any", formed)
    count = len(seeds_or_vectors)
    width = min(block, count)
    tasks = []
    for first in range(0, count, width):
        part = seeds_or_vectors[first : first + width]
        # The last group repeats its last start: another number of starts needs a compilation.
        part = np.concatenate([part, np.repeat(part[-1:], width - len(part), axis=0)])
        seeds, vectors = (part, None) if part.ndim == 1 else (None, part)
        tasks.append(SearchTask(problem, seeds, vectors, data, test_data, float(l2)))
    show, results = notebook_bar("groups of starts"), []
    show(0, len(tasks))
    for result in (map or _map_here)(run, tasks):
        results.append(result)
        show(len(results), len(tasks))
    joined: Any = [np.concatenate(parts)[:count] for parts in zip(*results, strict=True)]
    return _merged(problem, SearchResult(*joined), data, float(l2), merge_within)


def run(task: SearchTask) -> SearchResult:
    """Search from one group of starts and return the result as NumPy arrays."""
    with jax.enable_x64(True):
        result = newton.search(*task[:5], np.float64(task.l2))
        return jax.tree.map(np.asarray, result)


def _map_here(function: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[Any]:
    return (function(task) for task in tasks)


def _starts(starts: int | np.ndarray, seed: int, size: int) -> np.ndarray:
    if isinstance(starts, (int, np.integer)):
        checks.whole("starts", int(starts), at_least=1)
        return np.arange(seed, seed + int(starts), dtype=np.uint32)
    vectors = np.asarray(starts, np.float64)
    if vectors.ndim != 2 or vectors.shape[1] != size or not len(vectors):
        raise checks.BadInput(
            f"starts must be a whole number or an array of shape (starts, {size}), one row of "
            f"parameters per start; got shape {vectors.shape}."
        )
    return vectors


def _merged(
    problem: Problem, result: Any, data: Data, l2: float, within: float
) -> StationaryPoints:
    """Merge equal end points of the starts; return the points with their Hessians' eigenvalues."""
    reached = np.isfinite(result.loss) & (result.gradient_norm <= problem.tolerance)
    places = np.flatnonzero(reached)
    merged = symmetries.groups(
        result.loss[places], result.shared[places], result.units[places], within
    )

    def point(i: int, starts: tuple[int, ...], converged: bool) -> StationaryPoint:
        norm, eigenvalues = float(result.gradient_norm[i]), result.eigenvalues[i]
        if converged and not problem.dense:
            eigenvalues = _extremes(problem, result.vector[i], data, l2)
        return StationaryPoint(
            result.vector[i],
            float(result.loss[i]),
            norm,
            float(np.min(eigenvalues)),
            float(np.max(eigenvalues)),
            index_of(eigenvalues, norm, result.vector.shape[1]),
            float(result.test_loss[i]),
            int(result.steps[i]),
            starts,
        )

    # Of the starts that ended at a point, the one with the smallest gradient represents it.
    points = []
    for group in merged:
        own = [int(places[i]) for i in group]
        best = min(own, key=lambda i: result.gradient_norm[i])
        points.append(point(best, tuple(sorted(own)), True))
    not_converged = tuple(point(int(i), (int(i),), False) for i in np.flatnonzero(~reached))
    total = len(result.loss)
    return StationaryPoints(tuple(points), not_converged, total, problem.tolerance, problem.recipe)


def index_of(eigenvalues: np.ndarray, gradient_norm: float, size: int) -> int:
    """The number of negative eigenvalues at a point: those below −(100 ‖g‖ + 10 P ε λ_max)."""
    largest = abs(float(np.max(eigenvalues)))
    noise = 100 * gradient_norm + 10 * size * np.finfo(float).eps * largest
    return int(np.sum(eigenvalues < -noise))


def _extremes(problem: Problem, vector: np.ndarray, data: Data, l2: float) -> np.ndarray:
    """Return the lowest eigenvalues and the largest one, from Hessian products (Lanczos)."""

    def times(direction: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            at = (vector, np.ravel(direction), data, np.float64(l2))
            return np.asarray(newton.hessian_times(problem, *at))

    size = vector.size
    make: Any = LinearOperator  # SciPy's annotations of its arguments fit subclasses only
    operator = make((size, size), matvec=times, dtype=np.float64)
    values = []
    for which, count in (("SA", min(LOWEST, size - 1)), ("LA", 1)):
        try:
            values.append(eigsh(operator, count, which=which, return_eigenvectors=False))
        except ArpackNoConvergence as error:
            values.append(error.eigenvalues if len(error.eigenvalues) else np.array([np.nan]))
    return np.concatenate(values)
