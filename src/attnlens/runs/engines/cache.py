"""JAX's compilation cache on disk, and its repair.

JAX writes an entry in place, so a process that is killed meanwhile leaves a truncated one. JAX then
fails to read it, never replaces it, and every later run compiles again. Therefore entries are
checked before workers start and after one dies, and those that cannot be decompressed are removed.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

# The first bytes of a zstandard frame (RFC 8878), which JAX writes if `zstandard` is installed.
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"


def default_folder() -> Path:
    """The folder in `ATTNLENS_CACHE`, or one in the cache directory of the user."""
    folder = os.environ.get("ATTNLENS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) if folder else Path(base) / "attnlens" / "compiled"


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
    """Remove truncated entries and return their paths."""
    damaged = [entry for entry in sorted(folder.glob("*-cache")) if not _is_intact(entry)]
    for entry in damaged:
        entry.unlink(missing_ok=True)
    return damaged


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
        import zstandard  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False  # this JAX cannot read it either
    try:
        zstandard.ZstdDecompressor().decompress(compressed)
    except zstandard.ZstdError:
        return False
    return True
