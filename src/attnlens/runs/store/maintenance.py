"""Maintenance of results folders: check, compact, export, merge. Nothing here computes a cell.

check    the file is intact, the key of every cell is the hash of the content of its row, every
         array fits its declared size, and the arrays of every cell fit its checksum
compact  return free pages to the file system; no row changes
export   every array of every cell as one row of a Parquet file
merge    copy the cells of other folders. The same key with another value is a conflict: it is
         reported, and the folder keeps its own value, unless that is damaged
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlens.core.cells import Cell
from attnlens.core.checks import BadInput
from attnlens.core.files import replacement
from attnlens.runs.provenance import facts

from .errors import FILE, explained_errors
from .schema import load, read_arrays, unpack
from .store import Store

NUMERICS = "the processor"  # every record of schema version 3 has this fact
ROWS_PER_BATCH, BYTES_PER_BATCH = 1000, 10_000_000
COLUMNS = ("key", "claim", "arm", "measure", "parameters", "seeds", "code", "seconds", "path")


class CheckReport(NamedTuple):
    """Numbers of cells, arrays and failed cells, and one sentence per problem (`wrong`).

    `unverified` cells were written before there were checksums: of their arrays only types and
    shapes can be checked.
    """

    cells: int
    arrays: int
    failures: int
    wrong: tuple[str, ...]
    unverified: int = 0


class MergeReport(NamedTuple):
    """Cells that were copied, cells that were there already, and keys whose values disagree.

    `differences` has one sentence per folder whose record (packages, numerical path, processor)
    differs from that of the receiving folder.
    """

    added: int
    known: int
    conflicts: tuple[str, ...]
    differences: tuple[str, ...] = ()


def check(folder: str | os.PathLike[str]) -> CheckReport:
    """Read everything once and report what is wrong; nothing is changed."""
    folder, wrong = Path(folder), []
    with Store.reading(folder) as store:
        connection = store.connection
        with explained_errors(folder):
            verdicts = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
            wrong += [f"the file is damaged: {text}" for text in verdicts if text != "ok"]
            cells = arrays = unverified = 0
            query = f"SELECT {_columns(store)}, {_checksum(store)} FROM cells"
            for *row, recorded in connection.execute(query):
                rows = _arrays(store, row[0])
                cells, arrays = cells + 1, arrays + len(rows)
                unverified += recorded is None
                wrong += _wrong_key(dict(zip(COLUMNS, row, strict=True)))
                wrong += _wrong_arrays(row[0], rows, recorded)
            query = "SELECT DISTINCT cell FROM arrays WHERE cell NOT IN (SELECT key FROM cells)"
            wrong += [
                f"there are arrays of cell {str(key)[:12]}, but the cell itself is missing"
                for (key,) in connection.execute(query)
            ]
        return CheckReport(cells, arrays, len(store.failures()), tuple(wrong), unverified)


def _columns(store: Store) -> str:
    """`COLUMNS` as SQL for a query; cells of schema versions before 3 have an empty path."""
    empty = ("path",) if store.schema_version < 3 else ()
    return ", ".join(f"'' AS {name}" if name in empty else f"cells.{name}" for name in COLUMNS)


def _checksum(store: Store) -> str:
    """The checksum of a cell as SQL for a query; schema versions before 4 have none."""
    return "cells.checksum" if store.schema_version >= 4 else "NULL"


def _wrong_arrays(key: Any, rows: list[tuple[Any, ...]], recorded: Any) -> list[str]:
    """One sentence for each array that cannot be read, or one for all arrays of a cell."""
    name, wrong = f"cell {str(key)[:12]}", []
    for array, *packed in rows:
        try:
            unpack(*packed)
        except sqlite3.DatabaseError as error:
            wrong.append(f"{name}, array {array!r}: {error}")
    if not wrong:
        try:
            read_arrays(rows, recorded)
        except sqlite3.DatabaseError as error:
            wrong.append(f"{name}: {error}")
    return wrong


def _wrong_key(row: dict[str, Any]) -> list[str]:
    """One sentence if the key of a cell is not the hash of its content, or its row is invalid."""
    name = f"cell {str(row['key'])[:12]}"
    try:
        content = [json.loads(row[part]) for part in ("parameters", "seeds")]
        cell = Cell(
            claim=row["claim"],
            arm=row["arm"],
            measure=row["measure"],
            parameters=content[0],
            seeds=tuple(content[1]),
            code=row["code"],
            path=row["path"],
        )
        same = cell.key == row["key"]
    except (ValueError, TypeError, RecursionError) as error:
        return [f"{name}: its row cannot be read ({error})"]
    seconds = row["seconds"]
    if not (isinstance(seconds, float) and 0 <= seconds < math.inf):
        return [f"{name}: its seconds must be a number of at least 0; got {seconds!r}"]
    return [] if same else [f"{name}: its key is not the hash of its content"]


def compact(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Rewrite the file without its free pages; return its bytes before and after."""
    folder = Path(folder)
    path = _existing(folder)
    before = _size(path)
    with Store.writing(folder) as store, explained_errors(folder):
        store.connection.execute("VACUUM")
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, _size(path)


