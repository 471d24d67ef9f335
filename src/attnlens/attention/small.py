"""Softmax attention of many small sets by a compiled kernel, where there is a C++ compiler.

XLA multiplies matrices of 16 × 8 at a tenth of what a core can do, and training ensembles of small
networks spends most of its time there. `small.cc` beside this file does a whole set at once
(`compiled` says how it gets there, and what happens where it does not).

The kernel has a first derivative only. So it is used where a program asks for it while it is traced
(`with first_order():`, as `fit` does for its steps) and nowhere else: Hessians go through XLA.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import compiled

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


def available() -> bool:
    """Whether the kernel is there: compiled on the first call, and registered with JAX."""
    return compiled.registered("small", NAMES)
