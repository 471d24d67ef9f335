"""Copies of rows: kept, because real data repeat, or dropped if the caller wants that.

Copies that are kept do no harm: `attnlens.instruments.samples.labelled.split_folds` tests rows with
equal inputs in the same fold, so that no row is trained on while a copy of it is tested.
"""

from __future__ import annotations

import numpy as np

from attnlens.data.dataset import Dataset

from .facts import CopiesOfRows, Facts
from .inputs import InputPart

COPIES = ("keep", "drop")


def treat_copies(
    part: InputPart, y: np.ndarray, copies: str
) -> tuple[InputPart, np.ndarray, Facts]:
    """Keep or drop rows that are equal to an earlier row, including the label; the fact says how
    many there are."""
    if part.codes is None:
        keys = Dataset("", part.kind, part.inputs, y, (), "", "").digests
    else:
        keys = [row.tobytes() for row in part.codes]
    first: dict[tuple[bytes, float], int] = {}
    for row, key in enumerate(zip(keys, y.tolist(), strict=True)):
        first.setdefault(key, row)
    count = len(y) - len(first)
    if not count:
        return part, y, ()
    fact = CopiesOfRows(count, kept=copies == "keep")
    if fact.kept:
        return part, y, (fact,)
    distinct = np.array(sorted(first.values()))
    return part.take(distinct), y[distinct], (fact,)
