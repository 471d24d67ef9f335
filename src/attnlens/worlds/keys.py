"""Where keys and queries come from.

sphere   uniform on the unit sphere of R^d
box      uniform on [−1, 1]^d; with d = 2, the plane
normal   N(0, Σ), given by a symmetric root of Σ; singular ones included
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

LAWS = ("sphere", "box")


def draw(
    law: str, key: Key[Array, ""], count: int, dim: int, root: np.ndarray | Array | None = None
) -> Float[Array, "count dim"]:
    """`count` points from the named law; "normal" needs the `root` of its covariance."""
    if law == "normal":
        points = jax.random.normal(key, (count, dim))
        return points @ jnp.asarray(root, points.dtype)
    if law == "box":
        return jax.random.uniform(key, (count, dim), minval=-1.0, maxval=1.0)
    points = jax.random.normal(key, (count, dim))
    return points / jnp.linalg.norm(points, axis=-1, keepdims=True)
