"""Shared by the claims about trained networks: logarithms of losses, one per replicate.

Where the quantity is always positive, such as a squared distance, a replicate is a seed (which
redraws data and start). Where it is a difference that noise can turn negative, such as a
generalisation gap, the logarithm is taken of the mean over all cells: logarithms of single cells
would not exist where the value is negative, and would be biased elsewhere. A replicate is then the
jackknife pseudo-value of a cell (`attnlens.core.statistics.log_of_mean`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlens.core.drawing import Series
from attnlens.core.statistics import judge, log_of_mean, slopes
from attnlens.core.verdicts import Part, Region

from .claim import Measured, group_by
from .rates import points, span

Logs = tuple[np.ndarray, np.ndarray]  # log of the axis, and logs (replicate, point)


def across_cells(cells: Sequence[Measured], name: str, axis: str, average: bool = False) -> Logs:
    """From cells that have one value of `axis` each and hold `name` for every seed."""
    columns = []
    for group in group_by(cells, axis).values():
        values = [cell.values[name] for cell in group]
        columns.append([v.mean() for v in values] if average else np.concatenate(values))
    rows = np.array(columns, float).T
    return np.log(list(group_by(cells, axis))), log_of_mean(rows) if average else np.log(rows)


def within_cells(cells: Sequence[Measured], name: str, axis: str, average: bool = False) -> Logs:
    """From cells that hold `name` as (seed, point); their parameter `axis` lists the points."""
    cells = sorted(cells, key=lambda cell: cell.seeds)
    values = [cell.values[name] for cell in cells]
    if average:
        logs = log_of_mean(np.array([v.mean(0) for v in values], float))
    else:
        logs = np.log(np.concatenate(values))
    return np.log(cells[0].parameters[axis]), logs


def judge_slope(quantity: str, logs: Logs, region: Region) -> Part:
    """The slope on log–log axes against `region`; the quantity names the range of the fit."""
    return judge(f"{quantity} ({span(logs[0])})", slopes(*logs), region)


def line(name: str, logs: Logs, control: bool = False) -> Series:
    """The points with their intervals, and the power law through them."""
    return Series(name, points(*logs), float(slopes(*logs).mean()), control=control)
