"""Results on disk: `results.sqlite`, one row a finished cell, keyed by its content.

A cell and its arrays are committed together, with a write-ahead log and full synchronisation: a
kill at any moment loses the cells in flight and nothing else. One run writes a folder at a time
(a lock that the operating system drops when the process ends); anybody may read meanwhile. The
file holds plain records only, so a folder can be shown without the code that measured it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.checks import BadInput
from attnlens.records import Cell

FILE = "results.sqlite"
APPLICATION = 0x41_54_4C_4E  # "ATLN", in the header of every file of ours
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, machine TEXT NOT NULL, packages TEXT NOT NULL
);
CREATE TABLE cells (
    key TEXT PRIMARY KEY, claim TEXT NOT NULL, arm TEXT NOT NULL, measure TEXT NOT NULL,
    parameters TEXT NOT NULL, seeds TEXT NOT NULL, code TEXT NOT NULL,
    seconds REAL NOT NULL, run INTEGER NOT NULL REFERENCES runs
);
CREATE TABLE arrays (
    cell TEXT NOT NULL REFERENCES cells, name TEXT NOT NULL,
    dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (cell, name)
) WITHOUT ROWID;
CREATE TABLE failures (
    key TEXT PRIMARY KEY, claim TEXT NOT NULL, arm TEXT NOT NULL, parameters TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE documents (name TEXT PRIMARY KEY, content TEXT NOT NULL);
"""
DTYPES = {"<f8", "<f4", "<i8", "<i4", "|b1"}
LARGEST_ARRAY = 900_000_000  # bytes; SQLite takes values up to 1e9


class Result(NamedTuple):
    """A finished cell as it was kept."""

    values: dict[str, np.ndarray]
    seconds: float


