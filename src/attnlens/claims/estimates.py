"""Estimates from the cells of a claim: one number per independent replicate.

pooled, log_of, log_ratio   values of all cells, one per seed
ScalingLaw                    the exponent of a power law along an axis, one per replicate

A replicate of a power law is one of three:

"seed"    one seed, for a quantity that is positive for every seed
"block"   one block of seeds, averaged before the logarithm is taken
"jackknife"  the pseudo-value of a block, where noise can turn single blocks negative: the logarithm
             is taken of the mean over all blocks (`attnlens.core.statistics.log_of_mean`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from attnlens.core.statistics import log_of_mean, slopes

from .claim import Measured, group_by

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


@dataclass(frozen=True)
class ScalingLaw:
    """value ∝ axis^b: the logarithms along the axis, and the exponent b of every replicate.

    values     the name of an array of the cells, or a function of a cell
    axis       the parameter along which the values change
    replicate  "seed", "block" or "jackknife" (see the module)
    root       True for squared errors: the root mean square of a block
    within     True if a cell holds all points as columns and its parameter `axis` lists them
    over       a second array: the power law is that of the ratio of the two averages
    logged     True if the values are logarithms already

    >>> cells = [Measured({"length": n}, (0,), {"error": np.array([n**-0.5])}) for n in (1, 4, 16)]
    >>> ScalingLaw("error", "length").slopes(cells).tolist()
    [-0.5]
    """

    values: Values
    axis: str
    replicate: Literal["seed", "block", "jackknife"] = "seed"
    root: bool = False
    within: bool = False
    over: Values | None = None
    logged: bool = False

    def logs(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        """log of the axis, and the logarithms (replicate, point)."""
        at, columns = self._columns(cells)
        scale = 0.5 if self.root else 1.0
        if self.replicate == "jackknife":
            logs = scale * log_of_mean(columns)
        else:
            logs = scale * (columns if self.logged else np.log(columns))
        if self.over is not None:
            logs = logs - replace(self, values=self.over, over=None).logs(cells)[1]
        return np.log(at), logs

    def _columns(self, cells: Sequence[Measured]) -> tuple[Any, np.ndarray]:
        """The axis, and the values (replicate, point)."""
        if self.within:
            cells = sorted(cells, key=lambda cell: cell.seeds)
            rows = [values_of(cell, self.values) for cell in cells]
            rows = (
                rows if self.replicate == "seed" else [row.mean(0, keepdims=True) for row in rows]
            )
            return cells[0].parameters[self.axis], np.concatenate(rows).astype(float)
        groups = group_by(cells, self.axis)
        columns = []
        for group in groups.values():
            values = [values_of(cell, self.values) for cell in group]
            whole = self.replicate == "seed"
            columns.append(np.concatenate(values) if whole else [v.mean() for v in values])
        return list(groups), np.array(columns, float).T

    def slopes(self, cells: Sequence[Measured]) -> np.ndarray:
        """The exponent, one per replicate."""
        return slopes(*self.logs(cells))

    def span(self, cells: Sequence[Measured]) -> str:
        """The range of the axis: "64 to 4096"."""
        low, high = np.exp(self.logs(cells)[0][[0, -1]]).round().astype(int)
        return f"{low} to {high}"


def span_of(estimate: Any, cells: Sequence[Measured]) -> str:
    """The range of the axis that an estimate is fitted over.

    `estimate` is the method `ScalingLaw.slopes`, or a function with an attribute `law`.
    """
    law = getattr(estimate, "__self__", None) or getattr(estimate, "law", None)
    if not isinstance(law, ScalingLaw):
        raise TypeError("{span} needs an estimate of a ScalingLaw")
    return law.span(cells)
