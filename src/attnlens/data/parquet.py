"""Parquet files: read in batches, so that memory depends on what is kept and not on the file.

Where there are more rows than wanted, the row numbers are drawn first and every batch gives the
rows that were drawn from it. Columns that hold structures, maps or bytes are left out and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from attnlens import checks

from .columns import Table, clean_names, known, listed, texts
from .optional import INSTALL, installed
from .sampling import MOST_CELLS, Request, choose_ids, most_rows, said

BATCH = 2**15  # rows decoded at a time: 13 MB for fifty columns of numbers
BATCH_OF_LISTS = 2**10
MOST_HELD = 2**30  # bytes of the rows that are kept


def read_parquet(path: Path, request: Request) -> Table:
    """The table in a Parquet file, or a sample of it."""
    if not installed("pyarrow"):
        raise checks.BadInput(
            f"{path} is a Parquet file, which is read with the package pyarrow, which is not "
            f"installed; get it with {INSTALL}."
        )
    import pyarrow

    try:
        return _read(path, request)
    except checks.BadInput:
        raise
    except MemoryError as error:
        raise checks.BadInput(
            f"{path} needs more memory than there is to read a part of it; is it damaged?"
        ) from error
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        # Among them every way in which a damaged file shows itself.
        told = (str(error).splitlines() or [type(error).__name__])[0][:100]
        raise checks.BadInput(
            f"{path} must be a whole Parquet file, but it cannot be read ({told}); write it again."
        ) from error


def _read(path: Path, request: Request) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Without a buffer in front, a column chunk is not held whole.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
        schema, total = file.schema_arrow, file.metadata.num_rows
        names = clean_names(schema.names, path)
        kinds = {name: _kind(field.type) for name, field in zip(names, schema, strict=True)}
        usable = [name for name, kind in kinds.items() if kind]
        if total < 1:
            raise checks.BadInput(f"{path} has no row; give a file with at least one.")
        if not usable:
            raise checks.BadInput(
                f"{path} must have a column of numbers, dates, strings or lists, but all of them "
                f"are structures, maps or bytes; write it flat."
            )
        lists = [name for name in usable if kinds[name] == "list"]
        stored = dict(zip(names, schema.names, strict=True))
        most = most_rows(request, len(usable), path)
        batch = BATCH_OF_LISTS if lists else BATCH
        wanted, what = None, "rows"
        if total > most and request.id is None:
            random = np.random.default_rng(request.seed)
            wanted = np.sort(random.choice(total, most, replace=False, shuffle=False))
        elif total > most:
            own = stored[known("id", request.id, names)]
            wanted = _of_ids(file.iter_batches(batch, columns=[own]), most, request)
            what = f"whole sequences ({request.id})"
        columns = [stored[name] for name in usable]
        batches = file.iter_batches(batch, columns=columns, use_threads=False)
        taken, came = _taken(batches, wanted, path)
        if came != total:
            raise checks.BadInput(
                f"{path} announces {total:,} rows, but {came:,} came; write it again."
            )
    rows = np.arange(total) if wanted is None else wanted
    table = pa.Table.from_batches(taken, schema=pa.schema([schema.field(n) for n in columns]))
    facts = [said(len(rows), total, request.seed, what)]
    if left := [name for name in names if not kinds[name]]:
        facts.append(("left out", f"{listed(left)}: structures, maps or bytes are not read"))
    values = {}
    for name in usable:
        column = table.column(stored[name])
        values[name] = _values(column, kinds[name], name in request.as_text)
    found = Table(values, rows, total, tuple(facts), tuple(left))
    return _shortened(found, lists, request) if lists else found


def _taken(batches: Iterable[Any], wanted: np.ndarray | None, path: Path) -> tuple[list[Any], int]:
    """The wanted rows of every batch, and how many rows came in all."""
    taken, start, held = [], 0, 0
    for batch in batches:
        if wanted is None:
            taken.append(batch)
        else:
            low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
            taken.append(batch.take(wanted[low:high] - start))
        start += batch.num_rows
        held += taken[-1].nbytes
        if held > MOST_HELD:
            raise checks.BadInput(
                f"{path} has rows so long that {start:,} of them hold more than {MOST_HELD:,} "
                f"bytes; ask for fewer rows."
            )
    return taken, start


def _of_ids(batches: Iterable[Any], most: int, request: Request) -> np.ndarray:
    ids: list[str] = []
    for batch in batches:
        ids += map(str, batch.column(0).to_pylist())
    chosen = choose_ids(Counter(ids), most, request.seed)
    return np.flatnonzero([each in chosen for each in ids])


def _kind(of: Any) -> str:
    """number, date, text, list or, for what is not read, nothing."""
    from pyarrow import types

    if types.is_dictionary(of):
        return _kind(of.value_type)
    if types.is_integer(of) or types.is_floating(of) or types.is_boolean(of):
        return "number"
    if types.is_decimal(of):
        return "number"
    if types.is_timestamp(of) or types.is_date(of):
        return "date"
    if types.is_string(of) or types.is_large_string(of) or types.is_null(of):
        return "text"
    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        inner = _kind(of.value_type)
        deep = inner == "list" and _kind(of.value_type.value_type) != "number"
        return "" if deep or inner in ("", "date") else "list"
    return ""


def _values(column: Any, kind: str, as_text: bool) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind == "list":
        found = np.empty(len(column), object)
        found[:] = [_sequence(row) for row in column.to_pylist()]
        return found
    if kind == "text" or (as_text and not pa.types.is_floating(column.type)):
        return texts(column.to_pylist())
    if kind == "date":
        exact = column.cast(pa.timestamp("us"), safe=False)
        return exact.to_numpy().astype("datetime64[us]")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), float)


def _sequence(row: list[Any] | None) -> np.ndarray:
    """One sequence: numbers (L,), vectors (L, d) or strings (L,), without what is missing."""
    there = [each for each in row or () if each is not None]
    if there and isinstance(there[0], str):
        return np.array(there, str)
    if there and isinstance(there[0], list):
        if len({len(each) for each in there}) > 1:
            raise checks.BadInput(
                "every token of a sequence must have the same number of entries, but some differ; "
                "write them as lists of one length."
            )
        found = np.array([[np.nan if v is None else v for v in each] for each in there], float)
        return found[np.isfinite(found).all(1)]
    found = np.array(there, float)
    return found[np.isfinite(found)]


def _shortened(table: Table, lists: list[str], request: Request) -> Table:
    """As many rows as fit, by their tokens: a random part where they are too many."""
    sizes = sum(np.array([v.size for v in table.columns[name]]) for name in lists)
    if np.sum(sizes) <= MOST_CELLS:
        return table
    order = np.random.default_rng(request.seed).permutation(len(table.rows))
    room = int(np.searchsorted(np.cumsum(np.asarray(sizes)[order]), MOST_CELLS))
    kept = np.sort(order[: max(room, 1)])
    fact = said(len(kept), table.total, request.seed)
    return table.take(kept)._replace(facts=(fact, *table.facts[1:]))