def export(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write every array of every cell to a Parquet file; return the number of rows.

    Columns: those of the cell, the name and shape of the array, its values as a list of floats.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            "export writes Parquet and needs pyarrow: pip install 'attnlens[data]'."
        ) from error
    if not os.fspath(path) or Path(path).is_dir() or not Path(path).name:
        raise BadInput(
            f"the export must be a file to write, such as results.parquet; got {str(path)!r}."
        )
    folder, path = Path(folder), Path(path)
    text, numbers = pyarrow.string(), pyarrow.list_(pyarrow.float64())
    schema = pyarrow.schema(
        [(name, pyarrow.float64() if name == "seconds" else text) for name in COLUMNS]
        + [("array", text), ("shape", pyarrow.list_(pyarrow.int64())), ("values", numbers)]
    )
    count = 0
    with Store.reading(folder) as store, explained_errors(path.parent):
        _check_cells(store)
        with replacement(path) as draft, parquet.ParquetWriter(draft, schema) as writer:
            for rows in _batches(store):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                count += len(rows)
    return count


def _check_cells(store: Store) -> None:
    """Raise if a cell is damaged."""
    if damaged := store.damage(store.keys()):
        key, reason = next(iter(damaged.items()))
        raise BadInput(
            f"{store.folder / FILE} is not an intact results file (cell {key[:12]}: {reason}): "
            f"`attnlens verify --out {store.folder}` computes damaged cells again."
        )


def _batches(store: Store) -> Iterator[list[dict[str, Any]]]:
    """The rows of the export, in lists that fit in memory whatever the sizes of the arrays."""
    query = (
        f"SELECT {_columns(store)}, name, dtype, shape, data "
        f"FROM cells JOIN arrays ON arrays.cell = cells.key ORDER BY cells.key, name"
    )
    batch, size = [], 0
    with explained_errors(store.folder):
        for *cell, name, dtype, shape, data in store.connection.execute(query):
            array = unpack(dtype, shape, data)
            row = dict(zip(COLUMNS, map(str, cell), strict=True))
            if not isinstance(cell[COLUMNS.index("seconds")], float):
                raise sqlite3.DatabaseError("the seconds of a cell are not a number")
            values = {"array": str(name), "shape": list(array.shape)}
            values["values"] = array.ravel().tolist()
            batch.append({**row, "seconds": float(row["seconds"]), **values})
            size += array.nbytes
            if len(batch) == ROWS_PER_BATCH or size > BYTES_PER_BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def merge(folder: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]]) -> MergeReport:
    """Copy the finished cells of other folders into `folder`, all of them or none.

    Every other folder is checked first, and nothing is copied if a check fails. Records of faults
    are copied too. Verdicts are not merged: `attnlens verify --out folder` judges afterwards.
    """
    folder = Path(folder)
    for other in map(Path, others):
        if other.resolve() == folder.resolve():
            raise BadInput(f"{folder} cannot be merged with itself: name another folder.")
        if wrong := check(other).wrong:
            raise BadInput(f"{other} failed its check, so nothing was merged: {wrong[0]}.")
    added, known, conflicts, differences = 0, 0, [], []
    with Store.writing(folder) as store, explained_errors(folder), store.transaction():
        for other in map(Path, others):
            with Store.reading(other) as source:
                differences += _differences(store, source)
                runs = _copy_runs(store, source)
                columns = f"{_columns(source)}, {_checksum(source)}, run"
                for row in source.connection.execute(f"SELECT {columns} FROM cells"):
                    key, arrays = row[0], _arrays(source, row[0])
                    if damaged := store.damage([key]):
                        store.discard(damaged)
                    if store.result(key) is None:
                        _copy_cell(store, runs, row, arrays)
                        added += 1
                    elif _arrays(store, key) == arrays:
                        known += 1
                    else:
                        conflicts.append(key)
    return MergeReport(added, known, tuple(conflicts), tuple(differences))


