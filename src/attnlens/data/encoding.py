"""Columns as numbers: what is learned from some rows, and applied to any.

    number     itself; the median where it is missing, and a column that says so
    date       days since 1970-01-01, otherwise like a number
    category   a column for each frequent one, and one for all others

A category is frequent when it stands in at least one row of a hundred, and at most 20 are told
apart: a rarer one would be seen in less than every third batch of 32. A category that was not there
when the encoder was fitted is one of the others; where there are none it is a row of zeros, and
halfway between the two where there are only two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .columns import Typed, printable

MOST_LEVELS = 20
LEAST_SHARE = 0.01
ABSENT = "(missing)"
OTHER = "(other)"


class Feature(NamedTuple):
    """How one column becomes numbers."""

    name: str
    kind: str
    fill: float = 0.0
    flagged: bool = False
    levels: tuple[str, ...] = ()
    others: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it becomes."""
        if self.kind != "category":
            return (self.name, f"{self.name} is missing") if self.flagged else (self.name,)
        if self.two:
            return (f"{self.name} = {printable(self.levels[1])}",)
        return tuple(f"{self.name} = {printable(e)}" for e in (*self.levels, *self._rest))

    @property
    def two(self) -> bool:
        """Two categories and no others: one column tells them apart."""
        return len(self.levels) == 2 and not self.others

    @property
    def _rest(self) -> tuple[str, ...]:
        return (OTHER,) if self.others else ()

    def apply(self, column: Typed) -> np.ndarray:
        """The column as numbers, (rows, len(names))."""
        if self.kind != "category":
            gone = column.missing
            filled = np.where(gone, self.fill, column.values.astype(float))
            return np.stack([filled, gone], 1) if self.flagged else filled[:, None]
        place = {level: i for i, level in enumerate(self.levels)}
        codes = np.array([place.get(ABSENT if v is None else v, -1) for v in column.values], int)
        if self.two:
            return np.where(codes < 0, 0.5, codes)[:, None].astype(float)
        width = len(self.levels) + self.others
        codes = np.where((codes < 0) & self.others, width - 1, codes)
        return (codes[:, None] == np.arange(width)).astype(float)


class Encoder(NamedTuple):
    """Columns to numbers; `fit` on the rows that may be looked at, `apply` to any.

    >>> columns = {"size": Typed("number", np.array([1.0, np.nan, 3.0, 5.0]))}
    >>> encoder = Encoder.fit(columns)
    >>> encoder.apply(columns).tolist()  # the median where it is missing, and where that was
    [[1.0, 0.0], [3.0, 1.0], [3.0, 0.0], [5.0, 0.0]]
    """

    features: tuple[Feature, ...]
    dropped: tuple[str, ...] = ()  # columns that say nothing on those rows

    @classmethod
    def fit(cls, columns: Mapping[str, Typed]) -> Encoder:
        """What these rows say about each column; columns that are constant on them are left out."""
        fitted = {name: _fitted(name, column) for name, column in columns.items()}
        kept = tuple(feature for feature in fitted.values() if feature is not None)
        return cls(kept, tuple(name for name, feature in fitted.items() if feature is None))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for feature in self.features for name in feature.names)

    def apply(self, columns: Mapping[str, Typed]) -> np.ndarray:
        """(rows, columns) in float64, without a missing value."""
        rows = len(next(iter(columns.values())).values)
        parts = [feature.apply(columns[feature.name]) for feature in self.features]
        return np.concatenate([np.zeros((rows, 0)), *parts], axis=1)


def _fitted(name: str, column: Typed) -> Feature | None:
    if column.kind in ("number", "date"):
        there = column.values[~column.missing]
        if not len(there) or (there.min() == there.max() and len(there) == len(column.values)):
            return None
        flagged = len(there) < len(column.values)
        return Feature(name, column.kind, fill=median(there), flagged=flagged)
    counts = Counter(ABSENT if value is None else str(value) for value in column.values)
    least = max(2, LEAST_SHARE * len(column.values))
    frequent = [level for level, count in counts.items() if count >= least]
    frequent = sorted(frequent, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
    others = len(frequent) < len(counts)
    if len(frequent) + others < 2:
        return None
    return Feature(name, "category", levels=tuple(sorted(frequent)), others=others)


def median(values: np.ndarray) -> float:
    """The median; also of numbers so large that the sum of two overflows."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
