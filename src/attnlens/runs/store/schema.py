"""The SQLite schema of `results.sqlite`: tables, migrations, file checks, arrays as rows.

Nothing in a file is trusted: it may be old, newer than this code, truncated, or forged.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core.cells import DTYPES, LARGEST_ARRAY
from attnlens.core.checks import BadInput

APPLICATION_ID = 0x41_54_4C_4E  # "ATLN", in the header of every attnlens results file
SCHEMA_VERSION = 4
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, machine TEXT NOT NULL, packages TEXT NOT NULL,
    ended TEXT, numerics TEXT
);
CREATE TABLE cells (
    key TEXT PRIMARY KEY, claim TEXT NOT NULL, arm TEXT NOT NULL, measure TEXT NOT NULL,
    parameters TEXT NOT NULL, seeds TEXT NOT NULL, code TEXT NOT NULL,
    seconds REAL NOT NULL, run INTEGER NOT NULL REFERENCES runs, path TEXT NOT NULL DEFAULT '',
    checksum TEXT
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
CREATE TABLE faults (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, key TEXT NOT NULL,
    claim TEXT NOT NULL, kind TEXT NOT NULL, words TEXT NOT NULL
);
"""
# SQL that migrates each schema version to the next. Version 1 did not record when a run ended, so
# migrated runs get their start time as the end: without one they would be listed as stopped.
# Version 2 recorded neither the environment nor the numerical path: `numerics` of its runs is NULL,
# and `path` of its cells is empty, as in their keys. Since version 3 the key of a cell that can
# reach native code includes the path, so such cells have other keys than before.
# Version 3 had no checksums: `checksum` of its cells is NULL, since nobody knows whether their
# arrays are still those that were measured.
MIGRATIONS = {
    1: """
ALTER TABLE runs ADD COLUMN ended TEXT;
UPDATE runs SET ended = started;
CREATE TABLE faults (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, key TEXT NOT NULL,
    claim TEXT NOT NULL, kind TEXT NOT NULL, words TEXT NOT NULL
);
""",
    2: """
ALTER TABLE runs ADD COLUMN numerics TEXT;
ALTER TABLE cells ADD COLUMN path TEXT NOT NULL DEFAULT '';
""",
    3: """
ALTER TABLE cells ADD COLUMN checksum TEXT;
""",
}
# The columns that a file of every schema version must have, and those that versions 2 to 4 add.
COLUMNS = {
    "runs": ("id", "started", "machine", "packages"),
    "cells": (
        "key",
        "claim",
        "arm",
        "measure",
        "parameters",
        "seeds",
        "code",
        "seconds",
        "run",
    ),
    "arrays": ("cell", "name", "dtype", "shape", "data"),
    "failures": ("key", "claim", "arm", "parameters", "reason"),
    "documents": ("name", "content"),
}
ADDED_COLUMNS = {
    2: {"runs": ("ended",), "faults": ("id", "run", "key", "claim", "kind", "words")},
    3: {"runs": ("numerics",), "cells": ("path",)},
    4: {"cells": ("checksum",)},
}


def dump(content: Any) -> str:
    """Canonical JSON: the same content is always the same text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def pack(name: str, array: np.ndarray) -> tuple[str, str, bytes]:
    """An array as the columns dtype, shape and data of its row."""
    array = np.asarray(array)
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in DTYPES:
        raise BadInput(
            f"the array {name!r} must hold floats, integers or booleans; got {array.dtype}."
        )
    if array.nbytes > LARGEST_ARRAY:
        raise BadInput(
            f"the array {name!r} must have at most {LARGEST_ARRAY:,} bytes; got {array.nbytes:,}."
        )
    return dtype, json.dumps(array.shape), array.astype(dtype).tobytes()


def load(text: Any) -> Any:
    """JSON from a row; a row that holds no JSON raises `sqlite3.DatabaseError`."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"a text cannot be read: {error}") from error


def unpack(dtype: str, shape: str, data: bytes) -> np.ndarray:
    """An array from its row, which is not trusted: type, shape and size must agree."""
    sizes = load(shape)
    # NumPy allows at most 64 dimensions; a size of 2**63 or more would overflow below.
    valid = isinstance(sizes, list) and len(sizes) <= 64
    valid = valid and all(type(n) is int and 0 <= n < 2**63 for n in sizes)
    if dtype not in DTYPES or not valid or not isinstance(data, bytes):
        raise sqlite3.DatabaseError("an array has an unknown type or shape")
    if np.prod(sizes, dtype=float) * np.dtype(dtype).itemsize != len(data):
        raise sqlite3.DatabaseError("an array's size does not fit its shape")
    return np.frombuffer(data, dtype).reshape(sizes)


