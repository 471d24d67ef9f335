"""Softmax attention, the normalised kernel mean (Nadaraya–Watson regression).

SM(q; K, V) = Σ_ℓ e^{s_ℓ} v_ℓ / Σ_ℓ e^{s_ℓ},   s_ℓ = q·k_ℓ / temperature + bias_ℓ
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def softmax(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    temperature: float | Float[Array, ""] | None = None,
    mask: Bool[Array, ...] | None = None,
    bias: Float[Array, ...] | None = None,
) -> Float[Array, "*batch queries value_dim"]:
    """Softmax attention; `temperature` defaults to √d.

    `mask` (true = may be attended to) and `bias` broadcast to (..., queries, length). A query
    with nothing to attend to gets zeros; what stands behind the mask is never read.

    >>> one = jnp.ones((1, 2))
    >>> softmax(one, jnp.eye(2), jnp.array([[1.0], [3.0]]))
    Array([[2.]], dtype=float32)
    """
    scale = math.sqrt(query.shape[-1]) if temperature is None else temperature
    if mask is not None:
        key, value = (_hide(array, mask) for array in (key, value))
    logits = jnp.einsum("...qd,...ld->...ql", query, key) / scale
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    top = jnp.max(logits, -1, keepdims=True, initial=-jnp.inf)
    weights = jnp.exp(logits - jnp.where(jnp.isfinite(top), top, 0))
    total = jnp.sum(weights, -1, keepdims=True)
    summed = jnp.einsum("...ql,...ld->...qd", weights, value)
    return jnp.where(total > 0, summed / jnp.where(total > 0, total, 1), 0)


def _hide(array: Array, mask: Array) -> Array:
    """Zeros where no query may look, so that NaN or infinity there cannot spread (0·NaN = NaN)."""
    seen = jnp.any(mask, -2) if mask.ndim > 1 else mask
    return jnp.where(seen[..., None], array, 0)
