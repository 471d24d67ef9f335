"""What counts as a parameter: every floating-point array of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens import checks


def count(model: Any) -> int:
    """The number of parameters of one model.

    >>> from attnlens.networks import Baseline
    >>> count(Baseline(jax.random.key(0), features=3, hidden=4))
    16
    """

    # Shapes without contents count too.
    leaves = (leaf for leaf in jax.tree.leaves(model) if jnp.issubdtype(_type(leaf), jnp.inexact))
    return sum(math.prod(leaf.shape) for leaf in leaves)


Shape = tuple[int, ...]


def normals(key: Key[Array, ""], *wanted: tuple[Shape, int]) -> list[Float[Array, ...]]:
    """Arrays of the wanted shapes, entries from N(0, 1/inputs): scale one goes in and comes out.

    float64 where JAX has it enabled, float32 otherwise. All come from one draw: every call to
    the random generator has to be compiled anew.
    """
    sizes = [math.prod(shape) for shape, _ in wanted]
    draw, start, arrays = jax.random.normal(key, (sum(sizes),)), 0, []
    for size, (shape, inputs) in zip(sizes, wanted, strict=True):
        arrays.append(draw[start : start + size].reshape(shape) / math.sqrt(inputs))
        start += size
    return arrays


class Layout(NamedTuple):
    """A network's parameters as one vector, and back.

    The first `gates` entries are input gates (`Gated`), which have a penalty of their own.
    """

    size: int
    gates: int
    flatten: Callable[[Any], Float[Array, " size"]]
    restore: Callable[[Any], Any]

    @classmethod
    def of(cls, make: Callable[[Key[Array, ""]], Any]) -> Layout:
        """The layout of what `make` returns; nothing is computed."""
        from .dense import Gated

        skeleton = eqx.filter_eval_shape(make, jax.eval_shape(jax.random.key, 0))
        leaves, tree = jax.tree.flatten(skeleton)
        if not leaves or not all(jnp.issubdtype(_type(leaf), jnp.inexact) for leaf in leaves):
            raise checks.BadInput(
                f"a network's arrays must all hold floating-point parameters, but "
                f"{type(skeleton).__name__} has others; mark those as static fields."
            )
        sizes = [math.prod(leaf.shape) for leaf in leaves]

        def flatten(model: Any) -> Array:
            return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(model)])

        def restore(vector: Any) -> Any:  # NumPy's arrays stay NumPy's
            arrays, start = [], 0
            for size, leaf in zip(sizes, leaves, strict=True):
                arrays.append(vector[start : start + size].reshape(leaf.shape))
                start += size
            return jax.tree.unflatten(tree, arrays)

        gates = math.prod(skeleton.gates.shape) if isinstance(skeleton, Gated) else 0
        return cls(sum(sizes), gates, flatten, restore)


def _type(leaf: Any) -> Any:
    return getattr(leaf, "dtype", int)
