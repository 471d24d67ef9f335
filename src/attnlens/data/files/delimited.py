"""CSV files: text with a separator, read as a stream, so that memory use depends on the sample.

The separator is the most frequent of , ; tab | in the first line. A first line of numbers is a row
and not a header, unless it numbers the columns (0, 1, 2, … or 1, 2, 3, …). Every line must have as
many fields as the first.
"""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from attnlens.core import checks

from .columns import Table, check_column, clean_names, numbers, texts
from .facts import Fact, Remark, RowsRead
from .sampling import Request, choose_ids, most_rows, reservoir

SEPARATORS = ",;\t|"
LONGEST_FIELD = 10**6  # characters; a longer field is an unclosed quotation mark, or not a table
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
    with contextlib.closing(_records(path)) as records:
        first = next(records, None)
        if first is None:
            raise checks.BadInput(
                f"{path} must have one line per row; got an empty file; give another file."
            )
    has_header = not _is_data_row(first)
    names = clean_names(first if has_header else [""] * len(first), path)
    most = most_rows(request, len(names), path)
    facts: list[Fact] = []
    if not has_header:
        facts.append(Remark("header", "none: the first line holds numbers, so it is a row"))
    with contextlib.closing(_rows(path, has_header)) as rows:
        if request.id is None:
            sample, row_numbers, total = reservoir(rows, most, request.seed)
        else:
            sample, row_numbers, total = _rows_of_ids(path, rows, names, has_header, most, request)
    if not sample:
        raise checks.BadInput(
            f"{path} must have one line per row; got a header without rows; give another file."
        )
    facts.append(RowsRead(len(sample), total, request.seed, request.id))
    separator = _separator(_first_line(path))
    columns, commas = {}, []
    for name, values in zip(names, zip(*sample, strict=True), strict=True):
        columns[name] = texts(values)
        if separator != "," and name not in request.as_text and _decimal_commas(columns[name]):
            columns[name] = texts(value.replace(",", ".") for value in values)
            commas.append(name)
    if commas:
        facts.append(Remark("decimal commas", f"read as points in {', '.join(commas[:6])}"))
    return Table(columns, np.array(row_numbers, int), total, tuple(facts))


def _rows_of_ids(
    path: Path,
    rows: Iterator[list[str]],
    names: tuple[str, ...],
    has_header: bool,
    most: int,
    request: Request,
) -> tuple[list[list[str]], list[int], int]:
    """All rows of randomly chosen ids, `most` rows at most."""
    column = names.index(check_column("id", request.id, names))
    with contextlib.closing(_rows(path, has_header)) as all_rows:
        counts = Counter(row[column].strip() for row in all_rows)
    chosen = choose_ids(counts, most, request.seed)
    sample = [(i, row) for i, row in enumerate(rows) if row[column].strip() in chosen]
    return [row for _, row in sample], [i for i, _ in sample], sum(counts.values())


def _rows(path: Path, has_header: bool) -> Generator[list[str]]:
    records = _records(path)
    if has_header:
        next(records)
    return records


def _records(path: Path) -> Generator[list[str]]:
    """The fields of each line, as many as in the first; blank lines are skipped."""
    with path.open("rb") as file:
        start = file.read(2)
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if start == mark), "utf-8-sig")
    with path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(_lines(path, file), delimiter=_separator(_first_line(path)))
        width = 0
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and width != 1):
                continue
            width = width or len(row)
            if len(row) != width:
                raise checks.BadInput(
                    f"every line of {path} must have {width} fields, as the first line has, but "
                    f"line {reader.line_num} has {len(row)}; correct it, or put quotation marks "
                    f"around a field that holds the separator."
                )
            yield row


def _lines(path: Path, file: object) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE):  # type: ignore[attr-defined]
        number += 1
        if "\0" in line:
            raise checks.BadInput(
                f"{path} must be CSV, Parquet, NPY, NPZ or a folder of IDX files; got a zero byte "
                f"in line {number}, which text does not contain."
            )
        if len(line) == LONGEST_LINE:
            raise checks.BadInput(
                f"line {number} of {path} must be at most {LONGEST_LINE:,} characters long; got a "
                f"longer one; is it CSV?"
            )
        yield line


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if start == mark), "utf-8-sig")
    with path.open(encoding=encoding, newline="") as file:
        for line in _lines(path, file):
            if line.strip():
                return line
    return ""


def _separator(line: str) -> str:
    """The most frequent separator outside quotation marks; a comma if there is none."""
    outside = "".join(line.split('"')[::2])
    return max(SEPARATORS, key=lambda mark: (outside.count(mark), mark == ","))


def _is_data_row(fields: list[str]) -> bool:
    """Whether the first line holds data: numbers that do not just number the columns."""
    values = numbers(texts(fields))
    if values is None or np.isnan(values).all():
        return False
    column_numbers = np.arange(len(values))
    return not any(np.array_equal(values, column_numbers + start) for start in (0, 1))


def _decimal_commas(values: np.ndarray) -> bool:
    """Whether these strings are numbers with decimal commas."""
    if not any(value is not None and "," in value for value in values):
        return False
    return numbers(texts("" if v is None else v.replace(",", ".") for v in values)) is not None
