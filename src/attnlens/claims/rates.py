"""What claims about rates share: root mean squares over blocks of episodes, and their points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlens.records import Point
from attnlens.statistics import mean_reading, t_interval

from .base import Measured, by


def log_root_mean_squares(
    cells: Sequence[Measured], name: str, axis: str = "length"
) -> tuple[np.ndarray, np.ndarray]:
    """log of the axis, and log root mean squares (block, point) of the array called `name`."""
    groups = by(cells, axis)
    logs = [[0.5 * np.log(cell.values[name].mean()) for cell in group] for group in groups.values()]
    return np.log(list(groups)), np.array(logs).T


def points(x: np.ndarray, logs: np.ndarray) -> tuple[Point, ...]:
    """exp of the mean log over blocks, with the half-width of its interval on the plain scale."""
    drawn = []
    for at, column in zip(x, logs.T, strict=True):
        reading = mean_reading(column)
        value, high = np.exp(reading.value), np.exp(t_interval(reading)[1])
        drawn.append(Point(float(np.exp(at)), float(value), float(high - value)))
    return tuple(drawn)
