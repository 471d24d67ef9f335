"""Cells, the units of work of a claim: their classes, and functions of lists of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np


class Work(NamedTuple):
    """Specification of a cell: arm, parameters, seeds, and a rough cost in seconds.

    >>> Work("prediction", {"length": 16}, (0, 1, 2)).cost
    1.0
    """

    arm: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    cost: float = 1.0


class Measured(NamedTuple):
    """A finished cell, as it is passed to `judge`.

    >>> cell = Measured({"length": 16}, (0, 1), {"squared": np.array([0.5, 0.7])})
    >>> float(cell.values["squared"].mean())
    0.6
    """

    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    values: Mapping[str, np.ndarray]


CellKind = TypeVar("CellKind", Measured, Work)
"""A finished cell or the specification of one: both have parameters and seeds."""


def blocks(count: int, size: int, first: int = 0) -> list[tuple[int, ...]]:
    """`count` blocks of `size` seeds, starting at seed `first`.

    A larger `count` only appends blocks, so a larger profile reuses the cells of a smaller one.

    >>> blocks(2, 3)
    [(0, 1, 2), (3, 4, 5)]
    """
    starts = range(first, first + count * size, size)
    return [tuple(range(start, start + size)) for start in starts]


def example(measured: Iterable[Measured], name: str, **parameters: Any) -> np.ndarray | None:
    """The array `name` of the first cell that has it and has these parameters, or None.

    Such an array is an example for a figure and is not judged.
    """
    for cell in measured:
        if name in cell.values and parameters.items() <= cell.parameters.items():
            return cell.values[name]
    return None


def group_by(measured: Iterable[CellKind], *names: str) -> dict[Any, list[CellKind]]:
    """Cells grouped by the values of the named parameters, which are the keys of the result.

    Groups are sorted by these values, the cells of a group by their seeds.
    """
    groups: dict[Any, list[CellKind]] = {}
    for cell in sorted(measured, key=lambda cell: cell.seeds):
        values = tuple(cell.parameters[name] for name in names)
        groups.setdefault(values[0] if len(names) == 1 else values, []).append(cell)
    return dict(sorted(groups.items()))


def stacked(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Named arrays with one entry per seed, from one mapping per seed.

    >>> stacked([{"error": 0.1}, {"error": 0.2}])
    {'error': array([0.1, 0.2])}
    """
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
