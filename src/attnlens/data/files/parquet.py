"""Parquet files, read in batches, so that memory use depends on the sample and not on the file.

If the file has too many rows, the indices of the sampled rows are drawn first; then these rows are
taken from each batch. Columns of structures, maps or bytes are left out, and a fact names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.data.optional import INSTALL, installed

from .columns import Table, check_column, clean_names, name_list, texts
from .facts import Fact, Remark, RowsRead
from .sampling import MOST_CELLS, Request, most_rows, sample_rows

BATCH = 2**15  # rows decoded at a time: 13 MB for fifty columns of numbers
BATCH_OF_LISTS = 2**6  # rows decoded at a time if a column holds lists of unknown length
BYTES_PER_NUMBER = 8


def read_parquet(path: Path, request: Request) -> Table:
    """The table in a Parquet file, or a sample of it."""
    if not installed("pyarrow"):
        raise checks.BadInput(
            f"{path} is a Parquet file, which needs the package pyarrow, which is not installed; "
            f"install it with {INSTALL}."
        )
    import pyarrow

    try:
        return _read(path, request)
    except checks.BadInput:
        raise
    except MemoryError as error:
        raise checks.BadInput(
            f"{path} needs more memory than there is, even for a sample of it; is it damaged?"
        ) from error
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        # All exceptions that pyarrow raises for damaged files are caught here.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:100]
        raise checks.BadInput(
            f"{path} must be a complete Parquet file, but it cannot be read ({reason}); write it "
            f"again."
        ) from error


def _read(path: Path, request: Request) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    strings = [
        field.name
        for field in pq.read_schema(path)
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    # Without pre-buffering, pyarrow does not hold whole column chunks in memory. Strings stay
    # dictionary-encoded (`read_dictionary`): a file of a few kilobytes can refer to one long string
    # a million times, and decoding would copy the string each time.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20, read_dictionary=strings) as file:
        schema, total = file.schema_arrow, file.metadata.num_rows
        names = clean_names(schema.names, path)
        kinds = {name: _kind(field.type) for name, field in zip(names, schema, strict=True)}
        usable = [name for name, kind in kinds.items() if kind]
        if total < 1:
            raise checks.BadInput(f"{path} must have at least one row; got none.")
        if not usable:
            raise checks.BadInput(
                f"{path} must have a column of numbers, dates, strings or lists; got only "
                f"structures, maps or bytes; write it as a flat table."
            )
        lists = [name for name in usable if kinds[name] == "list"]
        stored = dict(zip(names, schema.names, strict=True))
        most = most_rows(request, len(usable), path)
        batch = BATCH_OF_LISTS if lists else BATCH
        batch = max(1, min(batch, request.memory // (2 * BYTES_PER_NUMBER * len(usable))))
        ids = None
        if request.id is not None:
            id_column = stored[check_column("id", request.id, names)]
            ids = [
                str(value)
                for part in file.iter_batches(batch, columns=[id_column])
                for value in _objects(part.column(0))
            ]
        if ids is not None and len(ids) != total:
            raise checks.BadInput(_wrong_count(path, total, len(ids)))
        rows, fact = sample_rows(total, ids, most, request)
        columns = [stored[name] for name in usable]
        batches = file.iter_batches(batch, columns=columns, use_threads=False)
        sampled, count = _sample_batches(batches, None if fact.complete else rows, path, request)
        if count != total:
            raise checks.BadInput(_wrong_count(path, total, count))
    table = pa.Table.from_batches(sampled, schema=pa.schema([schema.field(n) for n in columns]))
    facts: list[Fact] = [fact]
    if unread := [name for name in names if not kinds[name]]:
        words = f"{name_list(unread)}: structures, maps or bytes are not read"
        facts.append(Remark("left out", words))
    values = {}
    for name in usable:
        column = table.column(stored[name])
        values[name] = _values(column, kinds[name], name in request.as_text)
    result = Table(values, rows, total, tuple(facts), tuple(unread))
    return _limit_tokens(result, lists, request) if lists else result


def _wrong_count(path: Path, declared: int, count: int) -> str:
    return f"{path} declares {declared:,} rows, but {count:,} can be read; write it again."


def _sample_batches(
    batches: Iterable[Any], sample: np.ndarray | None, path: Path, request: Request
) -> tuple[list[Any], int]:
    """The sampled rows of each batch, and the total number of rows of all batches.

    `sample` has the indices of the sampled rows in the file; None means all rows.
    """
    sampled, start, size = [], 0, 0
    for batch in batches:
        if sample is None:
            sampled.append(batch)
        else:
            low, high = np.searchsorted(sample, [start, start + batch.num_rows])
            sampled.append(batch.take(sample[low:high] - start))
        start += batch.num_rows
        size += sampled[-1].nbytes
        if size > request.memory // 3:  # two thirds are left for the arrays made from the rows
            raise checks.BadInput(
                f"the rows that are read from {path} must fit into {request.memory:,} bytes, with "
                f"what is made of them; got more from the first {start:,} rows of the file; give a "
                f"smaller number of rows or a larger memory limit."
            )
    return sampled, start


def _kind(kind: Any) -> str:
    """The kind of a column of this Arrow type: number, date, text or list; "" if unsupported."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    if types.is_decimal(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind):
        return "text"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _kind(kind.value_type)
        deep = inner == "list" and _kind(kind.value_type.value_type) != "number"
        return "" if deep or inner in ("", "date") else "list"
    return ""


