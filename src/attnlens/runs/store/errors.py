"""One-sentence explanations of SQLite and file system errors, each with a way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlens.core.checks import BadInput
from attnlens.core.files import DISK_FULL, explained_os_errors

FILE = "results.sqlite"


@contextmanager
def explained_errors(folder: Path) -> Iterator[None]:
    """Turn an SQLite or file system error into `BadInput` with a sentence that names a way out."""
    try:
        with explained_os_errors(folder):
            yield
    except sqlite3.Error as error:
        text = str(error)
        if "disk is full" in text or "disk I/O" in text:
            raise BadInput(DISK_FULL.format(folder=folder, text=text)) from error
        if "readonly" in text or "unable to open" in text:
            raise BadInput(f"{folder} cannot be written ({text}): choose another --out.") from error
        if "locked" in text:
            raise BadInput(f"{folder / FILE} is in use by another program ({text}).") from error
        raise BadInput(
            f"{folder / FILE} is not an intact results file ({text}); it was not changed: move it "
            f"away, or choose another --out."
        ) from error
