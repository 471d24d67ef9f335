"""Which rows of a file are read, when there are too many: a uniform sample, the same every time.

A stream of unknown length is sampled by a reservoir with skips (Li, ACM Transactions on
Mathematical Software 20, 1994): after the first k rows, with W the k-th root of a uniform number,
the next row that enters is ⌊log U / log(1 − W)⌋ + 1 further on and takes a random place, and W
shrinks by another such root. Rows keep the order of the file.

Rows that share an id are one sequence, so ids are drawn, not rows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from attnlens import checks

MOST_COLUMNS = 10_000  # beyond this a file is no table that anything here could learn from
MOST_CELLS = 5_000_000  # held at a time: as Python strings, some 300 MB

Item = TypeVar("Item")


class Request(NamedTuple):
    """What is wanted of a file: so many rows at most, and columns that are kept as written."""

    rows: int
    seed: int
    id: str | None = None
    as_text: frozenset[str] = frozenset()


def most_rows(request: Request, columns: int, file: object) -> int:
    """How many rows may be held."""
    if columns > MOST_COLUMNS:
        raise checks.BadInput(
            f"{file} has {columns:,} columns, more than the {MOST_COLUMNS:,} that are read; keep "
            f"those that matter, or store it as NPY with one array a row."
        )
    return max(1, min(request.rows, MOST_CELLS // max(columns, 1)))


def reservoir(stream: Iterator[Item], count: int, seed: int) -> tuple[list[Item], list[int], int]:
    """`count` items of a stream in their order, their places in it, and its length.

    >>> items, places, length = reservoir(iter("abcdefgh"), 3, seed=0)
    >>> len(items), sorted(places) == places, length
    (3, True, 8)
    """
    dice = random.Random(seed)
    held = []
    for place, item in enumerate(stream):
        held.append((place, item))
        if len(held) == count:
            break
    length = len(held)
    if length == count:
        weight = _root(dice, count)
        enters = count + _skip(dice, weight)
        for place, item in enumerate(stream, count):
            if place == enters:
                held[dice.randrange(count)] = (place, item)
                weight *= _root(dice, count)
                enters += 1 + _skip(dice, weight)
            length = place + 1
    held.sort(key=lambda pair: pair[0])
    return [item for _, item in held], [place for place, _ in held], length


def _root(dice: random.Random, count: int) -> float:
    return math.exp(math.log(1 - dice.random()) / count)  # 1 − U is never 0


def _skip(dice: random.Random, weight: float) -> int:
    if weight >= 1:
        return 0
    return math.floor(math.log(1 - dice.random()) / math.log1p(-weight))


def choose_ids(counts: Mapping[str, int], rows: int, seed: int) -> frozenset[str]:
    """Ids in a random order, as many as `rows` have room for."""
    longest = max(counts, key=counts.__getitem__, default="")
    if counts and counts[longest] > rows:
        raise checks.BadInput(
            f"a sequence may have at most the {rows:,} rows that are read, but {longest[:40]!r} "
            f"has {counts[longest]:,}; ask for more rows, or cut it."
        )
    order = sorted(counts)
    random.Random(seed).shuffle(order)
    chosen, used = [], 0
    for each in order:
        used += counts[each]
        if used > rows:
            break
        chosen.append(each)
    return frozenset(chosen)


def said(kept: int, total: int, seed: int, what: str = "rows") -> tuple[str, str]:
    """The fact that tells how much was read."""
    if kept == total:
        return ("rows", f"{total:,}, all read")
    return ("rows", f"{total:,} in the file, {kept:,} of them read: {what} at random, seed {seed}")
