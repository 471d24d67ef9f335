"""Preparation of the inputs of every operator: shapes, masks and precision.

A mask says which query may attend to which token (true = may). Masked tokens are never read: a NaN
or an infinity there must not reach the result or a gradient, and a weight of zero does not prevent
that (0·NaN = NaN). So tokens that every query masks, and queries that mask every token, are set to
zero first. A token that is not finite and that *some* queries attend to is set to zero as well; the
outputs of these queries are set to NaN at the end, so that the other queries are not affected.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attnlens.core import checks

Floats = Float[Array, "..."]
Bools = Bool[Array, "..."]


class Inputs(NamedTuple):
    """Inputs with masked tokens set to zero; `mask` and `bias` have the rank of the logits."""

    query: Floats
    key: Floats
    value: Floats
    mask: Bools | None
    bias: Floats | None
    tainted: Bools | None  # (..., queries, 1): attends to a token that is not finite

    def finish(self, output: Floats, dtype: jnp.dtype) -> Floats:
        """The output: NaN for tainted queries, and in half precision if `dtype` is."""
        if self.tainted is not None:
            output = jnp.where(self.tainted, jnp.nan, output)
        return output.astype(dtype) if dtype.itemsize < 4 else output


def prepare(
    query: Floats,
    key: Floats,
    value: Floats,
    mask: Bools | None = None,
    bias: Floats | None = None,
) -> Inputs:
    """Inputs with shapes checked, half precision raised to single, and masked tokens zero."""
    check_shapes(query.shape, key.shape, value.shape)
    query, key, value = (at_least_single(array) for array in (query, key, value))
    logits = (*query.shape[:-1], key.shape[-2])
    if bias is not None:
        bias = at_least_single(like_logits("bias", bias, logits))
    if mask is None:
        return Inputs(query, key, value, None, bias, None)
    mask = like_logits("mask", mask, logits)
    seen, sees = jnp.any(mask, -2)[..., None], jnp.any(mask, -1, keepdims=True)
    tainted = None
    if mask.shape[-2] > 1:
        finite = jnp.all(jnp.isfinite(key), -1) & jnp.all(jnp.isfinite(value), -1)
        tainted = jnp.any(mask & ~finite[..., None, :], -1, keepdims=True)
        seen = seen & finite[..., None]
    query, key, value = (
        jnp.where(keep, array, 0) for keep, array in ((sees, query), (seen, key), (seen, value))
    )
    return Inputs(query, key, value, mask, bias, tainted)


def check_shapes(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> None:
    """(..., Lq, d), (..., L, d) and (..., L, dv), with the same leading dimensions."""
    if min(len(query), len(key), len(value)) < 2:
        raise checks.BadInput(
            f"query, key and value must have at least two dimensions (tokens, features); got "
            f"shapes {query}, {key} and {value}."
        )
    if query[-1] != key[-1]:
        raise checks.BadInput(
            f"query and key must have the same number of features; got {query[-1]} and {key[-1]}."
        )
    if key[-2] != value[-2]:
        raise checks.BadInput(
            f"key and value must have the same number of tokens; got {key[-2]} and {value[-2]}."
        )
    if not query[:-2] == key[:-2] == value[:-2]:
        raise checks.BadInput(
            f"query, key and value must have the same leading dimensions; got {query[:-2]}, "
            f"{key[:-2]} and {value[:-2]}; use jnp.broadcast_to first."
        )


def like_logits(name: str, array: Array, logits: tuple[int, ...]) -> Array:
    """`array` with the logits' rank, so that it broadcasts against them without promotion."""
    try:
        fits = np.broadcast_shapes(array.shape, logits) == logits
    except ValueError:
        fits = False
    if not fits:
        raise checks.BadInput(
            f"{name} must broadcast to (..., queries, tokens) = {logits}; got shape {array.shape}."
        )
    return array.reshape((1,) * (len(logits) - array.ndim) + array.shape)


def token_mask(mask: Bools | None, key: tuple[int, ...]) -> Bools | None:
    """A mask that is the same for every query, as (..., L); accepts (L,) and (..., 1, L) too."""
    if mask is None:
        return None
    if mask.ndim == len(key) and mask.shape[-2] == 1:
        mask = mask[..., 0, :]
    tokens = key[:-1]
    try:
        return jnp.broadcast_to(mask, tokens)
    except ValueError:
        raise checks.BadInput(
            f"this operator needs one mask for all queries, of shape {tokens} or (..., 1, length); "
            f"got shape {mask.shape}."
        ) from None


def hide(array: Floats, mask: Bools | None) -> Floats:
    """`array` with masked tokens set to zero."""
    return array if mask is None else jnp.where(mask[..., None], array, 0)


def at_least_single(array: Floats) -> Floats:
    """Half precision raised to single; single and double precision unchanged."""
    return array.astype(jnp.float32) if array.dtype.itemsize < 4 else array


def scale(name: str, given: float | Floats | None, dim: int) -> float | Floats:
    """The temperature: √d if None; a Python number must be positive."""
    if given is None:
        return math.sqrt(max(dim, 1))
    return checks.positive(name, given) if isinstance(given, (int, float)) else given
