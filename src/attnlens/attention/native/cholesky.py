"""Cholesky factors of many short matrices, and solves with them, by native code (`cholesky.cc`).

LAPACK factorises one matrix at a time, on one thread when it is this small, and several concurrent
calls can hang (`tests/attention/test_threads.py`). The native version distributes the matrices over
the threads of XLA's pool.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import build

NAMES = tuple(
    f"attnlens_{work}_{dtype}" for work in ("factor", "solve") for dtype in ("float32", "float64")
)
# Smaller matrices are finished before a second thread has started. Larger ones do not fit into the
# second-level cache, and LAPACK uses several threads for them.
SHORTEST, LONGEST = 32, 512


def fits(length: int, dtype: jnp.dtype) -> bool:
    """Whether the native version supports matrices of this size, and is faster for them."""
    return SHORTEST <= length <= LONGEST and dtype in (jnp.float32, jnp.float64)


def load() -> bool:
    """Return whether JAX can call the library; the first call compiles and loads it."""
    return build.load("cholesky", NAMES)


def factor(matrix: Float[Array, "*batch length length"]) -> Float[Array, "*batch length length"]:
    """R, upper triangular, with matrix = Rᵀ R; NaN where the matrix is not positive definite."""
    shape = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype)
    name = f"attnlens_factor_{matrix.dtype.name}"
    root = jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")(matrix)
    assert isinstance(root, jax.Array)
    return root


def solve(
    factor: Float[Array, "*batch length length"], right: Float[Array, "*batch length columns"]
) -> Float[Array, "*batch length columns"]:
    """The solution x of Rᵀ R x = right, where `factor` is R."""
    shape = jax.ShapeDtypeStruct(right.shape, right.dtype)
    name = f"attnlens_solve_{factor.dtype.name}"
    solution = jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")(factor, right)
    assert isinstance(solution, jax.Array)
    return solution
