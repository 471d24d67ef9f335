"""The separator of a CSV file: the one that splits its first lines most consistently.

A separator is consistent if every line has the same number of fields, at least two. Two separators
can both be consistent: "10,38;9,60" has two fields between semicolons and three between commas. As
in van den Burg, Nazábal and Sutton (Wrangling messy CSV files by detecting row and type patterns,
2019), the one with the larger product decides:

    (fields − 1) / fields  ×  share of clean fields  ×  share of lines with clean fields only

Fields after the first line are examined. A field is clean if it is a number, with a decimal point
or comma, or if it has no quotation mark and no separator except before a space ("Smith, J"). If the
last factor is 0 for every separator, it is left out. If several separators are then possible, tab
is chosen if it is one of them; otherwise `BadInput` asks the user to give the separator.

A first line such as "sep=;", which spreadsheets write, gives the separator and is not a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from attnlens.core import checks

from .decimals import is_number

SEPARATORS = ",;\t|"
NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "space": " "}
NO_SEPARATOR = "\0"  # separator of a table with one column; no text file contains this character
MOST_LINES = 200  # number of lines that are examined
MOST_CHARACTERS = 2**20  # no more lines are examined once they have this number of characters
MOST_FIELDS = 10_000  # number of fields of a line that are examined; a wider table is refused
LEAST_SCORE = 1e-9  # minimal score of a consistent separator; 0 is the score of an inconsistent one
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)


def check_separator(value: str) -> str:
    """The separator that the caller gave as a character or a name; `BadInput` if invalid."""
    mark = NAMES.get(value, value)
    if len(mark) != 1 or mark.isalnum() or (mark != "\t" and not mark.isprintable()) or mark == '"':
        raise checks.BadInput(
            f"separator must be one character, such as ';', or comma, semicolon, tab, bar or "
            f"space; got {value[:20]!r}."
        )
    return mark


def separator_name(mark: str) -> str:
    """The name of a separator in messages."""
    return {"\t": "tab", " ": "space", NO_SEPARATOR: "none: one column"}.get(mark, mark)


def named_separator(line: str) -> str | None:
    """The separator in a first line such as "sep=;"; None if `line` is not such a line.

    >>> named_separator("sep=;"), named_separator("sep=;x")
    (';', None)
    """
    match = SEPARATOR_LINE.fullmatch(line)
    return match[1] if match and match[1] in (*SEPARATORS, " ") else None


def find_separator(lines: Iterable[str]) -> str:
    """The separator of these lines, inferred from the first ones."""
    sample, complete = _first_lines(lines)
    scores = {mark: _score(sample, mark, complete) for mark in SEPARATORS}
    best = max(scores, key=lambda mark: scores[mark])  # among equal scores, the first in SEPARATORS
    by_lines, by_fields = scores[best]
    if by_lines == 0 and by_fields > 0:
        possible = [mark for mark in SEPARATORS if scores[mark].by_fields > LEAST_SCORE]
        if "\t" in possible:
            return "\t"
        if len(possible) > 1:
            raise checks.BadInput(
                f"the separator of fields must be clear; got {' and '.join(possible)}, each "
                f"equally often in every line; name the separator (--separator)."
            )
    if by_fields > 0:
        return best
    if _one_column(sample):
        return NO_SEPARATOR
    outside = "".join((sample or [""])[0].split('"')[::2])
    return max(SEPARATORS, key=lambda mark: (outside.count(mark), mark == ","))


def _first_lines(lines: Iterable[str]) -> tuple[list[str], bool]:
    """The first lines that are not blank, and whether there are no more such lines."""
    sample, characters = list[str](), 0
    stream = (line for line in lines if line.strip())
    for line in islice(stream, MOST_LINES):
        sample.append(line)
        characters += len(line)
        if characters > MOST_CHARACTERS:
            break
    return sample, next(stream, None) is None


class _Score(NamedTuple):
    """Scores of a separator: the product in the module's docstring, with and without its last
    factor, the share of lines with clean fields only.
    """

    by_lines: float = 0.0
    by_fields: float = 0.0


def _score(lines: Sequence[str], mark: str, complete: bool) -> _Score:
    """The scores of the separator `mark`; 0 if lines have different numbers of fields.

    `complete` says whether `lines` are all lines of the file.
    """
    try:
        rows = [row for row in csv.reader(lines, delimiter=mark) if row]
    except csv.Error:
        return _Score()
    if not complete and len(rows) > 1:
        rows = rows[:-1]  # a quoted field of the last row may continue on the next line
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return _Score()
    (width,) = widths
    clean = [
        [is_number(field.strip()) or not _suspicious(field) for field in row[:MOST_FIELDS]]
        for row in rows[1:] or rows  # without the header
    ]
    fields = sum(map(sum, clean)) / sum(map(len, clean))
    by_fields = max((width - 1) / width * fields, LEAST_SCORE)
    return _Score(by_fields * sum(map(all, clean)) / len(clean), by_fields)


def _suspicious(field: str) -> bool:
    return '"' in field or any(mark in field.replace(f"{mark} ", "") for mark in SEPARATORS)


def _one_column(lines: Sequence[str]) -> bool:
    """Whether this is a table of one column.

    It is if no line has a separator, or if the first line has none and all others are numbers.
    """
    if any(mark in line for mark in SEPARATORS for line in lines[:1]):
        return False
    others = [line.strip() for line in lines[1:]]
    separated = any(mark in line for mark in SEPARATORS for line in others)
    return not separated or all(is_number(line) for line in others)
