"""Results on disk: `results.sqlite`, one row per finished cell, keyed by a hash of its content.

A cell and its arrays are committed in one transaction, with a write-ahead log and full
synchronisation: a kill at any moment loses the cells in flight and nothing else. Cells that finish
at the same time may share a commit. Only one run at a time writes to a folder (a file lock, which
the operating system releases when the process ends); others may read meanwhile. The file holds
plain records only, so a folder can be shown without the code that measured it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.core.cells import Cell, Fault
from attnlens.core.checks import BadInput

from .errors import FILE, explained_errors, primary_code
from .schema import (
    check_file,
    checksum,
    dump,
    load,
    open_read_only,
    open_writing,
    pack,
    read_arrays,
)


class StoredCell(NamedTuple):
    """The values of a finished cell, and the seconds that it took."""

    values: dict[str, np.ndarray]
    seconds: float


class FinishedCell(NamedTuple):
    """The row of a finished cell, without its arrays."""

    key: str
    claim: str
    arm: str
    parameters: dict[str, Any]
    seeds: tuple[int, ...]
    code: str
    path: str
    seconds: float


class CellOrigin(NamedTuple):
    """The numerical path of a finished cell, and the record of the run that computed it (None: that
    run did not record it)."""

    key: str
    path: str
    packages: Any
    numerics: Any


class Store:
    """The results of one folder. Use `Store.writing(folder)` or `Store.reading(folder)`."""

    def __init__(self, connection: sqlite3.Connection, folder: Path):
        self.connection, self.folder = connection, folder
        self.run: int | None = None
        (self.schema_version,) = connection.execute("PRAGMA user_version").fetchone()

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, fresh: bool = False) -> Iterator[Store]:
        """The store of a folder, created if necessary and locked against other writers.

        `fresh` renames the existing results file and starts with an empty one.
        """
        with ExitStack() as stack:
            with explained_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_writer_lock(folder))
                connection = stack.enter_context(closing(open_writing(folder / FILE, fresh)))
            yield cls(connection, folder)

    @classmethod
    @contextmanager
    def reading(cls, folder: Path) -> Iterator[Store]:
        """The store of a folder, read-only; works while another process writes."""
        path = folder / FILE
        if not path.is_file():
            raise BadInput(
                f"there are no results in {folder}: expected a file {FILE}, as `attnlens verify "
                f"--out {folder}` writes it."
            )
        with ExitStack() as stack:
            with explained_errors(folder):
                if check_file(path):
                    raise BadInput(f"{path} holds no results yet; run `attnlens verify` first.")
                connection = stack.enter_context(closing(open_read_only(path)))
            yield cls(connection, folder)

    # -- cells ---------------------------------------------------------------------------------

    def start_run(
        self,
        machine: Mapping[str, Any],
        packages: Mapping[str, str],
        numerics: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the machine and the package versions of the cells that follow, and what else can
        change their digits: the environment and the numerical path (`provenance.numerics`)."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        recorded = None if numerics is None else dump(numerics)
        row = (now, dump(machine), dump(packages), recorded)
        statement = "INSERT INTO runs (started, machine, packages, numerics) VALUES (?, ?, ?, ?)"
        with explained_errors(self.folder):
            self.run = self.connection.execute(statement, row).lastrowid

    def end_run(self) -> None:
        """Record the end of the run; a run without this record was stopped before its end."""
        row = (datetime.now(UTC).isoformat(timespec="seconds"), self.run)
        with explained_errors(self.folder):
            self.connection.execute("UPDATE runs SET ended = ? WHERE id = ?", row)

    def keys(self) -> set[str]:
        """The keys of all finished cells."""
        with explained_errors(self.folder):
            return {key for (key,) in self.connection.execute("SELECT key FROM cells")}

    def keep(self, cell: Cell, values: Mapping[str, np.ndarray], seconds: float) -> None:
        """Commit a finished cell. A cell that is already there stays as it is."""
        arrays = [(name, *pack(name, array)) for name, array in values.items()]
        row = (
            cell.key,
            cell.claim,
            cell.arm,
            cell.measure,
            dump(cell.parameters),
            dump(cell.seeds),
            cell.code,
            seconds,
            self.run,
            cell.path,
            checksum(arrays),
        )
        with explained_errors(self.folder), self.transaction():
            places = ", ".join("?" * len(row))
            inserted = self.connection.execute(
                f"INSERT OR IGNORE INTO cells VALUES ({places})", row
            )
            if inserted.rowcount:
                rows = [(cell.key, *array) for array in arrays]
                self.connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", rows)
            self.connection.execute("DELETE FROM failures WHERE key = ?", (cell.key,))

    def keep_failure(self, cell: Cell, reason: str) -> None:
        """Record why a cell has no result; the next run computes it again."""
        row = (cell.key, cell.claim, cell.arm, dump(cell.parameters), reason)
        with explained_errors(self.folder):
            self.connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", row)

    def keep_fault(self, cell: Cell, fault: Fault) -> None:
        """Record something that went wrong with a cell, even if a later attempt succeeded."""
        row = (self.run, cell.key, cell.claim, fault.kind, fault.words)
        statement = "INSERT INTO faults (run, key, claim, kind, words) VALUES (?, ?, ?, ?, ?)"
        with explained_errors(self.folder):
            self.connection.execute(statement, row)

    @contextmanager
    def one_commit(self) -> Iterator[None]:
        """Everything that is written inside the `with` statement shares one commit."""
        with explained_errors(self.folder), self.transaction():
            yield

    def result(self, key: str) -> StoredCell | None:
        """The finished cell with this key, its arrays checked; None if there is none."""
        with explained_errors(self.folder):
            return self._read_cell(key)

    def _read_cell(self, key: str) -> StoredCell | None:
        recorded = "checksum" if self.schema_version >= 4 else "NULL"
        query = f"SELECT seconds, {recorded} FROM cells WHERE key = ?"
        row = self.connection.execute(query, (key,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], float | int):
            raise sqlite3.DatabaseError("the seconds of a cell are not a number")
        query = "SELECT name, dtype, shape, data FROM arrays WHERE cell = ? ORDER BY name"
        rows = self.connection.execute(query, (key,)).fetchall()
        return StoredCell(read_arrays(rows, row[1]), row[0])

    def damage(self, keys: Iterable[str]) -> dict[str, str]:
        """The damaged cells among these finished cells, key → reason; reads every array."""
        damaged = {}
        for key in keys:
            try:
                self._read_cell(key)
            except sqlite3.DatabaseError as error:
                if primary_code(error) is not None:  # SQLite itself cannot read the file
                    with explained_errors(self.folder):
                        raise
                damaged[key] = str(error)
        return damaged

    def discard(self, keys: Iterable[str]) -> None:
        """Delete finished cells, so that the next run computes them again."""
        rows = [(key,) for key in keys]
        with explained_errors(self.folder), self.transaction():
            self.connection.executemany("DELETE FROM arrays WHERE cell = ?", rows)
            self.connection.executemany("DELETE FROM cells WHERE key = ?", rows)

    def origins(self) -> Iterator[CellOrigin]:
        """The origin of each finished cell; schema versions before 3 recorded only the packages."""
        recorded = "cells.path, runs.packages, runs.numerics"
        if self.schema_version < 3:
            recorded = "'', runs.packages, NULL"
        with explained_errors(self.folder):
            rows = self.connection.execute(
                f"SELECT cells.key, {recorded} FROM cells LEFT JOIN runs ON runs.id = cells.run"
            )
            for key, path, packages, numerics in rows:
                recorded_packages = {} if packages is None else load(packages)
                recorded_numerics = None if numerics is None else load(numerics)
                yield CellOrigin(str(key), str(path), recorded_packages, recorded_numerics)

    def finished_cells(self) -> list[FinishedCell]:
        """Every finished cell in the order in which they were stored, without its arrays."""
        path = "path" if self.schema_version >= 3 else "''"
        query = (
            f"SELECT key, claim, arm, parameters, seeds, code, {path}, seconds FROM cells "
            f"ORDER BY rowid"
        )
        with explained_errors(self.folder):
            return [_finished_cell(row) for row in self.connection.execute(query)]

    def failures(self) -> list[dict[str, Any]]:
        """One mapping per cell without a result, with the reason."""
        return self._rows("failures", ("key", "claim", "arm", "parameters", "reason"))

    def faults(self) -> list[dict[str, Any]]:
        """Everything that went wrong in the runs of this folder, also where a retry succeeded."""
        if self.schema_version == 1:
            return []
        stopped = [
            {
                "run": run["id"],
                "key": "",
                "claim": "",
                "kind": "stopped",
                "words": f"the run begun at {run['started']} was stopped before its end",
            }
            for run in self._rows("runs", ("id", "started", "ended"))
            if run["ended"] is None and run["id"] != str(self.run)
        ]
        return stopped + self._rows("faults", ("run", "key", "claim", "kind", "words"))

    def _rows(self, table: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
        with explained_errors(self.folder):
            rows = self.connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
        return [
            {n: v if v is None else str(v) for n, v in zip(names, row, strict=True)} for row in rows
        ]

    def mean_seconds(self) -> dict[tuple[str, str, str], float]:
        """Mean measured seconds by (claim, arm, parameters), for estimates of later runs."""
        with explained_errors(self.folder):
            rows = self.connection.execute(
                "SELECT claim, arm, parameters, AVG(seconds) FROM cells "
                "GROUP BY claim, arm, parameters"
            ).fetchall()
        return {(claim, arm, parameters): mean for claim, arm, parameters, mean in rows}

    # -- documents: the ledger and the content of the page ---------------------------------------

    def write_document(self, name: str, content: Any) -> None:
        """Store a document, in place of an earlier one of the same name."""
        with explained_errors(self.folder):
            row = (name, dump(content))
            self.connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", row)

    def document(self, name: str) -> Any:
        """A document, or None if the run that writes it has not finished."""
        with explained_errors(self.folder):
            row = self.connection.execute(
                "SELECT content FROM documents WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else load(row[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Execute all SQL statements inside the `with` statement, or none of them."""
        if self.connection.in_transaction:  # nested: the outer transaction commits
            yield
            return
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # including KeyboardInterrupt; always raised again
            if self.connection.in_transaction:  # SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


def _finished_cell(row: tuple[Any, ...]) -> FinishedCell:
    """A row of the table of cells as a `FinishedCell`; its types are checked."""
    key, claim, arm, parameters, seeds, code, path, seconds = row
    settings, numbers = load(parameters), load(seeds)
    valid = isinstance(settings, dict) and isinstance(seconds, float | int)
    if not valid or not (isinstance(numbers, list) and all(type(n) is int for n in numbers)):
        raise sqlite3.DatabaseError("the parameters, seeds or seconds of a cell are invalid")
    texts = str(key), str(claim), str(arm)
    return FinishedCell(*texts, settings, tuple(numbers), str(code), str(path), float(seconds))


@contextmanager
def _writer_lock(folder: Path) -> Iterator[None]:
    # O_NOFOLLOW: if the lock were a symbolic link, its target would be overwritten.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / ".lock", flags, 0o644), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read(20).strip() or "unknown"
            raise BadInput(
                f"another run (process {owner}) is writing to {folder}: wait until it ends, or "
                f"choose another --out."
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
