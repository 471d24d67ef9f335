"""Softmax attention of long sequences by a compiled kernel, where there is a C++ compiler.

XLA's CPU programs multiply a block of queries with a block of keys, write the scores to memory, and
read them three more times: for the largest, for exp and the sum, and for the product with the
values. `blocks.cc` beside this file keeps a block of scores in the cache from the first product to
the second, on all threads of XLA's pool. It is a primal only: `normalised` says what its derivative
is, so that it can be differentiated any number of times.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import compiled

NAMES = ("attnlens_blocks",)
# Below so many scores a call is over before a second thread has begun.
FEWEST = 2**16


def usable(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
) -> bool:
    """Whether attention of these arrays goes through the kernel."""
    many = math.prod(query.shape[:-1]) * key.shape[-2] >= FEWEST
    single = query.dtype == key.dtype == value.dtype == jnp.float32
    filled = min(query.shape[-1], value.shape[-1]) > 0
    return many and single and filled and compiled.registered("blocks", NAMES)


def attend(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
) -> tuple[Float[Array, "*batch queries value_dim"], Float[Array, "*batch queries 1"]]:
    """Σ_j softmax_j(q·k_j) v_j, and the log normaliser log Σ_j e^{q·k_j}; 0 where a sum is 0."""
    shapes = [
        jax.ShapeDtypeStruct((*query.shape[:-1], last), jnp.float32)
        for last in (value.shape[-1], 1)
    ]
    call = jax.ffi.ffi_call(NAMES[0], shapes, vmap_method="broadcast_all")
    output, normaliser = call(query, key, value)
    return output, normaliser
