"""Results on disk: `results.sqlite`, one row a finished cell, keyed by its content.

A cell and its arrays are committed together, with a write-ahead log and full synchronisation: a
kill at any moment loses the cells in flight and nothing else. Cells that finish at the same time
may share a commit. One run writes a folder at a time (a lock that the operating system drops when
the process ends); anybody may read meanwhile. The file holds plain records only, so a folder can
be shown without the code that measured it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.checks import BadInput
from attnlens.engine.base import Fault
from attnlens.records import Cell

from .layout import dump, is_blank, load, open_read_only, open_writing, pack, unpack

FILE = "results.sqlite"


class Result(NamedTuple):
    """A finished cell as it was kept."""

    values: dict[str, np.ndarray]
    seconds: float


class Store:
    """The results of one folder. Use `Store.writing(folder)` or `Store.reading(folder)`."""

    def __init__(self, connection: sqlite3.Connection, folder: Path):
        self.connection, self.folder = connection, folder
        self.run: int | None = None
        (self.layout,) = connection.execute("PRAGMA user_version").fetchone()

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, fresh: bool = False) -> Iterator[Store]:
        """The folder's store, made if need be, locked against every other writer."""
        with ExitStack() as stack:
            with _told(folder):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_only_writer(folder))
                connection = stack.enter_context(closing(open_writing(folder / FILE, fresh)))
            yield cls(connection, folder)

    @classmethod
    @contextmanager
    def reading(cls, folder: Path) -> Iterator[Store]:
        """The folder's store, never changed; works beside a running writer."""
        path = folder / FILE
        if not path.is_file():
            raise BadInput(
                f"there are no results in {folder}: expected a file {FILE}, as `attnlens verify "
                f"--out {folder}` writes it."
            )
        with ExitStack() as stack:
            with _told(folder):
                if is_blank(path):
                    raise BadInput(f"{path} holds no results yet; run `attnlens verify` first.")
                connection = stack.enter_context(closing(open_read_only(path)))
            yield cls(connection, folder)

    # -- cells ---------------------------------------------------------------------------------

    def start_run(self, machine: Mapping[str, Any], packages: Mapping[str, str]) -> None:
        """Note on which machine, with which packages, the following cells are computed."""
        row = (datetime.now(UTC).isoformat(timespec="seconds"), dump(machine), dump(packages))
        statement = "INSERT INTO runs (started, machine, packages) VALUES (?, ?, ?)"
        with _told(self.folder):
            self.run = self.connection.execute(statement, row).lastrowid

    def end_run(self) -> None:
        """Note that the run came to its end; one without this note was stopped before."""
        row = (datetime.now(UTC).isoformat(timespec="seconds"), self.run)
        with _told(self.folder):
            self.connection.execute("UPDATE runs SET ended = ? WHERE id = ?", row)

    def keys(self) -> set[str]:
        """The keys of all finished cells."""
        with _told(self.folder):
            return {key for (key,) in self.connection.execute("SELECT key FROM cells")}

    def keep(self, cell: Cell, values: Mapping[str, np.ndarray], seconds: float) -> None:
        """Commit a finished cell. Keeping the same cell twice changes nothing."""
        rows = [(cell.key, name, *pack(name, array)) for name, array in values.items()]
        row = (
            cell.key, cell.claim, cell.arm, cell.measure, dump(cell.parameters),
            dump(cell.seeds), cell.code, seconds, self.run,
        )  # fmt: skip
        with _told(self.folder), self._transaction():
            places = ", ".join("?" * len(row))
            done = self.connection.execute(f"INSERT OR IGNORE INTO cells VALUES ({places})", row)
            if done.rowcount:
                self.connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", rows)
            self.connection.execute("DELETE FROM failures WHERE key = ?", (cell.key,))

    def keep_failure(self, cell: Cell, reason: str) -> None:
        """Note why a cell has no result; it is tried again in the next run."""
        row = (cell.key, cell.claim, cell.arm, dump(cell.parameters), reason)
        with _told(self.folder):
            self.connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", row)

    def keep_fault(self, cell: Cell, fault: Fault) -> None:
        """Note what went wrong with a cell, whatever became of it afterwards."""
        row = (self.run, cell.key, cell.claim, fault.kind, fault.words)
        statement = "INSERT INTO faults (run, key, claim, kind, words) VALUES (?, ?, ?, ?, ?)"
        with _told(self.folder):
            self.connection.execute(statement, row)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything kept inside shares one commit."""
        with _told(self.folder), self._transaction():
            yield

    def result(self, key: str) -> Result | None:
        """What was kept for this key."""
        with _told(self.folder):
            found = self.connection.execute(
                "SELECT seconds FROM cells WHERE key = ?", (key,)
            ).fetchone()
            if found is None:
                return None
            if not isinstance(found[0], float | int):
                raise sqlite3.DatabaseError("a cell's seconds are no number")
            query = "SELECT name, dtype, shape, data FROM arrays WHERE cell = ? ORDER BY name"
            rows = self.connection.execute(query, (key,))
            return Result({str(name): unpack(*packed) for name, *packed in rows}, found[0])

    def failures(self) -> list[dict[str, Any]]:
        """Cells that have no result, and why."""
        return self._rows("failures", ("key", "claim", "arm", "parameters", "reason"))

    def faults(self) -> list[dict[str, Any]]:
        """Everything that went wrong in the runs of this folder, also where it was made good."""
        if self.layout == 1:
            return []
        stopped = [
            {"run": run["id"], "key": "", "claim": "", "kind": "stopped",
             "words": f"the run begun at {run['started']} was stopped before its end"}
            for run in self._rows("runs", ("id", "started", "ended"))
            if run["ended"] is None and run["id"] != str(self.run)
        ]  # fmt: skip
        return stopped + self._rows("faults", ("run", "key", "claim", "kind", "words"))

    def _rows(self, table: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
        with _told(self.folder):
            rows = self.connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
        return [
            {n: v if v is None else str(v) for n, v in zip(names, row, strict=True)} for row in rows
        ]

    def mean_seconds(self) -> dict[tuple[str, str, str], float]:
        """Measured seconds by (claim, arm, parameters), for estimates."""
        with _told(self.folder):
            rows = self.connection.execute(
                "SELECT claim, arm, parameters, AVG(seconds) FROM cells "
                "GROUP BY claim, arm, parameters"
            ).fetchall()
        return {(claim, arm, parameters): mean for claim, arm, parameters, mean in rows}

    # -- documents: the ledger and what the page shows -------------------------------------------

    def write_document(self, name: str, content: Any) -> None:
        with _told(self.folder):
            row = (name, dump(content))
            self.connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", row)

    def document(self, name: str) -> Any:
        """A document, or None when the run that writes it has not come to its end."""
        with _told(self.folder):
            row = self.connection.execute(
                "SELECT content FROM documents WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else load(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self.connection.in_transaction:  # part of a larger one
            yield
            return
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # also an interrupt; always raised again
            if self.connection.in_transaction:  # SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: no reader sees half of it, and no failure leaves any."""
    draft = path.with_name(f".{path.name}.draft")
    with _told(path.parent):
        try:
            draft.unlink(missing_ok=True)
            with draft.open("x", encoding="utf-8") as file:  # a new file: never through a link
                file.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    # Never through a link: what it points to would be overwritten.
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


_FULL = (
    "the disk that holds {folder} is full or failing ({text}): every cell finished before is kept; "
    "make room and run the same command again."
)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What SQLite and the file system can say, in one sentence that names the way out."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "disk is full" in text or "disk I/O" in text:
            raise BadInput(_FULL.format(folder=folder, text=text)) from error
        if "readonly" in text or "unable to open" in text:
            raise BadInput(f"{folder} cannot be written ({text}): choose another --out.") from error
        if "locked" in text:
            raise BadInput(f"{folder / FILE} is in use by another program ({text}).") from error
        raise BadInput(
            f"{folder / FILE} is not a whole results file ({text}); it was left as it is: move it "
            f"away, or choose another --out."
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BadInput(_FULL.format(folder=folder, text=error.strerror)) from error
        raise BadInput(
            f"{folder} cannot be used ({error.strerror or error}): choose another --out."
        ) from error