def checksum(rows: Iterable[Sequence[Any]]) -> str:
    """SHA-256 of the arrays of a cell, as rows (name, dtype, shape, data), in any order.

    SQLite does not checksum its pages, so only this checksum detects a flipped bit, or an added
    or deleted row. The length of every part is hashed before the part.

    >>> checksum([("x", "<f8", "[0]", b"")]) == checksum([])
    False
    """
    digest = hashlib.sha256()
    for name, dtype, shape, data in sorted(rows, key=lambda row: str(row[0])):
        for part in (str(name).encode("utf-8", "surrogatepass"), dtype.encode(), shape.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read_arrays(rows: Sequence[Sequence[Any]], recorded: Any) -> dict[str, np.ndarray]:
    """The arrays of a cell from their rows (name, dtype, shape, data).

    Raises `sqlite3.DatabaseError` if there are none, or if their checksum differs from `recorded`
    (None: the cell was written before there were checksums).
    """
    if not rows:
        raise sqlite3.DatabaseError("a cell has no arrays")
    arrays = {str(name): unpack(*packed) for name, *packed in rows}
    if recorded is not None and checksum(rows) != recorded:
        raise sqlite3.DatabaseError("the arrays of a cell do not fit its checksum")
    return arrays


def open_writing(path: Path, fresh: bool) -> sqlite3.Connection:
    """A connection that can write, to a new results file or to an intact existing one.

    `fresh` renames an existing file first. A file of an older schema version is migrated.
    """
    if fresh and path.exists():
        _set_aside(path)
    blank = check_file(path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if blank:
            connection.executescript(
                f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {SCHEMA_VERSION}; {SCHEMA} COMMIT;"
            )
        _migrate(connection)
    except BaseException:  # including KeyboardInterrupt; always raised again
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    """Migrate an older schema version, one version at a time, each in a transaction of its own."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for old in range(version, SCHEMA_VERSION):
        connection.executescript(
            f"BEGIN; {MIGRATIONS[old]} PRAGMA user_version = {old + 1}; COMMIT;"
        )


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; the folder itself may be read-only too."""
    address = path.resolve().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError:
        # In a read-only folder SQLite cannot create its shared-memory file. Without a write-ahead
        # log beside the file nobody is writing, so it can be read as immutable.
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
    return connection


def check_file(path: Path) -> bool:
    """Raise unless `path` is blank or an intact results file; return whether it is blank.

    The file is opened read-only and never changed. (A run that is killed while it creates the
    file leaves it blank.)
    """
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(part.lstat().st_mode):
                raise BadInput(
                    f"{part} is a link, a folder or a device, not a results file; it was not "
                    f"changed: choose another --out."
                )
    if not path.exists() or path.stat().st_size == 0:
        return True
    with closing(open_read_only(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if application == 0 and tables == 0:
            return True
        if application != APPLICATION_ID:
            raise BadInput(
                f"{path} is a database of another program, not of attnlens; it was not changed: "
                f"choose another --out."
            )
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise BadInput(
                f"{path} was written by a newer attnlens (schema version {version}; this one "
                f"reads up to {SCHEMA_VERSION}): upgrade attnlens, or choose another --out."
            )
        _check_schema(connection, version)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(verdict.split()))
    return False


def _check_schema(connection: sqlite3.Connection, version: int) -> None:
    """Check that the file has the tables and columns of its schema version, and no active content
    (triggers, views, virtual tables)."""
    if version < 1:
        raise sqlite3.DatabaseError(f"its schema version {version} does not exist")
    active = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view') OR sql LIKE '%VIRTUAL%'"
    ).fetchone()
    if active:
        raise sqlite3.DatabaseError("it holds triggers, views or virtual tables")
    expected = {table: set(names) for table, names in COLUMNS.items()}
    for added in (ADDED_COLUMNS[step] for step in range(2, version + 1)):
        for table, names in added.items():
            expected.setdefault(table, set()).update(names)
    for table, names in expected.items():
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if missing := sorted(names - present):
            raise sqlite3.DatabaseError(f"its table {table} lacks {', '.join(missing)}")


def _set_aside(path: Path) -> None:
    """Give the old results file another name: a fresh start never deletes measurements.

    The newest cells may be in the write-ahead log beside it, and a file without its log loses them.
    So both get a second name before either loses its first one: whenever the process is killed,
    one of the two names has all cells.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    parts = [path.with_name(path.name + suffix) for suffix in ("-wal", "")]
    copies = [path.with_name(f"results-before-{stamp}.sqlite{suffix}") for suffix in ("-wal", "")]
    for part, name in zip(parts, copies, strict=True):
        if part.exists():
            _second_name(part, name)
    # The log last: SQLite discards a log whose results file is missing.
    for suffix in ("", "-shm", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _second_name(part: Path, name: Path) -> None:
    """Give `part` a second name: a hard link, or a copy if the file system has no hard links."""
    try:
        name.hardlink_to(part)
    except OSError:
        shutil.copyfile(part, name)
