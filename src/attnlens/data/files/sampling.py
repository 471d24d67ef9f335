"""Which rows of a large file are read: a uniform sample, the same for the same seed.

A stream of unknown length is sampled by reservoir sampling with skips (Li, ACM Transactions on
Mathematical Software 20, 1994). The reservoir starts with the first k rows. With W the k-th root of
a uniform random number and U another uniform random number, the next row that enters is
⌊log U / log(1 − W)⌋ + 1 rows further on; it replaces a random row of the reservoir, and W is
multiplied by another such root. The sampled rows keep the order of the file.

Rows that share an id are one sequence; there, ids are drawn and not rows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from attnlens.core import checks

MOST_COLUMNS = 10_000  # no model in this package learns from a wider table
MOST_CELLS = 5_000_000  # entries held in memory at a time: as Python strings, about 300 MB

Item = TypeVar("Item")


class Request(NamedTuple):
    """Which rows and columns of a file to read, and how."""

    rows: int  # at most
    seed: int  # of the sample
    id: str | None = None  # the column of sequence ids
    as_text: frozenset[str] = frozenset()  # columns that are read as strings, digit by digit


def most_rows(request: Request, columns: int, file: object) -> int:
    """How many rows are read at most, so that they fit into memory."""
    if columns > MOST_COLUMNS:
        raise checks.BadInput(
            f"{file} must have at most {MOST_COLUMNS:,} columns; got {columns:,} columns; keep "
            f"those that matter, or save it as NPY with one array per row."
        )
    return max(1, min(request.rows, MOST_CELLS // max(columns, 1)))


def reservoir(stream: Iterator[Item], count: int, seed: int) -> tuple[list[Item], list[int], int]:
    """`count` random items of a stream in their order, their positions, and the stream's length.

    >>> items, positions, length = reservoir(iter("abcdefgh"), 3, seed=0)
    >>> len(items), sorted(positions) == positions, length
    (3, True, 8)
    """
    generator = random.Random(seed)
    sample = []
    for position, item in enumerate(stream):
        sample.append((position, item))
        if len(sample) == count:
            break
    length = len(sample)
    if length == count:
        weight = _root(generator, count)
        following = count + _skip(generator, weight)  # the next position that enters
        for position, item in enumerate(stream, count):
            if position == following:
                sample[generator.randrange(count)] = (position, item)
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


def choose_ids(counts: Mapping[str, int], rows: int, seed: int) -> frozenset[str]:
    """Random ids, as many as fit into `rows` rows; `counts` has the rows of each id."""
    longest = max(counts, key=counts.__getitem__, default="")
    if counts and counts[longest] > rows:
        raise checks.BadInput(
            f"a sequence must have at most {rows:,} rows, the number that is read; got "
            f"{counts[longest]:,} for {longest[:40]!r}; give a larger number of rows, or cut it."
        )
    order = sorted(counts)
    random.Random(seed).shuffle(order)
    chosen, used = [], 0
    for sequence_id in order:
        used += counts[sequence_id]
        if used > rows:
            break
        chosen.append(sequence_id)
    return frozenset(chosen)
