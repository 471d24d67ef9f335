"""Normalised attention for any weight function, dense or tile by tile.

    o_i = Σ_j e^{s_ij} v_j / Σ_j e^{s_ij},    s_ij = score(q_i, k_j) + bias_ij   (−∞ where masked)

**Tile by tile.** The keys are divided into tiles. Each row (query) keeps its largest score so far
m, the sum t = Σ e^{s−m} and the weighted sum a = Σ e^{s−m} v. A tile with scores s changes them to

    m′ = max(m, max s),   t′ = t e^{m−m′} + Σ e^{s−m′},   a′ = a e^{m−m′} + Σ e^{s−m′} v

At the end o = a/t, and c = m + log t is the log normaliser. (Milakov and Gimelshein, Online
normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention does not need O(n²)
memory, 2021; Dao et al., FlashAttention, 2022.) No array of size queries × length is ever held.

**Its derivative, tile by tile.** With p_ij = e^{s_ij − c_i}, tangents ṡ, v̇ and b_i = Σ_j p_ij ṡ_ij

    ċ_i = b_i,    ȯ_i = Σ_j p_ij (ṡ_ij v_j + v̇_j) − b_i o_i

which is again a sum over tiles and linear in the tangents. So it is given to JAX as a forward rule
with `jax.checkpoint` around each tile. Its transpose is the backward pass of FlashAttention: the p
of a tile is computed again from c, never stored. Because the rule calls `_attend` itself, it can be
differentiated again, to any order, forward or backward, in memory linear in the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from attnlens.core import checks, kernels

from .inputs import Inputs
from .native import long_softmax

Score = Callable[[Array, Array], Array]
METHODS = ("auto", "dense", "blocks")
# Up to this many logits the dense form is faster (16 MB in float32).
DENSE_LOGITS = 2**22
TILE_LOGITS = 2**20  # logits of one tile, within the limits of `TILE_SIZES`
TILE_SIZES = (64, 512)  # fewest and most keys of a tile


def normalised(score: Score, inputs: Inputs, method: str = "auto") -> Array:
    """Attention with weights proportional to exp(score); zeros where all tokens are masked.

    `score` maps queries (..., Lq, d) and the keys of a tile (..., B, d) to scores (..., Lq, B). JAX
    treats this function as a constant: whatever is differentiated must be part of the inputs.
    """
    count = tile_count(inputs, method)
    query, key, value, mask, bias, *_ = inputs
    if query.shape[-1] == 1:
        # With one feature XLA replaces the dot product by a multiplication and repeats it at each
        # use, fused with the subtraction of the largest score. At the maximum q·k − max is then the
        # rounding error of the product instead of 0, and if that is large all weights vanish. A
        # second feature of zeros keeps it a dot product.
        query, key = (jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) for x in (query, key))
        inputs = inputs._replace(query=query, key=key)
    if count == 1:
        native = method == "auto" and _fits_native(score, query, key, value, bias, mask)
        if native and long_softmax.load():
            return _native(query, key, value)
        return _dense(score, inputs)
    return _attend(score, count, query, key, value, bias, mask)[0]


def tile_count(inputs: Inputs, method: str) -> int:
    """The number of tiles into which the keys are divided; 1 is the dense form."""
    checks.one_of("method", method, METHODS)
    rows, length = math.prod(inputs.query.shape[:-1]), inputs.key.shape[-2]
    few = rows * length <= DENSE_LOGITS
    if method == "dense" or (method == "auto" and few) or rows == 0 or length <= 1:
        return 1
    smallest, largest = TILE_SIZES
    # There are at least two tiles if `method` asks for tiles, even if there are few keys.
    size = min(max(TILE_LOGITS // rows, smallest), largest, -(-length // 2))
    return -(-length // size)


def _fits_native(
    score: Score, query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None
) -> bool:
    """Whether the native version supports this case: scores q·k, no mask, no bias, many scores."""
    plain = score is kernels.products and mask is None and bias is None
    return plain and long_softmax.fits(query, key, value)


def _logits(
    score: Score, query: Array, key: Array, bias: Array | None, mask: Array | None
) -> Array:
    logits = score(query, key)
    if bias is not None:
        logits = logits + bias
    return logits if mask is None else jnp.where(mask, logits, -jnp.inf)


def _finite(top: Array) -> Array:
    """The largest score of a row, or 0 where it is −∞, because −∞ − (−∞) is NaN."""
    return jnp.where(top == -jnp.inf, 0, top)


def _divide(summed: Array, total: Array) -> Array:
    empty = total == 0
    return jnp.where(empty, 0, summed / jnp.where(empty, 1, total))


@jax.custom_jvp
def _native(query: Array, key: Array, value: Array) -> Array:
    """The same as `_dense` with scores q·k, by native code, which is faster.

    Its derivative is the derivative of `_dense`, for which the weights are stored.
    """
    return long_softmax.attend(query, key, value)[0]


@_native.defjvp
def _native_jvp(primals, tangents):
    def dense(query, key, value):
        return _dense(kernels.products, Inputs(query, key, value, None, None, None, value.dtype))

    return jax.jvp(dense, primals, tangents)


def _dense(score: Score, inputs: Inputs) -> Array:
    query, key, value, mask, bias, *_ = inputs
    logits = _logits(score, query, key, bias, mask)
    top = jax.lax.stop_gradient(_finite(jnp.max(logits, -1, keepdims=True, initial=-jnp.inf)))
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, -1, keepdims=True)
    return _divide(jnp.einsum("...ql,...ld->...qd", weights, value), total)


class Tile(NamedTuple):
    """The keys, values, biases and masks of one tile; None where there is no bias or mask."""

    key: Array
    value: Array
    bias: Array | None
    mask: Array | None


def split_tiles(
    count: int, key: Array, value: Array, bias: Array | None, mask: Array | None
) -> Tile:
    """Split the arrays into `count` tiles along a new first axis; padding in tiles is masked."""
    length = key.shape[-2]
    size = -(-length // count)
    missing = count * size - length
    if missing and mask is None:
        mask = jnp.ones((1,) * (key.ndim - 1) + (length,), bool)
    if missing and mask is not None and mask.shape[-1] == 1:
        mask = jnp.broadcast_to(mask, (*mask.shape[:-1], length))

    def cut(array: Array | None, axis: int) -> Array | None:
        if array is None:
            return None
        axis = array.ndim + axis
        if array.shape[axis] != length:  # the axis has length 1: one entry for all keys
            return jnp.broadcast_to(array, (count, *array.shape))
        padding = [(0, missing if a == axis else 0) for a in range(array.ndim)]
        shape = (*array.shape[:axis], count, size, *array.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(array, padding).reshape(shape), axis, 0)

    return Tile(cut(key, -2), cut(value, -2), cut(bias, -1), cut(mask, -1))  # pyright: ignore (None if there is no bias or no mask)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _attend(
    score: Score,
    count: int,
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None,
    mask: Array | None,
) -> tuple[Array, Array]:
    """(o, c) as defined in the module's docstring; c is 0 where all tokens are masked."""
    if _fits_native(score, query, key, value, bias, mask) and long_softmax.load():
        return long_softmax.attend(query, key, value)

    def step(carry, tile: Tile):
        top, total, summed = carry
        logits = _logits(score, query, tile.key, tile.bias, tile.mask)
        new = jnp.maximum(top, jnp.max(logits, -1, keepdims=True))
        shift = _finite(new)
        weights, shrink = jnp.exp(logits - shift), jnp.exp(top - shift)
        total = total * shrink + jnp.sum(weights, -1, keepdims=True)
        summed = summed * shrink + jnp.einsum("...ql,...ld->...qd", weights, tile.value)
        return (new, total, summed), None

    rows = (*query.shape[:-1], 1)
    start = (
        jnp.full(rows, -jnp.inf, query.dtype),
        jnp.zeros(rows, query.dtype),
        jnp.zeros((*query.shape[:-1], value.shape[-1]), value.dtype),
    )
    (top, total, summed), _ = jax.lax.scan(step, start, split_tiles(count, key, value, bias, mask))
    return _divide(summed, total), _finite(top + jnp.log(total))


