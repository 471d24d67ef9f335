"""Sequences of tokens, from columns of lists or from long tables.

In a long table each row is a token. An id column says to which sequence the token belongs, and an
optional order column gives its place in the sequence.

A sequence of L numbers has the shape (L,), a sequence of vectors (L, d), and a sequence of
categories consists of whole numbers (L,). Networks need one array (n, L, t): categories are encoded
by indicators of the most frequent categories, sequences are cut to their last L tokens, and shorter
sequences are padded with zeros. If there is padding, one more coordinate is 1 for tokens and 0 for
padding.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from attnlens.core import checks

from .columns import TypedColumn, codes_of, dates, name_list, numbers, printable
from .encoding import MOST_LEVELS, ColumnEncoder
from .facts import Facts, Remark
from .sampling import MOST_CELLS


class SequenceRows(NamedTuple):
    """The rows of a long table, grouped by sequence and in order within each."""

    order: np.ndarray  # row indices of the first sequence, then those of the second, …
    starts: np.ndarray  # index in `order` of the first row of each sequence
    ids: tuple[str, ...]

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """The values of a column, one array per sequence."""
        return np.split(values[self.order], self.starts[1:])


def group_rows(
    ids: np.ndarray, name: str, order: np.ndarray | None, order_name: str | None
) -> SequenceRows:
    """Rows grouped into sequences; without an order column they keep the order of the file."""
    check_not_lists("id", name, ids)
    if is_missing(ids).any():
        raise checks.BadInput(
            f"the id {name} must say in every row which sequence it belongs to, but it is missing "
            f"in some; fill it in or drop these rows."
        )
    first: dict[str, int] = {}
    number = np.array([first.setdefault(sequence_id, len(first)) for sequence_id in ids], int)
    keys = np.zeros(len(ids)) if order is None else order_ranks(order, str(order_name))
    sorted_rows = np.lexsort((keys, number))
    same = np.diff(number[sorted_rows]) == 0
    if order is not None and np.any(tied := same & (np.diff(keys[sorted_rows]) == 0)):
        row = sorted_rows[int(np.argmax(tied))]
        raise checks.BadInput(
            f"the order {order_name} must be different in all rows of one {name}, but {name} "
            f"{str(ids[row])[:40]!r} has two rows at {str(order[row])[:40]!r}; name another "
            f"column, or leave it out to keep the order of the file."
        )
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    return SequenceRows(sorted_rows, starts, tuple(first))


def order_ranks(order: np.ndarray, name: str) -> np.ndarray:
    """Ranks 0, 1, … of the values of an order column; equal values have the same rank.

    Integers are compared exactly, however large they are.
    """
    check_not_lists("order", name, order)
    if is_missing(order).any():
        raise checks.BadInput(
            f"the order {name} must have a value in every row, but it is missing in some; fill it "
            f"in or drop these rows."
        )
    values = order if order.dtype.kind in "fM" else _numbers_or_dates(order)
    if values is None or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise checks.BadInput(
            f"the order {name} must hold numbers or dates; got other values (the first row has "
            f"{str(order[0])[:40]!r}); name another column."
        )
    return np.unique(values, return_inverse=True)[1]


def _numbers_or_dates(strings: np.ndarray) -> np.ndarray | None:
    """Strings as integers, else as floats, else as dates; None if they are none of these."""
    try:
        return np.array([int(value) for value in strings], object)
    except ValueError:
        values = numbers(strings)
    if values is None and (parsed := dates(strings)) is not None:
        return parsed[0].astype(np.int64)
    return values


def is_missing(values: np.ndarray) -> np.ndarray:
    """Which entries of a column are missing: NaN, NaT, or None in a column of strings."""
    if values.dtype.kind == "M":
        return np.isnat(values)
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.array([value is None for value in values], bool)


def check_not_lists(role: str, name: str, values: np.ndarray) -> None:
    """Raise `BadInput` if a column with this role has a list in a row."""
    if values.dtype == object and any(isinstance(value, np.ndarray) for value in values):
        raise checks.BadInput(
            f"the {role} {name} must have one value per row; got a list in a row; name another "
            f"column."
        )


# -- tokens ----------------------------------------------------------------------------------------


class SequenceTokens(NamedTuple):
    """Sequences of numbers, codes or vectors, the same sequences as vectors only, and facts."""

    sequences: list[np.ndarray]
    vectors: list[np.ndarray]  # each of shape (L, d)
    names: tuple[str, ...]  # names of the d coordinates
    facts: Facts


def tokens_from_columns(
    columns: dict[str, TypedColumn], rows: SequenceRows
) -> tuple[SequenceTokens, ColumnEncoder]:
    """Tokens from the columns of a long table: a number, a category or a vector per token."""
    encoder = ColumnEncoder.fit(columns)
    if not encoder.features:
        raise checks.BadInput(
            "there must be a column that varies beside id, order and target; got none; name other "
            "columns or give types."
        )
    vectors = rows.split(encoder.apply(columns))
    only = encoder.features[0] if len(encoder.features) == 1 else None
    if only is not None and only.kind == "category":
        values = columns[only.name].values
        codes = codes_of([str(value) for value in values])[1]
        return SequenceTokens(rows.split(codes), vectors, encoder.names, ()), encoder
    if vectors[0].shape[1] == 1:
        numbers_only = [vector[:, 0] for vector in vectors]
        return SequenceTokens(numbers_only, vectors, encoder.names, ()), encoder
    return SequenceTokens(vectors, vectors, encoder.names, ()), encoder


def tokens_from_lists(name: str, column: TypedColumn) -> SequenceTokens:
    """Tokens from a column that holds a sequence in each row; empty sequences stay empty."""
    rows = list(column.values)
    nonempty = [row for row in rows if row.size]
    if not nonempty:
        raise checks.BadInput(
            f"{name} must hold sequences, but every one of them is empty; drop it."
        )
    if {row.dtype.kind for row in nonempty} == {"O"} or column.tokens == "category":
        if any(row.ndim > 1 for row in nonempty):
            raise checks.BadInput(
                f"{name} must hold strings or numbers to be read as categories; got vectors; leave "
                f"its type out."
            )
        return _category_tokens(name, rows)
    shapes = {row.shape[1:] for row in nonempty}
    if len(shapes) > 1 or any(row.dtype.kind == "O" for row in nonempty):
        raise checks.BadInput(
            f"every token in {name} must be of one kind and size; got different ones; write "
            f"numbers, strings, or lists of numbers of one length."
        )
    shape = next(iter(shapes))  # (d,) for vectors, () for numbers
    rows = [row if row.size else np.zeros((0, *shape)) for row in rows]
    names = tuple(f"{name} {i}" for i in range(shape[0])) if shape else (name,)
    vectors = [row.reshape(len(row), shape[0] if shape else 1) for row in rows]
    kind = f"vectors of {shape[0]} numbers" if shape else "numbers"
    return SequenceTokens(rows, vectors, names, (Remark("tokens", f"{name}: {kind}"),))


def _category_tokens(name: str, rows: list[np.ndarray]) -> SequenceTokens:
    words = [[str(token) for token in row.tolist()] for row in rows]
    counts = Counter(word for row in words for word in row)
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    index = {word: i for i, word in enumerate(by_frequency)}
    codes = [np.array([index[word] for word in row], int) for row in words]
    frequent = by_frequency[:MOST_LEVELS]
    width = len(frequent) + (len(by_frequency) > len(frequent))
    levels = [np.minimum(code, width - 1) for code in codes]
    vectors = [(level[:, None] == np.arange(width)).astype(float) for level in levels]
    others = ["(other)"] if width > len(frequent) else []
    frequent = [printable(word, 40) for word in frequent]
    names = tuple(f"{name} = {word}" for word in [*frequent, *others])
    fact = f"{name}: {len(by_frequency)} categories ({name_list(frequent)})"
    return SequenceTokens(codes, vectors, names, (Remark("tokens", fact),))


def pad(vectors: list[np.ndarray], length: int) -> tuple[np.ndarray, Facts]:
    """One array (n, L, t) of all sequences, cut or padded, and a fact that describes it.

    L is `length`, or less if all sequences are shorter or if the array would not fit into memory.
    """
    lengths = np.array([len(vector) for vector in vectors])
    width, longest = vectors[0].shape[1], int(lengths.max())
    room = max(1, MOST_CELLS // (len(vectors) * (width + 1)))
    most = min(longest, length, room)
    ragged = lengths.min() < most
    array = np.zeros((len(vectors), most, width + ragged))
    for row, vector in enumerate(vectors):
        last = vector[-most:] if most < len(vector) else vector
        array[row, : len(last), :width] = last
        array[row, : len(last), width:] = 1.0
    fact = f"{len(vectors):,} of {lengths.min():,} to {longest:,} tokens"
    if lengths.min() == longest:
        fact = f"{len(vectors):,} of {longest:,} tokens"
    if most < longest:
        fact += f"; networks see the last {most:,}"
    if ragged:
        fact += "; padded with zeros, and one coordinate is 1 where there is a token"
    return array, (Remark("sequences", fact),)
