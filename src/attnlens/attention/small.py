"""Softmax attention of many small sets by a compiled kernel, where there is a C++ compiler.

XLA multiplies matrices of 16 × 8 at a tenth of what a core can do, and training ensembles of small
networks spends most of its time there. `small.cc` beside this file does a whole set at once; it is
compiled on first use, for this processor, and kept in the cache folder. Where that fails (no
compiler, another platform) everything runs through XLA as before, to other last digits.

The kernel has a first derivative only. So it is used where a program asks for it while it is traced
(`with first_order():`, as `fit` does for its steps) and nowhere else: Hessians go through XLA.
ATTNLENS_KERNEL=0 switches it off.
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
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

SOURCE = Path(__file__).with_suffix(".cc")
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno",
    "-fno-trapping-math",
)  # fmt: skip
SECONDS = 300  # to compile; it takes four
# Where it was faster than XLA, forward and backward on one core (3 to 4 times with 4 to 16 tokens,
# 1.3 to 2.4 times with 64 to 256). With 32 features it was not. Nor was it where few queries read
# tokens that are data: XLA leaves out gradients that nobody needs.
LONGEST, WIDEST = 512, 16
NAMES = ("attnlens_forward", "attnlens_backward")

_wanted: ContextVar[bool] = ContextVar("attnlens_small_kernel", default=False)


@contextlib.contextmanager
def first_order() -> Iterator[None]:
    """What is traced inside is differentiated once at most, so the kernel may be used."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def usable(query: Array, key: Array, value: Array) -> bool:
    """Whether attention of these arrays goes through the kernel: self-attention of small sets."""
    small = 1 < query.shape[-2] == key.shape[-2] <= LONGEST
    narrow = 0 < key.shape[-1] <= WIDEST and 0 < value.shape[-1] <= WIDEST
    single = query.dtype == key.dtype == value.dtype == jnp.float32
    return _wanted.get() and small and narrow and single and available()


def same_for_all(
    mask: Bool[Array, "..."] | None, key: tuple[int, ...]
) -> Bool[Array, "*batch seen"] | None:
    """A mask with the logits' rank as `attend` takes it; None where it differs between queries."""
    if mask is None:
        return jnp.zeros((*key[:-2], 0), bool)
    return jnp.broadcast_to(mask[..., 0, :], key[:-1]) if mask.shape[-2] == 1 else None


@jax.custom_vjp
def attend(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    mask: Bool[Array, "*batch seen"],
) -> Float[Array, "*batch queries value_dim"]:
    """Σ_j softmax_j(q·k_j) v_j. `mask` has an entry a token, or none where all are seen; what is
    not seen must be finite all the same. A query that sees nothing gets zeros."""
    return _forward(query, key, value, mask)[0]


def _forward(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Array]:
    *batch, queries, _ = query.shape
    shapes = [
        jax.ShapeDtypeStruct((*batch, queries, last), jnp.float32)
        for last in (value.shape[-1], key.shape[-2])
    ]
    call = jax.ffi.ffi_call(NAMES[0], shapes, vmap_method="broadcast_all")
    output, weights = call(query, key, value, mask)
    return output, weights


def _attend_forward(query: Array, key: Array, value: Array, mask: Array):
    output, weights = _forward(query, key, value, mask)
    return output, (query, key, value, weights)


def _attend_backward(kept: tuple[Array, Array, Array, Array], given: Array):
    query, key, value, weights = kept
    shapes = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in (query, key, value)]
    call = jax.ffi.ffi_call(NAMES[1], shapes, vmap_method="broadcast_all")
    return (*call(query, key, value, weights, given), None)


attend.defvjp(_attend_forward, _attend_backward)


@cache
def available() -> bool:
    """Whether the kernel is there: compiled on the first call, and registered with JAX."""
    if os.environ.get("ATTNLENS_KERNEL", "1") == "0" or jax.default_backend() != "cpu":
        return False
    try:
        library = _loaded(_path())
    except (OSError, subprocess.SubprocessError):  # no compiler, no room, no permission, …
        return False
    for name in NAMES:
        capsule = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return True


def _loaded(path: Path) -> ctypes.CDLL:
    if path.exists():
        with contextlib.suppress(OSError):  # damaged: made again
            return ctypes.CDLL(str(path))
    _compile(path)
    return ctypes.CDLL(str(path))


def _path() -> Path:
    """Where the compiled kernel lies: in the cache folder, named after all that it is made from."""
    if not sys.platform.startswith("linux"):
        raise OSError("the kernel was never tried on this system")
    # A folder may be shared by machines of several kinds.
    processor = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "flags", "Features", "CPU part"))
    ]
    made_from = [SOURCE.read_text(), *FLAGS, jax.__version__, *sorted(set(processor))]
    name = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:24]
    chosen = os.environ.get("ATTNLENS_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "attnlens" / "compiled"
    return folder / f"small-{name}.so"


def _compile(path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        raise OSError("there is no C++ compiler")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        fresh = Path(made) / path.name
        command = [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        fresh.replace(path)  # whole or not at all, whoever else compiles it now