def _values(column: Any, kind: str, as_text: bool) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        if kind == "text" or as_text:
            return texts(_objects(column))
        column = column.cast(column.type.value_type)
    if kind == "list":
        sequences = np.empty(len(column), object)
        sequences[:] = [_sequence(row) for row in column.to_pylist()]
        return sequences
    if kind == "date":
        dates = np.asarray(column.to_numpy())
        return texts(dates.astype(str).tolist()) if as_text else dates
    if kind == "text" or (as_text and not pa.types.is_floating(column.type)):
        return texts(column.to_pylist())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), float)


def _objects(column: Any) -> list[Any]:
    """The values of a column as Python objects.

    In a dictionary-encoded column, equal strings are references to one object.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    values: list[Any] = []
    for chunk in getattr(column, "chunks", [column]):
        words = chunk.dictionary.to_pylist()
        values += [None if i is None else words[i] for i in chunk.indices.to_pylist()]
    return values


def _sequence(row: list[Any] | None) -> np.ndarray:
    """One sequence: numbers (L,), vectors (L, d) or strings (L,), without missing tokens."""
    present = [token for token in row or () if token is not None]
    if present and isinstance(present[0], str):
        return np.array(present, object)
    if present and isinstance(present[0], list):
        if len({len(token) for token in present}) > 1:
            raise checks.BadInput(
                "every token of a sequence must have the same number of entries; got tokens of "
                "different sizes; write lists of one length."
            )
        tokens = np.array([[np.nan if v is None else v for v in token] for token in present], float)
        return tokens[np.isfinite(tokens).all(1)]
    tokens = np.array(present, float)
    return tokens[np.isfinite(tokens)]


def _limit_tokens(table: Table, lists: list[str], request: Request) -> Table:
    """The table; if its rows have more than MOST_CELLS tokens in total, a random sample of them."""
    sizes = sum(np.array([v.size for v in table.columns[name]]) for name in lists)
    if np.sum(sizes) <= MOST_CELLS:
        return table
    order = np.random.default_rng(request.seed).permutation(len(table.rows))
    room = int(np.searchsorted(np.cumsum(np.asarray(sizes)[order]), MOST_CELLS))
    rows = np.sort(order[: max(room, 1)])
    fact = RowsRead(len(rows), table.total, request.seed)
    others = (other for other in table.facts if not isinstance(other, RowsRead))
    return table.take(rows)._replace(facts=(fact, *others))
