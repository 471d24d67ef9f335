"""CSV files: text with a separator, read as a stream, so that memory depends on what is kept.

The separator is the most frequent of , ; tab | in the first line. A first line of numbers is no
header, unless it counts the columns. Every line must have as many fields as the first.
"""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from attnlens import checks

from .columns import Table, clean_names, known, numbers, texts
from .sampling import Request, choose_ids, most_rows, reservoir, said

SEPARATORS = ",;\t|"
LONGEST_FIELD = 10**6  # characters; a longer one is an unclosed quotation mark or no table
LONGEST_LINE = 10**7
MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_csv(path: Path, request: Request) -> Table:
    """The table in a CSV file, or a sample of it."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        return _read(path, request)
    except UnicodeDecodeError as error:
        raise checks.BadInput(
            f"{path} must be text in UTF-8, but it holds the byte {error.object[error.start]:#04x} "
            f"where none may be; save it as CSV in UTF-8."
        ) from error
    except UnicodeError as error:
        raise checks.BadInput(
            f"{path} must be text, but it is not; save it as CSV in UTF-8."
        ) from error
    except csv.Error as error:
        raise checks.BadInput(
            f"{path} cannot be read as CSV ({error}); is a quotation mark left open?"
        ) from error
    except OSError as error:
        raise checks.BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    finally:
        csv.field_size_limit(before)


def _read(path: Path, request: Request) -> Table:
    with contextlib.closing(_records(path)) as records:
        first = next(records, None)
        if first is None:
            raise checks.BadInput(f"{path} is empty; give a file with a line for each row.")
    headed = not _counts_as_row(first)
    names = clean_names(first if headed else [""] * len(first), path)
    most = most_rows(request, len(names), path)
    facts = [] if headed else [("header", "none: the first line holds numbers, so it is a row")]
    with contextlib.closing(_rows(path, headed)) as rows:
        if request.id is None:
            held, places, total = reservoir(rows, most, request.seed)
            what = "rows"
        else:
            held, places, total = _of_ids(path, rows, names, headed, most, request)
            what = f"whole sequences ({request.id})"
    if not held:
        raise checks.BadInput(
            f"{path} has a header but no row below it; give a file with a line for each row."
        )
    facts.append(said(len(held), total, request.seed, what))
    separator = _separator(_first_line(path))
    columns, commas = {}, []
    for name, values in zip(names, zip(*held, strict=True), strict=True):
        columns[name] = texts(values)
        if separator != "," and name not in request.as_text and _with_commas(columns[name]):
            columns[name] = texts(value.replace(",", ".") for value in values)
            commas.append(name)
    if commas:
        facts.append(("decimal commas", f"read as points in {', '.join(commas[:6])}"))
    return Table(columns, np.array(places, int), total, tuple(facts))


def _of_ids(
    path: Path,
    rows: Iterator[list[str]],
    names: tuple[str, ...],
    headed: bool,
    most: int,
    request: Request,
) -> tuple[list[list[str]], list[int], int]:
    """All rows of as many ids as there is room for."""
    place = names.index(known("id", request.id, names))
    with contextlib.closing(_rows(path, headed)) as counted:
        counts = Counter(row[place].strip() for row in counted)
    chosen = choose_ids(counts, most, request.seed)
    held = [(i, row) for i, row in enumerate(rows) if row[place].strip() in chosen]
    return [row for _, row in held], [i for i, _ in held], sum(counts.values())


def _rows(path: Path, headed: bool) -> Generator[list[str]]:
    records = _records(path)
    if headed:
        next(records)
    return records


def _records(path: Path) -> Generator[list[str]]:
    """Lines as fields, each as many as the first has; blank lines are left out."""
    with path.open("rb") as file:
        start = file.read(2)
    encoding = next((name for mark, name in MARKS if start == mark), "utf-8-sig")
    with path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(_lines(path, file), delimiter=_separator(_first_line(path)))
        width = 0
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and width != 1):
                continue
            width = width or len(row)
            if len(row) != width:
                raise checks.BadInput(
                    f"every line of {path} must have {width} fields, as its first, but line "
                    f"{reader.line_num} has {len(row)}; mend it, or put quotation marks around a "
                    f"field that holds the separator."
                )
            yield row


def _lines(path: Path, file: object) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE):  # type: ignore[attr-defined]
        number += 1
        if "\0" in line:
            raise checks.BadInput(
                f"{path} must be CSV, Parquet, NPY, NPZ or a folder of IDX files, but line "
                f"{number} holds a zero byte, which no text does."
            )
        if len(line) == LONGEST_LINE:
            raise checks.BadInput(
                f"line {number} of {path} is longer than {LONGEST_LINE:,} characters; is it CSV?"
            )
        yield line


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    encoding = next((name for mark, name in MARKS if start == mark), "utf-8-sig")
    with path.open(encoding=encoding, newline="") as file:
        for line in _lines(path, file):
            if line.strip():
                return line
    return ""


def _separator(line: str) -> str:
    """The most frequent separator outside quotation marks; a comma where there is none."""
    outside = "".join(line.split('"')[::2])
    return max(SEPARATORS, key=lambda each: (outside.count(each), each == ","))


def _counts_as_row(fields: list[str]) -> bool:
    values = numbers(texts(fields))
    if values is None or np.isnan(values).all():
        return False
    places = np.arange(len(values))
    return not any(np.array_equal(values, places + start) for start in (0, 1))


def _with_commas(values: np.ndarray) -> bool:
    """Whether these are numbers once a decimal comma is read as a point, and not before."""
    if not any(value is not None and "," in value for value in values):
        return False
    return numbers(texts("" if v is None else v.replace(",", ".") for v in values)) is not None
