"""Facts about how a file was read.

A fact has a name and, rendered last, its words. Facts that code reads have typed fields; a `Remark`
has its words only and is for people.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Fact(Protocol):
    """Something that was inferred or done when a file was read."""

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...


class Remark(NamedTuple):
    """A fact in words."""

    name: str
    words: str


class RowsRead(NamedTuple):
    """How many rows of a file were read; if not all, they are a random sample.

    `id` is the column of sequence ids, where whole sequences were sampled and not rows.

    >>> RowsRead(3, 3, seed=0).words
    '3, all read'
    >>> RowsRead(2, 3, seed=0).complete
    False
    """

    read: int
    total: int
    seed: int
    id: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every row of the file was read."""
        return self.read == self.total

    @property
    def name(self) -> str:
        return "rows"

    @property
    def words(self) -> str:
        if self.complete:
            return f"{self.total:,}, all read"
        unit = "rows" if self.id is None else f"whole sequences ({self.id})"
        return (
            f"{self.total:,} in the file, {self.read:,} of them read: {unit} at random, "
            f"seed {self.seed}"
        )


class DropReason(enum.Enum):
    """Why rows were dropped; the value completes "rows …"."""

    MISSING_VALUE = "with a missing value"
    NO_TEXT = "without a text"
    EMPTY_SEQUENCE = "with an empty sequence"
    NO_LABEL = "without a label"


class RowsDropped(NamedTuple):
    """How many rows were dropped, and why."""

    reason: DropReason
    rows: int

    @property
    def name(self) -> str:
        return f"rows {self.reason.value}"

    @property
    def words(self) -> str:
        return f"{self.rows:,}, dropped"


class CopiesOfRows(NamedTuple):
    """How many rows are copies of other rows, and whether they were kept."""

    rows: int
    kept: bool

    @property
    def name(self) -> str:
        return "copies of other rows"

    @property
    def words(self) -> str:
        if self.kept:
            return f"{self.rows:,} rows, kept: about as many agree by chance, with so few values"
        return f"{self.rows:,}, dropped"


Facts = tuple[Fact, ...]


def rendered(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Facts as pairs of a name and words."""
    return tuple((fact.name, fact.words) for fact in facts)


def rows_read(facts: Iterable[Fact]) -> RowsRead:
    """The one fact of a file that says how many of its rows were read."""
    (fact,) = (fact for fact in facts if isinstance(fact, RowsRead))
    return fact
