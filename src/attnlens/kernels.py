"""Kernels κ(q, k), shared by the worlds (as covariances) and by attention (as weights).

With r = ‖q − k‖ and temperature τ (a squared length scale):

    rbf         exp(−r² / 2τ);  on the unit sphere this is exp((q·k − 1)/τ)
    laplace     exp(−r/√τ)                                  (Matérn with smoothness 1/2)
    matern32    (1 + s) exp(−s),          s = √3 r/√τ
    matern52    (1 + s + s²/3) exp(−s),   s = √5 r/√τ
    linear      q·k / τ
    polynomial  (1 + q·k/τ)²              (even degree: never negative)
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

Matrix = Float[Array, "*batch queries length"]
Queries = Float[Array, "*batch queries dim"]
Keys = Float[Array, "*batch length dim"]
Temperature = float | Float[Array, ""]


def products(query: Queries, key: Keys) -> Matrix:
    """q·k for every pair."""
    return jnp.einsum("...qd,...ld->...ql", query, key)


def squared_distances(query: Queries, key: Keys) -> Matrix:
    """‖q − k‖² for every pair, never below zero."""
    # The centre is taken off first: ‖q‖² + ‖k‖² − 2 q·k cancels badly far from the origin.
    centre = key.mean(-2, keepdims=True) if key.shape[-2] else jnp.zeros_like(query[..., :1, :])
    query, key = query - centre, key - centre
    norms = jnp.sum(query**2, -1)[..., :, None] + jnp.sum(key**2, -1)[..., None, :]
    return jnp.maximum(norms - 2 * products(query, key), 0)


def distances(query: Queries, key: Keys) -> Matrix:
    """‖q − k‖ for every pair, with gradient zero (not NaN) where the two coincide."""
    squared = squared_distances(query, key)
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)


def rbf(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return jnp.exp(-squared_distances(query, key) / (2 * temperature))


def laplace(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return jnp.exp(-distances(query, key) / temperature**0.5)


def matern32(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    s = distances(query, key) * (3 / temperature) ** 0.5
    return (1 + s) * jnp.exp(-s)


def matern52(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    s = distances(query, key) * (5 / temperature) ** 0.5
    return (1 + s + s**2 / 3) * jnp.exp(-s)


def linear(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return products(query, key) / temperature


def polynomial(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return (1 + products(query, key) / temperature) ** 2


Kernel = Callable[[Queries, Keys, Temperature], Matrix]
KERNELS: dict[str, Kernel] = {
    "rbf": rbf,
    "laplace": laplace,
    "matern32": matern32,
    "matern52": matern52,
    "linear": linear,
    "polynomial": polynomial,
}
