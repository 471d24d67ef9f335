"""Count and draw parameters: every entry of a floating-point array of a model is a parameter."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def count(model: Any) -> int:
    """The number of parameters of one model.

    >>> from attnlens.networks import Baseline
    >>> count(Baseline(jax.random.key(0), features=3, hidden=4))
    16
    """
    # Arrays that have only shape and dtype (`jax.ShapeDtypeStruct`) count too.
    return sum(
        math.prod(leaf.shape)
        for leaf in jax.tree.leaves(model)
        if jnp.issubdtype(dtype_of(leaf), jnp.inexact)
    )


Shape = tuple[int, ...]


def normals(key: Key[Array, ""], *specifications: tuple[Shape, int]) -> list[Float[Array, ...]]:
    """Arrays for pairs (shape, inputs), with entries from N(0, 1/inputs).

    With this variance a layer keeps the scale of its inputs. The dtype is float64 where JAX has it
    enabled, float32 otherwise. All arrays come from one draw, because every call to the random
    generator has to be compiled separately.
    """
    sizes = [math.prod(shape) for shape, _ in specifications]
    draw, start, arrays = jax.random.normal(key, (sum(sizes),)), 0, []
    for size, (shape, inputs) in zip(sizes, specifications, strict=True):
        arrays.append(draw[start : start + size].reshape(shape) / math.sqrt(inputs))
        start += size
    return arrays


def dtype_of(leaf: Any) -> Any:
    return getattr(leaf, "dtype", int)
