"""`Layout`: converts a network's parameters to one vector and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from .dense import Gated
from .parameters import dtype_of


class Layout(NamedTuple):
    """The conversion of a network's parameters to one vector (`flatten`) and back (`restore`).

    The first `gates` entries of the vector are input gates (`Gated`), which have a penalty of their
    own.
    """

    size: int
    gates: int
    flatten: Callable[[Any], Float[Array, " size"]]
    restore: Callable[[Any], Any]

    @classmethod
    def of(cls, make: Callable[[Key[Array, ""]], Any]) -> Layout:
        """The layout of the network that `make` returns; only shapes are computed."""
        skeleton = eqx.filter_eval_shape(make, jax.eval_shape(jax.random.key, 0))
        leaves, tree = jax.tree.flatten(skeleton)
        if not leaves or not all(jnp.issubdtype(dtype_of(leaf), jnp.inexact) for leaf in leaves):
            raise checks.BadInput(
                f"a network's arrays must all hold floating-point parameters; "
                f"{type(skeleton).__name__} has others; mark those as static fields."
            )
        sizes = [math.prod(leaf.shape) for leaf in leaves]

        def flatten(model: Any) -> Array:
            return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(model)])

        def restore(vector: Any) -> Any:  # a NumPy vector gives NumPy arrays
            arrays, start = [], 0
            for size, leaf in zip(sizes, leaves, strict=True):
                arrays.append(vector[start : start + size].reshape(leaf.shape))
                start += size
            return jax.tree.unflatten(tree, arrays)

        gates = math.prod(skeleton.gates.shape) if isinstance(skeleton, Gated) else 0
        return cls(sum(sizes), gates, flatten, restore)
