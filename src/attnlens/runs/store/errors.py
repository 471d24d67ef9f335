"""One-sentence explanations of SQLite and file system errors, each with a way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlens.core.checks import BadInput, DiskFull
from attnlens.core.files import DISK_FULL, explained_os_errors

FILE = "results.sqlite"
# Primary result codes of SQLite (https://sqlite.org/rescode.html).
DISK_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
NOT_WRITABLE_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
NOT_INTACT = (
    "{file} is not an intact results file ({text}); it was not changed: move it away, or choose "
    "another --out."
)
IN_USE_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: sqlite3.Error) -> int | None:
    """The primary result code of SQLite; None for an error that did not come from SQLite itself.

    An extended code has the primary code in its lowest eight bits.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


@contextmanager
def explained_errors(folder: Path) -> Iterator[None]:
    """Turn an SQLite or file system error into a sentence that names a way out.

    A full or failing disk raises `DiskFull`, everything else `BadInput`.
    """
    try:
        with explained_os_errors(folder):
            yield
    except sqlite3.Error as error:
        text, code = str(error), primary_code(error)
        if code in DISK_CODES:
            raise DiskFull(DISK_FULL.format(folder=folder, text=text)) from error
        if code in NOT_WRITABLE_CODES:
            raise BadInput(f"{folder} cannot be written ({text}): choose another --out.") from error
        if code in IN_USE_CODES:
            raise BadInput(f"{folder / FILE} is in use by another program ({text}).") from error
        raise BadInput(NOT_INTACT.format(file=folder / FILE, text=text)) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged names of tables in its messages
        raise BadInput(
            NOT_INTACT.format(file=folder / FILE, text="names of its tables are not text")
        ) from error