class Store:
    """The results of one folder. Use `Store.writing(folder)` or `Store.reading(folder)`."""

    def __init__(self, connection: sqlite3.Connection, folder: Path):
        self.connection, self.folder = connection, folder
        self.run: int | None = None

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, fresh: bool = False) -> Iterator[Store]:
        """The folder's store, made if need be, locked against every other writer."""
        with ExitStack() as stack:
            with _told(folder):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_only_writer(folder))
                connection = stack.enter_context(closing(_open(folder / FILE, fresh)))
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
                if _is_blank(path):
                    raise BadInput(f"{path} holds no results yet; run `attnlens verify` first.")
                connection = stack.enter_context(closing(_open_read_only(path)))
            yield cls(connection, folder)

    # -- cells ---------------------------------------------------------------------------------

    def start_run(self, machine: Mapping[str, Any], packages: Mapping[str, str]) -> None:
        """Note on which machine, with which packages, the following cells are computed."""
        row = (datetime.now(UTC).isoformat(timespec="seconds"), _dump(machine), _dump(packages))
        statement = "INSERT INTO runs (started, machine, packages) VALUES (?, ?, ?)"
        self.run = self.connection.execute(statement, row).lastrowid

    def keys(self) -> set[str]:
        """The keys of all finished cells."""
        return {key for (key,) in self.connection.execute("SELECT key FROM cells")}

    def keep(self, cell: Cell, values: Mapping[str, np.ndarray], seconds: float) -> None:
        """Commit a finished cell. Keeping the same cell twice changes nothing."""
        rows = [(cell.key, name, *_pack(name, array)) for name, array in values.items()]
        row = (
            cell.key, cell.claim, cell.arm, cell.measure, _dump(cell.parameters),
            _dump(cell.seeds), cell.code, seconds, self.run,
        )  # fmt: skip
        with _told(self.folder), self._transaction():
            places = ", ".join("?" * len(row))
            done = self.connection.execute(f"INSERT OR IGNORE INTO cells VALUES ({places})", row)
            if done.rowcount:
                self.connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", rows)
            self.connection.execute("DELETE FROM failures WHERE key = ?", (cell.key,))

    def keep_failure(self, cell: Cell, reason: str) -> None:
        """Note why a cell has no result; it is tried again in the next run."""
        row = (cell.key, cell.claim, cell.arm, _dump(cell.parameters), reason)
        with _told(self.folder):
            self.connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", row)

    def result(self, key: str) -> Result | None:
        """What was kept for this key."""
        found = self.connection.execute(
            "SELECT seconds FROM cells WHERE key = ?", (key,)
        ).fetchone()
        if found is None:
            return None
        rows = self.connection.execute(
            "SELECT name, dtype, shape, data FROM arrays WHERE cell = ? ORDER BY name", (key,)
        )
        return Result({name: _unpack(*packed) for name, *packed in rows}, found[0])

    def failures(self) -> list[dict[str, Any]]:
        """Cells that have no result, and why."""
        rows = self.connection.execute("SELECT key, claim, arm, parameters, reason FROM failures")
        names = ("key", "claim", "arm", "parameters", "reason")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def mean_seconds(self) -> dict[tuple[str, str, str], float]:
        """Measured seconds by (claim, arm, parameters), for estimates."""
        rows = self.connection.execute(
            "SELECT claim, arm, parameters, AVG(seconds) FROM cells GROUP BY claim, arm, parameters"
        )
        return {(claim, arm, parameters): mean for claim, arm, parameters, mean in rows}

    # -- documents: the ledger and what the page shows -------------------------------------------

    def write_document(self, name: str, content: Any) -> None:
        with _told(self.folder):
            row = (name, _dump(content))
            self.connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", row)

    def document(self, name: str) -> Any:
        """A document, or None when the run that writes it has not come to its end."""
        row = self.connection.execute(
            "SELECT content FROM documents WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # also an interrupt; always raised again
            if self.connection.in_transaction:  # SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


def _dump(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _pack(name: str, array: np.ndarray) -> tuple[str, str, bytes]:
    array = np.asarray(array)
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in DTYPES:
        raise BadInput(
            f"the array {name!r} must hold floats, integers or booleans, but {array.dtype} came."
        )
    if array.nbytes > LARGEST_ARRAY:
        raise BadInput(
            f"the array {name!r} must have at most {LARGEST_ARRAY:,} bytes, but it has "
            f"{array.nbytes:,}."
        )
    return dtype, json.dumps(array.shape), array.astype(dtype).tobytes()


def _unpack(dtype: str, shape: str, data: bytes) -> np.ndarray:
    """An array from its row. Nothing in the row is trusted: types and sizes must agree."""
    sizes = json.loads(shape)
    whole = isinstance(sizes, list) and all(isinstance(n, int) and n >= 0 for n in sizes)
    if dtype not in DTYPES or not whole or not isinstance(data, bytes):
        raise sqlite3.DatabaseError("an array has an unknown type or shape")
    if np.prod(sizes, dtype=float) * np.dtype(dtype).itemsize != len(data):
        raise sqlite3.DatabaseError("an array's size does not fit its shape")
    return np.frombuffer(data, dtype).reshape(sizes)


def _open(path: Path, fresh: bool) -> sqlite3.Connection:
    """A connection that writes, to a file of ours: a new one, or an old one that is whole."""
    if fresh and path.exists():
        _set_aside(path)
    blank = _is_blank(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if blank:
        connection.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {SCHEMA_VERSION}; {SCHEMA} COMMIT;"
        )
    return connection


def _open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, from a folder that may be read-only too."""
    address = path.resolve().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError:
        # In a read-only folder SQLite cannot make its shared-memory file. With no log beside the
        # file nobody is writing, and it may be read as it is.
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
    return connection


def _is_blank(path: Path) -> bool:
    """Whether `path` holds nothing yet; raises unless it is blank or a whole file of ours.

    Opened read-only: whatever it is, it is left as it is. (A run that is killed while it makes
    the file leaves it blank.)
    """
    if not path.exists() or path.stat().st_size == 0:
        return True
    with closing(_open_read_only(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if application == 0 and tables == 0:
            return True
        if application != APPLICATION:
            raise BadInput(
                f"{path} is a database, but not one of attnlens; it was left as it is: choose "
                f"another --out."
            )
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise BadInput(
                f"{path} was written by a newer attnlens (layout {version}, this one knows "
                f"{SCHEMA_VERSION}): upgrade attnlens, or choose another --out."
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    return False


def _set_aside(path: Path) -> None:
    """Rename old results: starting afresh never deletes what was measured."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(f"results-before-{stamp}.sqlite{suffix}"))


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: no reader sees half of it, and no failure leaves any."""
    draft = path.with_name(f".{path.name}.draft")
    with _told(path.parent):
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a+") as lock:
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