@_attend.defjvp
def _attend_jvp(score: Score, count: int, primals, tangents):
    *parts, mask = primals
    *parts_dot, _ = tangents
    output, normaliser = _attend(score, count, *parts, mask)

    # prevent_cse is not needed: the body of a scan is not merged with anything outside it.
    @partial(jax.checkpoint, prevent_cse=False)
    def term(query, normaliser, tile: Tile):
        logits = _logits(score, query, tile.key, tile.bias, tile.mask)
        weights = jnp.exp(logits - normaliser)
        total = jnp.sum(weights, -1, keepdims=True)
        return total, jnp.einsum("...ql,...ld->...qd", weights, tile.value)

    def moments(query, key, value, bias):
        """Σ_j p_ij and Σ_j p_ij v_j with c held fixed: their tangents are b_i and the sum in ȯ."""
        start = (jnp.zeros_like(normaliser), jnp.zeros_like(output))
        return jax.lax.scan(
            lambda sums, tile: (jax.tree.map(jnp.add, sums, term(query, normaliser, tile)), None),
            start,
            split_tiles(count, key, value, bias, mask),
        )[0]

    # Linearised here, because JAX before version 0.10 cannot transpose a scan inside a JVP rule.
    moved, summed = jax.linearize(moments, *parts)[1](*parts_dot)
    return (output, normaliser), (summed - moved * output, moved)
