"""Networks with chosen parameters, for examples computed by hand."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)


def blank(kind, **settings):
    """A model in which all arrays are zero. No random numbers are drawn, so nothing is compiled."""
    shapes = eqx.filter_eval_shape(lambda key: kind(key, **settings), KEY)
    return jax.tree.map(
        lambda leaf: jnp.asarray(np.zeros(leaf.shape)) if hasattr(leaf, "shape") else leaf, shapes
    )


def put(model, **values):
    """`model` with some of its arrays replaced."""
    for name, value in values.items():
        model = eqx.tree_at(lambda m: getattr(m, name), model, jnp.asarray(value, float))  # noqa: B023 (called before the loop goes on)
    return model
