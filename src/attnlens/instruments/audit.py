"""An audit of stationary points: how bad is the worst one, by index, over many teachers?

"Every stationary point has low prediction error" cannot be literally true: at w₁ = w_V = w_Q = w_K
= 0 with w₂ fitted to the mean the gradient vanishes, at any number of samples, and the error
relative to the variance of the answer is 1. So points are listed by index: local minima (index 0)
and, apart, saddles. The error of a point is its relative test excess,

    E (f(x) − m(x))² / Var m(x),    m(x) = E[y | x] the teacher's answer without noise,

which is 0 for the teacher and 1 for the best constant. Teachers are the independent draws: each
brings its own data and its own starts, and standard errors are over teachers. The statement is lens
B's; `networks.stationary` says how points are found.
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

from attnlens import checks, statistics
from attnlens.networks import stationary_points
from attnlens.records import Figure, Point, Reading, Series
from attnlens.worlds.base import World

LOST = -1  # the index of a start that did not converge
BESIDE = 0.15  # how far apart, on the axis of indices, networks with the same index are drawn


@dataclass(frozen=True)
class Ends:
    """Where each start of one teacher's network ended: arrays of shape (starts,).

    `index` is −1 where the gradient norm did not reach the tolerance. `loss` is the data's, without
    the penalty.
    """

    index: np.ndarray
    excess: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    vectors: np.ndarray  # (starts, size)


@eqx.filter_jit
def _episode(world: World, seed: Any, samples: int, tested: int) -> Any:
    return world.sample(jax.random.key(seed), samples, tested)


def training_data(world: World, seed: int, samples: int, tested: int = 1000) -> Any:
    """(inputs, targets) that `ends` trains on for this seed."""
    with jax.enable_x64(True):
        tokens = _episode(world, np.uint32(seed), samples, tested).tokens
        return np.asarray(tokens.key), np.asarray(tokens.value)


def ends(
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
) -> Ends:
    """One teacher: its data, `starts` descents to stationary points, and their excess errors.

    The teacher, its samples and the starts are decided by `seed`.
    """
    with jax.enable_x64(True):
        episode = _episode(world, np.uint32(seed), samples, tested)
        x, y = np.asarray(episode.tokens.key), np.asarray(episode.tokens.value)
        query, answer = np.asarray(episode.query), np.asarray(episode.answer)
    found = stationary_points(
        make, x, y, l2=l2, starts=starts, seed=seed * starts, test=(query, answer),
        tolerance=tolerance, max_steps=max_steps, map=map,
    )  # fmt: skip
    size = (found.points or found.not_converged)[0].vector.size
    index, vectors = np.full(starts, LOST), np.zeros((starts, size))
    excess, loss, norm = (np.zeros(starts) for _ in range(3))
    for points, converged in ((found.points, True), (found.not_converged, False)):
        for point in points:
            own = list(point.starts)
            index[own] = point.index if converged else LOST
            excess[own] = point.test_loss / answer.var()
            loss[own] = point.loss - l2 * float(point.vector @ point.vector)
            norm[own], vectors[own] = point.gradient_norm, point.vector
    return Ends(index, excess, loss, norm, vectors)


@dataclass(frozen=True)
class Audit:
    """Where every start ended, a network and a teacher at a time.

    >>> index, excess, zeros = np.zeros(2, int), np.array([0.01, 0.5]), np.zeros(2)
    >>> ends = Ends(index, excess, zeros, zeros, np.zeros((2, 1)))
    >>> audit = Audit(64, 0.05, {"attention": (ends, ends)})
    >>> round(audit.worst("attention").value, 3)
    0.5
    """

    samples: int
    threshold: float
    ended: Mapping[str, tuple[Ends, ...]]

    def worst(self, name: str) -> Reading:
        """The worst local minimum's excess: its geometric mean over teachers."""
        return _geometric([_minima(ends).max(initial=-math.inf) for ends in self.ended[name]])

    def typical(self, name: str) -> Reading:
        """The median local minimum's excess: its geometric mean over teachers."""
        return _geometric([np.median(_minima(ends)) for ends in self.ended[name]])

    def share_low(self, name: str) -> Reading:
        """The share of starts that ended in a local minimum with excess at or below threshold."""
        shares = [
            np.mean((ends.index == 0) & (ends.excess <= self.threshold))
            for ends in self.ended[name]
        ]
        return statistics.mean_reading(shares)

    def by_index(self, name: str) -> dict[int, np.ndarray]:
        """All excesses, one a start, by the index of the point; −1: did not converge."""
        index = np.concatenate([ends.index for ends in self.ended[name]])
        excess = np.concatenate([ends.excess for ends in self.ended[name]])
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
                words = "not converged" if index == LOST else f"index {index}"
                rows.append(
                    f"  {words:>13}: {excess.size} starts, excess from {excess[0]:.3g}, median "
                    f"{np.median(excess):.3g}, to {excess[-1]:.3g}"
                )
        return "\n".join(rows)

    def figure(self) -> Figure:
        """The excess of every start, sorted: minima a line, saddles apart."""
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
            "share of starts", "excess / variance of the answer", tuple(series), log_x=False,
        )  # fmt: skip

    def map(self) -> Figure:
        """The map of stationary points: test excess against index, a point a start.

        Starts with the same index stand side by side, those of the first network on the left.
        """
        series, highest = [], max(int(e.index.max()) for each in self.ended.values() for e in each)
        for place, name in enumerate(self.ended):
            points = tuple(
                Point(1 + index + (place - (len(self.ended) - 1) / 2) * BESIDE, float(excess))
                for index, found in self.by_index(name).items()
                for excess in found
                if index != LOST
            )
            series.append(Series(name, points))
        return Figure(
            f"Stationary points, n = {self.samples}", "index (negative eigenvalues)",
            "excess / variance of the answer", tuple(series), log_x=False,
            names=tuple(map(str, range(1 + max(0, highest)))),
        )  # fmt: skip

    def plot(self) -> Any:
        """The distribution as a matplotlib figure; `map().plot()` draws excess against index."""
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

    networks: by name, functions of a random key that return a network, such as
        {"attention": partial(SelfAttention, …), "baseline": partial(Baseline, …)}.
    world: a world whose tokens are samples (inputs, target), such as `TokenTeacher`.
    l2: the penalty λ₂‖w‖². Without one the loss can fall for ever along valleys to infinity, and
        such starts do not converge: the theory's bounded parameter set.
    map: how a teacher's blocks of starts run, as in `fit`.

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
        raise checks.BadInput("networks must name at least one network, but none came.")
    checks.whole("samples", samples, at_least=1)
    checks.whole("teachers", teachers, at_least=2)
    checks.whole("starts", starts, at_least=1)
    checks.whole("tested", tested, at_least=2)
    checks.positive("threshold", threshold)
    first = checks.whole("seed", seed) * teachers
    search = partial(
        ends, world=world, samples=samples, starts=starts, l2=l2, tested=tested,
        tolerance=tolerance, max_steps=max_steps, map=map,
    )  # fmt: skip
    ended = {
        name: tuple(search(make, seed=s) for s in range(first, first + teachers))
        for name, make in networks.items()
    }
    return Audit(samples, threshold, ended)


def _minima(ended: Ends) -> np.ndarray:
    return ended.excess[ended.index == 0]


def _geometric(values: list[Any]) -> Reading:
    """exp of the mean logarithm; d e^x = e^x dx carries the standard error over."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = statistics.mean_reading(np.log(np.asarray(values, float)))
    value = math.exp(logs.value)
    return Reading(value, value * logs.standard_error, logs.count, logs.status)
