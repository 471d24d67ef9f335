"""Kernels in C++, compiled on first use for this processor and kept in the cache folder.

Where that fails (no compiler, another platform) everything runs through XLA, to other last digits.
ATTNLENS_KERNEL=0 switches them off.
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
    "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno",
    "-fno-trapping-math",
)  # fmt: skip
SECONDS = 300  # to compile; the largest takes about ten


@cache
def registered(name: str, functions: tuple[str, ...]) -> bool:
    """Whether the functions of `name`.cc are there for JAX to call: compiled on the first call."""
    if os.environ.get("ATTNLENS_KERNEL", "1") == "0" or jax.default_backend() != "cpu":
        return False
    try:
        library = loaded(name)
    except (OSError, subprocess.SubprocessError):  # no compiler, no room, no permission, …
        return False
    for function in functions:
        capsule = jax.ffi.pycapsule(getattr(library, function))
        jax.ffi.register_ffi_target(function, capsule, platform="cpu")
    return True


def loaded(name: str) -> ctypes.CDLL:
    path = path_of(name)
    if path.exists():
        with contextlib.suppress(OSError):  # damaged: made again
            return ctypes.CDLL(str(path))
    _compile(FOLDER / f"{name}.cc", path)
    return ctypes.CDLL(str(path))


def path_of(name: str) -> Path:
    """Where the compiled kernel lies: in the cache folder, named after all that it is made from."""
    if not sys.platform.startswith("linux"):
        raise OSError("the kernels were never tried on this system")
    # A folder may be shared by machines of several kinds.
    processor = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "flags", "Features", "CPU part"))
    ]
    sources = [file.read_text() for file in (FOLDER / f"{name}.cc", *sorted(FOLDER.glob("*.h")))]
    made_from = [*sources, *FLAGS, jax.__version__, *sorted(set(processor))]
    digest = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:24]
    chosen = os.environ.get("ATTNLENS_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "attnlens" / "compiled"
    return folder / f"{name}-{digest}.so"


def _compile(source: Path, path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        raise OSError("there is no C++ compiler")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        fresh = Path(made) / path.name
        command = [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(source), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        fresh.replace(path)  # whole or not at all, whoever else compiles it now
