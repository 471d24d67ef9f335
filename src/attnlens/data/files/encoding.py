"""Columns as numbers: an encoder is fitted on some rows and applied to any rows.

    number     the number; missing numbers become the median, and a second column flags them
    date       days since 1970-01-01, encoded like a number
    category   one indicator column per frequent category, and one for all others

A category is frequent if it occurs in at least 1 % of the rows, and at most 20 categories are
frequent: a category with a share below 1 % would occur in less than one of three batches of 32
rows. A category that did not occur when the encoder was fitted counts as "other". If the encoder
has no column for others, such a category is encoded as zeros; if there are only two categories,
which share one column (0 or 1), it is encoded as 0.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .columns import TypedColumn, printable

MOST_LEVELS = 20  # maximal number of frequent categories
LEAST_SHARE = 0.01  # minimal share of the rows in which a frequent category occurs
ABSENT = "(missing)"
OTHER = "(other)"


class Feature(NamedTuple):
    """How one column is converted to numbers."""

    name: str
    kind: str
    fill: float = 0.0  # replaces missing numbers
    flagged: bool = False  # whether a second column flags missing numbers
    levels: tuple[str, ...] = ()  # frequent categories
    others: bool = False  # whether a last column stands for all other categories

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        if self.kind != "category":
            return (self.name, f"{self.name} is missing") if self.flagged else (self.name,)
        if self.two:
            return (f"{self.name} = {printable(self.levels[1])}",)
        levels = (*self.levels, OTHER) if self.others else self.levels
        return tuple(f"{self.name} = {printable(level)}" for level in levels)

    @property
    def two(self) -> bool:
        """Whether there are two categories and no others: one column distinguishes them."""
        return len(self.levels) == 2 and not self.others

    def apply(self, column: TypedColumn) -> np.ndarray:
        """The column as numbers, (rows, len(names))."""
        if self.kind != "category":
            missing = column.missing
            filled = np.where(missing, self.fill, column.values.astype(float))
            return np.stack([filled, missing], 1) if self.flagged else filled[:, None]
        index = {level: i for i, level in enumerate(self.levels)}
        codes = np.array([index.get(ABSENT if v is None else v, -1) for v in column.values], int)
        if self.two:
            return np.where(codes < 0, 0.5, codes)[:, None].astype(float)
        width = len(self.levels) + self.others
        codes = np.where((codes < 0) & self.others, width - 1, codes)
        return (codes[:, None] == np.arange(width)).astype(float)


class ColumnEncoder(NamedTuple):
    """Encodes columns as numbers: `fit` on the training rows, `apply` to any rows.

    >>> columns = {"size": TypedColumn("number", np.array([1.0, np.nan, 3.0, 5.0]))}
    >>> encoder = ColumnEncoder.fit(columns)
    >>> encoder.apply(columns).tolist()  # NaN becomes the median, and the second column flags it
    [[1.0, 0.0], [3.0, 1.0], [3.0, 0.0], [5.0, 0.0]]
    """

    features: tuple[Feature, ...]
    dropped: tuple[str, ...] = ()  # names of columns that are constant on the fitted rows

    @classmethod
    def fit(cls, columns: Mapping[str, TypedColumn]) -> ColumnEncoder:
        """Learn medians and categories from these rows; columns that are constant are dropped."""
        fitted = {name: _fit_feature(name, column) for name, column in columns.items()}
        features = tuple(feature for feature in fitted.values() if feature is not None)
        return cls(features, tuple(name for name, feature in fitted.items() if feature is None))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of the columns that flag missing numbers."""
        return tuple(feature.names[1] for feature in self.features if feature.flagged)

    def apply(self, columns: Mapping[str, TypedColumn]) -> np.ndarray:
        """The encoded columns (rows, columns) in float64, without missing values."""
        rows = len(next(iter(columns.values())).values)
        parts = [feature.apply(columns[feature.name]) for feature in self.features]
        return np.concatenate([np.zeros((rows, 0)), *parts], axis=1)


def _fit_feature(name: str, column: TypedColumn) -> Feature | None:
    """How to encode a column; None if it is constant."""
    if column.kind in ("number", "date"):
        present = column.values[~column.missing]
        complete = len(present) == len(column.values)
        if not len(present) or (present.min() == present.max() and complete):
            return None
        return Feature(name, column.kind, fill=median(present), flagged=not complete)
    counts = Counter(ABSENT if value is None else str(value) for value in column.values)
    least = max(2, LEAST_SHARE * len(column.values))
    frequent = [level for level, count in counts.items() if count >= least]
    frequent = sorted(frequent, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
    others = len(frequent) < len(counts)
    if len(frequent) + others < 2:
        return None
    return Feature(name, "category", levels=tuple(sorted(frequent)), others=others)


def median(values: np.ndarray) -> float:
    """The median; it does not overflow even if the sum of the two middle values would."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
