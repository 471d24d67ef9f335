"""Atomic replacement of files, and file-system errors in one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checks import BadInput, DiskFull

DISK_FULL = (
    "the disk that holds {folder} is full or failing ({text}): all finished cells are kept; "
    "make room and run the same command again."
)


@contextmanager
def explained_os_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into `DiskFull` or `BadInput`, with a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(DISK_FULL.format(folder=folder, text=error.strerror)) from error
        raise BadInput(
            f"{folder} cannot be used ({error.strerror or error}): choose another --out."
        ) from error


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically: no reader sees half of it, and a failure leaves no part of it."""
    draft = path.with_name(f".{path.name}.draft")
    with explained_os_errors(path.parent):
        try:
            draft.unlink(missing_ok=True)
            # "x": always a new file, so that a link is never followed.
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
