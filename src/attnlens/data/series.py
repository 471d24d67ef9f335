"""Sequences of tokens: list columns, or long tables with an id and perhaps an order column.

A sequence of numbers is (L,), one of vectors (L, d), one of categories (L,) whole numbers. Networks
take tokens of one shape, (n, L, t): there categories are indicators of the most frequent ones, and
where lengths differ, sequences are cut to their last L tokens or filled up with zeros, and one more
coordinate says where there is a token.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from attnlens import checks

from .columns import Typed, dates, listed, numbers, printable
from .encoding import MOST_LEVELS, Encoder
from .sampling import MOST_CELLS


class Long(NamedTuple):
    """The rows of a long table, by sequence and in their order."""

    order: np.ndarray  # numbers of rows, one sequence after the other
    starts: np.ndarray  # where each sequence begins
    ids: tuple[str, ...]

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values[self.order], self.starts[1:])


def long(ids: np.ndarray, name: str, order: np.ndarray | None, order_name: str | None) -> Long:
    """Rows sorted into sequences; without an order column they keep that of the file."""
    if any(each is None for each in ids):
        raise checks.BadInput(
            f"the id {name} must say which sequence a row belongs to, but it is missing in some; "
            f"fill it in or drop these rows."
        )
    first: dict[str, int] = {}
    number = np.array([first.setdefault(each, len(first)) for each in ids], int)
    keys = np.zeros(len(ids)) if order is None else ranks(order, str(order_name))
    sorted_rows = np.lexsort((keys, number))
    same = np.diff(number[sorted_rows]) == 0
    if order is not None and np.any(tied := same & (np.diff(keys[sorted_rows]) == 0)):
        row = sorted_rows[int(np.argmax(tied))]
        raise checks.BadInput(
            f"the order {order_name} must put the rows of each {name} in one order, but {name} "
            f"{str(ids[row])[:40]!r} has two rows at {str(order[row])[:40]!r}; give a finer one, "
            f"or leave it out to keep the order of the file."
        )
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    return Long(sorted_rows, starts, tuple(first))


def ranks(order: np.ndarray, name: str) -> np.ndarray:
    """0, 1, … by the values of the order column, equal where they are equal; exact for integers."""
    if any(each is None for each in order):
        raise checks.BadInput(
            f"the order {name} must be there in every row, but it is missing in some; fill it in "
            f"or drop these rows."
        )
    try:
        values = np.array([int(each) for each in order], object)
    except ValueError:
        values = numbers(order)
        if values is None:
            read = dates(order)
            values = None if read is None else read[0].astype(np.int64)
    if values is None or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise checks.BadInput(
            f"the order {name} must hold numbers or dates, but {str(order[0])[:40]!r} is among "
            f"its values; name another column."
        )
    return np.unique(values, return_inverse=True)[1]


# -- tokens ----------------------------------------------------------------------------------------


class Tokens(NamedTuple):
    """Sequences as instruments take them, the same as vectors, and what was done."""

    sequences: list[np.ndarray]
    vectors: list[np.ndarray]  # (L, d) each
    names: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def of_columns(columns: dict[str, Typed], table: Long) -> tuple[Tokens, Encoder]:
    """Tokens from the columns of a long table: one number, one category, or a vector a token."""
    encoder = Encoder.fit(columns)
    if not encoder.features:
        raise checks.BadInput(
            "there must be a column that varies to make tokens of, but there is none beside id, "
            "order and target; name them otherwise or give types."
        )
    vectors = table.split(encoder.apply(columns))
    only = encoder.features[0] if len(encoder.features) == 1 else None
    if only is not None and only.kind == "category":
        values = columns[only.name].values
        codes = np.unique([str(each) for each in values], return_inverse=True)[1]
        return Tokens(table.split(codes), vectors, encoder.names, ()), encoder
    if vectors[0].shape[1] == 1:
        return Tokens([each[:, 0] for each in vectors], vectors, encoder.names, ()), encoder
    return Tokens(vectors, vectors, encoder.names, ()), encoder


def of_lists(name: str, column: Typed) -> Tokens:
    """Tokens from a column that holds a sequence in each row; empty ones stay empty."""
    rows = list(column.values)
    filled = [row for row in rows if row.size]
    if not filled:
        raise checks.BadInput(f"{name} must hold sequences, but every one of them is empty.")
    if {row.dtype.kind for row in filled} == {"U"} or column.note == "category":
        if any(row.ndim > 1 for row in filled):
            raise checks.BadInput(f"{name} holds vectors, which are no categories.")
        return _categories(name, rows)
    widths = {row.shape[1:] for row in filled}
    if len(widths) > 1 or any(row.dtype.kind == "U" for row in filled):
        raise checks.BadInput(
            f"every token in {name} must be of one kind and size, but they differ; write numbers, "
            f"strings, or lists of numbers of one length."
        )
    wide = next(iter(widths))
    rows = [row if row.size else np.zeros((0, *wide)) for row in rows]
    names = tuple(f"{name} {i}" for i in range(wide[0])) if wide else (name,)
    vectors = [row.reshape(len(row), wide[0] if wide else 1) for row in rows]
    return Tokens(rows, vectors, names, (("tokens", f"{name}: {_kind(wide)}"),))


def _kind(wide: tuple[int, ...]) -> str:
    return f"vectors of {wide[0]} numbers" if wide else "numbers"


def _categories(name: str, rows: list[np.ndarray]) -> Tokens:
    words = [[str(each) for each in row.tolist()] for row in rows]
    counts = Counter(word for row in words for word in row)
    every = sorted(counts, key=lambda word: (-counts[word], word))
    place = {word: i for i, word in enumerate(every)}
    codes = [np.array([place[word] for word in row], int) for row in words]
    shown = every[:MOST_LEVELS]
    width = len(shown) + (len(every) > len(shown))
    levels = [np.minimum(code, width - 1) for code in codes]
    vectors = [(level[:, None] == np.arange(width)).astype(float) for level in levels]
    rest = ["(other)"] if width > len(shown) else []
    shown = [printable(word, 40) for word in shown]
    names = tuple(f"{name} = {word}" for word in [*shown, *rest])
    said = f"{name}: {len(every)} categories ({listed(shown)})"
    return Tokens(codes, vectors, names, (("tokens", said),))


def padded(
    vectors: list[np.ndarray], length: int
) -> tuple[np.ndarray, tuple[tuple[str, str], ...]]:
    """(n, L, t) from sequences of any length, and the fact that says how."""
    lengths = np.array([len(each) for each in vectors])
    width, longest = vectors[0].shape[1], int(lengths.max())
    room = max(1, MOST_CELLS // (len(vectors) * (width + 1)))
    kept = min(longest, length, room)
    ragged = lengths.min() < kept
    found = np.zeros((len(vectors), kept, width + ragged))
    for row, each in enumerate(vectors):
        last = each[-kept:] if kept < len(each) else each
        found[row, : len(last), :width] = last
        found[row, : len(last), width:] = 1.0
    said = f"{len(vectors):,} of {lengths.min():,} to {longest:,} tokens"
    if lengths.min() == longest:
        said = f"{len(vectors):,} of {longest:,} tokens"
    if kept < longest:
        said += f"; networks see the last {kept:,}"
    if ragged:
        said += "; filled up with zeros, and a coordinate says where there is a token"
    return found, (("sequences", said),)
