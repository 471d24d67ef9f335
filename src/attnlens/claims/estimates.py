"""Estimates from the cells of a claim: one number per independent replicate.

pooled, log_of, log_ratio   values of all cells, one per seed
difference                  difference of two estimates, replicate by replicate
Share                       values 0 or 1 per seed: a share with an exact binomial interval
Tobit                       mean of values that are censored at the ends of a grid
ScalingLaw                  exponent of a power law along an axis, one per replicate
FloorLaw                    floor, drop and exponent of a + b x^(−c) along an axis
RankCorrelation             rank correlation of the values with the axis

An axis is a parameter of the cells. There are three kinds of replicates along an axis:

"seed"       one seed, for a quantity that is positive for every seed
"block"      one block of seeds, averaged before the logarithm is taken
"jackknife"  a pseudo-value per block, for noisy quantities that can be negative in single blocks:
             from the logarithms of the mean over all blocks and over all but one
             (`attnlens.core.statistics.log_of_mean`)

An estimate that is a plain function returns one number per seed, or is marked with `per_block`.
`replicates` counts the replicates before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attnlens.core.fits import FloorFit, censored_replicates, floor_replicates
from attnlens.core.shares import judge_share
from attnlens.core.statistics import log_of_mean, rank_correlations, slopes
from attnlens.core.verdicts import Part, Region

from .cells import Measured, Work, group_by

Estimator = TypeVar("Estimator", bound=Callable[..., Any])
Estimate = Callable[[Sequence[Measured]], ArrayLike]
"""One number per independent replicate, from the cells of one group."""
Values = str | Callable[[Measured], np.ndarray]
"""The name of an array of the cells, or a function of a cell."""


def values_of(cell: Measured, values: Values) -> np.ndarray:
    return cell.values[values] if isinstance(values, str) else np.asarray(values(cell))


def pooled(values: Values) -> Callable[[Sequence[Measured]], np.ndarray]:
    """An estimate: the values of all cells in one array, ordered by seeds."""

    def estimate(cells: Sequence[Measured]) -> np.ndarray:
        ordered = sorted(cells, key=lambda cell: cell.seeds)
        return np.concatenate([values_of(cell, values) for cell in ordered]).astype(float)

    return estimate


def log_of(values: Values) -> Callable[[Sequence[Measured]], np.ndarray]:
    """An estimate: the logarithms of the values of all cells.

    >>> log_of("x")([Measured({}, (0, 1), {"x": np.ones(2)})]).tolist()
    [0.0, 0.0]
    """
    return lambda cells: np.log(pooled(values)(cells))


def log_ratio(top: Values, bottom: Values) -> Callable[[Sequence[Measured]], np.ndarray]:
    """An estimate: log top − log bottom, one per seed.

    >>> cell = Measured({}, (0, 1), {"x": np.ones(2), "y": np.full(2, np.e)})
    >>> log_ratio("y", "x")([cell]).tolist()
    [1.0, 1.0]
    """
    return lambda cells: log_of(top)(cells) - log_of(bottom)(cells)


def difference(first: Estimate, second: Estimate) -> Estimate:
    """An estimate: the difference of two estimates, replicate by replicate.

    >>> cell = Measured({}, (0, 1), {"x": np.array([3.0, 4.0]), "y": np.ones(2)})
    >>> difference(pooled("x"), pooled("y"))([cell]).tolist()
    [2.0, 3.0]
    """
    return lambda cells: np.asarray(first(cells)) - np.asarray(second(cells))


@dataclass(frozen=True)
class Share:
    """The share of seeds for which something happened: values 0 or 1, one per seed.

    A quantity with this estimate is judged by exact binomial tests and has the interval of Clopper
    and Pearson (`attnlens.core.shares`), because the t interval of a share near 0 or 1 is too
    short. Seeds must be independent.

    >>> Share("bad")([Measured({}, (0, 1), {"bad": np.array([True, False])})]).tolist()
    [1.0, 0.0]
    """

    values: Values

    def __call__(self, cells: Sequence[Measured]) -> np.ndarray:
        return pooled(self.values)(cells)

    def judge(self, quantity: str, numbers: ArrayLike, region: Region) -> Part:
        return judge_share(quantity, numbers, region)


@dataclass(frozen=True)
class Tobit:
    """The mean of log n(ε); values at the ends of the grid of sample sizes are censored.

    n(ε) is the sample size at which an error curve crosses ε.

    values  log n(ε), one per seed; for a curve that does not cross ε within the grid, the log of
            the nearer end of the grid
    sizes   the parameter of the cells that lists the sample sizes of the grid

    The numbers are jackknife pseudo-values (`attnlens.core.fits.censored_replicates`).

    >>> cell = Measured({"sizes": [1, 100]}, (0, 1, 2), {"log_n": np.array([1.0, 2.0, 3.0])})
    >>> Tobit("log_n", "sizes")([cell]).round(9).tolist()
    [1.0, 2.0, 3.0]
    """

    values: Values
    sizes: str

    def __call__(self, cells: Sequence[Measured]) -> np.ndarray:
        low, *_, high = np.log(cells[0].parameters[self.sizes])
        return censored_replicates(pooled(self.values)(cells), low, high)


@dataclass(frozen=True)
class AlongAxis:
    """Values along an axis, one curve per replicate.

    values     the name of an array of the cells, or a function of a cell
    axis       the parameter along which the values change
    replicate  "seed", "block" or "jackknife" (see the module's docstring)
    within     True if each cell holds all points as columns and its parameter `axis` lists them
    last       the number of points at the end of the axis that are used; None for all points
    """

    values: Values
    axis: str
    replicate: Literal["seed", "block", "jackknife"] = "seed"
    within: bool = False
    last: int | None = None

    def columns(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        """The points of the axis that are used, and the values there, (replicate, point)."""
        at, columns = self._all_columns(cells)
        first = 0 if self.last is None else len(at) - self.last
        return np.asarray(at)[first:], columns[:, first:]

    def _all_columns(self, cells: Sequence[Measured]) -> tuple[Any, np.ndarray]:
        whole = self.replicate == "seed"
        if self.within:
            cells = sorted(cells, key=lambda cell: cell.seeds)
            rows = [values_of(cell, self.values) for cell in cells]
            rows = rows if whole else [row.mean(0, keepdims=True) for row in rows]
            return cells[0].parameters[self.axis], np.concatenate(rows).astype(float)
        groups = group_by(cells, self.axis)
        columns = []
        for group in groups.values():
            values = [values_of(cell, self.values) for cell in group]
            columns.append(np.concatenate(values) if whole else [v.mean() for v in values])
        return list(groups), np.array(columns, float).T

    def span(self, cells: Sequence[Measured | Work]) -> str:
        """The range of the axis in words, such as "64 to 4096"."""
        if self.within:
            at = list(cells[0].parameters[self.axis])
        else:
            at = sorted({cell.parameters[self.axis] for cell in cells})
        at = at if self.last is None else at[-self.last :]
        return f"{round(at[0])} to {round(at[-1])}"


@dataclass(frozen=True)
class ScalingLaw(AlongAxis):
    """The power law value ∝ axis^b, with one exponent b per replicate.

    root    True if the values are squared errors and the law is that of their root mean square
    over    other values; if given, the law is that of the ratio of the two averages
    logged  True if the values are already logarithms

    >>> cells = [Measured({"length": n}, (0,), {"error": np.array([n**-0.5])}) for n in (1, 4, 16)]
    >>> ScalingLaw("error", "length").slopes(cells).tolist()
    [-0.5]
    """

    root: bool = False
    over: Values | None = None
    logged: bool = False

    def logs(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms of the axis, and those of the values, (replicate, point)."""
        at, columns = self.columns(cells)
        scale = 0.5 if self.root else 1.0
        if self.replicate == "jackknife":
            logs = scale * log_of_mean(columns)
        else:
            logs = scale * (columns if self.logged else np.log(columns))
        if self.over is not None:
            logs = logs - replace(self, values=self.over, over=None).logs(cells)[1]
        return np.log(at), logs

    def slopes(self, cells: Sequence[Measured]) -> np.ndarray:
        """The exponents, one per replicate."""
        return slopes(*self.logs(cells))

    def tail(self, points: int) -> ScalingLaw:
        """The same law at the last `points` points of the axis only.

        If a curve bends, its slope over the whole range is not a rate.

        >>> cells = [Measured({"n": n}, (0,), {"x": np.array([1 + 9 / n])}) for n in (1, 10, 100)]
        >>> law = ScalingLaw("x", "n")
        >>> law.tail(3).slopes(cells).round(2).tolist(), law.last_slopes(cells).round(2).tolist()
        ([-0.48], [-0.24])
        """
        return replace(self, last=points)

    @property
    def last_slopes(self) -> Callable[[Sequence[Measured]], np.ndarray]:
        """The estimate of the last local slope: between the last two points of the axis."""
        return self.tail(2).slopes


@dataclass(frozen=True)
class FloorLaw(AlongAxis):
    """value = floor + drop · (axis/first point)^(−exponent), fitted to the mean curve.

    `floors`, `drops` and `exponents` return jackknife pseudo-values, one per seed or per block
    (`attnlens.core.fits.floor_replicates` describes the fit and the coverage of the intervals). The
    fit needs at least four points of the axis and eight replicates.

    >>> rows = 0.1 + 2.0 * np.array([1.0, 2, 4, 8, 16]) ** -0.7 * np.array([[0.9], [1.0], [1.1]])
    >>> cell = Measured({"n": [8, 16, 32, 64, 128]}, (0, 1, 2), {"risk": rows})
    >>> law = FloorLaw("risk", "n", within=True)
    >>> float(law.floors([cell]).mean().round(4)), float(law.exponents([cell]).mean().round(4))
    (0.1, 0.7)
    """

    def fits(self, cells: Sequence[Measured]) -> FloorFit:
        return floor_replicates(*self.columns(cells))

    def floors(self, cells: Sequence[Measured]) -> np.ndarray:
        """The floor, the limit of the value as the axis goes to infinity: pseudo-values."""
        return self.fits(cells).floor

    def drops(self, cells: Sequence[Measured]) -> np.ndarray:
        """The drop, the value at the first point minus the floor: pseudo-values."""
        return self.fits(cells).drop

    def exponents(self, cells: Sequence[Measured]) -> np.ndarray:
        """The exponent of the fall towards the floor: pseudo-values."""
        return self.fits(cells).exponent


@dataclass(frozen=True)
class RankCorrelation(AlongAxis):
    """Spearman's rank correlation of the values with the axis, one per replicate.

    >>> cell = Measured({"n": [1, 2, 4]}, (0, 1), {"x": np.array([[1.0, 2, 3], [3.0, 2, 1]])})
    >>> RankCorrelation("x", "n", within=True).correlations([cell]).tolist()
    [1.0, -1.0]
    """

    def correlations(self, cells: Sequence[Measured]) -> np.ndarray:
        return rank_correlations(*self.columns(cells))


def law_of(estimate: Any) -> AlongAxis | None:
    """The law that an estimate belongs to, or None.

    The estimate is a method such as `ScalingLaw.slopes`, or it has an attribute `law`.
    """
    law = getattr(estimate, "__self__", None) or getattr(estimate, "law", None)
    return law if isinstance(law, AlongAxis) else None


def span_of(estimate: Any, cells: Sequence[Measured | Work]) -> str:
    """The range of the axis over which an estimate is fitted; the estimate must have a law."""
    law = law_of(estimate)
    if law is None:
        raise TypeError("{span} needs an estimate along an axis")
    return law.span(cells)


def per_block(estimate: Estimator) -> Estimator:
    """Mark a function as an estimate with one number per block of seeds (default: per seed).

    >>> means = per_block(lambda cells: [cell.values["x"].mean() for cell in cells])
    >>> replicates(means, [Work("prediction", {}, (0, 1)), Work("prediction", {}, (2, 3))])
    2
    """
    setattr(estimate, "replicate", "block")  # noqa: B010 (a function has no such field to type)
    return estimate


def replicates(estimate: Any, cells: Sequence[Measured | Work]) -> int:
    """The number of replicates of an estimate in a group of cells: seeds or blocks of seeds.

    >>> works = [Work("prediction", {"n": n}, seeds) for n in (1, 2) for seeds in ((0, 1), (2, 3))]
    >>> replicates(pooled("x"), works), replicates(ScalingLaw("x", "n", "block").slopes, works)
    (4, 2)
    """
    law = law_of(estimate)
    kind = getattr(estimate, "replicate", "seed") if law is None else law.replicate
    if kind == "seed":
        return len({seed for cell in cells for seed in cell.seeds})
    return len({cell.seeds for cell in cells})
