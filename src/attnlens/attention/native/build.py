"""Compiles and loads the C++ sources of this folder, and registers their functions with JAX.

A library is compiled for this processor on first use and stored in the cache folder. Where that is
impossible (no compiler, another platform) the operators use XLA, and the last digits of their
results differ. The environment variable ATTNLENS_KERNEL=0 switches the native versions off.
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


@cache
def load(name: str, functions: tuple[str, ...]) -> bool:
    """Load `name`.cc, compiling it if necessary, and register its `functions` with JAX.

    Returns whether JAX can call them. The first call may take seconds; later calls return its
    answer.
    """
    if os.environ.get("ATTNLENS_KERNEL", "1") == "0" or jax.default_backend() != "cpu":
        return False
    try:
        library = load_library(name)
    except (OSError, subprocess.SubprocessError):  # no compiler, no space, no permission, …
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
    # The processor is part of the hash: machines of several kinds may share the folder.
    processor = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "flags", "Features", "CPU part"))
    ]
    sources = [file.read_text() for file in (FOLDER / f"{name}.cc", *sorted(FOLDER.glob("*.h")))]
    content = [*sources, *FLAGS, jax.__version__, *sorted(set(processor))]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:24]
    chosen = os.environ.get("ATTNLENS_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "attnlens" / "compiled"
    return folder / f"{name}-{digest}.so"


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
