"""A latent function: z is a Gaussian process on the sphere, and a token reads it with noise.

    z ~ GP(0, κ_τ),  k uniform on the unit sphere of R^d,  v = z(k) + N(0, σ²)

With K = κ(keys, keys) + σ² I the posterior of z at a query q is normal with

    mean      κ(q, keys) K⁻¹ v
    variance  κ(q, q) − κ(q, keys) K⁻¹ κ(keys, q)
    evidence  log N(v; 0, K)

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1.)
Symbols: κ is `kernels.rbf`, τ is `temperature`, σ is `noise_std`, L is the number of tokens.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Key

from attnlens import checks, kernels

from .base import Episode, ExactWorld, Gaussian, Pairs, uniform_on_sphere

# Added to the diagonal when functions are *sampled*, never when they are inferred. The sampled
# function's law is then that of κ + JITTER·I: its variance is off by this share of the prior's.
JITTER = {"float64": 1e-10, "float32": 1e-5}


class FunctionPosterior(eqx.Module):
    """The law of the latent function given tokens; call it at any query."""

    key: Float[Array, "length dim"]
    cholesky: Float[Array, "length length"]
    weights: Float[Array, "length value_dim"]
    mask: Bool[Array, " length"]
    temperature: float

    def __call__(self, query: Float[Array, "queries dim"]) -> Gaussian:
        cross = jnp.where(self.mask[:, None], kernels.rbf(self.key, query, self.temperature), 0)
        half = solve_triangular(self.cholesky, cross, lower=True)
        var = 1 - jnp.sum(half**2, 0)
        return Gaussian(cross.T @ self.weights, jnp.maximum(var, 0)[:, None])


class GaussianProcess(ExactWorld):
    """A random smooth function on the sphere, read with noise.

    >>> world = GaussianProcess(key_dim=3, temperature=0.5, noise_std=0.3)
    >>> episode = world.sample(jax.random.key(0), length=64, queries=5)
    >>> world.predict(episode.tokens, episode.query).mean.shape
    (5, 1)
    """

    key_dim: int = 3
    temperature: float = 0.5
    noise_std: float = 0.3

    def __check_init__(self):
        checks.whole("key_dim", self.key_dim, at_least=2)
        checks.positive("temperature", self.temperature)
        checks.positive("noise_std", self.noise_std)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_points, for_function, for_noise = jax.random.split(key, 3)
        points = uniform_on_sphere(for_points, length + queries, self.key_dim)
        jitter = JITTER[points.dtype.name] * jnp.eye(length + queries, dtype=points.dtype)
        root = jnp.linalg.cholesky(kernels.rbf(points, points, self.temperature) + jitter)
        function = root @ jax.random.normal(for_function, (length + queries, 1))
        noise = self.noise_std * jax.random.normal(for_noise, (length, 1))
        tokens = Pairs(points[:length], function[:length] + noise)
        return Episode(function[:length], tokens, points[length:], function[length:])

    def posterior(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> FunctionPosterior:
        key, value, mask = *tokens, _all(tokens) if mask is None else mask
        # A masked token becomes one of its own: no covariance with any other, value zero.
        both = mask[:, None] & mask[None, :]
        covariance = jnp.where(both, kernels.rbf(key, key, self.temperature), 0)
        diagonal = jnp.where(mask, self.noise_std**2, 1)
        root = jnp.linalg.cholesky(covariance + jnp.diag(diagonal))
        weights = cho_solve((root, True), jnp.where(mask[:, None], value, 0))
        return FunctionPosterior(key, root, weights, mask, self.temperature)

    def predict(
        self,
        tokens: Pairs,
        query: Float[Array, "queries dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Gaussian:
        return self.posterior(tokens, mask)(query)

    def log_evidence(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        posterior = self.posterior(tokens, mask)
        value = jnp.where(posterior.mask[:, None], tokens.value, 0)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(posterior.cholesky)))
        count = jnp.sum(posterior.mask)
        fit = jnp.sum(value * posterior.weights)
        return -0.5 * (fit + log_determinant + count * jnp.log(2 * jnp.pi))


def _all(tokens: Pairs) -> Bool[Array, " length"]:
    return jnp.ones(tokens.key.shape[-2], bool)
