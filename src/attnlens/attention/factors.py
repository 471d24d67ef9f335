"""Cholesky factors of many short matrices by a compiled kernel, where there is a C++ compiler.

LAPACK takes one matrix at a time, on one thread when it is this small, and several calls in flight
together can hang (`tests/attention/test_threads.py`). `factors.cc` beside this file deals matrices
out to the threads of XLA's pool.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import compiled

NAMES = tuple(
    f"attnlens_{work}_{dtype}" for work in ("factor", "solve") for dtype in ("float32", "float64")
)
# Shorter ones are over before a thread has begun; longer ones leave the second cache, and LAPACK
# shares each of them among its threads.
SHORTEST, LONGEST = 32, 512


def usable(length: int, dtype: jnp.dtype) -> bool:
    """Whether matrices of this size go through the kernel."""
    fits = SHORTEST <= length <= LONGEST and dtype in (jnp.float32, jnp.float64)
    return fits and compiled.registered("factors", NAMES)


def factor(matrix: Float[Array, "*batch length length"]) -> Float[Array, "*batch length length"]:
    """R, upper triangular, with matrix = Rᵀ R; NaN where there is none."""
    shape = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype)
    name = f"attnlens_factor_{matrix.dtype.name}"
    found = jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")(matrix)
    assert isinstance(found, jax.Array)
    return found


def solve(
    factor: Float[Array, "*batch length length"], right: Float[Array, "*batch length columns"]
) -> Float[Array, "*batch length columns"]:
    """x with Rᵀ R x = right."""
    shape = jax.ShapeDtypeStruct(right.shape, right.dtype)
    name = f"attnlens_solve_{factor.dtype.name}"
    found = jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")(factor, right)
    assert isinstance(found, jax.Array)
    return found
