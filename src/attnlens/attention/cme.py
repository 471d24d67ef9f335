"""Conditional-mean-embedding attention: kernel ridge regression from keys to values.

    CME(q; K, V) = κ(q, K) (κ(K, K) + λ I)⁻¹ V

λ is the whole ridge, not λL. In a Gaussian-process world with covariance κ and noise variance λ
this *is* the exact posterior mean, and the posterior variance is
κ(q, q) − κ(q, K)(κ(K, K) + λ I)⁻¹ κ(K, q) (`worlds.gaussian_process`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

from attnlens import checks, kernels


class WithVariance(NamedTuple):
    """An estimate and its posterior variance."""

    mean: Float[Array, "*batch queries value_dim"]
    var: Float[Array, "*batch queries 1"]


def cme(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    ridge: float | Float[Array, ""],
    temperature: float | Float[Array, ""] | None = None,
    kernel: str = "rbf",
    mask: Bool[Array, "*batch length"] | None = None,
    variance: bool = False,
) -> Float[Array, "*batch queries value_dim"] | WithVariance:
    """Kernel ridge attention with a Cholesky solve; `temperature` defaults to √d.

    `mask` (true = may be attended to) is one row for all queries. With `variance=True` the
    posterior variance comes back beside the mean.

    >>> keys = jnp.eye(2)
    >>> value = jnp.array([[1.0], [3.0]])
    >>> cme(keys, keys, value, ridge=1.0, temperature=1.0, kernel="linear").round(2)
    Array([[0.5],
           [1.5]], dtype=float32)
    """
    kappa = kernels.KERNELS[checks.one_of("kernel", kernel, kernels.KERNELS)]
    scale = math.sqrt(query.shape[-1]) if temperature is None else temperature
    if mask is not None:
        # A masked token becomes one of its own: no covariance with any other, and value zero.
        key, value = jnp.where(mask[..., None], key, 0), jnp.where(mask[..., None], value, 0)
    gram, cross = kappa(key, key, scale), kappa(key, query, scale)
    if mask is not None:
        gram = jnp.where(mask[..., :, None] & mask[..., None, :], gram, 0)
        cross = jnp.where(mask[..., :, None], cross, 0)
    root = jnp.linalg.cholesky(gram + ridge * jnp.eye(key.shape[-2], dtype=key.dtype))
    mean = jnp.einsum("...lq,...ld->...qd", cross, cho_solve((root, True), value))
    if not variance:
        return mean
    half = solve_triangular(root, cross, lower=True)
    prior = jnp.diagonal(kappa(query, query, scale), axis1=-2, axis2=-1)
    return WithVariance(mean, jnp.maximum(prior - jnp.sum(half**2, -2), 0)[..., None])
