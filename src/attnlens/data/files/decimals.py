"""Numbers as people write them: 1234.5, 1,234.5, 1234,5, 1.234,5 and 1'234.5.

A decimal mark (point or comma) may be given. Otherwise one is chosen for the whole file: a column
decides if its numbers can be read in one way only ("10,38" is no number with a decimal point).
"1.234" can be read in both ways; such a column is read with the mark of the other columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from attnlens.core import checks

MARKS = (".", ",")
MARK_NAMES = {"point": ".", "comma": ","}
# Thousands separators: apostrophes and no-break spaces. The mark that is not the decimal mark is
# one too.
GROUPING = "'\N{RIGHT SINGLE QUOTATION MARK}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
EXPONENT = r"(?:[eE][+-]?\d+)?"


def _form(mark: str) -> re.Pattern[str]:
    other = {".": ",", ",": "."}[mark]
    grouped = (
        rf"[1-9]\d{{0,2}}(?P<group>[{re.escape(other + GROUPING)}])\d{{3}}(?:(?P=group)\d{{3}})*"
    )
    whole = rf"(?:{grouped}|\d+)"
    return re.compile(
        rf"[+-]?(?:{whole}(?:{re.escape(mark)}\d*)?|{re.escape(mark)}\d+){EXPONENT}", re.ASCII
    )


FORMS = {mark: _form(mark) for mark in MARKS}


class NumberFormat(NamedTuple):
    """How numbers of a file were read: the columns with decimal commas, and with grouped digits.

    `assumed` are columns such as 1.234, 2.345 for which nothing in the file decides, and the
    decimal mark with which they were read.
    """

    commas: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    assumed_mark: str = ""


def check_decimal(value: str) -> str:
    """The decimal mark that a caller gave."""
    return checks.one_of("decimal", MARK_NAMES.get(value, value), MARKS)


def plain(value: str, mark: str) -> str | None:
    """A number with this decimal mark, as Python reads it; None if it is no such number.

    >>> plain("1.234,5", ","), plain("1,234.5", "."), plain("10,38", ".")
    ('1234.5', '1234.5', None)
    """
    match = FORMS[mark].fullmatch(value)
    if match is None:
        # Words such as inf.
        return value if value.isalnum() and not value.isdigit() and _is_float(value) else None
    if group := match["group"]:
        value = value.replace(group, "")
    return value.replace(mark, ".")


def is_number(value: str) -> bool:
    """Whether this is a number with a decimal point or comma."""
    return any(plain(value, mark) is not None for mark in MARKS)


def with_points(
    columns: Mapping[str, np.ndarray],
    decimal: str | None,
    separator: str,
    numeric: Collection[str] = (),
) -> tuple[dict[str, np.ndarray], NumberFormat]:
    """Columns of strings with numbers as Python reads them, and how they were read.

    `numeric` names columns that the caller declares to be numbers: a value there that is not a
    number is kept as it is, and the other values of its column are still read as numbers.
    """
    marked = {name: values for name, values in columns.items() if _has_marks(values)}
    fits = {
        name: [mark for mark in MARKS if _all_numbers(values, mark, loose=name in numeric)]
        for name, values in marked.items()
    }
    mark = decimal or _file_mark(marked, fits, separator)
    result, commas, grouped = dict(columns), [], []
    for name, values in marked.items():
        own = mark if mark in fits[name] else (fits[name] or [None])[0]
        if decimal is not None and own != decimal:
            own = None  # the caller's word
        if own is None:
            continue
        new = [None if value is None else plain(value, own) or value for value in values]
        if own == "," and any(v and "," in v for v in values):
            commas.append(name)
        if any(v and own in MARKS and _is_grouped(v, own) for v in values):
            grouped.append(name)
        result[name] = np.array(new, object)
    # Where commas separate fields, points are decimal points.
    undecided = decimal is None and separator != "," and all(len(f) != 1 for f in fits.values())
    assumed = tuple(name for name in fits if len(fits[name]) == 2) if undecided else ()
    return result, NumberFormat(tuple(commas), tuple(grouped), assumed, mark if assumed else "")


def _file_mark(
    marked: Mapping[str, np.ndarray], fits: Mapping[str, list[str]], separator: str
) -> str:
    """The decimal mark of a file, from the columns that can be read in one way only."""
    decided = {marks[0] for marks in fits.values() if len(marks) == 1}
    open_columns = [name for name, marks in fits.items() if len(marks) == 2]
    if len(decided) == 1:
        return decided.pop()
    if decided and open_columns:
        name = open_columns[0]
        value = next(v for v in marked[name] if v and ("," in v or "." in v))
        raise checks.BadInput(
            f"{name} must hold numbers that can be read in one way, but {value!r} can be read in "
            f"two, and other columns have both decimal points and decimal commas; give the decimal "
            f"mark (--decimal) or the type of the column."
        )
    commas = any(v and "," in v for name in open_columns for v in marked[name])
    # Where the comma is the decimal mark, spreadsheets separate fields by semicolons.
    return "," if commas and separator != "," else "."


def _has_marks(values: np.ndarray) -> bool:
    return any(v is not None and any(c in v for c in ",." + GROUPING) for v in values)


def _all_numbers(values: np.ndarray, mark: str, loose: bool) -> bool:
    """Whether all values are numbers with this mark; if `loose`, all that are numbers at all."""
    return all(
        v is None or plain(v, mark) is not None or (loose and not is_number(v)) for v in values
    )


def _is_grouped(value: str, mark: str) -> bool:
    match = FORMS[mark].fullmatch(value)
    return match is not None and bool(match["group"])


def _is_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
