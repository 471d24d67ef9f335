"""The separator of a CSV file: the one that splits its first lines most consistently.

A separator is consistent if every line has the same number of fields, at least two. Two separators
can both be consistent: "10,38;9,60" has two fields between semicolons and three between commas. As
in van den Burg, Nazábal and Sutton (Wrangling messy CSV files by detecting row and type patterns,
2019), the one with the larger product decides:

    (fields − 1) / fields  ×  share of clean fields

A field after the first line is clean if it is a number, with a decimal point or comma, or holds no
separator and no quotation mark.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import islice

from attnlens.core import checks

from .decimals import is_number

SEPARATORS = ",;\t|"
NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "space": " "}
NO_SEPARATOR = "\0"  # for a table of one column: text does not contain it
MOST_LINES = 200  # that are looked at
MOST_CHARACTERS = 2**20  # that are looked at, after the first line


def check_separator(value: str) -> str:
    """The separator that a caller gave: a character, or its name."""
    mark = NAMES.get(value, value)
    if len(mark) != 1 or mark.isalnum() or (mark != "\t" and not mark.isprintable()) or mark == '"':
        raise checks.BadInput(
            f"separator must be one character, such as ';', or comma, semicolon, tab, bar or "
            f"space; got {value[:20]!r}."
        )
    return mark


def separator_name(mark: str) -> str:
    """The separator in words."""
    return {"\t": "tab", " ": "space", NO_SEPARATOR: "none: one column"}.get(mark, mark)


def find_separator(lines: Iterable[str]) -> str:
    """The separator of these lines, of which the first few are looked at."""
    sample, complete = _first_lines(lines)
    scores = {mark: _score(sample, mark, complete) for mark in SEPARATORS}
    best = max(scores, key=lambda mark: scores[mark])  # the first of equals: a comma
    if scores[best] > 0:
        return best
    if _one_column(sample):
        return NO_SEPARATOR
    outside = "".join((sample or [""])[0].split('"')[::2])
    return max(SEPARATORS, key=lambda mark: (outside.count(mark), mark == ","))


def _first_lines(lines: Iterable[str]) -> tuple[list[str], bool]:
    """Lines that are not blank, and whether these are all lines."""
    sample, characters = list[str](), 0
    stream = (line for line in lines if line.strip())
    for line in islice(stream, MOST_LINES):
        sample.append(line)
        characters += len(line)
        if characters > MOST_CHARACTERS:
            break
    return sample, next(stream, None) is None


def _score(lines: Sequence[str], mark: str, complete: bool) -> float:
    """(fields − 1) / fields × share of clean fields; 0 if lines differ in their fields."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=mark) if row]
    except csv.Error:
        return 0.0
    if not complete and len(rows) > 1:
        rows = rows[:-1]  # a quoted field of the last one may be cut
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return 0.0
    (width,) = widths
    fields = [field for row in rows[1:] or rows for field in row]  # without the header
    clean = sum(is_number(field.strip()) or not _suspicious(field) for field in fields)
    # A consistent separator is better than none, whatever its fields hold.
    return (width - 1) / width * max(clean / len(fields), 1e-9)


def _suspicious(field: str) -> bool:
    return '"' in field or any(mark in field for mark in SEPARATORS)


def _one_column(lines: Sequence[str]) -> bool:
    """Whether no line has a separator, or the first has none and the others are numbers."""
    if any(mark in line for mark in SEPARATORS for line in lines[:1]):
        return False
    others = [line.strip() for line in lines[1:]]
    separated = any(mark in line for mark in SEPARATORS for line in others)
    return not separated or all(is_number(line) for line in others)
