"""Softmax attention, the normalised kernel mean (Nadaraya–Watson regression).

SM(q; K, V) = Σ_ℓ e^{s_ℓ} v_ℓ / Σ_ℓ e^{s_ℓ},   s_ℓ = q·k_ℓ / temperature + bias_ℓ
"""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from attnlens.core import kernels

from . import inputs
from .native import small_softmax
from .normalised import normalised


def softmax(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    temperature: float | Float[Array, ""] | None = None,
    mask: Bool[Array, ...] | None = None,
    bias: Float[Array, ...] | None = None,
    method: str = "auto",
) -> Float[Array, "*batch queries value_dim"]:
    """Softmax attention (Vaswani et al., 2017); `temperature` defaults to √d.

    `mask` (true = may be attended to) and `bias` broadcast to (..., queries, length). The output
    of a query without any token to attend to is zero; masked tokens are never read. `method` is
    "dense" (holds queries × length weights), "blocks" (computes tile by tile: memory linear in
    the length, also when differentiated) or "auto", which is "dense" if there are few weights.

    >>> import jax.numpy as jnp
    >>> one = jnp.ones((1, 2))
    >>> softmax(one, jnp.eye(2), jnp.array([[1.0], [3.0]]))
    Array([[2.]], dtype=float32)
    """
    ready = inputs.prepare(query, key, value, mask, bias)
    scale = inputs.scale("temperature", temperature, ready.query.shape[-1])
    ready = ready._replace(query=ready.query / scale)
    seen = None if bias is not None else small_softmax.token_mask(ready.mask, ready.key.shape)
    if (
        method == "auto"
        and seen is not None
        and small_softmax.fits(*ready[:3])
        and small_softmax.load()
    ):
        return ready.finish(small_softmax.attend(*ready[:3], seen))
    return ready.finish(normalised(kernels.products, ready, method))
