"""Columns of a file as they were read, and what kind each of them is.

values                      kind
float64, NaN where missing  number
datetime64, NaT             date
strings, None               number or date where all of them are one; else category, text or label
one array a row             sequence

Strings that are mostly different from each other name their rows: long ones are texts, short ones
identifiers. The other ones are categories.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from attnlens import checks

KINDS = ("number", "category", "date", "text", "drop")  # what a caller may say a column is
MISSING = frozenset({"", "?", "-", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "missing"})
FEW = 20  # different values that may be categories however few rows there are
WORDS_OF_TEXT = 3  # words, on average, that tell a text from an identifier
LONGEST_NAME = 80  # characters of a name that are told
# In this order; the first that fits every value. ISO 8601 is tried before any of them.
DATES = {
    "year/month/day": "%Y/%m/%d",
    "day.month.year": "%d.%m.%Y",
    "month/day/year": "%m/%d/%Y",
    "day/month/year": "%d/%m/%Y",
    "year/month/day with time": "%Y/%m/%d %H:%M:%S",
    "month/day/year with time": "%m/%d/%Y %H:%M",
}


class Table(NamedTuple):
    """Columns by name, all of one length, with the number that each row has in the file."""

    columns: dict[str, np.ndarray]
    rows: np.ndarray  # increasing
    total: int  # rows of the file
    facts: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()  # columns of a kind that is not read

    def take(self, keep: np.ndarray) -> Table:
        """The rows where `keep` is true, or with these numbers."""
        chosen = {name: values[keep] for name, values in self.columns.items()}
        return self._replace(columns=chosen, rows=self.rows[keep])


def clean_names(names: Iterable[object], file: object) -> tuple[str, ...]:
    """Names that can be printed: nothing invisible, no end longer than needed, none twice."""
    said = []
    for place, name in enumerate(names, 1):
        said.append(printable(str(name).strip()) or f"column {place}")
    seen: set[str] = set()
    for name in said:
        if name in seen:
            raise checks.BadInput(
                f"each column of {file} must have a name of its own, but two are called {name!r}; "
                f"rename one of them."
            )
        seen.add(name)
    return tuple(said)


def printable(text: str, most: int = LONGEST_NAME) -> str:
    """What can be shown of a text: nothing invisible, and no more than its beginning."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:most])


def known(what: str, name: object, names: Iterable[str]) -> str:
    """`name`, if it is one of `names`; otherwise the sentence that says which is near."""
    names, text = list(names), str(name)
    if text in names:
        return text
    near = difflib.get_close_matches(text.lower(), [each.lower() for each in names], 1, 0.6)
    told = listed(names)
    if near:
        told = repr(next(each for each in names if each.lower() == near[0]))
        raise checks.BadInput(
            f"{what} must name a column, but there is no {text[:LONGEST_NAME]!r}; did you mean "
            f"{told}?"
        )
    raise checks.BadInput(
        f"{what} must name a column, but there is no {text[:LONGEST_NAME]!r}; the columns are "
        f"{told}."
    )


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names in a sentence; beyond `most` they are counted."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def check_types(types: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    """What the caller says columns are."""
    names = list(names)
    return {
        known("types", name, names): checks.one_of(f"the type of {name}", kind, KINDS)
        for name, kind in dict(types or {}).items()
    }


# -- from strings to values ------------------------------------------------------------------------


def texts(values: Iterable[object]) -> np.ndarray:
    """Strings without the spaces around them, None where one stands for a missing value."""
    found = np.empty(len(values := list(values)), object)
    for i, value in enumerate(values):
        text = "" if value is None else str(value).strip()
        found[i] = None if text.lower() in MISSING else text
    return found


def numbers(values: np.ndarray) -> np.ndarray | None:
    """Strings as numbers, if all of them are; None otherwise.

    >>> numbers(texts(["1", "", "2.5e3"]))
    array([1.0e+00,     nan, 2.5e+03])
    """
    try:
        # float() also takes 1_000, which no table means as a number.
        found = [np.nan if v is None else float(v if "_" not in v else "no") for v in values]
    except ValueError:
        return None
    return np.array(found, float)


def dates(values: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Strings as points in time and the format they are in, if one format fits them all."""
    there = [v for v in values if v is not None]
    parsers = {"ISO 8601": datetime.fromisoformat, **{n: _parser(f) for n, f in DATES.items()}}
    for name, parse in parsers.items():
        try:
            parse(there[0])
            found = [np.datetime64("NaT") if v is None else _instant(parse(v)) for v in values]
        except (ValueError, OverflowError, IndexError):
            continue
        return np.array(found, "datetime64[us]"), name
    return None


