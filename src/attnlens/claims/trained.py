"""What claims about trained networks share: logarithms of losses, replicate by replicate.

A replicate is a seed (which redraws data and start) where the quantity is positive by nature, such
as a squared distance. Where it is a difference that noise can turn negative, such as a
generalisation gap, the logarithm is that of the mean over all cells: of cells one by one it would
be missing where noise won, and biased where it did not. A replicate is then a cell's pseudo-value,
with n cells and the mean m₍ᵢ₎ of all but the i-th,

    n log m − (n − 1) log m₍ᵢ₎,

whose t interval is the jackknife's (Tukey, Bias and confidence in not-quite large samples, 1958).
A slope is linear in logarithms, so slopes of pseudo-values are pseudo-values of the slope.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlens.records import Part, Region, Series
from attnlens.statistics import judge, slopes

from .base import Measured, by
from .rates import points, span

Logs = tuple[np.ndarray, np.ndarray]  # log of the axis, and logs (replicate, point)


def across(cells: Sequence[Measured], name: str, axis: str, average: bool = False) -> Logs:
    """From cells with one value of `axis` each, holding `name` for every seed."""
    columns = []
    for group in by(cells, axis).values():
        values = [cell.values[name] for cell in group]
        columns.append([v.mean() for v in values] if average else np.concatenate(values))
    rows = np.array(columns, float).T
    return np.log(list(by(cells, axis))), log_of_mean(rows) if average else np.log(rows)


def within(cells: Sequence[Measured], name: str, axis: str, average: bool = False) -> Logs:
    """From cells that hold `name` as (seed, point), at the points that parameter `axis` lists."""
    cells = sorted(cells, key=lambda cell: cell.seeds)
    values = [cell.values[name] for cell in cells]
    if average:
        logs = log_of_mean(np.array([v.mean(0) for v in values], float))
    else:
        logs = np.log(np.concatenate(values))
    return np.log(cells[0].parameters[axis]), logs


def log_of_mean(rows: np.ndarray) -> np.ndarray:
    """Pseudo-values of the logarithm of each column's mean; NaN where that mean, or one without a
    single row, is not above zero.

    >>> log_of_mean(np.full((3, 1), np.e)).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    count = len(rows)
    means, others = rows.mean(0), (rows.sum(0) - rows) / (count - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = count * np.log(means) - (count - 1) * np.log(others)
    return np.where(np.isfinite(logs).all(0), logs, np.nan)


def judge_slope(quantity: str, logs: Logs, region: Region) -> Part:
    """The slope on log–log axes against `region`; the range it was fitted on is said with it."""
    return judge(f"{quantity} ({span(logs[0])})", slopes(*logs), region)


def line(name: str, logs: Logs, control: bool = False) -> Series:
    """The points with their intervals, and the power law through them."""
    return Series(name, points(*logs), float(slopes(*logs).mean()), control=control)
