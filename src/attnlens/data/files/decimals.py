"""Numbers as people write them: 1234.5, 1,234.5, 1234,5, 1.234,5 and 1'234.5.

The caller may give the decimal mark (point or comma). Otherwise one mark is chosen for the whole
file, from the columns whose numbers are valid with one mark only ("10,38" is not a number if the
mark is a point). "1.234" is valid with either mark; a column in which all numbers are like that is
read with the mark of the other columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from attnlens.core import checks

MARKS = (".", ",")
MARK_NAMES = {"point": ".", "comma": ","}
# Thousands separators: apostrophes and no-break spaces, and also the comma if the decimal mark is a
# point, and the point if it is a comma.
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
    """How the numbers of a file were read.

    `commas` names the columns with decimal commas, `grouped` those with thousands separators.
    `assumed` names columns such as (1.234, 2.345), if no column of the file shows which decimal
    mark is meant; they were read with `assumed_mark`.
    """

    commas: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    assumed_mark: str = ""


def check_decimal(value: str) -> str:
    """The decimal mark that the caller gave as a character or a name; `BadInput` if invalid."""
    return checks.one_of("decimal", MARK_NAMES.get(value, value), MARKS)


def plain(value: str, mark: str) -> str | None:
    """The string `value`, a number with this decimal mark, in Python's notation; None otherwise.

    >>> plain("1.234,5", ","), plain("1,234.5", "."), plain("10,38", ".")
    ('1234.5', '1234.5', None)
    """
    match = FORMS[mark].fullmatch(value)
    if match is None:
        # A word such as "inf", which Python's float accepts, is returned unchanged.
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
    """The columns, with numbers rewritten in Python's notation, and how they were read.

    `decimal` is the decimal mark that the caller gave, or None. `numeric` names columns that the
    caller declares to be numbers: if a value there is not a number, it is left unchanged, and the
    other values of the column are rewritten all the same.
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
            own = None  # the caller gave a mark that does not fit: the column stays unchanged
        if own is None:
            continue
        new = [None if value is None else plain(value, own) or value for value in values]
        if own == "," and any(v and "," in v for v in values):
            commas.append(name)
        if any(v and own in MARKS and _is_grouped(v, own) for v in values):
            grouped.append(name)
        result[name] = np.array(new, object)
    # No mark is assumed in a file whose fields are separated by commas: points are decimal points.
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
    # Spreadsheets that write decimal commas do not separate fields by commas.
    return "," if commas and separator != "," else "."


def _has_marks(values: np.ndarray) -> bool:
    return any(v is not None and any(c in v for c in ",." + GROUPING) for v in values)


def _all_numbers(values: np.ndarray, mark: str, loose: bool) -> bool:
    """Whether all values are numbers with this decimal mark.

    If `loose`, values that are not numbers with either mark are ignored.
    """
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
