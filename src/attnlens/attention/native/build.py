"""Compiles and loads the C++ sources of this folder, and registers their functions with JAX.

A library is compiled for this processor on first use and stored in the cache folder. Where that is
impossible (no compiler, another platform) the operators use XLA, and the last digits of their
results differ. The environment variable ATTNLENS_KERNEL=0 switches the native versions off.
`status` reports what is used and why; `libraries.py` does so for several libraries at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import jax

from attnlens.core.numerical_path import NativeLibrary, NativeStatus

FOLDER = Path(__file__).parent
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
)
COMPILER_SECONDS = 300  # time limit; the largest source takes about ten seconds


_failures: dict[Path, NativeLibrary] = {}  # libraries that failed in this process, by file


def status(name: str) -> NativeLibrary:
    """Whether `name`.cc is in use on the CPU of this machine; never compiles, writes or waits.

    A file in the cache folder counts as in use: that it is damaged is found out by `prepare`.
    """
    if os.environ.get("ATTNLENS_KERNEL", "1") == "0":
        return NativeLibrary(name, NativeStatus.SWITCHED_OFF)
    try:
        path = library_path(name)
    except OSError:
        return NativeLibrary(name, NativeStatus.OTHER_PLATFORM)
    if path in _failures:
        return _failures[path]
    with contextlib.suppress(OSError):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return NativeLibrary(name, NativeStatus.IN_USE, digest=digest)
    if shutil.which("c++") is None:
        return NativeLibrary(name, NativeStatus.NO_COMPILER)
    return NativeLibrary(name, NativeStatus.NOT_COMPILED)


def prepare(name: str) -> NativeLibrary:
    """Compile `name`.cc if necessary, check that it can be loaded, and return its status."""
    _open(name)
    return status(name)


def _open(name: str) -> ctypes.CDLL | None:
    """The library of `name`.cc, compiled if necessary; None, with a status, if there is none."""
    if not status(name).is_native:
        return None
    try:
        return load_library(name)
    except (OSError, subprocess.SubprocessError) as error:  # no space, no permission, …
        path, reason = library_path(name), _reason(error)
        _failures[path] = NativeLibrary(name, NativeStatus.FAILED, reason)
        return None


def _reason(error: Exception) -> str:
    """The first error that the compiler reported, or the message of the exception."""
    written = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
    lines = [line for line in written if "error" in line] or str(error).splitlines()
    return (lines or ["no reason was given"])[0].strip()[:300]


@cache
def load(name: str, functions: tuple[str, ...]) -> bool:
    """Load `name`.cc, compiling it if necessary, and register its `functions` with JAX.

    Returns whether JAX can call them. The first call may take seconds; later calls return its
    answer.
    """
    library = _open(name) if jax.default_backend() == "cpu" else None
    if library is None:
        return False
    for function in functions:
        capsule = jax.ffi.pycapsule(getattr(library, function))
        jax.ffi.register_ffi_target(function, capsule, platform="cpu")
    return True


def load_library(name: str) -> ctypes.CDLL:
    """The compiled `name`.cc from the cache folder; compiled if it is missing or damaged."""
    path = library_path(name)
    if path.exists():
        with contextlib.suppress(OSError):  # a damaged file is compiled again
            return ctypes.CDLL(str(path))
    _compile(FOLDER / f"{name}.cc", path)
    return ctypes.CDLL(str(path))


def library_path(name: str) -> Path:
    """The library of `name`.cc in the cache folder; its name hashes everything it depends on."""
    if not sys.platform.startswith("linux"):
        raise OSError("the native versions have not been tested on this system")
    chosen = os.environ.get("ATTNLENS_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "attnlens" / "compiled"
    return folder / f"{name}-{_source_digest(name)}.so"


@cache
def _source_digest(name: str) -> str:
    # The processor is part of the hash: machines of several kinds may share the folder.
    processor = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "flags", "Features", "CPU part"))
    ]
    sources = [file.read_text() for file in (FOLDER / f"{name}.cc", *sorted(FOLDER.glob("*.h")))]
    content = [*sources, *FLAGS, jax.__version__, *sorted(set(processor))]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:24]


def _compile(source: Path, path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        raise OSError("there is no C++ compiler")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        draft = Path(scratch) / path.name
        command = [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(source), "-o", str(draft)]
        subprocess.run(command, check=True, capture_output=True, timeout=COMPILER_SECONDS)
        draft.replace(path)  # atomic: other processes may compile the same source now
