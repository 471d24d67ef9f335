"""Softmax attention of many small sets by native code (`small_softmax.cc`).

XLA multiplies matrices of 16 × 8 at a tenth of the speed of a core, and training ensembles of small
networks spends most of its time there. The native version computes one whole set at a time.

It has a first derivative only. So it is used only where a program declares, while it is traced,
that it differentiates once at most (`with first_order():`, as the training steps of `fit` do).
Everything else, such as Hessians, uses XLA.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import build

# Within these limits native code was faster than XLA, forward and backward on one core: 3 to 4
# times with 4 to 16 tokens, 1.3 to 2.4 times with 64 to 256 tokens. It was slower with 32 features,
# and also where few queries attend to tokens that are data: XLA then omits the gradients with
# respect to the tokens, which nothing uses.
LONGEST, WIDEST = 512, 16
NAMES = ("attnlens_small_softmax", "attnlens_small_softmax_gradient")

_first_order: ContextVar[bool] = ContextVar("attnlens_first_order", default=False)


@contextlib.contextmanager
def first_order() -> Iterator[None]:
    """Declare that code traced in this context is differentiated at most once.

    Such code may use `attend`.
    """
    token = _first_order.set(True)
    try:
        yield
    finally:
        _first_order.reset(token)


def fits(query: Array, key: Array, value: Array) -> bool:
    """Whether `attend` may be used here (inside `first_order`), and is faster for these shapes."""
    small = 1 < query.shape[-2] == key.shape[-2] <= LONGEST
    narrow = 0 < key.shape[-1] <= WIDEST and 0 < value.shape[-1] <= WIDEST
    single = query.dtype == key.dtype == value.dtype == jnp.float32
    return _first_order.get() and small and narrow and single


def load() -> bool:
    """Return whether `attend` can be called; the first call compiles and loads the library."""
    return build.load("small_softmax", NAMES)


def token_mask(
    mask: Bool[Array, "..."] | None, key: tuple[int, ...]
) -> Bool[Array, "*batch seen"] | None:
    """Convert a mask that has the rank of the logits to the form that `attend` takes.

    Returns None if the mask has a row per query.
    """
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
    """Softmax attention, Σ_j softmax_j(q·k_j) v_j.

    `mask` has one entry per token, or none if no token is masked. Masked tokens must be finite too.
    The output is zero where all tokens are masked.
    """
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


def _attend_backward(residuals: tuple[Array, Array, Array, Array], cotangent: Array):
    query, key, value, weights = residuals
    shapes = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in (query, key, value)]
    call = jax.ffi.ffi_call(NAMES[1], shapes, vmap_method="broadcast_all")
    return (*call(query, key, value, weights, cotangent), None)


attend.defvjp(_attend_forward, _attend_backward)
