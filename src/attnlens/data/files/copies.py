"""Copies of rows: dropped, unless about as many are expected by chance."""

from __future__ import annotations

import numpy as np

from attnlens.data.dataset import Dataset

from .facts import CopiesOfRows, Facts
from .inputs import InputPart


def without_copies(part: InputPart, y: np.ndarray) -> tuple[InputPart, np.ndarray, Facts]:
    """Drop rows that are equal to another row, including the label.

    Otherwise a row could be in the training set and a copy of it in the test set. Copies are kept
    if about as many are expected by chance (see `_expected_pairs`).
    """
    if part.codes is None:
        keys = Dataset("", part.kind, part.inputs, y, (), "", "").digests
    else:
        keys = [row.tobytes() for row in part.codes]
    first: dict[tuple[bytes, float], int] = {}
    for row, key in enumerate(zip(keys, y.tolist(), strict=True)):
        first.setdefault(key, row)
    copies = len(y) - len(first)
    if not copies:
        return part, y, ()
    distinct = np.array(sorted(first.values()))
    if part.codes is not None and _expected_pairs(part.codes[distinct], len(y)) >= copies / 2:
        return part, y, (CopiesOfRows(copies, kept=True),)
    return part.take(distinct), y[distinct], (CopiesOfRows(copies, kept=False),)


def _expected_pairs(codes: np.ndarray, rows: int) -> float:
    """The expected number of equal pairs among `rows` rows if columns were independent.

    Two rows agree in a column with probability Σ_v n_v (n_v − 1) / (n (n − 1)), where n_v of the n
    distinct rows have the value v. The expected number is the product of these probabilities over
    columns, times the number of pairs.
    """
    n, expected = len(codes), rows * (rows - 1) / 2
    for column in codes.T:
        counts = np.bincount(column).astype(float)
        expected *= float(counts @ (counts - 1)) / max(n * (n - 1), 1)
    return expected
