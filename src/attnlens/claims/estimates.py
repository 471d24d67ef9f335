"""Estimates from the cells of a claim: one number per independent replicate.

pooled, log_of, log_ratio   values of all cells, one per seed
difference                  of two estimates, pair by pair
Share                       0 or 1 per seed: a share, with an exact binomial interval
Tobit                       a mean of values that are censored at the ends of a grid
ScalingLaw                  the exponent of a power law along an axis, one per replicate
FloorLaw                    floor, drop and exponent of a + b x^(−c) along an axis
RankCorrelation             of the values with the axis

A replicate along an axis is one of three:

"seed"    one seed, for a quantity that is positive for every seed
"block"   one block of seeds, averaged before the logarithm is taken
"jackknife"  a pseudo-value per block, for noisy quantities that can be negative in single blocks:
             from the logarithms of the mean over all blocks and over all but one
             (`attnlens.core.statistics.log_of_mean`)

Any other estimate has one number per seed, or is marked with `per_block`; `replicates` counts them
before the run.
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
    """The values of all cells, one after the other."""

    def estimate(cells: Sequence[Measured]) -> np.ndarray:
        ordered = sorted(cells, key=lambda cell: cell.seeds)
        return np.concatenate([values_of(cell, values) for cell in ordered]).astype(float)

    return estimate


def log_of(values: Values) -> Callable[[Sequence[Measured]], np.ndarray]:
    """The logarithms of the values of all cells.

    >>> log_of("x")([Measured({}, (0, 1), {"x": np.ones(2)})]).tolist()
    [0.0, 0.0]
    """
    return lambda cells: np.log(pooled(values)(cells))


def log_ratio(top: Values, bottom: Values) -> Callable[[Sequence[Measured]], np.ndarray]:
    """log top − log bottom, pair by pair.

    >>> cell = Measured({}, (0, 1), {"x": np.ones(2), "y": np.full(2, np.e)})
    >>> log_ratio("y", "x")([cell]).tolist()
    [1.0, 1.0]
    """
    return lambda cells: log_of(top)(cells) - log_of(bottom)(cells)


def difference(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two estimates, pair by pair.

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
    short. Only for independent seeds.

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
    """The mean of log n(ε), where values at the ends of the grid of sample sizes are censored.

    values  log n(ε), one per seed; a curve that does not cross ε has the log of the nearer end
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
    replicate  "seed", "block" or "jackknife" (see the module)
    within     True if a cell holds all points as columns and its parameter `axis` lists them
    last       only the last so many points of the axis are used; None for all
    """

    values: Values
    axis: str
    replicate: Literal["seed", "block", "jackknife"] = "seed"
    within: bool = False
    last: int | None = None

    def columns(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        """The axis, and the values (replicate, point), of the points that are used."""
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
        """The range of the axis: "64 to 4096"."""
        if self.within:
            at = list(cells[0].parameters[self.axis])
        else:
            at = sorted({cell.parameters[self.axis] for cell in cells})
        at = at if self.last is None else at[-self.last :]
        return f"{round(at[0])} to {round(at[-1])}"


@dataclass(frozen=True)
class ScalingLaw(AlongAxis):
    """value ∝ axis^b: the logarithms along the axis, and the exponent b of every replicate.

    root    True for squared errors: the root mean square of a block
    over    a second array: the power law is that of the ratio of the two averages
    logged  True if the values are logarithms already

    >>> cells = [Measured({"length": n}, (0,), {"error": np.array([n**-0.5])}) for n in (1, 4, 16)]
    >>> ScalingLaw("error", "length").slopes(cells).tolist()
    [-0.5]
    """

    root: bool = False
    over: Values | None = None
    logged: bool = False

    def logs(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        """log of the axis, and the logarithms (replicate, point)."""
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
        """The exponent, one per replicate."""
        return slopes(*self.logs(cells))

    def tail(self, points: int) -> ScalingLaw:
        """The same law at the last `points` points of the axis: where a curve bends, its slope over
        the whole range is not a rate.

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

    Each estimate gives jackknife pseudo-values, one per seed or per block
    (`attnlens.core.fits.floor_replicates` has the fit and the coverage of the intervals). At least
    four points of the axis and eight replicates.

    >>> rows = 0.1 + 2.0 * np.array([1.0, 2, 4, 8, 16]) ** -0.7 * np.array([[0.9], [1.0], [1.1]])
    >>> cell = Measured({"n": [8, 16, 32, 64, 128]}, (0, 1, 2), {"risk": rows})
    >>> law = FloorLaw("risk", "n", within=True)
    >>> float(law.floors([cell]).mean().round(4)), float(law.exponents([cell]).mean().round(4))
    (0.1, 0.7)
    """

    def fits(self, cells: Sequence[Measured]) -> FloorFit:
        return floor_replicates(*self.columns(cells))

    def floors(self, cells: Sequence[Measured]) -> np.ndarray:
        """What remains at the end of the axis, however far it goes."""
        return self.fits(cells).floor

    def drops(self, cells: Sequence[Measured]) -> np.ndarray:
        """What falls: the value at the first point minus the floor."""
        return self.fits(cells).drop

    def exponents(self, cells: Sequence[Measured]) -> np.ndarray:
        """How fast it falls."""
        return self.fits(cells).exponent


@dataclass(frozen=True)
class RankCorrelation(AlongAxis):
    """Spearman's rank correlation of the values with the axis, one per seed or block.

    >>> cell = Measured({"n": [1, 2, 4]}, (0, 1), {"x": np.array([[1.0, 2, 3], [3.0, 2, 1]])})
    >>> RankCorrelation("x", "n", within=True).correlations([cell]).tolist()
    [1.0, -1.0]
    """

    def correlations(self, cells: Sequence[Measured]) -> np.ndarray:
        return rank_correlations(*self.columns(cells))


def law_of(estimate: Any) -> AlongAxis | None:
    """The law of an estimate: of a method such as `ScalingLaw.slopes`, or of an attribute `law`."""
    law = getattr(estimate, "__self__", None) or getattr(estimate, "law", None)
    return law if isinstance(law, AlongAxis) else None


def span_of(estimate: Any, cells: Sequence[Measured | Work]) -> str:
    """The range of the axis that an estimate is fitted over (see `law_of`)."""
    law = law_of(estimate)
    if law is None:
        raise TypeError("{span} needs an estimate along an axis")
    return law.span(cells)


def per_block(estimate: Estimator) -> Estimator:
    """Mark an estimate of your own that gives one number per block of seeds (default: per seed).

    >>> means = per_block(lambda cells: [cell.values["x"].mean() for cell in cells])
    >>> replicates(means, [Work("prediction", {}, (0, 1)), Work("prediction", {}, (2, 3))])
    2
    """
    setattr(estimate, "replicate", "block")  # noqa: B010 (a function has no such field to type)
    return estimate


def replicates(estimate: Any, cells: Sequence[Measured | Work]) -> int:
    """The number of replicates that an estimate has in a group of cells: seeds, or blocks of them.

    >>> works = [Work("prediction", {"n": n}, seeds) for n in (1, 2) for seeds in ((0, 1), (2, 3))]
    >>> replicates(pooled("x"), works), replicates(ScalingLaw("x", "n", "block").slopes, works)
    (4, 2)
    """
    law = law_of(estimate)
    kind = getattr(estimate, "replicate", "seed") if law is None else law.replicate
    if kind == "seed":
        return len({seed for cell in cells for seed in cell.seeds})
    return len({cell.seeds for cell in cells})
