"""Files that hold code: read and written only where nobody but the user can change them.

Compiled libraries and programs in the cache folder are executed. Whoever can write there executes
code as the user, so a folder or file is used only if it is private:

folder   owned by the user, not writable by others; every folder above it owned by the user or by
         root, and not writable by others unless it is sticky (as /tmp is: entries in it can be
         renamed or removed by their owners only)
file     a regular file, no link, owned by the user, not writable by others

Links in the path of a folder are resolved once, and only the resolved path is checked and used.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(OSError):
    """A folder or a file that somebody else could have changed.

    >>> issubclass(NotPrivate, OSError)
    True
    """


def cache_folder() -> Path:
    """The folder for compiled code: `ATTNLENS_CACHE`, or one in the user's cache directory."""
    chosen = os.environ.get("ATTNLENS_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "attnlens" / "compiled"
    except RuntimeError:  # HOME is not set, and the system does not know this user
        raise NotPrivate("there is no home folder; set ATTNLENS_CACHE to a folder") from None


def private_folder(folder: Path, create: bool = True) -> Path:
    """The resolved path of a folder, which must be private; raises `NotPrivate` if it is not.

    If the folder does not exist, it is created with access for the user alone. With `create=False`
    FileNotFoundError is raised instead.
    """
    resolved = Path(os.path.realpath(folder))
    missing = []
    for place in (resolved, *resolved.parents):
        try:
            state = place.lstat()
        except FileNotFoundError:
            missing.append(place)
            continue
        _check_folder(place, state, is_last=place == resolved)
    if missing and not create:
        raise FileNotFoundError(f"{missing[0]} does not exist")
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
        _check_folder(place, place.lstat(), is_last=True)
    return resolved


def _check_folder(place: Path, state: os.stat_result, is_last: bool) -> None:
    if not stat.S_ISDIR(state.st_mode):
        raise NotADirectoryError(f"{place} is not a folder")
    owners = {os.getuid()} if is_last else {os.getuid(), 0}
    if state.st_uid not in owners:
        raise NotPrivate(f"{place} belongs to another user ({state.st_uid})")
    protected = not is_last and state.st_mode & stat.S_ISVTX
    if state.st_mode & OTHERS_WRITE and not protected:
        raise NotPrivate(f"others can write to {place}; chmod go-w {place}")


def why_unwritable(folder: Path) -> str:
    """Why nothing can be stored in a folder, which need not exist yet; empty if something can.

    >>> why_unwritable(Path("/dev/null/cache"))
    '/dev/null is not a folder; set ATTNLENS_CACHE to another one'
    """
    place = Path(os.path.realpath(folder))
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{place} is not a folder; set ATTNLENS_CACHE to another one"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} cannot be written to; set ATTNLENS_CACHE to another folder"
    return ""


def is_private(file: Path) -> bool:
    """Whether a file in a private folder is a regular file of the user that others cannot write."""
    try:
        state = file.lstat()
        # Where others cannot enter the folder, the permissions of its files do not matter.
        open_to_others = file.parent.lstat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        return False
    return _is_own_file(state, bool(open_to_others))


def _is_own_file(state: os.stat_result, open_to_others: bool = True) -> bool:
    writable = state.st_mode & OTHERS_WRITE and open_to_others
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid() and not writable


def read_private(file: Path) -> bytes:
    """The content of a private file in a private folder; raises `NotPrivate` if it is not one."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        if file.is_symlink():
            raise NotPrivate(f"{file} is a link") from None
        raise
    with os.fdopen(descriptor, "rb") as opened:
        if not _is_own_file(os.fstat(opened.fileno())):
            raise NotPrivate(f"{file} belongs to another user, or others can write to it")
        return opened.read()


def write_private(file: Path, content: bytes) -> None:
    """Write a file atomically, for the user alone: no reader sees half of it."""
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        Path(draft).replace(file)
    finally:
        Path(draft).unlink(missing_ok=True)
