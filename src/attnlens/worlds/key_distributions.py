"""Distributions of the keys of tokens and of queries.

sphere   uniform on the unit sphere of R^d
box      uniform on [−1, 1]^d; with d = 2, the plane
normal   N(0, Σ), given by a symmetric root of Σ, which may be singular
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

NAMES = ("sphere", "box")  # the distributions that need no further settings


def draw(
    name: str, key: Key[Array, ""], count: int, dim: int, root: np.ndarray | Array | None = None
) -> Float[Array, "count dim"]:
    """`count` points from the named distribution; "normal" needs the `root` of its covariance."""
    if name == "normal":
        points = jax.random.normal(key, (count, dim))
        return points @ jnp.asarray(root, points.dtype)
    if name == "box":
        return jax.random.uniform(key, (count, dim), minval=-1.0, maxval=1.0)
    points = jax.random.normal(key, (count, dim))
    return points / jnp.linalg.norm(points, axis=-1, keepdims=True)
