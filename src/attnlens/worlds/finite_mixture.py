"""A latent class: z ∈ {1 … C} with prior π, shared by all tokens of an episode.

Tokens are normal around the class's mean, x ~ N(μ_z, σ² I), or one-hot draws from the class's
probabilities. In both cases the tokens enter only through the sums of their log-likelihoods:

    posterior    softmax_c( log π_c + Σ_ℓ log p(x_ℓ | c) )
    predictive   Σ_c P(c | X) p(x | c)
    evidence     logsumexp_c( log π_c + Σ_ℓ log p(x_ℓ | c) )

(Bishop, Pattern Recognition and Machine Learning, 2006, section 1.5). Sums are kept in the log
domain: at 10⁵ tokens every probability but one underflows, the log-odds do not. The term of the
normal log-likelihood that is the same for all classes, Σ‖x‖²/2σ², is not part of the odds. The
centre of the means is subtracted from x and μ first, so that the odds lose no digits far from the
origin.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import settings
from .base import Episode, ExactWorld, count_of, hide, sampled_risk
from .laws import LOG_2PI, Categorical, GaussianMixture
from .settings import Numbers


class ClassPosterior(eqx.Module):
    """P(class) as unnormalised logarithms; their differences are exact log-odds at any length."""

    log_weights: Float[Array, " classes"]

    @property
    def log_probs(self) -> Float[Array, " classes"]:
        return jax.nn.log_softmax(self.log_weights)

    @property
    def probs(self) -> Float[Array, " classes"]:
        return jax.nn.softmax(self.log_weights)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return jax.random.categorical(key, self.log_weights)

    def log_prob(self, latent: Int[Array, ""]) -> Float[Array, ""]:
        return self.log_probs[latent]

    def natural(self) -> Float[Array, " size"]:
        """Log-odds of every class but the last against the last."""
        return self.log_weights[:-1] - self.log_weights[-1:]


class FiniteMixture(ExactWorld):
    """A random class out of a few; tokens are drawn from the distribution of that class.

    Give `means`, one row per class, with `noise_std`; or `probabilities`, one row per class.

    >>> world = FiniteMixture(means=[[-1.0, 0.0], [1.0, 0.0]], noise_std=1.0)
    >>> episode = world.sample(jax.random.key(0), length=10)
    >>> world.posterior(episode.tokens).probs.shape
    (2,)
    """

    classes: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    weights: np.ndarray
    means: np.ndarray
    noise_std: float | None

    def __init__(
        self,
        *,
        means: Numbers | None = None,
        noise_std: float = 1.0,
        probabilities: Numbers | None = None,
        weights: Numbers | None = None,
    ):
        if (means is None) == (probabilities is None):
            raise checks.BadInput(
                "FiniteMixture needs either means=… (normal tokens) or probabilities=… (one-hot "
                "tokens), one row per class; got " + ("neither." if means is None else "both.")
            )
        if means is not None:
            self.means = settings.table("means", means)
            self.noise_std = checks.positive("noise_std", noise_std)
        if probabilities is not None:
            table = settings.table("probabilities", probabilities)
            self.means = settings.distribution("probabilities", table)
            self.noise_std = None
        self.classes, self.dim = self.means.shape
        equal = np.full(self.classes, 1 / self.classes)
        self.weights = settings.distribution("weights", equal if weights is None else weights)
        if self.weights.shape != (self.classes,):
            raise checks.BadInput(
                f"weights must be {self.classes} numbers, one per class; got shape "
                f"{self.weights.shape}."
            )

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_tokens = jax.random.split(key)
        latent = self.prior().sample(for_latent)
        row = jnp.asarray(self.means, jnp.result_type(float))[latent]
        if self.noise_std is None:
            drawn = jax.random.categorical(for_tokens, jnp.log(row), shape=(length,))
            return Episode(latent, jax.nn.one_hot(drawn, self.dim, dtype=row.dtype))
        noise = jax.random.normal(for_tokens, (length, self.dim))
        return Episode(latent, row[None, :] + self.noise_std * noise)

    def prior(self, dtype: Any = None) -> ClassPosterior:
        dtype = jnp.result_type(float) if dtype is None else dtype
        return ClassPosterior(jnp.log(jnp.asarray(self.weights, dtype)))

    def update(
        self,
        posterior: ClassPosterior,
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> ClassPosterior:
        return ClassPosterior(posterior.log_weights + self._scores(tokens, mask))

    def predictive(
        self, posterior: ClassPosterior, query: Any = None
    ) -> GaussianMixture | Categorical:
        """The law of the next token; `query` is not used."""
        log_probs = posterior.log_probs
        means = jnp.asarray(self.means, log_probs.dtype)
        if self.noise_std is None:
            return Categorical(logsumexp(log_probs[:, None] + jnp.log(means), axis=0))
        var = jnp.full((self.dim,), self.noise_std**2, log_probs.dtype)
        return GaussianMixture(log_probs, means, var)

    def uncertainty(self, posterior: ClassPosterior, query: Any = None) -> Float[Array, ""]:
        probs = posterior.probs
        means = jnp.asarray(self.means, probs.dtype)
        return probs @ jnp.sum((means - (probs @ means)[None, :]) ** 2, -1)

    def token_mean(self, latent: Int[Array, ""]) -> Float[Array, " dim"]:
        return jnp.asarray(self.means, jnp.result_type(float))[latent]

    def log_likelihood(
        self,
        latent: Int[Array, ""],
        tokens: Float[Array, "length dim"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        return self._scores(tokens, mask)[latent] + self._shared(tokens, mask)

    def log_evidence(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        return logsumexp(self.posterior(tokens, mask).log_weights) + self._shared(tokens, mask)

    def representation(
        self, tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """Log-odds of every class but the last against the last."""
        return self.posterior(tokens, mask).natural()

    def risk(self, length: int) -> Reading:
        """E Σ_c P(c | X)‖μ_c − E μ‖², averaged over episodes; there is no closed form."""
        return sampled_risk(self, length)

    def _scores(self, tokens: Array, mask: Array | None) -> Float[Array, " classes"]:
        """Σ_ℓ log p(x_ℓ | c), without the term that is the same for all classes (`_shared`)."""
        means = jnp.asarray(self.means, tokens.dtype)
        total = jnp.sum(hide(tokens - self._centre(tokens)[None, :], mask), 0)
        if self.noise_std is None:
            return jnp.log(means) @ total
        offsets = means - self._centre(tokens)[None, :]
        scaled = offsets / self.noise_std**2
        return scaled @ total - 0.5 * count_of(tokens, mask) * jnp.sum(scaled * offsets, -1)

    def _shared(self, tokens: Array, mask: Array | None) -> Float[Array, ""]:
        if self.noise_std is None:
            return jnp.zeros((), tokens.dtype)
        offsets = hide(tokens - self._centre(tokens)[None, :], mask) / self.noise_std
        density = self.dim * (jnp.log(self.noise_std) + 0.5 * LOG_2PI)
        return -0.5 * jnp.sum(offsets**2) - count_of(tokens, mask) * density

    def _centre(self, tokens: Array) -> Float[Array, " dim"]:
        """The mean of the class means; zero for one-hot tokens, which are counted, not centred."""
        if self.noise_std is None:
            return jnp.zeros(self.dim, tokens.dtype)
        return jnp.asarray(self.means.mean(0), tokens.dtype)
