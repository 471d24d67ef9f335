"""The error of softmax attention with keys on a sphere: the two-term law, and exact moments.

Lens A (Zhang et al., 2022) states that attention approximates the conditional mean of the value
given the key; this module derives by how much (docs/theory.md, predictions 4, 5 and 7). Keys are
uniform on S^m, d = m + 1, values are v = f(k) + N(0, σ²), and w are the softmax weights of a query
q at temperature τ. With κ = exp((q·k − 1)/τ) and small τ, L τ^(m/2) large,

    bias      E_κ[f(k)] − f(q) ≈ (τ/2) Δf(q)              (Δ: Laplacian of the sphere)
    variance  E κ²[(f(k) − f(q))² + σ²] / (L (E κ)²) ≈ C (σ² + (τ/2)‖∇f(q)‖²) / (L τ^(m/2))

because κ² is the kernel of temperature τ/2, E κ ≈ (2πτ)^(m/2)/area(S^m), and so
C = area(S^m)/(4π)^(m/2). The mean squared error is therefore, over random f,

    MSE(τ) ≈ (b τ)² + C (σ² + s τ)/(L τ^(m/2)),   b² = E(Δf)²/4,   s = E‖∇f‖²/2.

s τ is the variance of the signal within the kernel. Two kinds of f:

    linear    f = ⟨z, k⟩, z ~ N(0, I):  Δf = −m f, ‖∇f‖² = ‖z‖² − f²      b = m/2, s = m/2
    process   covariance h(q·k) = exp((q·k − 1)/ω):  on a function of t = q·k alone
              Δh = (1 − t²)h″ − m t h′, so at t = 1: E‖∇f‖² = m h′ = m/ω and
              E(Δf)² = Δ²h = m[(m + 2)h″ + m h′] = m(m + 2)/ω² + m²/ω

Where σ² dominates s τ, the best temperature is τ = [m C σ²/(4 b² L)]^(2/(m+4)) and the error falls
as L^(−2/(m+4)). The two variances are equal on this schedule (linear f) at the noise

    σ×(L) = [(m/2)(C/(m L))^(2/(m+4))]^((m+4)/(2m+4)) ∝ L^(−1/(m+2)).

Moments. SM is linear in the values, so for linear f the expectation over z and noise given keys is
exact: E(SM − f(q))² = ‖Σ w k − q‖² + σ² Σ w², and around the smoothed mean A⟨z, q⟩ it is
‖Σ w k − A q‖² + σ² Σ w². Only the keys are left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from attnlens.attention.softmax import softmax
from attnlens.worlds import LinearRegression


def variance_constant(m: int) -> float:
    """The constant C = area(S^m)/(4π)^(m/2) of the variance."""
    area = 2 * math.pi ** ((m + 1) / 2) / math.gamma((m + 1) / 2)
    return area / (4 * math.pi) ** (m / 2)


def rate(m: int) -> float:
    """The slope −2/(m+4) in log L, both of log RMSE and of the log of the best temperature."""
    return -2 / (m + 4)


def schedule(m: int, length: int, noise_std: float) -> float:
    """The best temperature for linear f if the noise dominates, at this length."""
    return (noise_std**2 * variance_constant(m) / (m * length)) ** (2 / (m + 4))


def crossover(m: int, length: int) -> float:
    """σ×: the noise at which signal and noise have equal variance, if τ follows `schedule`."""
    factor = (m / 2) * (variance_constant(m) / (m * length)) ** (2 / (m + 4))
    return factor ** ((m + 4) / (2 * m + 4))


class Smoothness(NamedTuple):
    """b² = E(Δf)²/4 and s = E‖∇f‖²/2 of a random function f on the sphere."""

    squared_bias: float
    signal: float


def of_linear(m: int) -> Smoothness:
    return Smoothness(m**2 / 4, m / 2)


def of_process(m: int, temperature: float) -> Smoothness:
    curvature = m * (m + 2) / temperature**2 + m**2 / temperature
    return Smoothness(curvature / 4, m / temperature / 2)


def two_term_law(
    m: int, length: int, noise_std: float, temperature: float, smoothness: Smoothness
) -> float:
    """The mean squared error by the two-term law, (b τ)² + C (σ² + s τ)/(L τ^(m/2))."""
    inside = noise_std**2 + smoothness.signal * temperature
    variance = variance_constant(m) * inside / (length * temperature ** (m / 2))
    return smoothness.squared_bias * temperature**2 + variance


class KernelMoments(NamedTuple):
    """Moments of the softmax weights w, (episodes, temperatures): means over the queries q.

    to_mean      ‖Σ w k − q‖²
    to_smoothed  ‖Σ w k − A q‖², where A q is the limit of Σ w k at this temperature
    weight       Σ w²
    """

    to_mean: Any
    to_smoothed: Any
    weight: Any


def sphere_points(seeds: Sequence[int], m: int, *shape: int) -> np.ndarray:
    """Uniform points on S^m, an array (seeds, *shape, m + 1).

    Each seed has a generator of its own, which is also seeded by `shape`, so that episodes of
    different lengths are independent. NumPy draws the points, so that nothing is compiled per
    length.
    """
    generators = [np.random.default_rng([seed, m, *shape]) for seed in seeds]
    points = np.stack([generator.standard_normal((*shape, m + 1)) for generator in generators])
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def moments(
    seeds: Sequence[int],
    m: int,
    length: int,
    queries: int,
    temperatures: Sequence[float] | np.ndarray,
) -> KernelMoments:
    """Draw one episode per seed, and return its moments at every temperature."""
    world, points = LinearRegression(key_dim=m + 1), sphere_points(seeds, m, length + queries)
    token, query = jnp.asarray(points[:, :length]), jnp.asarray(points[:, length:])
    columns = [
        _moments(token, query, jnp.asarray(temperature), jnp.asarray(world.smoothing(temperature)))
        for temperature in map(float, temperatures)
    ]
    return KernelMoments(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


@jax.jit
def _moments(token: Array, query: Array, temperature: Array, smoothing: Array) -> KernelMoments:
    """One number per episode, computed one episode at a time."""

    def one(episode: tuple[Array, Array]) -> KernelMoments:
        token, query = episode
        mean = softmax(query, token, token, temperature=temperature)
        weights = jax.nn.softmax(query @ token.T / temperature)  # `softmax` does not return them
        return KernelMoments(
            jnp.mean(jnp.sum((mean - query) ** 2, -1)),
            jnp.mean(jnp.sum((mean - smoothing * query) ** 2, -1)),
            jnp.mean(jnp.sum(weights**2, -1)),
        )

    return jax.lax.map(one, (token, query))
