"""Latent weights: z ~ N(0, ω² I), and a token is a (key, value) pair of a noisy linear function.

    k uniform on the unit sphere of R^d,  v = ⟨z, k⟩ + N(0, σ²),  m(q, z) = ⟨z, q⟩

The posterior of z is normal with precision I/ω² + Σ k kᵀ/σ² and mean precision⁻¹ Σ k v/σ²
(Bishop, Pattern Recognition and Machine Learning, 2006, section 3.3).

At a fixed temperature τ softmax attention converges, not to m(q, z), but to the smoothed mean
E[v κ]/E[κ]. Keys on the sphere weighted by exp(q·k/τ) follow the von Mises–Fisher law with
concentration 1/τ, whose mean is A_d(1/τ) q with A_d(c) = I_{d/2}(c)/I_{d/2−1}(c) (Mardia and
Jupp, Directional Statistics, 2000, section 9.3), so the smoothed mean is A_d(1/τ)·⟨z, q⟩.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import scipy.special
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Key

from attnlens import checks

from .base import Episode, ExactWorld, Gaussian, Pairs, uniform_on_sphere


class WeightPosterior(eqx.Module):
    """N(mean, precision⁻¹), with the Cholesky root of the precision kept beside it."""

    mean: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]
    cholesky: Float[Array, "dim dim"]


class LinearRegression(ExactWorld):
    """A random linear function of keys on the sphere, read with noise.

    >>> world = LinearRegression(key_dim=3, noise_std=0.5)
    >>> episode = world.sample(jax.random.key(0), length=64, queries=5)
    >>> world.predict(episode.tokens, episode.query).mean.shape
    (5, 1)
    """

    key_dim: int = 3
    noise_std: float = 0.5
    prior_std: float = 1.0

    def __check_init__(self):
        checks.whole("key_dim", self.key_dim, at_least=2)
        checks.positive("noise_std", self.noise_std)
        checks.positive("prior_std", self.prior_std)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_points, for_noise = jax.random.split(key, 3)
        latent = self.prior_std * jax.random.normal(for_latent, (self.key_dim, 1))
        points = uniform_on_sphere(for_points, length + queries, self.key_dim)
        noise = self.noise_std * jax.random.normal(for_noise, (length, 1))
        tokens = Pairs(points[:length], points[:length] @ latent + noise)
        return Episode(latent[:, 0], tokens, points[length:], points[length:] @ latent)

    def posterior(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> WeightPosterior:
        key, value = tokens
        if mask is not None:
            key, value = jnp.where(mask[:, None], key, 0), jnp.where(mask[:, None], value, 0)
        prior = jnp.eye(self.key_dim, dtype=key.dtype) / self.prior_std**2
        precision = prior + key.T @ key / self.noise_std**2
        root = jnp.linalg.cholesky(precision)
        mean = cho_solve((root, True), key.T @ value[:, 0] / self.noise_std**2)
        return WeightPosterior(mean, precision, root)

    def predict(
        self,
        tokens: Pairs,
        query: Float[Array, "queries dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Gaussian:
        posterior = self.posterior(tokens, mask)
        half = solve_triangular(posterior.cholesky, query.T, lower=True)
        return Gaussian((query @ posterior.mean)[:, None], jnp.sum(half**2, 0)[:, None])

    def log_evidence(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log N(v; 0, ω² K Kᵀ + σ² I), by the determinant and Woodbury lemmas in d dimensions."""
        posterior = self.posterior(tokens, mask)
        keep = jnp.ones(tokens.value.shape[0], bool) if mask is None else mask
        value = jnp.where(keep, tokens.value[:, 0], 0)
        moment = posterior.precision @ posterior.mean
        fit = jnp.sum(value**2) / self.noise_std**2 - moment @ posterior.mean
        log_determinant = (
            2 * jnp.sum(jnp.log(jnp.diag(posterior.cholesky)))
            + 2 * self.key_dim * jnp.log(self.prior_std)
            + 2 * jnp.sum(keep) * jnp.log(self.noise_std)
        )
        return -0.5 * (fit + log_determinant + jnp.sum(keep) * jnp.log(2 * jnp.pi))

    def smoothing(self, temperature: float) -> float:
        """A_d(1/τ): what softmax attention multiplies m(q, z) by, however many tokens it sees."""
        c, d = 1 / checks.positive("temperature", temperature), self.key_dim
        # ive is I_ν(c)·e^(−c): the ratio is the same, and neither overflows at small τ.
        return float(scipy.special.ive(d / 2, c) / scipy.special.ive(d / 2 - 1, c))
