"""Normalised kernel attention: Nadaraya–Watson regression from keys to values.

    KA(q; K, V) = Σ_ℓ κ(q, k_ℓ) v_ℓ / Σ_ℓ κ(q, k_ℓ)

κ is any kernel that is never negative (`kernels.LOG_PROFILES`). With keys on a sphere the RBF
kernel gives softmax attention exactly, since exp(−‖q − k‖²/2τ) ∝ exp(q·k/τ) there. The weights
are computed from log κ: a query far from every key attends to the nearest key, not to 0/0.
(Nadaraya, 1964; Watson, 1964; Tsai et al., Transformer dissection, 2019.)
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attnlens.core import checks, kernels

from . import inputs
from .normalised import Score, normalised


def kernel(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    kernel: str = "rbf",
    temperature: float | Float[Array, ""] | None = None,
    mask: Bool[Array, ...] | None = None,
    bias: Float[Array, ...] | None = None,
    method: str = "auto",
) -> Float[Array, "*batch queries value_dim"]:
    """Normalised kernel attention; `temperature` τ (a squared length scale) defaults to √d.

    `kernel` is "rbf", "laplace", "matern32", "matern52" or "polynomial". `mask`, `bias` (added to
    log κ) and `method` are as in `softmax`.

    >>> points = jnp.array([[0.0], [1.0]])
    >>> kernel(points[:1], points, jnp.array([[1.0], [3.0]]), temperature=1e-3)
    Array([[1.]], dtype=float32)
    """
    checks.one_of("kernel", kernel, kernels.LOG_PROFILES)
    ready = inputs.prepare(query, key, value, mask, bias)
    scale = inputs.scale("temperature", temperature, ready.query.shape[-1])
    query, key = ready.query, ready.key
    if kernel == "polynomial":
        query = query / scale
    else:
        # Every other kernel is a function of ‖q − k‖²/τ. The centre is subtracted once, for all
        # tiles: distances do not change, and ‖q‖² + ‖k‖² − 2 q·k then cancels less.
        centre = jnp.mean(key, -2, keepdims=True) if key.shape[-2] else 0
        query, key = (query - centre) / scale**0.5, (key - centre) / scale**0.5
    if kernel == "rbf":
        # −‖q − k‖²/2 = q·k − ‖k‖²/2 − ‖q‖²/2, and the last term is the same for all keys of a
        # query. So this is softmax attention with one more feature.
        query = jnp.concatenate([query, jnp.ones_like(query[..., :1])], -1)
        key = jnp.concatenate([key, -0.5 * jnp.sum(key**2, -1, keepdims=True)], -1)
    ready = ready._replace(query=query, key=key)
    return ready.finish(normalised(_score(kernel), ready, method))


@cache  # returns the same function object, because JAX compiles again for every new one
def _score(name: str) -> Score:
    if name == "rbf":
        return kernels.products
    profile = kernels.LOG_PROFILES[name]
    pairs = kernels.products if name == "polynomial" else kernels.squared_distances_about_zero
    return lambda query, key: profile(pairs(query, key))
