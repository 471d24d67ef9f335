"""The compilation cache on disk, kept sound.

JAX writes an entry in place, so a process that is killed meanwhile leaves it cut short; JAX then
fails to read it, never replaces it, and every later run compiles again. So entries are checked
before workers start and after one dies, and those that cannot be unpacked are removed.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878; JAX packs with it where `zstandard` is installed


def default_folder() -> Path:
    """`ATTNLENS_CACHE`, or a folder of the user's cache directory."""
    chosen = os.environ.get("ATTNLENS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(base) / "attnlens" / "compiled"


def settings(folder: Path | None) -> dict[str, str]:
    """Environment variables that make JAX keep every program that it compiles in `folder`."""
    if folder is None:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def use(folder: Path) -> None:
    """The same settings for this process, whose JAX has been imported but has not compiled yet."""
    import jax

    for name, value in settings(folder).items():
        jax.config.update(name.lower(), value if name.endswith("_DIR") else int(value))


def repair(folder: Path) -> list[Path]:
    """Remove entries that were cut short, and say which."""
    damaged = [entry for entry in sorted(folder.glob("*-cache")) if not _whole(entry)]
    for entry in damaged:
        entry.unlink(missing_ok=True)
    return damaged


def _whole(entry: Path) -> bool:
    try:
        packed = entry.read_bytes()
    except OSError:
        return True  # removed meanwhile, or not ours to read
    if packed.startswith(ZSTANDARD_MAGIC):
        return _unpacks_with_zstandard(packed)
    try:
        zlib.decompress(packed)
    except zlib.error:
        return False
    return True


def _unpacks_with_zstandard(packed: bytes) -> bool:
    try:
        import zstandard  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False  # this JAX cannot read it either
    try:
        zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError:
        return False
    return True
