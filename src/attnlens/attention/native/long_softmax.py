"""Softmax attention of long sequences by native code (`long_softmax.cc`).

XLA's CPU programs multiply queries with keys, write the scores to memory and read them three more
times: for the largest score, for exp and the sum, and for the product with the values. The native
version keeps a tile of scores in the cache from the first product to the second, and uses all
threads of XLA's pool. It has no derivative of its own: `normalised` defines the derivative, of
every order.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import build

NAMES = ("attnlens_long_softmax",)
# With fewer scores the computation is finished before a second thread has started.
FEWEST_SCORES = 2**16


def fits(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
) -> bool:
    """Whether the native version supports arrays of these shapes, and is faster for them."""
    many = math.prod(query.shape[:-1]) * key.shape[-2] >= FEWEST_SCORES
    single = query.dtype == key.dtype == value.dtype == jnp.float32
    not_empty = min(query.shape[-1], value.shape[-1]) > 0
    return many and single and not_empty


def load() -> bool:
    """Return whether `attend` can be called; the first call compiles and loads the library."""
    return build.load("long_softmax", NAMES)


def attend(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
) -> tuple[Float[Array, "*batch queries value_dim"], Float[Array, "*batch queries 1"]]:
    """Σ_j softmax_j(q·k_j) v_j and the log normaliser log Σ_j e^{q·k_j}; 0 where the sum is 0."""
    shapes = [
        jax.ShapeDtypeStruct((*query.shape[:-1], last), jnp.float32)
        for last in (value.shape[-1], 1)
    ]
    call = jax.ffi.ffi_call(NAMES[0], shapes, vmap_method="broadcast_all")
    output, normaliser = call(query, key, value)
    return output, normaliser
