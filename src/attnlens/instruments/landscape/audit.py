"""An audit of stationary points: the prediction error of the worst one, by index, over teachers.

The index of a point is the number of negative eigenvalues of its Hessian. "Every stationary point
has low prediction error" cannot be literally true: at w₁ = w_V = w_Q = w_K = 0 with w₂ fitted to
the mean the gradient vanishes, at any number of samples, and the error relative to the variance of
the answer is 1. So points are listed by index: local minima (index 0) and, separately, saddles. The
error of a point is its relative test excess,

    E (f(x) − m(x))² / Var m(x),    m(x) = E[y | x] the teacher's answer without noise,

which is 0 for the teacher and 1 for the best constant. A teacher is a random function that
generates the data. Teachers are the independent replicates: each has its own data and its own
starts, and standard errors are over teachers. The statement is that of lens B (ICLR 2021
submission; docs/theory.md, "B Models and predictions"); `training.stationary` says how points are
found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from attnlens.core import checks, statistics
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Reading
from attnlens.networks import stationary_points
from attnlens.worlds.base import World

NOT_CONVERGED = -1  # stands for the index of a start that did not converge
OFFSET = 0.15  # distance on the axis of indices between networks with the same index


@dataclass(frozen=True)
class DescentEnds:
    """Where the descent from each start ended, for one teacher: arrays of shape (starts,).

    `index` is −1 if the gradient norm did not reach the tolerance. `loss` is the training loss
    without the penalty.
    """

    index: np.ndarray
    excess: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    vectors: np.ndarray  # (starts, size)


@eqx.filter_jit
def draw_episode(world: World, seed: Any, samples: int, tested: int) -> Any:
    """Draw one teacher, with `samples` tokens to train on and `tested` queries with answers."""
    return world.sample(jax.random.key(seed), samples, tested)


def training_data(world: World, seed: int, samples: int, tested: int = 1000) -> Any:
    """Return the (inputs, targets) on which `descend` trains for this seed."""
    with jax.enable_x64(True):
        tokens = draw_episode(world, np.uint32(seed), samples, tested).tokens
        return np.asarray(tokens.key), np.asarray(tokens.value)


def descend(
    make: Any,
    world: World,
    seed: int,
    *,
    samples: int,
    starts: int,
    l2: float,
    tested: int = 1000,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    map: Callable[..., Iterable[Any]] | None = None,
) -> DescentEnds:
    """Draw one teacher and its data, and descend from `starts` starts to stationary points.

    `seed` determines the teacher, its samples and the starts. The other arguments are those of
    `stationarity`.
    """
    with jax.enable_x64(True):
        episode = draw_episode(world, np.uint32(seed), samples, tested)
        x, y = np.asarray(episode.tokens.key), np.asarray(episode.tokens.value)
        query, answer = np.asarray(episode.query), np.asarray(episode.answer)
    result = stationary_points(
        make,
        x,
        y,
        l2=l2,
        starts=starts,
        seed=seed * starts,
        test=(query, answer),
        tolerance=tolerance,
        max_steps=max_steps,
        map=map,
    )
    size = (result.points or result.not_converged)[0].vector.size
    index, vectors = np.full(starts, NOT_CONVERGED), np.zeros((starts, size))
    excess, loss, norm = (np.zeros(starts) for _ in range(3))
    for points, converged in ((result.points, True), (result.not_converged, False)):
        for point in points:
            own = list(point.starts)
            index[own] = point.index if converged else NOT_CONVERGED
            excess[own] = point.test_loss / answer.var()
            loss[own] = point.loss - l2 * float(point.vector @ point.vector)
            norm[own], vectors[own] = point.gradient_norm, point.vector
    return DescentEnds(index, excess, loss, norm, vectors)


@dataclass(frozen=True)
class Audit(Tabular):
    """Where every descent ended: for each network, one `DescentEnds` per teacher.

    >>> index, excess, zeros = np.zeros(2, int), np.array([0.01, 0.5]), np.zeros(2)
    >>> teacher = DescentEnds(index, excess, zeros, zeros, np.zeros((2, 1)))
    >>> audit = Audit(64, 0.05, {"attention": (teacher, teacher)})
    >>> round(audit.worst("attention").value, 3)
    0.5
    """

    samples: int
    threshold: float
    ended: Mapping[str, tuple[DescentEnds, ...]]

    def worst(self, name: str) -> Reading:
        """The largest excess of a local minimum, as a geometric mean over teachers."""
        return _geometric([_minima(teacher).max(initial=-math.inf) for teacher in self.ended[name]])

    def typical(self, name: str) -> Reading:
        """The median excess of local minima, as a geometric mean over teachers."""
        return _geometric([np.median(_minima(teacher)) for teacher in self.ended[name]])

    def share_low(self, name: str) -> Reading:
        """The share of starts that ended in a local minimum with excess ≤ `threshold`."""
        shares = [
            np.mean((teacher.index == 0) & (teacher.excess <= self.threshold))
            for teacher in self.ended[name]
        ]
        return statistics.mean_reading(shares)

    def by_index(self, name: str) -> dict[int, np.ndarray]:
        """Return the sorted excesses of all starts by index; index −1 means not converged."""
        index = np.concatenate([teacher.index for teacher in self.ended[name]])
        excess = np.concatenate([teacher.excess for teacher in self.ended[name]])
        return {int(i): np.sort(excess[index == i]) for i in np.unique(index)}

    def __str__(self) -> str:
        rows = [
            f"Stationary points at n = {self.samples}, excess relative to the answer's variance"
        ]
        for name in self.ended:
            rows += [
                f"{name}: worst minimum {self.worst(name)}, median {self.typical(name)}, "
                f"starts at minima with excess ≤ {self.threshold:g}: {self.share_low(name)}"
            ]
            for index, excess in self.by_index(name).items():
                words = "not converged" if index == NOT_CONVERGED else f"index {index}"
                rows.append(
                    f"  {words:>13}: {excess.size} starts, excess from {excess[0]:.3g}, median "
                    f"{np.median(excess):.3g}, to {excess[-1]:.3g}"
                )
        return "\n".join(rows)

    def rows(self) -> list[dict[str, Any]]:
        """One row per network, teacher and start; the index is −1 if it did not converge."""
        return [
            {
                "network": name,
                "teacher": number,
                "start": start,
                "index": int(ends.index[start]),
                "excess": float(ends.excess[start]),
                "loss": float(ends.loss[start]),
                "gradient_norm": float(ends.gradient_norm[start]),
            }
            for name, teachers in self.ended.items()
            for number, ends in enumerate(teachers)
            for start in range(len(ends.index))
        ]

    def figure(self) -> Figure:
        """The sorted excess of every start: minima as a line, saddles as dots."""
        series = []
        for name in self.ended:
            groups = self.by_index(name)
            saddles = np.sort(np.concatenate([[], *(e for i, e in groups.items() if i > 0)]))
            for words, excess in (("minima", groups.get(0)), ("saddles", saddles)):
                if excess is None or not excess.size:
                    continue
                shares = (np.arange(excess.size) + 1) / excess.size
                points = tuple(
                    Point(float(a), float(b)) for a, b in zip(shares, excess, strict=True)
                )
                series.append(Series(f"{words} of {name}", points, curve=words == "minima"))
        return Figure(
            f"Test excess of stationary points, n = {self.samples}",
            "share of starts",
            "excess / variance of the answer",
            tuple(series),
            log_x=False,
        )

    def map(self) -> Figure:
        """The map of stationary points: test excess against index, one dot per start.

        Networks with the same index are drawn side by side, the first network on the left.
        """
        highest = max(int(t.index.max()) for teachers in self.ended.values() for t in teachers)
        series = []
        for place, name in enumerate(self.ended):
            points = tuple(
                Point(1 + index + (place - (len(self.ended) - 1) / 2) * OFFSET, float(excess))
                for index, excesses in self.by_index(name).items()
                for excess in excesses
                if index != NOT_CONVERGED
            )
            series.append(Series(name, points))
        return Figure(
            f"Stationary points, n = {self.samples}",
            "index (negative eigenvalues)",
            "excess / variance of the answer",
            tuple(series),
            log_x=False,
            names=tuple(map(str, range(1 + max(0, highest)))),
        )

    def plot(self) -> Any:
        """Return `figure()`, drawn with matplotlib; `map().plot()` draws excess against index."""
        return self.figure().plot()


def stationarity(
    networks: Mapping[str, Any],
    world: World,
    *,
    samples: int = 256,
    teachers: int = 8,
    starts: int = 16,
    l2: float = 1e-4,
    threshold: float = 0.05,
    tested: int = 1000,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    seed: int = 0,
    map: Callable[..., Iterable[Any]] | None = None,
) -> Audit:
    """Stationary points of each network on `teachers` draws of a world, and their test errors.

    networks: a mapping from names to functions of a random key that return a network, such as
        {"attention": partial(SelfAttention, …), "baseline": partial(Baseline, …)}.
    world: a world whose tokens are samples (inputs, target), such as `TokenTeacher`.
    samples, starts: numbers of training samples and of random starts per teacher.
    l2: λ₂ of the penalty λ₂‖w‖². Without a penalty the loss can fall without end while parameters
        grow to infinity, and such starts do not converge. The penalty plays the role of the bounded
        parameter set of the theory.
    threshold: the excess up to which a minimum counts as low in `Audit.share_low`.
    tested: number of test queries per teacher.
    map: a function that runs the groups of starts of a teacher, as in `fit`.

    >>> from functools import partial
    >>> from attnlens.networks import Baseline
    >>> from attnlens.worlds import SparseTeacher
    >>> small = {"baseline": partial(Baseline, features=2, hidden=1)}
    >>> world = SparseTeacher(features=2, attended=1, hidden=1)
    >>> audit = stationarity(small, world, samples=16, teachers=2, starts=2, tested=8)
    >>> len(audit.ended["baseline"])
    2
    """
    if not networks:
        raise checks.BadInput("networks must name at least one network; got none.")
    checks.whole("samples", samples, at_least=1)
    checks.whole("teachers", teachers, at_least=2)
    checks.whole("starts", starts, at_least=1)
    checks.whole("tested", tested, at_least=2)
    checks.positive("threshold", threshold)
    first = checks.seed_number("seed", seed) * teachers
    # Starts have their own seeds, of which the first is (seed × teachers) × starts.
    checks.seed_number("seed × teachers × starts", (first + teachers) * starts)
    search = partial(
        descend,
        world=world,
        samples=samples,
        starts=starts,
        l2=l2,
        tested=tested,
        tolerance=tolerance,
        max_steps=max_steps,
        map=map,
    )
    ended = {
        name: tuple(search(make, seed=s) for s in range(first, first + teachers))
        for name, make in networks.items()
    }
    return Audit(samples, threshold, ended)


def _minima(teacher: DescentEnds) -> np.ndarray:
    return teacher.excess[teacher.index == 0]


def _geometric(values: list[Any]) -> Reading:
    """Return the geometric mean, with a standard error by the delta method (d e^x = e^x dx)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = statistics.mean_reading(np.log(np.asarray(values, float)))
    value = math.exp(logs.value)
    return Reading(value, value * logs.standard_error, logs.count, logs.status)