def _parser(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


def _instant(when: datetime) -> np.datetime64:
    if when.tzinfo is not None:
        when = when.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(when, "us")


def days(values: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01, NaN where there is no date."""
    exact = values.astype("datetime64[us]")
    found = exact.astype(np.int64) / (24 * 3600 * 1e6)
    return np.where(np.isnat(exact), np.nan, found)


# -- kinds -----------------------------------------------------------------------------------------


class Typed(NamedTuple):
    """A column with its kind: number and date as floats, category and text as strings."""

    kind: str  # number, date, category, text, identifier or sequence
    values: np.ndarray
    note: str = ""  # how it was read, where that needs a word

    @property
    def missing(self) -> np.ndarray:
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([value is None for value in self.values], bool)


def typed(name: str, values: np.ndarray, wanted: str | None = None) -> Typed:
    """The kind of a column: the one that is wanted, if it can be had, or the one it looks like."""
    if values.dtype.kind == "M":
        return _dated(values, "") if wanted in (None, "date") else _wanted(name, values, wanted)
    if values.dtype.kind == "f":
        return _finite(values) if wanted in (None, "number") else _wanted(name, values, wanted)
    if any(isinstance(value, np.ndarray) for value in values):
        if wanted in ("date", "text"):
            raise checks.BadInput(
                f"{name} holds a sequence in each row, so it cannot be read as {wanted}; leave its "
                f"type out."
            )
        return Typed("sequence", values, wanted or "")
    if wanted in ("number", "date"):
        return _wanted(name, values, wanted)
    if wanted in ("category", "text"):
        return Typed(wanted, values)
    if (found := numbers(values)) is not None:
        return _finite(found)
    if (read := dates(values)) is not None:
        return _dated(*read)
    there = [value for value in values if value is not None]
    different = len(set(there))
    if different <= max(FEW, len(there) // 2):
        return Typed("category", values)
    long = sum(value.count(" ") + 1 for value in there) >= WORDS_OF_TEXT * len(there)
    return Typed("text" if long else "identifier", values)


def _finite(values: np.ndarray) -> Typed:
    infinite = np.isinf(values)
    note = f"{infinite.sum()} infinite values taken as missing" if infinite.any() else ""
    return Typed("number", np.where(infinite, np.nan, values), note)


def _dated(values: np.ndarray, form: str) -> Typed:
    return Typed("date", days(values), f"read as {form}" if form not in ("", "ISO 8601") else "")


def _wanted(name: str, values: np.ndarray, wanted: str) -> Typed:
    if values.dtype.kind == "M":
        if wanted == "number":
            return Typed("number", days(values), "days since 1970-01-01")
        return Typed(wanted, texts(values))
    if values.dtype.kind == "f":
        if wanted == "date":
            raise checks.BadInput(
                f"{name} must hold dates such as 2024-12-31 to be read as such, but it holds "
                f"numbers; leave its type out."
            )
        return Typed(wanted, texts(plain(value) for value in values))
    if wanted == "number":
        if (found := numbers(values)) is not None:
            return _finite(found)
        loose = [value if _is_number(value) else None for value in values]
        lost = sum(a is not None and b is None for a, b in zip(values, loose, strict=True))
        if lost > len(values) // 2:
            raise checks.BadInput(
                f"{name} must hold numbers to be read as such, but most of it is not, such as "
                f"{_first_other(values)!r}; leave its type out."
            )
        found = numbers(texts(loose))
        assert found is not None
        return _finite(found)._replace(note=f"{lost} values that are no numbers taken as missing")
    if (read := dates(values)) is None:
        raise checks.BadInput(
            f"{name} must hold dates of one form, such as 2024-12-31, to be read as such, but it "
            f"does not; leave its type out."
        )
    return _dated(*read)


def _is_number(value: str | None) -> bool:
    return value is not None and numbers(np.array([value], object)) is not None


def _first_other(values: np.ndarray) -> str:
    return next(v for v in values if v is not None and not _is_number(v))[:LONGEST_NAME]


def plain(value: float) -> str:
    """A number as a person writes it: 3, not 3.0."""
    return str(int(value)) if float(value).is_integer() else str(float(value))
