"""Random Fourier features: a finite feature map whose inner product approximates the RBF kernel.

    φ(k) = √(2/D) cos(W k + b),   W ~ N(0, I/τ),  b ~ U(0, 2π),   E φ(q)·φ(k) = exp(−‖q − k‖²/2τ)

(Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007). With them
`LinearRegression` is a finite-dimensional approximation of a Gaussian process: its statistics have
size D(D + 1)/2 + D for every number of tokens.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attnlens.core import checks


class RandomFeatures(eqx.Module):
    """A fixed random feature map, the same for every episode of a world.

    >>> features = RandomFeatures(key_dim=3, count=64, temperature=0.5)
    >>> features(jnp.ones((5, 3))).shape
    (5, 64)
    """

    key_dim: int = eqx.field(static=True)
    count: int = eqx.field(static=True)
    frequencies: np.ndarray
    phases: np.ndarray

    def __init__(self, key_dim: int, count: int, temperature: float = 1.0, seed: int = 0):
        self.key_dim = checks.whole("key_dim", key_dim, at_least=1)
        self.count = checks.whole("count", count, at_least=1)
        scale = 1 / math.sqrt(checks.positive("temperature", temperature))
        draws = np.random.default_rng(checks.seed_number("seed", seed))
        self.frequencies = scale * draws.standard_normal((key_dim, count))
        self.phases = draws.uniform(0, 2 * math.pi, count)

    def __call__(self, key: Float[Array, "length key_dim"]) -> Float[Array, "length count"]:
        frequencies = jnp.asarray(self.frequencies, key.dtype)
        phases = jnp.asarray(self.phases, key.dtype)
        return math.sqrt(2 / self.count) * jnp.cos(key @ frequencies + phases[None, :])
