"""Latent probabilities: θ ~ Dirichlet(α), and a token is a one-hot draw from them.

With counts n_c, n = Σ n_c and A = Σ α_c

    posterior    Dirichlet(α + n_c)
    predictive   (α_c + n_c)/(A + n)
    evidence     Σ_c log (α_c)_{n_c} − log (A)_n,   (a)_n = Γ(a + n)/Γ(a), of the *sequence*
    risk         E Σ_c Var(θ_c | X) = (1 − Σ μ_c²) A / ((A + 1)(A + L)),   μ = α/A

(Murphy, Machine Learning: a Probabilistic Perspective, 2012, section 3.4). The risk follows from
Var(θ_c | X) = m_c(1 − m_c)/(A + L + 1) with m the posterior mean, and the law of total variance
E m_c² = μ_c² + Var θ_c − E Var(θ_c | X), solved for the last term.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import settings
from .base import Episode, ExactWorld, closed_form, hide
from .laws import Categorical, log_rising
from .settings import Numbers


class DirichletLaw(eqx.Module):
    """The law Dirichlet(concentration) of a vector of probabilities."""

    concentration: Float[Array, " classes"]

    @property
    def mean(self) -> Float[Array, " classes"]:
        return self.concentration / jnp.sum(self.concentration)

    @property
    def var(self) -> Float[Array, " classes"]:
        return self.mean * (1 - self.mean) / (jnp.sum(self.concentration) + 1)

    def sample(self, key: Key[Array, ""]) -> Float[Array, " classes"]:
        # Drawn as logarithms: at a concentration far below 1 gamma draws underflow and give 0/0.
        draws = jax.random.loggamma(key, self.concentration, dtype=self.concentration.dtype)
        return jax.nn.softmax(draws)

    def log_prob(self, latent: Float[Array, " classes"]) -> Float[Array, ""]:
        normaliser = gammaln(jnp.sum(self.concentration)) - jnp.sum(gammaln(self.concentration))
        return normaliser + jnp.sum(xlogy(self.concentration - 1, latent))


class DirichletCategorical(ExactWorld):
    """Random probabilities of a few classes; tokens are one-hot.

    `concentration` is one number for all classes or one per class. With small numbers most of the
    probability is on few classes.

    >>> world = DirichletCategorical(classes=3, concentration=1.0)
    >>> episode = world.sample(jax.random.key(0), length=10)
    >>> float(world.representation(episode.tokens).sum())
    13.0
    """

    classes: int = eqx.field(static=True)
    concentration: np.ndarray

    def __init__(self, classes: int = 3, concentration: Numbers = 1.0):
        self.classes = checks.whole("classes", classes, at_least=2)
        self.concentration = settings.positives("concentration", concentration, classes)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_tokens = jax.random.split(key)
        latent = self.prior().sample(for_latent)
        drawn = jax.random.categorical(for_tokens, jnp.log(latent), shape=(length,))
        return Episode(latent, jax.nn.one_hot(drawn, self.classes, dtype=latent.dtype))

    def prior(self, dtype: Any = None) -> DirichletLaw:
        dtype = jnp.result_type(float) if dtype is None else dtype
        return DirichletLaw(jnp.asarray(self.concentration, dtype))

    def update(
        self,
        posterior: DirichletLaw,
        tokens: Float[Array, "length classes"],
        mask: Bool[Array, " length"] | None = None,
    ) -> DirichletLaw:
        return DirichletLaw(posterior.concentration + jnp.sum(hide(tokens, mask), 0))

    def predictive(self, posterior: DirichletLaw, query: Any = None) -> Categorical:
        """The law of the next token; `query` is not used."""
        total = jnp.log(jnp.sum(posterior.concentration))
        return Categorical(jnp.log(posterior.concentration) - total)

    def uncertainty(self, posterior: DirichletLaw, query: Any = None) -> Float[Array, ""]:
        return jnp.sum(posterior.var)

    def token_mean(self, latent: Float[Array, " classes"]) -> Float[Array, " classes"]:
        return latent

    def log_likelihood(
        self,
        latent: Float[Array, " classes"],
        tokens: Float[Array, "length classes"],
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        return jnp.sum(xlogy(jnp.sum(hide(tokens, mask), 0), latent))

    def log_evidence(
        self, tokens: Float[Array, "length classes"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        start = self.prior(tokens.dtype).concentration
        counts = jnp.sum(hide(tokens, mask), 0)
        total = log_rising(jnp.sum(start), jnp.sum(counts))
        return jnp.sum(log_rising(start, counts)) - total

    def representation(
        self, tokens: Float[Array, "length classes"], mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """The parameters of the posterior: α + counts."""
        return self.posterior(tokens, mask).concentration

    def risk(self, length: int) -> Reading:
        total = self.concentration.sum()
        spread = 1 - np.sum((self.concentration / total) ** 2)
        return closed_form(
            spread * total / ((total + 1) * (total + checks.whole("length", length)))
        )
