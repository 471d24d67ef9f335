"""Copies of rows: kept, because real data repeat, or dropped if the caller wants that.

Copies that are kept do not bias test errors: `split_folds` (instruments/samples/labelled.py) puts
rows with equal inputs into the same fold, so that no test row has a copy in the training set.
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
    """Keep or drop rows whose inputs and label equal those of an earlier row.

    Returns the inputs, the labels, and a fact with the number of such rows (no fact if none).
    """
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
