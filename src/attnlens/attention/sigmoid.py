"""Sigmoid attention: the weight of a token does not depend on the other tokens.

    SG(q; K, V) = Σ_ℓ σ(q·k_ℓ/τ + bias_ℓ + offset) v_ℓ,     offset = −log(tokens seen)

With this offset the weights of logits near 0 sum to about one at every length
(Ramapuram et al., Theory, analysis, and best practices for sigmoid self-attention, 2024).
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attnlens.core import checks, kernels

from . import inputs
from .normalised import METHODS, split_tiles, tile_count


def sigmoid(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    temperature: float | Float[Array, ""] | None = None,
    mask: Bool[Array, ...] | None = None,
    bias: Float[Array, ...] | None = None,
    offset: float | Float[Array, ""] | None = None,
    method: str = "auto",
) -> Float[Array, "*batch queries value_dim"]:
    """Sigmoid attention; `temperature` defaults to √d, `offset` to −log(tokens not masked).

    `mask`, `bias` and `method` are as in `softmax`.

    >>> sigmoid(jnp.zeros((1, 2)), jnp.eye(2), jnp.array([[1.0], [3.0]]), offset=0.0)
    Array([[2.]], dtype=float32)
    """
    checks.one_of("method", method, METHODS)
    ready = inputs.prepare(query, key, value, mask, bias)
    scale = inputs.scale("temperature", temperature, ready.query.shape[-1])
    ready = ready._replace(query=ready.query / scale)
    offset = offset if offset is None else inputs.single("offset", offset)
    length = ready.key.shape[-2]
    if offset is None and ready.mask is not None:
        seen = jnp.sum(jnp.broadcast_to(ready.mask, (*ready.mask.shape[:-1], length)), -1)
        shift = -jnp.log(jnp.maximum(seen, 1).astype(ready.query.dtype))[..., None]
    else:
        shift = -math.log(max(length, 1)) if offset is None else offset

    # The weights of a tile are computed again in the backward pass, never stored.
    @partial(jax.checkpoint, prevent_cse=False)
    def term(query, shift, tile):
        logits = kernels.products(query, tile.key) + shift
        if tile.bias is not None:
            logits = logits + tile.bias
        weights = jax.nn.sigmoid(logits)
        if tile.mask is not None:
            weights = jnp.where(tile.mask, weights, 0)
        return jnp.einsum("...ql,...ld->...qd", weights, tile.value)

    count = tile_count(ready, method)
    tiles = split_tiles(count, ready.key, ready.value, ready.bias, ready.mask)
    if count == 1:
        summed = term(ready.query, shift, jax.tree.map(lambda array: array[0], tiles))
    else:
        start = jnp.zeros((*ready.query.shape[:-1], ready.value.shape[-1]), ready.value.dtype)
        summed, _ = jax.lax.scan(
            lambda total, tile: (total + term(ready.query, shift, tile), None), start, tiles
        )
    return ready.finish(summed)
