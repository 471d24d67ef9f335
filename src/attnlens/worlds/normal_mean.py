"""A latent mean: z ~ N(m₀, P), and a token is x ~ N(z, S).

Both covariances are diagonalised together, when the world is created: with S = C Cᵀ and the
eigenvalues d and eigenvectors U of C⁻¹ P C⁻ᵀ, the map y = Uᵀ C⁻¹ (x − m₀) turns the noise into N(0,
I) and the prior into N(0, diag d). The coordinates are then independent, and after n tokens with
mean ȳ

    posterior    v_n = d/(1 + n d),   m_n = n d ȳ/(1 + n d)
    predictive   N(m_n, 1 + v_n)
    evidence     −½ [ Σ(y − ȳ)² + n ȳ²/(1 + n d) + log(1 + n d) + n log 2π ] − n log |det C|

in each coordinate (Bishop, Pattern Recognition and Machine Learning, 2006, section 2.3.3; Golub
and Van Loan, Matrix Computations, 2013, section 8.7 for the joint diagonalisation). No
factorisation is needed later, no nearly equal numbers are subtracted, and n may be 10⁵.
Symbols: the basis C U is `basis`, its inverse `inverse`, d is `ratio`.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import settings
from .base import Episode, ExactWorld, closed_form, count_of, hide, mean_and_scatter
from .laws import LOG_2PI, MultivariateGaussian
from .settings import Numbers


class NormalMean(ExactWorld):
    """A random mean; tokens add normal noise.

    Scales are standard deviations, one for all dimensions or one per dimension; for full matrices
    use `noise_covariance` and `prior_covariance` instead.

    >>> world = NormalMean(dim=2, noise_std=0.5)
    >>> episode = world.sample(jax.random.key(0), length=10)
    >>> world.posterior(episode.tokens).mean.shape
    (2,)
    """

    dim: int = eqx.field(static=True)
    prior_mean: np.ndarray
    basis: np.ndarray
    inverse: np.ndarray
    ratio: np.ndarray
    log_volume: np.ndarray | np.floating

    def __init__(
        self,
        dim: int = 1,
        noise_std: Numbers = 1.0,
        prior_std: Numbers = 1.0,
        *,
        noise_covariance: Numbers | None = None,
        prior_covariance: Numbers | None = None,
        prior_mean: Numbers = 0.0,
    ):
        self.dim = checks.whole("dim", dim, at_least=1)
        self.prior_mean = settings.vector("prior_mean", prior_mean, dim)
        noise = settings.positives("noise_std", noise_std, dim)
        prior = settings.positives("prior_std", prior_std, dim)
        if noise_covariance is None and prior_covariance is None:
            self.basis, self.inverse = np.diag(noise), np.diag(1 / noise)
            self.ratio = (prior / noise) ** 2
            self.log_volume = np.sum(np.log(noise))
            return
        root = np.diag(noise)
        if noise_covariance is not None:
            full = settings.covariance("noise_covariance", noise_covariance, dim)
            root = np.linalg.cholesky(full)
        half = np.linalg.solve(root, np.diag(prior))
        if prior_covariance is not None:
            full = settings.covariance("prior_covariance", prior_covariance, dim)
            half = np.linalg.solve(root, np.linalg.cholesky(full))
        # The singular values of C⁻¹ P^½ are √d. Small ones are accurate, unlike small eigenvalues
        # of the product C⁻¹ P C⁻ᵀ.
        directions, singular, _ = np.linalg.svd(half)
        self.ratio = singular**2
        self.basis = root @ directions
        self.inverse = np.linalg.solve(root.T, directions).T
        self.log_volume = np.sum(np.log(np.diag(root)))

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_noise = jax.random.split(key)
        latent = self.prior().sample(for_latent)
        noise = jax.random.normal(for_noise, (length, self.dim))
        basis = jnp.asarray(self.basis, latent.dtype)
        return Episode(latent, latent[None, :] + noise @ basis.T)

    def prior(self, dtype: Any = None) -> MultivariateGaussian:
        mean, ratio = self._cast(dtype, self.prior_mean, self.ratio)
        return self._law(mean, ratio)

    def update(
        self,
        posterior: MultivariateGaussian,
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> MultivariateGaussian:
        count, mean, _ = mean_and_scatter(hide(tokens, mask), mask)
        # In each coordinate the mean moves towards the mean of the tokens by the share
        # n v/(1 + n v) of their distance.
        share = count * posterior.spread
        step = posterior.inverse @ (mean - posterior.mean)
        moved = posterior.mean + posterior.basis @ (step * share / (1 + share))
        return self._law(moved, posterior.spread / (1 + share))

    def predictive(
        self, posterior: MultivariateGaussian, query: Any = None
    ) -> MultivariateGaussian:
        """The law of the next token; `query` is not used."""
        return self._law(posterior.mean, posterior.spread + 1)

    def uncertainty(self, posterior: MultivariateGaussian, query: Any = None) -> Float[Array, ""]:
        return jnp.sum(posterior.var)

    def token_mean(self, latent: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return latent

    def log_likelihood(
        self,
        latent: Float[Array, " dim"],
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        (inverse,) = self._cast(tokens.dtype, self.inverse)
        whitened = hide((tokens - latent[None, :]) @ inverse.T, mask)
        return -0.5 * jnp.sum(whitened**2) + count_of(tokens, mask) * self._log_density(tokens)

    def log_evidence(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        shift, inverse, ratio = self._cast(tokens.dtype, self.prior_mean, self.inverse, self.ratio)
        whitened = (hide(tokens, mask) - shift[None, :]) @ inverse.T
        count, mean, scatter = mean_and_scatter(whitened, mask)
        growth = count * ratio
        fit = jnp.sum(scatter + count * mean**2 / (1 + growth) + jnp.log1p(growth))
        return -0.5 * fit + count * self._log_density(tokens)

    def representation(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """(Λ m, lower triangle of Λ) with the posterior's mean m and precision Λ."""
        return self.posterior(tokens, mask).natural()

    def risk(self, length: int) -> Reading:
        """The trace of the posterior covariance, which depends only on the number of tokens."""
        spread = self.ratio / (1 + checks.whole("length", length) * self.ratio)
        return closed_form(np.sum(self.basis**2 @ spread))

    def _law(
        self, mean: Float[Array, " dim"], spread: Float[Array, " dim"]
    ) -> MultivariateGaussian:
        basis = self._cast(mean.dtype, self.basis, self.inverse, self.log_volume)
        return MultivariateGaussian(mean, spread, *basis)

    def _log_density(self, tokens: Array) -> Float[Array, ""]:
        """The log density of the noise at its mode."""
        (volume,) = self._cast(tokens.dtype, self.log_volume)
        return -volume - 0.5 * self.dim * LOG_2PI

    def _cast(self, dtype: Any, *arrays: Any) -> list[Array]:
        dtype = jnp.result_type(float) if dtype is None else dtype
        return [jnp.asarray(array, dtype) for array in arrays]
