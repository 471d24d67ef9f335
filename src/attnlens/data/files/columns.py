"""Columns of a file as they were read, and the kind of each column.

values                                kind
float64, NaN if missing               number
datetime64, NaT if missing            date
strings, None if missing              number or date if all of them are; else see below
one array per row                     sequence

A column of strings with few different values holds categories. If most values are different, long
strings are texts and short ones are identifiers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from attnlens.core import checks

from .facts import Facts

KINDS = ("number", "category", "date", "text", "drop")  # the types that a caller may give
# What people, pandas and C write for a missing value, and the errors of spreadsheets.
MISSING = frozenset(
    (
        *("", "?", "-", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "missing"),
        *("<na>", "#na", "-nan", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
        *("#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!"),
    )
)
FEW = 20  # a column with at most this number of different strings holds categories
WORDS_OF_TEXT = 3  # a column is text, not identifiers, with at least this mean of words per value
LONGEST_NAME = 80  # longer names are cut to this number of characters in messages
# Date formats, tried in this order after ISO 8601; the first that fits every value is used.
DATE_FORMS = {
    "year/month/day": "%Y/%m/%d",
    "day.month.year": "%d.%m.%Y",
    "month/day/year": "%m/%d/%Y",
    "day/month/year": "%d/%m/%Y",
    "day-month-year": "%d-%m-%Y",
    "year-month-day": "%Y-%m-%d",
}
TIME_FORMS = ("", " %H:%M:%S", " %H:%M", " %H:%M:%S.%f", " %I:%M:%S %p", " %I:%M %p")
AMBIGUOUS = ("month/day/year", "day/month/year")
# Units of NumPy's datetime64 per day. Years and months have no fixed number of days.
UNITS_PER_DAY = {
    "W": 1 / 7,
    "D": 1.0,
    "h": 24.0,
    "m": 1440.0,
    "s": 86400.0,
    "ms": 864e5,
    "us": 864e8,
    "ns": 864e11,
    "ps": 864e14,
    "fs": 864e17,
    "as": 864e20,
}
DAYS_PER_YEAR = 365.2425  # the mean of the Gregorian calendar


class Table(NamedTuple):
    """Columns by name, all of one length, and the index in the file of each row."""

    columns: dict[str, np.ndarray]
    rows: np.ndarray  # indices of these rows in the file, increasing
    total: int  # number of rows of the file
    facts: Facts = ()  # what was inferred or done
    unread: tuple[str, ...] = ()  # names of columns whose type cannot be read
    arrays: Mapping[str, tuple[str, ...]] = {}  # NPY and NPZ only: column names of each array

    def take(self, keep: np.ndarray) -> Table:
        """The rows that `keep` selects, a mask or an array of indices."""
        columns = {name: values[keep] for name, values in self.columns.items()}
        return self._replace(columns=columns, rows=self.rows[keep])


def clean_names(names: Iterable[object], file: object) -> tuple[str, ...]:
    """Printable names: without control characters or surrounding spaces, short, and unique."""
    clean = []
    for number, name in enumerate(names, 1):
        clean.append(printable(str(name).strip()) or f"column {number}")
    seen: set[str] = set()
    for name in clean:
        if name in seen:
            raise checks.BadInput(
                f"each column of {file} must have a name of its own, but two are called {name!r}; "
                f"rename one of them."
            )
        seen.add(name)
    return tuple(clean)


def printable(text: str, most: int = LONGEST_NAME) -> str:
    """The first `most` characters of a text, with characters that cannot be printed replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:most])


class WrongColumn(checks.BadInput):
    """A column that is missing or cannot have this role, such as text or target.

    >>> error = WrongColumn("text", "must name a column; got 'x'.")
    >>> str(error), error.sentence("--column")
    ("text must name a column; got 'x'.", "--column must name a column; got 'x'.")
    """

    def __init__(self, role: str, reason: str):
        super().__init__(role, reason)
        self.role, self.reason = role, reason

    def __str__(self) -> str:
        return self.sentence(self.role)

    def sentence(self, name: str) -> str:
        """The message with `name`, such as that of an option, in place of the role."""
        return f"{name} {self.reason}"


