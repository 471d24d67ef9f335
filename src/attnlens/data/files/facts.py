"""Facts about how a file was read.

A fact has a name, and words that are rendered from its fields when it is printed. Code reads the
fields, never the words. A `Remark` has no fields besides its words: it is only printed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from .decimals import NumberFormat
from .separators import separator_name


class Fact(Protocol):
    """Something that was inferred or done when a file was read."""

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...


class Remark(NamedTuple):
    """A fact that consists of words only."""

    name: str
    words: str


class RowsRead(NamedTuple):
    """How many rows of a file were read; if not all, they are a random sample.

    If whole sequences were sampled and not rows, `id` is the column of sequence ids, and
    `sequences` is (number of sequences that were read, number of sequences in the file).

    >>> RowsRead(3, 3, seed=0).words
    '3, all read'
    >>> RowsRead(2, 3, seed=0).complete
    False
    """

    read: int
    total: int
    seed: int
    id: str | None = None
    sequences: tuple[int, int] | None = None

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
        if self.sequences is not None:
            unit = f"{self.sequences[0]:,} of {self.sequences[1]:,} {unit}"
        return (
            f"{self.total:,} in the file, {self.read:,} of them read: {unit} at random, "
            f"seed {self.seed}"
        )


class TextFormat(NamedTuple):
    """The separator of a CSV file, and how its numbers are written.

    >>> TextFormat(";", False, NumberFormat(commas=("price",))).words
    'separator ; (inferred); decimal commas in price'
    """

    separator: str
    separator_given: bool
    numbers: NumberFormat
    decimal_given: str | None = None

    @property
    def name(self) -> str:
        return "text format"

    @property
    def words(self) -> str:
        assumed = _mark_name(self.numbers.assumed_mark)
        words = [f"separator {separator_name(self.separator)} ({_origin(self.separator_given)})"]
        if self.decimal_given:
            words.append(f"decimal {_mark_name(self.decimal_given)} (as given)")
        for columns, what in (
            (() if self.decimal_given else self.numbers.commas, "decimal commas in"),
            (self.numbers.grouped, "thousands marks removed in"),
            (self.numbers.assumed, f"decimal {assumed} assumed (--decimal) in"),
        ):
            if columns:
                more = f" and {len(columns) - 6} more" if len(columns) > 6 else ""
                words.append(f"{what} {', '.join(columns[:6])}{more}")
        return "; ".join(words)


def _mark_name(mark: str) -> str:
    return "comma" if mark == "," else "point"


def _origin(is_given: bool) -> str:
    return "as given" if is_given else "inferred"


class DropReason(enum.Enum):
    """Why rows were dropped; messages print the value after the word "rows"."""

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
            return f"{self.rows:,}, kept; rows with equal inputs are tested in the same fold"
        return f"{self.rows:,}, dropped"


Facts = tuple[Fact, ...]


def rendered(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Each fact as a pair (name, words)."""
    return tuple((fact.name, fact.words) for fact in facts)


def rows_read(facts: Iterable[Fact]) -> RowsRead:
    """The `RowsRead` among the facts of a file, which must be exactly one."""
    (fact,) = (fact for fact in facts if isinstance(fact, RowsRead))
    return fact
