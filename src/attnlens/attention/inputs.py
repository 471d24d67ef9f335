"""What every operator does with its inputs before the mathematics: shapes, masks, precision.

A mask says who may look at what (true = may). Nothing behind it is ever read: a NaN or an
infinity there must not reach the result or a gradient, and multiplying by a weight of zero is not
enough (0·NaN = NaN). So tokens that no query sees, and queries that see no token, become zeros
before anything is computed. A token that is not finite and is seen by *some* queries becomes
zeros as well, and those queries' rows are set to NaN at the end, so that the others stay clean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attnlens import checks

Floats = Float[Array, "..."]
Bools = Bool[Array, "..."]


class Inputs(NamedTuple):
    """Clean inputs: finite wherever nobody looks; `mask` and `bias` have the logits' rank."""

    query: Floats
    key: Floats
    value: Floats
    mask: Bools | None
    bias: Floats | None
    tainted: Bools | None  # (..., queries, 1): sees a token that is not finite

    def finish(self, output: Floats, dtype: jnp.dtype) -> Floats:
        """The output, in half precision if `dtype` is; NaN for who saw a non-finite token."""
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
    """Checked shapes, half precision raised to single, and nothing readable behind the mask."""
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
            f"query, key and value must have at least two dimensions (tokens, features), but "
            f"shapes {query}, {key} and {value} came."
        )
    if query[-1] != key[-1]:
        raise checks.BadInput(
            f"query and key must have equally many features, but {query[-1]} and {key[-1]} came."
        )
    if key[-2] != value[-2]:
        raise checks.BadInput(
            f"key and value must have equally many tokens, but {key[-2]} and {value[-2]} came."
        )
    if not query[:-2] == key[:-2] == value[:-2]:
        raise checks.BadInput(
            f"query, key and value must have the same leading dimensions, but {query[:-2]}, "
            f"{key[:-2]} and {value[:-2]} came; use jnp.broadcast_to first."
        )


def like_logits(name: str, array: Array, logits: tuple[int, ...]) -> Array:
    """`array` with the logits' rank, so that it broadcasts against them without promotion."""
    try:
        fits = np.broadcast_shapes(array.shape, logits) == logits
    except ValueError:
        fits = False
    if not fits:
        raise checks.BadInput(
            f"{name} must broadcast to (..., queries, tokens) = {logits}, but shape "
            f"{array.shape} came."
        )
    return array.reshape((1,) * (len(logits) - array.ndim) + array.shape)


def token_mask(mask: Bools | None, key: tuple[int, ...]) -> Bools | None:
    """A mask that is the same for every query, as (..., L); also taken: (L,) and (..., 1, L)."""
    if mask is None:
        return None
    if mask.ndim == len(key) and mask.shape[-2] == 1:
        mask = mask[..., 0, :]
    tokens = key[:-1]
    try:
        return jnp.broadcast_to(mask, tokens)
    except ValueError:
        raise checks.BadInput(
            f"this operator takes one mask for all queries, of shape {tokens} or with a 1 in the "
            f"queries' place, but shape {mask.shape} came."
        ) from None


def hide(array: Floats, mask: Bools | None) -> Floats:
    """Zeros for the tokens that a token mask leaves out."""
    return array if mask is None else jnp.where(mask[..., None], array, 0)


def at_least_single(array: Floats) -> Floats:
    """Half precision is computed in single; single and double stay what they are."""
    return array.astype(jnp.float32) if array.dtype.itemsize < 4 else array


def scale(name: str, given: float | Floats | None, dim: int) -> float | Floats:
    """The temperature: √d if none was given; a Python number is checked."""
    if given is None:
        return math.sqrt(max(dim, 1))
    return checks.positive(name, given) if isinstance(given, (int, float)) else given