def check_column(role: str, name: object, names: Iterable[str]) -> str:
    """`name`, if it is one of `names`; otherwise an error that suggests a similar name."""
    names, text = list(names), str(name)
    if text in names:
        return text
    close = difflib.get_close_matches(text.lower(), [other.lower() for other in names], 1, 0.6)
    if close:
        suggestion = next(other for other in names if other.lower() == close[0])
        raise WrongColumn(
            role, f"must name a column; got {text[:LONGEST_NAME]!r}; did you mean {suggestion!r}?"
        )
    raise WrongColumn(
        role,
        f"must name a column; got {text[:LONGEST_NAME]!r}; the columns are {name_list(names)}.",
    )


def name_list(names: Sequence[str], most: int = 6) -> str:
    """A list of names for a message: the first `most` names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def check_types(types: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    """The types that the caller gave, by column name, after validation."""
    names = list(names)
    return {
        check_column("types", name, names): checks.one_of(f"the type of {name}", kind, KINDS)
        for name, kind in dict(types or {}).items()
    }


# -- from strings to values ------------------------------------------------------------------------


def texts(values: Iterable[object]) -> np.ndarray:
    """Strings without surrounding spaces; None for strings that mean a missing value."""
    strings = np.empty(len(values := list(values)), object)
    for i, value in enumerate(values):
        text = "" if value is None else str(value).strip()
        strings[i] = None if text.lower() in MISSING else text
    return strings


def codes_of(values: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The distinct strings, sorted, and for each value the index of its string in that list.

    The result is that of `numpy.unique` with `return_inverse=True`. NumPy would store all strings
    with the width of the longest one, which can take far more memory.

    >>> codes_of(["b", "a", "b"])
    (['a', 'b'], array([1, 0, 1]))
    """
    values = list(values)
    distinct = sorted(set(values))
    number = {value: i for i, value in enumerate(distinct)}
    return distinct, np.array([number[value] for value in values], int)


def numbers(values: np.ndarray) -> np.ndarray | None:
    """Strings as numbers, if all of them are numbers; None otherwise.

    >>> numbers(texts(["1", "", "2.5e3"]))
    array([1.0e+00,     nan, 2.5e+03])
    """
    try:
        # float() also accepts 1_000, which is not a number in a table.
        floats = [np.nan if v is None else float(v if "_" not in v else "no") for v in values]
    except ValueError:
        return None
    return np.array(floats, float)


