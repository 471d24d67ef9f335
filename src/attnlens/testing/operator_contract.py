"""The contract of attention operators: shapes, precision, batches, order and masks of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .requirement import require

BATCH, QUERIES, LENGTH, DIM, VALUE_DIM = 2, 5, 7, 3, 2
ROUNDING = 1e-9  # tolerance for results of order 1 and condition numbers of up to 1e7


def check_operator(operator: Callable[..., Any]) -> None:
    """Check a function of (query, key, value) that also takes `mask`, of shape (..., 1, length).

    The result has the shape and precision of the inputs; members of a batch are independent; the
    order of tokens does not matter; a masked token counts as absent, whatever it holds; no tokens
    give zeros.

    >>> from attnlens import attention
    >>> check_operator(attention.softmax)
    >>> check_operator(lambda query, key, value, mask=None: query)
    Traceback (most recent call last):
    AssertionError: the output has the shape (..., queries, value_dim); got (2, 5, 3)
    """
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            out = jax.eval_shape(operator, *_inputs(dtype))
        shape = (BATCH, QUERIES, VALUE_DIM)
        sentence = f"the output has the shape (..., queries, value_dim); got {out.shape}"
        require(out.shape == shape, sentence)
        require(out.dtype == dtype, f"the output has the dtype of the inputs; got {out.dtype}")
    with jax.enable_x64(True):
        _check_tokens(operator)


def _check_tokens(operator: Callable[..., Any]) -> None:
    query, key, value = _inputs(jnp.float64)
    whole = operator(query, key, value)
    alone = operator(query[0], key[0], value[0])
    require(_close(whole[0], alone), "members of a batch are independent")
    order = np.array([3, 0, 6, 5, 1, 4, 2])
    moved = operator(query, key[:, order], value[:, order])
    require(_close(moved, whole), "the order of tokens does not matter")
    mask = np.array([[1, 1, 0, 1, 1, 0, 1]], bool)
    visible = np.flatnonzero(mask)
    hidden = jnp.asarray(~mask[0])[None, :, None]
    poisoned = (jnp.where(hidden, jnp.nan, x) for x in (key, value))
    masked = operator(query, *poisoned, mask=jnp.asarray(mask))
    shorter = operator(query, key[:, visible], value[:, visible])
    require(_close(masked, shorter), "a masked token counts as absent, whatever it holds")
    empty = operator(query, key[:, :0], value[:, :0])
    require(not np.any(empty), "no tokens give zeros")


def _inputs(dtype: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    shapes = ((BATCH, QUERIES, DIM), (BATCH, LENGTH, DIM), (BATCH, LENGTH, VALUE_DIM))
    generator = np.random.default_rng(0)
    query, key, value = (jnp.asarray(generator.standard_normal(s), dtype) for s in shapes)
    return query, key, value


def _close(left: Any, right: Any) -> bool:
    return np.allclose(left, right, rtol=0, atol=ROUNDING)
