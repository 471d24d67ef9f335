"""Preparation of the inputs of every operator: shapes, masks and precision.

A mask says which query may attend to which token (true = may). Masked tokens are never read: a NaN
or an infinity there must not reach the result or a gradient, and a weight of zero does not prevent
that (0·NaN = NaN). So tokens that every query masks, and queries that mask every token, are set to
zero first. A token that is not finite and that *some* queries attend to is set to zero as well; the
outputs of these queries are set to NaN at the end, so that the other queries are not affected.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attnlens.core import arrays, checks

Floats = Float[Array, "..."]
Bools = Bool[Array, "..."]


class Inputs(NamedTuple):
    """Inputs with masked tokens set to zero; `mask` and `bias` have the rank of the logits."""

    query: Floats
    key: Floats
    value: Floats
    mask: Bools | None
    bias: Floats | None
    tainted: Bools | None  # (..., queries, 1): true if the query attends to a token not finite
    dtype: jnp.dtype  # the dtype of the values before their conversion

    def finish(self, output: Floats) -> Floats:
        """Set the output of tainted queries to NaN; use half precision if the values had it."""
        if self.tainted is not None:
            output = jnp.where(self.tainted, jnp.nan, output)
        return output.astype(self.dtype) if self.dtype.itemsize < 4 else output


def prepare(query: Any, key: Any, value: Any, mask: Any = None, bias: Any = None) -> Inputs:
    """Check shapes, convert half precision to single, and set masked tokens to zero."""
    query, key, value = operands(query=query, key=key, value=value)
    dtype = value.dtype
    query, key, value = (at_least_single(array) for array in (query, key, value))
    logits = (*query.shape[:-1], key.shape[-2])
    if bias is not None:
        (bias,) = floating({"bias": bias}, query.dtype)
        bias = at_least_single(like_logits("bias", bias, logits))
    if mask is None:
        return Inputs(query, key, value, None, bias, None, dtype)
    mask = like_logits("mask", boolean(mask), logits)
    seen, sees = jnp.any(mask, -2)[..., None], jnp.any(mask, -1, keepdims=True)
    tainted = None
    if mask.shape[-2] > 1:
        finite = jnp.all(jnp.isfinite(key), -1) & jnp.all(jnp.isfinite(value), -1)
        tainted = jnp.any(mask & ~finite[..., None, :], -1, keepdims=True)
        seen = seen & finite[..., None]
    query, key, value = (
        jnp.where(keep, array, 0) for keep, array in ((sees, query), (seen, key), (seen, value))
    )
    return Inputs(query, key, value, mask, bias, tainted, dtype)


def operands(**named_arrays: Any) -> tuple[Floats, Floats, Floats]:
    """query, key and value as arrays of floating point numbers, after a check of their shapes.

    Integers and booleans become floating point numbers before anything is computed: in their own
    type a mean would be cut to a whole number. They take the type of the other operands, or JAX's
    default. JAX arrays of floating point numbers are unchanged, so tracing works as usual.
    """
    query, key, value = floating(named_arrays)
    check_shapes(query.shape, key.shape, value.shape)
    return query, key, value


def floating(named_arrays: dict[str, Any], default: Any = None) -> list[Floats]:
    """Convert arrays of real numbers, given by name, to floating point (see `operands`)."""
    all_arrays = [_array(name, values) for name, values in named_arrays.items()]
    floats = [array.dtype for array in all_arrays if jnp.issubdtype(array.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats) if floats else jnp.result_type(default or float)
    return [_converted(array, dtype) for array in all_arrays]


def _converted(array: Array | np.ndarray, dtype: jnp.dtype) -> Floats:
    if isinstance(array, np.ndarray):
        return jnp.asarray(array.astype(np.float64)).astype(dtype)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(dtype)


def _array(name: str, values: Any) -> Array | np.ndarray:
    """Convert `values` to an array of real numbers; raise `BadInput` for anything else.

    It is an array of JAX, or an array of NumPy that holds integers.
    """
    if not isinstance(values, jax.Array):
        values = arrays.plain(name, values)
        values = arrays.numbers(name, values) if values.dtype == object else values
        if values.dtype.kind in "cmMUSV" and not jnp.issubdtype(values.dtype, jnp.floating):
            # This raises `BadInput`. JAX's half precisions have the kind V too, but are allowed.
            arrays.numbers(name, values)
        if values.dtype.kind in "iu":  # `floating` converts them: JAX would wrap at 32 bits
            return values
        # JAX supports neither the other byte order nor more than double precision.
        values = values.astype(
            np.float64 if values.dtype.char == "g" else values.dtype.newbyteorder("=")
        )
        values = jnp.asarray(values)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise checks.BadInput(f"{name} must be real numbers; got {values.dtype}; give its parts.")
    return values


def boolean(mask: Any) -> Bools:
    """A mask of booleans, as in `jax.nn.dot_product_attention`.

    A mask of numbers raises `BadInput`, because it is ambiguous: 0 means "may be attended to" in an
    additive mask of 0 and −∞ (PyTorch), but "must not be attended to" in a mask of 1 and 0
    (tokenizers).
    """
    array = mask if isinstance(mask, jax.Array) else arrays.plain("mask", mask)
    if array.dtype != bool:
        raise checks.BadInput(
            f"mask must be boolean, true where a query may attend to a token; got {array.dtype}; "
            f"give mask == 0 for an additive mask of 0 and -inf, mask == 1 for one of 1 and 0."
        )
    return jnp.asarray(array)


def check_shapes(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> None:
    """Raise `BadInput` unless the shapes are (..., Lq, d), (..., L, d) and (..., L, dv).

    The leading dimensions must be the same.
    """
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
    """`array` with the rank of the logits, so that it broadcasts to them without rank promotion."""
    try:
        fits = np.broadcast_shapes(array.shape, logits) == logits
    except ValueError:
        fits = False
    if not fits:
        raise checks.BadInput(
            f"{name} must broadcast to (..., queries, tokens) = {logits}; got shape {array.shape}."
        )
    return array.reshape((1,) * (len(logits) - array.ndim) + array.shape)


def token_mask(mask: Any, key: tuple[int, ...]) -> Bools | None:
    """A mask that is the same for every query, as (..., L); accepts (L,) and (..., 1, L) too."""
    if mask is None:
        return None
    mask = boolean(mask)
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


def scale(name: str, value: Any, dim: int) -> float | Floats:
    """The temperature: √d if None; it must be one number, positive where its value is known."""
    if value is None:
        return math.sqrt(max(dim, 1))
    return single(name, positive(name, value))


def single(name: str, value: Any) -> Any:
    """Check that `value` is one number: an array would be broadcast along an axis by chance."""
    if np.ndim(value):
        raise checks.BadInput(f"{name} must be one number; got an array of {np.shape(value)}.")
    return value


def positive(name: str, value: Any) -> Any:
    """Check that a number or all numbers of an array are above zero; return them.

    A traced array is returned without a check, because its values are not known.
    """
    if isinstance(value, (int, float)):
        return checks.positive(name, value)
    if isinstance(value, jax.core.Tracer):
        return value
    values = arrays.numbers(name, value)
    if not (np.isfinite(values) & (values > 0)).all():
        raise checks.BadInput(f"{name} must be finite numbers above 0; got {values.tolist()!r:.60}")
    return value if isinstance(value, jax.Array) else jnp.asarray(values)