def _differences(store: Store, source: Store) -> list[str]:
    """A sentence about what differs between the records of two folders; none if nothing does."""
    here, there = (_recorded_facts(one) for one in (store, source))
    if not here or not there:
        return []  # one of them has no cells
    parts = [
        f"{name} ({' and '.join(sorted(here[name]))} here, {' and '.join(sorted(there[name]))} "
        f"there)"
        for name in here
        if name in there and here[name] != there[name]
    ]
    for folder, one, other in ((store.folder, here, there), (source.folder, there, here)):
        if NUMERICS not in one and NUMERICS in other:
            parts.append(f"the numerical path (not recorded in {folder})")
    if not parts:
        return []
    return [f"the records of {source.folder} and {store.folder} differ in {', '.join(parts)}"]


def _recorded_facts(store: Store) -> dict[str, set[str]]:
    """The values recorded by all runs with finished cells, by name of the fact."""
    numerics = "NULL" if store.schema_version < 3 else "numerics"
    query = f"SELECT DISTINCT packages, {numerics} FROM runs WHERE id IN (SELECT run FROM cells)"
    values: dict[str, set[str]] = {}
    for packages, recorded in store.connection.execute(query):
        run = facts(load(packages), None if recorded is None else load(recorded))
        for name, value in run.items():
            values.setdefault(name, set()).add(str(value))
    return values


def _arrays(store: Store, key: str) -> list[tuple[Any, ...]]:
    query = "SELECT name, dtype, shape, data FROM arrays WHERE cell = ? ORDER BY name"
    return store.connection.execute(query, (key,)).fetchall()


def _copy_runs(store: Store, source: Store) -> dict[Any, Any]:
    """Copy the runs of `source` that `store` lacks, with their faults; return old id -> new id."""
    ended = "started" if source.schema_version == 1 else "ended"  # version 1 has no column `ended`
    numerics = "NULL" if source.schema_version < 3 else "numerics"
    new_ids: dict[Any, Any] = {}
    query = f"SELECT id, started, machine, packages, {ended}, {numerics} FROM runs"
    for old, *origin, end, recorded in source.connection.execute(query).fetchall():
        row = tuple(map(str, origin))
        query = "SELECT id FROM runs WHERE started = ? AND machine = ? AND packages = ?"
        known = store.connection.execute(query, row).fetchone()
        if known is None:
            statement = (
                "INSERT INTO runs (started, machine, packages, ended, numerics) "
                "VALUES (?, ?, ?, ?, ?)"
            )
            texts = (None if text is None else str(text) for text in (end, recorded))
            new_ids[old] = store.connection.execute(statement, (*row, *texts)).lastrowid
            if source.schema_version > 1:
                _copy_faults(store, source, old, new_ids[old])
        else:
            new_ids[old] = known[0]
    return new_ids


def _copy_faults(store: Store, source: Store, old: Any, new: Any) -> None:
    query = "SELECT key, claim, kind, words FROM faults WHERE run = ? ORDER BY id"
    rows = [(new, *map(str, row)) for row in source.connection.execute(query, (old,)).fetchall()]
    statement = "INSERT INTO faults (run, key, claim, kind, words) VALUES (?, ?, ?, ?, ?)"
    store.connection.executemany(statement, rows)


def _copy_cell(store: Store, runs: dict[Any, Any], row: tuple[Any, ...], arrays: list[Any]) -> None:
    """Copy a cell with its arrays; `runs` maps old ids of runs to new ones (see `_copy_runs`)."""
    *cell, run = row
    if run not in runs:  # the source has no record of this run
        statement = (
            "INSERT INTO runs (started, machine, packages, ended) "
            "VALUES ('unknown', '{}', '{}', 'unknown')"
        )
        runs[run] = store.connection.execute(statement).lastrowid
    places = ", ".join("?" * (len(cell) + 1))
    statement = f"INSERT INTO cells ({', '.join(COLUMNS)}, checksum, run) VALUES ({places})"
    store.connection.execute(statement, (*cell, runs[run]))
    rows = [(cell[0], *array) for array in arrays]
    store.connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", rows)
    store.connection.execute("DELETE FROM failures WHERE key = ?", (cell[0],))


def _existing(folder: Path) -> Path:
    path = folder / FILE
    with Store.reading(folder):  # raises if there are no results
        return path


def _size(path: Path) -> int:
    """Bytes of the file and of its write-ahead log."""
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
