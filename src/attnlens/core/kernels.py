"""Covariance functions (kernels) κ(q, k), which worlds use as covariances, attention as weights.

With r = ‖q − k‖ and temperature τ (a squared length scale):

    rbf         exp(−r² / 2τ);  on the unit sphere this is exp((q·k − 1)/τ)
    laplace     exp(−r/√τ)                                  (Matérn with smoothness 1/2)
    matern32    (1 + s) exp(−s),          s = √3 r/√τ
    matern52    (1 + s + s²/3) exp(−s),   s = √5 r/√τ
    linear      q·k / τ
    polynomial  (1 + q·k/τ)²              (even degree: never negative)

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 4.2.)

The Matérn kernels are written as profiles g(u) of u = s², with explicit derivatives: √u has no
derivative at 0, but g has one, and automatic differentiation of the formula above would lose it
where a query equals a key (in self-attention, at every token). With s = √u

    g32(u) = (1 + s) e⁻ˢ,         g32′(u) = −e⁻ˢ/2
    g52(u) = (1 + s + u/3) e⁻ˢ,   g52′(u) = −g32(u)/6

The Laplace kernel has no derivative where a query equals a key; it is defined as 0 there.

`LOG_PROFILES` has log κ for the kernels that are never negative. Attention computes its normalised
weights from log κ: far from every key κ underflows, but the ratio of two values of κ does not.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Matrix = Float[Array, "*batch queries length"]
Queries = Float[Array, "*batch queries dim"]
Keys = Float[Array, "*batch length dim"]
Temperature = float | Float[Array, ""]
Profile = Float[Array, "*shape"]


def products(query: Queries, key: Keys) -> Matrix:
    """q·k for every pair of a query and a key."""
    return jnp.einsum("...qd,...ld->...ql", query, key)


def squared_distances(query: Queries, key: Keys) -> Matrix:
    """‖q − k‖² for every pair of a query and a key, never below zero."""
    # The centre is subtracted first: far from the origin ‖q‖² + ‖k‖² − 2 q·k cancels badly.
    centre = key.mean(-2, keepdims=True) if key.shape[-2] else jnp.zeros_like(query[..., :1, :])
    return squared_distances_about_zero(query - centre, key - centre)


def squared_distances_about_zero(query: Queries, key: Keys) -> Matrix:
    """‖q − k‖² for centred points; the rounding error is about ε(‖q‖² + ‖k‖²)."""
    norms = jnp.sum(query**2, -1)[..., :, None] + jnp.sum(key**2, -1)[..., None, :]
    squared = norms - 2 * products(query, key)
    # Only the value is clipped, not the derivative: in JAX the derivative of max(x, 0) at x = 0
    # is ½, and x is 0 (or slightly below 0, by rounding) where a query equals a key.
    return squared + jax.lax.stop_gradient(jnp.maximum(squared, 0) - squared)


def distances(query: Queries, key: Keys) -> Matrix:
    """‖q − k‖ for every pair, with gradient zero (not NaN) where a query equals a key."""
    return root(squared_distances(query, key))


def root(u: Profile) -> Profile:
    """√u, with derivative zero (not infinity) at u = 0; NaN stays NaN."""
    apart = ~(u <= 0)
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, u, 1)), 0)


@jax.custom_jvp
def _g32(u: Profile) -> Profile:
    s = root(u)
    return (1 + s) * jnp.exp(-s)


@jax.custom_jvp
def _g52(u: Profile) -> Profile:
    s = root(u)
    return (1 + s + u / 3) * jnp.exp(-s)


@jax.custom_jvp
def _log_g32(u: Profile) -> Profile:
    s = root(u)
    return jnp.log1p(s) - s


@jax.custom_jvp
def _log_g52(u: Profile) -> Profile:
    s = root(u)
    return jnp.log1p(s + u / 3) - s


_g32.defjvps(lambda du, _, u: -0.5 * jnp.exp(-root(u)) * du)
_g52.defjvps(lambda du, _, u: -_g32(u) / 6 * du)
_log_g32.defjvps(lambda du, _, u: -0.5 / (1 + root(u)) * du)
_log_g52.defjvps(lambda du, _, u: -(1 + root(u)) / (6 + 6 * root(u) + 2 * u) * du)


def rbf(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return jnp.exp(-squared_distances(query, key) / (2 * temperature))


def laplace(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return jnp.exp(-distances(query, key) / temperature**0.5)


def matern32(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return _g32(squared_distances(query, key) * (3 / temperature))


def matern52(query: Queries, key: Keys, temperature: Temperature) -> Matrix:
    return _g52(squared_distances(query, key) * (5 / temperature))


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


def _log_square(u: Profile) -> Profile:
    """log (1 + u)², which is −∞ (with derivative zero) where 1 + u = 0."""
    base = jnp.abs(1 + u)
    apart = base != 0  # true for NaN, which stays NaN
    return jnp.where(apart, 2 * jnp.log(jnp.where(apart, base, 1)), -jnp.inf)


# log κ as a function of u = r²/τ, or of u = q·k/τ for the polynomial kernel.
LOG_PROFILES: dict[str, Callable[[Profile], Profile]] = {
    "rbf": lambda u: -u / 2,
    "laplace": lambda u: -root(u),
    "matern32": lambda u: _log_g32(3 * u),
    "matern52": lambda u: _log_g52(5 * u),
    "polynomial": _log_square,
}
