"""A latent mean and a latent variance: σ² ~ Inv-χ²(ν, s²), μ | σ² ~ N(m, σ²/κ), x ~ N(μ, σ²).

This is the normal–inverse-gamma prior with shape a = ν/2 and scale b = ν s²/2. Degrees of freedom ν
and a typical variance s² are used as settings because their meaning and units are clear.
With n tokens of mean x̄ and scatter C = Σ(x − x̄)²

    κ' = κ + n,   ν' = ν + n,   m' = m + (n/κ')(x̄ − m),   ν's'² = νs² + C + (κ n/κ')(x̄ − m)²
    predictive    t_ν'(m', s'²(κ' + 1)/κ')
    evidence      log Γ(ν'/2)/Γ(ν/2) + ½ log κ/κ' + (ν/2) log νs² − (ν'/2) log ν's'² − (n/2) log π

(Gelman et al., Bayesian Data Analysis, third edition, 2013, section 3.3; Murphy, Conjugate
Bayesian analysis of the Gaussian distribution, 2007, section 3). Dimensions are independent.
Symbols: m is `mean`, κ is `count`, ν is `freedom`, s² is `noise_var`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import settings
from .base import Episode, ExactWorld, closed_form, hide, mean_and_scatter
from .laws import Gaussian, StudentT, log_rising
from .settings import Numbers


class MeanVar(NamedTuple):
    """A latent mean and a latent variance per dimension."""

    mean: Float[Array, " dim"]
    var: Float[Array, " dim"]


class NormalInverseGammaLaw(eqx.Module):
    """The joint law of (μ, σ²) in every dimension."""

    mean: Float[Array, " dim"]
    count: Float[Array, " dim"]
    freedom: Float[Array, " dim"]
    noise_var: Float[Array, " dim"]

    @property
    def expected_var(self) -> Float[Array, " dim"]:
        """E σ² = ν s²/(ν − 2), infinite where ν ≤ 2."""
        finite = self.freedom > 2
        excess = jnp.where(finite, self.freedom - 2, 1)
        return jnp.where(finite, self.freedom * self.noise_var / excess, jnp.inf)

    def sample(self, key: Key[Array, ""]) -> MeanVar:
        for_var, for_mean = jax.random.split(key)
        gamma = jax.random.gamma(for_var, self.freedom / 2, dtype=self.mean.dtype)
        var = self.freedom * self.noise_var / (2 * gamma)
        normal = jax.random.normal(for_mean, self.mean.shape, self.mean.dtype)
        return MeanVar(self.mean + jnp.sqrt(var / self.count) * normal, var)

    def log_prob(self, latent: MeanVar) -> Float[Array, ""]:
        half, scale = self.freedom / 2, self.freedom * self.noise_var / 2
        log_var = half * jnp.log(scale) - gammaln(half) - (half + 1) * jnp.log(latent.var)
        given_var = Gaussian(self.mean, latent.var / self.count).log_prob(latent.mean)
        return jnp.sum(log_var - scale / latent.var + given_var)

    def natural(self) -> Float[Array, " size"]:
        """The natural statistics (κ m, κ, ν, ν s² + κ m²) as one vector.

        Each of them equals its prior value plus a sum over tokens.
        """
        energy = self.freedom * self.noise_var + self.count * self.mean**2
        return jnp.concatenate([self.count * self.mean, self.count, self.freedom, energy])


class NormalInverseGamma(ExactWorld):
    """A random mean and a random variance; predictions are Student-t.

    >>> world = NormalInverseGamma(dim=1, freedom=6.0)
    >>> episode = world.sample(jax.random.key(0), length=10)
    >>> world.predict(episode.tokens).freedom.tolist()
    [16.0]
    """

    dim: int = eqx.field(static=True)
    prior_mean: np.ndarray
    prior_count: np.ndarray
    freedom: np.ndarray
    noise_var: np.ndarray

    def __init__(
        self,
        dim: int = 1,
        *,
        prior_mean: Numbers = 0.0,
        prior_count: Numbers = 1.0,
        freedom: Numbers = 6.0,
        noise_var: Numbers = 1.0,
    ):
        self.dim = checks.whole("dim", dim, at_least=1)
        self.prior_mean = settings.vector("prior_mean", prior_mean, dim)
        self.prior_count = settings.positives("prior_count", prior_count, dim)
        self.freedom = settings.positives("freedom", freedom, dim)
        self.noise_var = settings.positives("noise_var", noise_var, dim)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_noise = jax.random.split(key)
        latent = self.prior().sample(for_latent)
        noise = jax.random.normal(for_noise, (length, self.dim))
        return Episode(latent, latent.mean[None, :] + jnp.sqrt(latent.var)[None, :] * noise)

    def prior(self, dtype: Any = None) -> NormalInverseGammaLaw:
        dtype = jnp.result_type(float) if dtype is None else dtype
        fields = (self.prior_mean, self.prior_count, self.freedom, self.noise_var)
        return NormalInverseGammaLaw(*(jnp.asarray(field, dtype) for field in fields))

    def update(
        self,
        posterior: NormalInverseGammaLaw,
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> NormalInverseGammaLaw:
        count, mean, scatter = mean_and_scatter(hide(tokens, mask), mask)
        total, freedom = posterior.count + count, posterior.freedom + count
        shift = mean - posterior.mean
        moved = posterior.mean + (count / total) * shift
        between = posterior.count * (count / total) * shift**2
        energy = posterior.freedom * posterior.noise_var + scatter + between
        return NormalInverseGammaLaw(moved, total, freedom, energy / freedom)

    def predictive(self, posterior: NormalInverseGammaLaw, query: Any = None) -> StudentT:
        """The law of the next token; `query` is not used."""
        widened = posterior.noise_var * (1 + 1 / posterior.count)
        return StudentT(posterior.mean, widened, posterior.freedom)

    def uncertainty(self, posterior: NormalInverseGammaLaw, query: Any = None) -> Float[Array, ""]:
        return jnp.sum(posterior.expected_var / posterior.count)

    def token_mean(self, latent: MeanVar) -> Float[Array, " dim"]:
        return latent.mean

    def log_likelihood(
        self,
        latent: MeanVar,
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        shape = tokens.shape
        law = Gaussian(*(jnp.broadcast_to(part[None, :], shape) for part in latent))
        return jnp.sum(hide(law.log_prob(hide(tokens, mask)), mask))

    def log_evidence(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        before, after = self.prior(tokens.dtype), self.posterior(tokens, mask)
        count = after.freedom - before.freedom
        energy = before.freedom * before.noise_var
        # (ν/2) log νs² − (ν'/2) log ν's'², rewritten without cancellation of the two logarithms.
        grown = after.freedom * after.noise_var
        logs = -0.5 * before.freedom * jnp.log1p((grown - energy) / energy) - 0.5 * count * jnp.log(
            grown
        )
        gammas = log_rising(before.freedom / 2, count / 2)
        counts = -0.5 * jnp.log1p(count / before.count)
        return jnp.sum(gammas + counts + logs - 0.5 * count * math.log(math.pi))

    def representation(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """(κ m, κ, ν, ν s² + κ m²) of the posterior, in the symbols of the module's docstring."""
        return self.posterior(tokens, mask).natural()

    def risk(self, length: int) -> Reading:
        """E σ²/(κ + L) with L = `length`: the variance of μ given σ², averaged over σ²'s prior."""
        checks.whole("length", length)
        if (self.freedom <= 2).any():
            return closed_form(math.inf)
        expected = self.freedom * self.noise_var / (self.freedom - 2)
        return closed_form(np.sum(expected / (self.prior_count + length)))
