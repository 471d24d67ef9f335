"""Which rows of a large file are read: a uniform sample, the same for the same seed.

A stream of unknown length is sampled by reservoir sampling with skips (Li, ACM Transactions on
Mathematical Software 20, 1994). The reservoir starts with the first k rows. W is the k-th root of a
uniform random number, U another uniform random number. The next row that enters the reservoir is
⌊log U / log(1 − W)⌋ + 1 rows after the last one; it replaces a random row of the reservoir, and W
is multiplied by the k-th root of a new uniform random number. The sampled rows keep the order of
the file.

If there is an id column, rows with the same id are one sequence, and ids are drawn in place of
rows.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from attnlens.core import checks

from .facts import RowsRead

MOST_COLUMNS = 10_000  # no model in this package learns from a wider table
MEMORY = 10**9  # default memory limit of reading, in bytes
# Bytes of memory per entry of a table: for a Python string, its copy without spaces, a number,
# codes and indicators.
BYTES_PER_CELL = 200
MOST_CELLS = MEMORY // BYTES_PER_CELL  # maximum of tokens in lists, and of entries after padding

Item = TypeVar("Item")


class Request(NamedTuple):
    """Which rows and columns of a file to read, and how."""

    rows: int  # maximal number of rows, or of sequences if there is an id column
    seed: int  # seed of the random sample
    id: str | None = None  # the column of sequence ids
    as_text: frozenset[str] = frozenset()  # columns read as strings, even if they hold integers
    as_number: frozenset[str] = frozenset()  # columns that hold numbers, according to the caller
    separator: str | None = None  # the separator of a CSV file, if the caller gave it
    decimal: str | None = None  # the decimal mark of a CSV file, if the caller gave it
    memory: int = MEMORY  # memory limit in bytes


def most_rows(request: Request, columns: int, file: object) -> int:
    """The maximal number of rows to read, so that they fit into memory."""
    if columns > MOST_COLUMNS:
        raise checks.BadInput(
            f"{file} must have at most {MOST_COLUMNS:,} columns; got {columns:,} columns; keep "
            f"those that matter, or save it as NPY with one array per row."
        )
    fitting = max(1, request.memory // (BYTES_PER_CELL * max(columns, 1)))
    return fitting if request.id is not None else min(request.rows, fitting)


def text_size(fields: Sequence[str]) -> int:
    """Bytes of memory that the strings of a row take."""
    return sum(map(sys.getsizeof, fields))


class TextBudget:
    """Counts the bytes of the rows in memory; raises `BadInput` beyond a third of the limit.

    The other two thirds are left for the copy of each string without surrounding spaces, and for
    the columns that are made from the strings.
    """

    def __init__(self, request: Request, file: object) -> None:
        self.left, self.limit, self.file = request.memory // 3, request.memory, file

    def add(self, fields: Sequence[str]) -> None:
        """Add the bytes of a row that is now held in memory."""
        self.left -= text_size(fields)
        if self.left < 0:
            raise checks.BadInput(
                f"the rows that are read from {self.file} must fit into {self.limit:,} bytes of "
                f"memory, with what is made of them; got more text; give a smaller number of rows "
                f"or a larger memory limit, or leave out the column of long texts."
            )

    def remove(self, fields: Sequence[str]) -> None:
        """Subtract the bytes of a row that is no longer held in memory."""
        self.left += text_size(fields)


def reservoir(
    stream: Iterator[Item], count: int, seed: int, budget: TextBudget | None = None
) -> tuple[list[Item], list[int], int]:
    """`count` random items of a stream, in stream order, their positions, and the stream's length.

    `budget` limits the memory of the items that are held at the same time.

    >>> items, positions, length = reservoir(iter("abcdefgh"), 3, seed=0)
    >>> len(items), sorted(positions) == positions, length
    (3, True, 8)
    """
    generator = random.Random(seed)
    sample = []
    for position, item in enumerate(stream):
        sample.append((position, item))
        if budget is not None:
            budget.add(item)  # type: ignore[arg-type] (only rows of text come with a budget)
        if len(sample) == count:
            break
    length = len(sample)
    if length == count:
        weight = _root(generator, count)
        following = count + _skip(generator, weight)  # position of the next item that enters
        for position, item in enumerate(stream, count):
            if position == following:
                place = generator.randrange(count)
                if budget is not None:
                    budget.remove(sample[place][1])
                    budget.add(item)  # type: ignore[arg-type] (only rows of text come with a budget)
                sample[place] = (position, item)
                weight *= _root(generator, count)
                following += 1 + _skip(generator, weight)
            length = position + 1
    sample.sort(key=lambda pair: pair[0])
    return [item for _, item in sample], [position for position, _ in sample], length


def _root(generator: random.Random, count: int) -> float:
    return math.exp(math.log(1 - generator.random()) / count)  # 1 − U is never 0


def _skip(generator: random.Random, weight: float) -> int:
    if weight >= 1:
        return 0
    return math.floor(math.log(1 - generator.random()) / math.log1p(-weight))


def sample_rows(
    total: int, ids: Sequence[str] | None, most: int, request: Request
) -> tuple[np.ndarray, RowsRead]:
    """The indices of the rows to read, out of `total`, and the fact that describes the sample.

    `ids` has the sequence id of each row. If it is None, at most `most` random rows are read;
    otherwise all rows of random ids, at most `most` rows in total.
    """
    if ids is None:
        rows = np.arange(total)
        if total > most:
            generator = np.random.default_rng(request.seed)
            rows = np.sort(generator.choice(total, most, replace=False, shuffle=False))
        return rows, RowsRead(len(rows), total, request.seed)
    counts = Counter(ids)
    chosen = choose_ids(counts, request.rows, most, request.seed)
    rows = np.flatnonzero([row_id in chosen for row_id in ids])
    sequences = len(chosen), len(counts)
    return rows, RowsRead(len(rows), total, request.seed, request.id, sequences)


def choose_ids(counts: Mapping[str, int], sequences: int, rows: int, seed: int) -> frozenset[str]:
    """At most `sequences` random ids that have at most `rows` rows in total.

    `counts` has the number of rows of each id.
    """
    longest = max(counts, key=counts.__getitem__, default="")
    if counts and counts[longest] > rows:
        raise checks.BadInput(
            f"a sequence must have at most {rows:,} rows, the number that fits into memory; got "
            f"{counts[longest]:,} for {longest[:40]!r}; give a larger memory limit, or cut it."
        )
    order = sorted(counts)
    random.Random(seed).shuffle(order)
    chosen, used = [], 0
    for sequence_id in order:
        used += counts[sequence_id]
        if used > rows or len(chosen) == sequences:
            break
        chosen.append(sequence_id)
    return frozenset(chosen)
