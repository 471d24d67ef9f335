"""What `read` returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from attnlens.data.dataset import Dataset

from .columns import TypedColumn
from .encoding import ColumnEncoder
from .facts import Facts, RowsRead, rendered, rows_read


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded:
    """A file as data, with facts that say how everything in it was treated.

    dataset     the record of inputs and labels; labels are NaN without a target
    X           (n, p) or (n, L, t); None for texts
    y           numbers, or class numbers with names in `classes`; None without a target
    task        "regression" or "classification"; None without a target
    names       the names along the last axis of X
    sequences   one array per sequence, of its own length; None if rows are not sequences
    records     everything that was inferred or done, as typed facts (`data/files/facts.py`)
    encoder     the encoder of columns as numbers, fitted on all rows that were read; to encode
                without seeing test rows, fit `ColumnEncoder` on the training rows of `columns`
    columns     the columns before they were encoded
    arrays      for NPY and NPZ files: the column names of each array
    texts       the original texts, if `embedded` has converted them to tokens; None otherwise

    `facts` are the records as pairs (name, description), and `rows_read` is the record that says
    how many rows of the file were read.

    >>> import pandas as pd
    >>> from attnlens.data import read
    >>> table = pd.DataFrame({"size": [1.5, 2.0, None, 3.5], "kind": ["a", "b", "a", "b"]})
    >>> loaded = read(table, target="kind")
    >>> loaded.task, loaded.classes, loaded.X.shape
    ('classification', ('a', 'b'), (4, 2))
    """

    dataset: Dataset
    X: np.ndarray | None
    y: np.ndarray | None
    task: str | None
    names: tuple[str, ...]
    classes: tuple[str, ...]
    sequences: list[np.ndarray] | None
    records: Facts
    encoder: ColumnEncoder | None = None
    columns: Mapping[str, TypedColumn] = dataclasses.field(default_factory=dict)
    arrays: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    texts: tuple[str, ...] | None = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """(name, description) of everything that was inferred or done."""
        return rendered(self.records)

    @property
    def rows_read(self) -> RowsRead:
        """How many rows of the file were read."""
        return rows_read(self.records)

    def __str__(self) -> str:
        return "\n".join([str(self.dataset), *(f"  {name}: {fact}" for name, fact in self.facts)])
