"""What claims about trained networks share: logarithms of losses, replicate by replicate.

A replicate is a seed (which redraws data and start) where the quantity is positive by nature, such
as a squared distance. Where it is a difference that noise can turn negative, such as a
generalisation gap, the logarithm is that of the mean over all cells: of cells one by one it would
be missing where noise won, and biased where it did not. A replicate is then a cell's pseudo-value
(`statistics.log_of_mean`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlens.records import Part, Region, Series
from attnlens.statistics import judge, log_of_mean, slopes

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


def judge_slope(quantity: str, logs: Logs, region: Region) -> Part:
    """The slope on log–log axes against `region`; the range it was fitted on is said with it."""
    return judge(f"{quantity} ({span(logs[0])})", slopes(*logs), region)


def line(name: str, logs: Logs, control: bool = False) -> Series:
    """The points with their intervals, and the power law through them."""
    return Series(name, points(*logs), float(slopes(*logs).mean()), control=control)
