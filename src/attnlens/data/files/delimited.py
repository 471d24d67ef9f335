"""CSV files, read as a stream: memory use depends on the size of the sample, not of the file.

The caller gives the separator and the decimal mark, or they are inferred from the file
(`separators`, `decimals`). A first line of numbers is a row and not a header, unless the numbers
count the columns (0, 1, 2, … or 1, 2, 3, …). All lines must have the same number of fields.
"""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np

from attnlens.core import checks

from .columns import Table, check_column, clean_names, texts
from .decimals import MARKS, plain, with_points
from .facts import Fact, Remark, RowsRead, TextFormat
from .sampling import Request, TextBudget, choose_ids, most_rows, reservoir
from .separators import find_separator, named_separator

# In characters. A longer field means that a quotation mark is not closed, or that it is no table.
LONGEST_FIELD = 10**6
LONGEST_LINE = 10**7  # characters
BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_csv(path: Path, request: Request) -> Table:
    """The table in a CSV file, or a sample of it."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        return _read(path, request)
    except UnicodeDecodeError as error:
        raise checks.BadInput(
            f"{path} must be text in UTF-8; got the invalid byte "
            f"{error.object[error.start]:#04x}; save it as CSV in UTF-8."
        ) from error
    except UnicodeError as error:
        raise checks.BadInput(
            f"{path} must be text; got invalid characters; save it as CSV in UTF-8."
        ) from error
    except csv.Error as error:
        raise checks.BadInput(
            f"{path} must be CSV, but it cannot be read ({error}); is a quotation mark unclosed?"
        ) from error
    except OSError as error:
        raise checks.BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    finally:
        csv.field_size_limit(before)


def _read(path: Path, request: Request) -> Table:
    with contextlib.closing(_lines(path)) as lines:
        named = named_separator(next(lines, ""))
    separator = request.separator or named or find_separator(_lines(path))
    with contextlib.closing(_records(path, separator)) as records:
        first = next(records, None)
        if first is None:
            raise checks.BadInput(
                f"{path} must have one line per row; got an empty file; give another file."
            )
    most = most_rows(request, len(first), path)  # raises if there are too many columns
    has_header = not _is_data_row(first, request.decimal)
    names = clean_names(first if has_header else [""] * len(first), path)
    facts: list[Fact] = []
    if not has_header:
        facts.append(Remark("header", "none: the first line holds numbers, so it is a row"))

    def rows() -> Generator[list[str]]:
        records = _records(path, separator)
        if has_header:
            next(records)
        return records

    with contextlib.closing(rows()) as stream:
        if request.id is None:
            budget = TextBudget(request, path)
            sample, row_numbers, total = reservoir(stream, most, request.seed, budget)
            fact = RowsRead(len(sample), total, request.seed)
        else:
            sample, row_numbers, fact = _rows_of_ids(path, rows, names, most, request)
    if not sample:
        raise checks.BadInput(
            f"{path} must have one line per row; got a header without rows; give another file."
        )
    facts.append(fact)
    columns = {
        name: texts(values) for name, values in zip(names, zip(*sample, strict=True), strict=True)
    }
    numeric = {name: values for name, values in columns.items() if name not in request.as_text}
    plain_columns, numbers = with_points(numeric, request.decimal, separator, request.as_number)
    facts.append(TextFormat(separator, request.separator is not None, numbers, request.decimal))
    columns |= plain_columns
    return Table(columns, np.array(row_numbers, int), fact.total, tuple(facts))


def _rows_of_ids(
    path: Path,
    rows: Callable[[], Generator[list[str]]],
    names: tuple[str, ...],
    most: int,
    request: Request,
) -> tuple[list[list[str]], list[int], RowsRead]:
    """All rows of randomly chosen ids, at most `most` rows: rows, their indices, and the fact.

    `rows` is a function that opens the stream of rows; it is called twice, to count and to read.
    """
    column = names.index(check_column("id", request.id, names))
    with contextlib.closing(rows()) as stream:
        counts = Counter(row[column].strip() for row in stream)
    chosen = choose_ids(counts, request.rows, most, request.seed)
    sample, budget = [], TextBudget(request, path)
    with contextlib.closing(rows()) as stream:
        for i, row in enumerate(stream):
            if row[column].strip() in chosen:
                budget.add(row)
                sample.append((i, row))
    total = sum(counts.values())
    fact = RowsRead(len(sample), total, request.seed, request.id, (len(chosen), len(counts)))
    return [row for _, row in sample], [i for i, _ in sample], fact


def _records(path: Path, separator: str) -> Generator[list[str]]:
    """The fields of each line; blank lines are skipped.

    A line with a different number of fields than the first raises `BadInput`.
    """
    with contextlib.closing(_lines(path)) as lines:
        reader = csv.reader(lines, delimiter=separator)
        width = 0
        for row in reader:
            if reader.line_num == 1 and named_separator(separator.join(row)):
                continue
            if not row or (len(row) == 1 and not row[0].strip() and width != 1):
                continue
            width = width or len(row)
            if len(row) != width:
                raise checks.BadInput(
                    f"every line of {path} must have {width} fields, as the first line has, but "
                    f"line {reader.line_num} has {len(row)}; correct it, put quotation marks "
                    f"around a field that holds the separator, or name the separator."
                )
            yield row


def _lines(path: Path) -> Generator[str]:
    with path.open("rb") as file:
        start = file.read(2)
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if start == mark), "utf-8-sig")
    number = 0
    with path.open(encoding=encoding, newline="") as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            if "\0" in line:
                raise checks.BadInput(
                    f"{path} must be CSV, Parquet, NPY, NPZ or a folder of IDX files; got a zero "
                    f"byte in line {number}, which text does not contain."
                )
            if len(line) == LONGEST_LINE:
                raise checks.BadInput(
                    f"line {number} of {path} must be at most {LONGEST_LINE:,} characters long; "
                    f"got a longer one; is it CSV?"
                )
            yield line


def _is_data_row(fields: list[str], decimal: str | None) -> bool:
    """Whether the first line is a row: all numbers, other than 0, 1, 2, … and 1, 2, 3, …"""
    present = [field for field in texts(fields) if field is not None]
    marks = MARKS if decimal is None else (decimal,)
    values = [next(filter(None, (plain(v, mark) for mark in marks)), None) for v in present]
    if not values or None in values:
        return False
    numbers = [float(value) for value in values if value is not None]
    column_numbers = np.arange(len(fields))
    return not any(np.array_equal(numbers, column_numbers + start) for start in (0, 1))