def dates(values: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Strings as datetime64, and the name of their format; None if no format fits all of them."""
    present = [v for v in values if v is not None]
    for name, parse in _date_parsers():
        try:
            parse(present[0])
            instants = [np.datetime64("NaT") if v is None else _instant(parse(v)) for v in values]
        except (ValueError, OverflowError, IndexError):
            continue
        result = np.array(instants, "datetime64[us]")
        if name in AMBIGUOUS and _days_of_month(result).max() <= 12:
            other = AMBIGUOUS[1 - AMBIGUOUS.index(name)]
            name = f"{name}, although {other} fits too"
        return result, name
    return None


def _date_parsers() -> Iterator[tuple[str, Callable[[str], datetime]]]:
    yield "ISO 8601", datetime.fromisoformat
    for time in TIME_FORMS:
        for name, date in DATE_FORMS.items():
            yield name, _parser(date + time)


def _parser(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


def _instant(when: datetime) -> np.datetime64:
    if when.tzinfo is not None:
        when = when.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(when, "us")


def _days_of_month(values: np.ndarray) -> np.ndarray:
    present = values[~np.isnat(values)]
    return (present.astype("datetime64[D]") - present.astype("datetime64[M]")).astype(int) + 1


def days(values: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01; NaN for missing dates.

    Values are not converted to microseconds first: years beyond ±292,000 would overflow int64.

    >>> days(np.array(["400000-01-01"], "datetime64[s]")).tolist()
    [145377472.0]
    """
    unit, count = np.datetime_data(values.dtype)
    numbers = values.astype(np.int64).astype(float) * count
    if unit in ("Y", "M"):
        years = numbers if unit == "Y" else numbers / 12
        near = np.abs(years) < 1e15
        exact = np.where(near, values, np.datetime64("NaT")).astype("datetime64[D]")
        since_1970 = np.where(near, exact.astype(np.int64), years * DAYS_PER_YEAR)
    else:
        since_1970 = numbers / UNITS_PER_DAY.get(unit, 1.0)  # no unit: all values are NaT
    return np.where(np.isnat(values), np.nan, since_1970)


# -- kinds -----------------------------------------------------------------------------------------


class TypedColumn(NamedTuple):
    """A column with its kind: numbers and dates as floats, categories and texts as strings."""

    kind: str  # number, date, category, text, identifier or sequence
    values: np.ndarray
    note: str = ""  # how the column was read, if that is not obvious
    tokens: str = ""  # for kind "sequence": the type of the tokens, if the caller gave it

    @property
    def missing(self) -> np.ndarray:
        """A mask of the missing values."""
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([value is None for value in self.values], bool)


def typed_column(name: str, values: np.ndarray, as_type: str | None = None) -> TypedColumn:
    """The column with its kind: of type `as_type` if possible, else inferred."""
    if values.dtype.kind == "M":
        return _date_column(values, "") if as_type in (None, "date") else _as(as_type, name, values)
    if values.dtype.kind == "f":
        return _number_column(values) if as_type in (None, "number") else _as(as_type, name, values)
    if any(isinstance(value, np.ndarray) for value in values):
        if as_type in ("date", "text"):
            raise checks.BadInput(
                f"{name} must be a sequence, number or category; got the type {as_type} for a "
                f"column with a sequence in each row; leave its type out."
            )
        return TypedColumn("sequence", values, tokens=as_type or "")
    if as_type in ("number", "date"):
        return _as(as_type, name, values)
    if as_type in ("category", "text"):
        return TypedColumn(as_type, values)
    if (floats := numbers(values)) is not None:
        return _number_column(floats)
    if (parsed := dates(values)) is not None:
        return _date_column(*parsed)
    present = [value for value in values if value is not None]
    if len(set(present)) <= max(FEW, len(present) // 2):
        return TypedColumn("category", values)
    long = sum(value.count(" ") + 1 for value in present) >= WORDS_OF_TEXT * len(present)
    return TypedColumn("text" if long else "identifier", values)


def _number_column(values: np.ndarray) -> TypedColumn:
    infinite = np.isinf(values)
    note = f"{infinite.sum()} infinite values treated as missing" if infinite.any() else ""
    return TypedColumn("number", np.where(infinite, np.nan, values), note)


def _date_column(values: np.ndarray, form: str) -> TypedColumn:
    note = f"read as {form}" if form not in ("", "ISO 8601") else ""
    return TypedColumn("date", days(values), note)


def _as(as_type: str, name: str, values: np.ndarray) -> TypedColumn:
    """The column converted to the type `as_type`, which differs from how it was read.

    If the values cannot be converted, `BadInput` is raised.
    """
    if values.dtype.kind == "M":
        if as_type == "number":
            return TypedColumn("number", days(values), "days since 1970-01-01")
        return TypedColumn(as_type, texts(values))
    if values.dtype.kind == "f":
        if as_type == "date":
            raise checks.BadInput(
                f"{name} must hold dates such as 2024-12-31 to be read as dates; got numbers; "
                f"leave its type out."
            )
        return TypedColumn(as_type, texts(plain_number(value) for value in values))
    if as_type == "number":
        if (floats := numbers(values)) is not None:
            return _number_column(floats)
        loose = [value if _is_number(value) else None for value in values]
        lost = sum(a is not None and b is None for a, b in zip(values, loose, strict=True))
        if lost > len(values) // 2:
            raise checks.BadInput(
                f"{name} must hold numbers to be read as numbers; got mostly other values, such as "
                f"{_first_non_number(values)!r}; leave its type out."
            )
        floats = numbers(texts(loose))
        assert floats is not None
        note = f"{lost} values that are not numbers treated as missing"
        return _number_column(floats)._replace(note=note)
    if (parsed := dates(values)) is None:
        raise checks.BadInput(
            f"{name} must hold dates in one format, such as 2024-12-31, to be read as dates; got "
            f"other values; leave its type out."
        )
    return _date_column(*parsed)


def _is_number(value: str | None) -> bool:
    return value is not None and numbers(np.array([value], object)) is not None


def _first_non_number(values: np.ndarray) -> str:
    return next(v for v in values if v is not None and not _is_number(v))[:LONGEST_NAME]


def plain_number(value: float) -> str:
    """A number as a person writes it: 3, not 3.0."""
    return str(int(value)) if float(value).is_integer() else str(float(value))
