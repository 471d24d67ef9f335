"""Replace files atomically, and turn errors of the file system into one sentence."""

from __future__ import annotations

import errno
import glob
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .checks import BadInput, DiskFull

DRAFT_SECONDS = 3600.0
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


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically: no reader sees half of it, and a failure leaves no part of it.

    Several processes may write the same file at once; the last one wins.
    """
    with (
        explained_os_errors(path.parent),
        replacement(path) as draft,
        draft.open("xb") as file,  # mode "x" creates a new file: no link is followed
    ):
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, which replaces the file `path` at the end.

    After an error the draft is removed, and `path` is as it was. Several processes may replace the
    same file at once; the last one wins.
    """
    draft = _new_draft(path)
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _new_draft(path: Path) -> Path:
    """A name beside `path`, another one in every call, for content that will replace the file.

    Drafts that are older than an hour are removed: the processes that wrote them were killed.
    """
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.draft"):
        with suppress(OSError):
            if abs(time.time() - draft.lstat().st_mtime) > DRAFT_SECONDS:
                draft.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
