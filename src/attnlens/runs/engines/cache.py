"""JAX's compilation cache on disk: used only in a private folder; damaged entries are removed.

An entry is a program that is executed, so the folder and its entries must be the user's own, and
nobody else may be able to write to them (`core/private_files.py`); otherwise programs are compiled
without a cache. The content of an entry carries the checksum of zlib.

JAX writes an entry in place, so a process that is killed meanwhile leaves a truncated one. JAX then
fails to read it, never replaces it, and every later run compiles again. Therefore entries are
checked before workers start and after one dies, and those that cannot be decompressed are removed,
unless they are so new that another process may still be writing them.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from pathlib import Path

from attnlens.core.private_files import cache_folder, is_private, private_folder

# The first bytes of a zstandard frame (RFC 8878), which JAX writes if `zstandard` is installed.
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
# JAX writes an entry by one call, within milliseconds. A damaged entry younger than this may still
# be being written.
SECONDS_TO_WRITE = 5.0


def usable_folder(folder: Path | None = None) -> Path | None:
    """Create and repair `folder` (by default the user's cache folder), and return it; None if it
    cannot be made private: then every process compiles for itself."""
    try:
        private = private_folder(folder or cache_folder())
        repair(private)
    except OSError:
        return None
    return private


def settings(folder: Path | None) -> dict[str, str]:
    """Environment variables that make JAX store every compiled program in `folder`."""
    if folder is None:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def use(folder: Path) -> None:
    """Apply the settings to this process, in which JAX is imported but has not compiled yet."""
    import jax

    for name, value in settings(folder).items():
        jax.config.update(name.lower(), value if name.endswith("_DIR") else int(value))


def repair(folder: Path) -> list[Path]:
    """Remove entries that are truncated or not the user's own; return their paths.

    A truncated entry that was changed in the last seconds is left for the next repair.
    """
    removed = []
    for entry in sorted(folder.glob("*-cache")):
        if not is_private(entry) or _is_damaged(entry):
            with suppress(OSError):  # JAX does not use a cache folder that it cannot write to
                entry.unlink(missing_ok=True)
            removed.append(entry)
    return removed


def _is_damaged(entry: Path) -> bool:
    """Whether an entry cannot be decompressed and has not changed for `SECONDS_TO_WRITE`."""
    before = _state(entry)
    if before is None or _is_intact(entry):
        return False
    # A clock that was set back leaves files from the future: these are not being written.
    is_new = abs(time.time() - before[0] / 1e9) < SECONDS_TO_WRITE
    return not is_new and _state(entry) == before


def _state(entry: Path) -> tuple[int, int, int] | None:
    try:
        state = entry.lstat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _is_intact(entry: Path) -> bool:
    try:
        compressed = entry.read_bytes()
    except OSError:
        return True  # removed meanwhile, or without permission to read
    if compressed.startswith(ZSTANDARD_MAGIC):
        return _is_intact_zstandard(compressed)
    try:
        zlib.decompress(compressed)
    except zlib.error:
        return False
    return True


def _is_intact_zstandard(compressed: bytes) -> bool:
    try:
        import zstandard  # pyright: ignore[reportMissingImports] (an optional package)
    except ImportError:
        return False  # this JAX cannot read it either
    try:
        zstandard.ZstdDecompressor().decompress(compressed)
    except zstandard.ZstdError:
        return False
    return True
