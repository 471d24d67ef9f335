"""Shared by the claims about rates: the grid of cells, slopes over blocks, the lines of a figure.

Such a claim measures a squared error for every episode, over key dimensions m (keys on the sphere
in R^(m+1)) and lengths L, in blocks of episodes; the root mean square of a block is one replicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from attnlens.core.drawing import Point, Series
from attnlens.core.statistics import judge, mean_reading, slopes
from attnlens.core.verdicts import Part, Region

from .claim import PREDICTION, Measured, Work, blocks, group_by


def grid(
    counts: Mapping[str, int],
    dims: Sequence[int],
    lengths: Sequence[int],
    episodes: Callable[[int], int],
    seconds: Callable[[int], float],
) -> Iterator[Work]:
    """`counts[arm]` blocks of `episodes(length)` seeds at every m and L.

    `seconds(length)` is the rough cost of one episode.
    """
    for arm, count in counts.items():
        for m in dims:
            for length in lengths:
                for seeds in blocks(count, episodes(length)):
                    cost = 0.005 + len(seeds) * seconds(length)
                    yield Work(arm, {"manifold_dim": m, "length": length}, seeds, cost)


def log_root_mean_squares(
    cells: Sequence[Measured], name: str = "squared", axis: str = "length"
) -> tuple[np.ndarray, np.ndarray]:
    """log of the axis, and log root mean squares (block, point) of the array `name`."""
    groups = group_by(cells, axis)
    logs = [[0.5 * np.log(cell.values[name].mean()) for cell in group] for group in groups.values()]
    return np.log(list(groups)), np.array(logs).T


def judge_slopes(
    measured: Sequence[Measured], quantity: str, region: Callable[[int], Region]
) -> list[Part]:
    """One part per key dimension m: the slope of log RMSE in log L, against `region(m)`."""
    parts = []
    for m, cells in group_by(measured, "manifold_dim").items():
        x, logs = log_root_mean_squares(cells)
        parts.append(judge(f"{quantity} ({sphere(m)}, L {span(x)})", slopes(x, logs), region(m)))
    return parts


def sphere(m: int) -> str:
    """The meaning of m in words; labels of figures say only "m = 2"."""
    return f"keys on a sphere of dimension m = {m}"


def span(x: np.ndarray) -> str:
    """The range over which a rate was fitted, from the logarithms of its axis.

    >>> span(np.log([64, 256, 4096]))
    '64 to 4096'
    """
    low, high = np.exp(x[[0, -1]]).round().astype(int)
    return f"{low} to {high}"


def lines(
    arms: Mapping[str, Sequence[Measured]],
    names: Mapping[str, str],
    reference: Callable[[int], float] | None = None,
) -> list[Series]:
    """One line per key dimension and arm, with its slope; `names` holds a label for each arm."""
    series = []
    for arm, measured in arms.items():
        for m, cells in group_by(measured, "manifold_dim").items():
            x, logs = log_root_mean_squares(cells)
            control = arm != PREDICTION
            predicted = None if control or reference is None else reference(m)
            slope = float(slopes(x, logs).mean())
            name = f"{names[arm]}, m = {m}"
            series.append(Series(name, points(x, logs), slope, predicted, control=control))
    return series


def points(x: np.ndarray, logs: np.ndarray) -> tuple[Point, ...]:
    """exp of the mean log over blocks, with the upper half-width of its interval after exp."""
    return tuple(
        mean_reading(column).exp_point(np.exp(log_x))
        for log_x, column in zip(x, logs.T, strict=True)
    )
