"""Worlds without a closed form: a prior and a likelihood, with posteriors sampled by NUTS.

A `ReferenceWorld` defines a NumPyro program for its latent and the distribution of a token given
the latent. Sampling, the posterior, predictions and evidence follow:

    posterior    draws from NUTS, with split R-hat and effective sample size checked
    prediction   mean and variance, over the draws, of m(q, z) or of the next token
    evidence     importance sampling around the draws (`nuts.log_evidence`)

Where a check of the chains fails, the `status` of the posterior is `Status.NOT_CONVERGED`, and
every number computed from it is NaN: a failed reference is never used as a result. (Hoffman and
Gelman, The no-U-turn sampler, JMLR 2014; split R-hat: Gelman et al., Bayesian Data Analysis, 2013,
section 11.4.)
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from attnlens.core import checks, statistics
from attnlens.core.readings import Reading
from attnlens.core.status import Status

from . import key_distributions, nuts
from .base import Episode, ExactWorld, Pairs, hide, require_query
from .diagnostics import EFFECTIVE_LIMIT, R_HAT_LIMIT
from .laws import lower_triangle
from .nuts import Nuts


class Moments(NamedTuple):
    """Mean and variance of a distribution, elementwise."""

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]


@dataclass(frozen=True)
class ReferenceRisk(Reading):
    """A risk for which `failed` of `episodes` reference posteriors have not converged."""

    failed: int = field(kw_only=True)
    episodes: int = field(kw_only=True)


class SampledPosterior(eqx.Module):
    """The law of the latent as draws with convergence diagnostics, and the tokens behind it.

    `latent` has the structure of the latent, with leading axes (chains, draws); `sites` holds the
    same draws under NumPyro's names.
    """

    latent: Any
    sites: Any
    tokens: Any
    mask: Any
    r_hat: Float[Array, " dim"]
    effective: Float[Array, " dim"]
    divergences: Int[Array, ""]

    @property
    def ok(self) -> Bool[Array, ""]:
        """Every coordinate has R-hat ≤ 1.05 and at least 400 effective draws."""
        return jnp.all(self.r_hat <= R_HAT_LIMIT) & jnp.all(self.effective >= EFFECTIVE_LIMIT)

    @property
    def status(self) -> Status:
        """`OK` or `NOT_CONVERGED`. Not for traced code."""
        return Status.OK if bool(self.ok) else Status.NOT_CONVERGED

    @property
    def reason(self) -> str:
        """The status in words, with the checks that failed. Not for traced code."""
        return self.status.sentence(
            {
                "r_hat": float(jnp.max(self.r_hat)),
                "r_hat_limit": R_HAT_LIMIT,
                "effective": float(jnp.min(self.effective)),
                "effective_limit": EFFECTIVE_LIMIT,
            }
        )

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.checked(jnp.mean(self._points(), 0))

    @property
    def cov(self) -> Float[Array, "dim dim"]:
        centred = self._points() - jnp.mean(self._points(), 0)[None, :]
        return self.checked(centred.T @ centred / centred.shape[0])

    def sample(self, key: Key[Array, ""]) -> Any:
        """One of the draws, at random."""
        return jax.tree.map(lambda leaf: jax.random.choice(key, leaf), self.pooled())

    def natural(self) -> Float[Array, " size"]:
        """Mean and lower triangle of the covariance of the latent, flat.

        Outside exponential families no finite statistic is sufficient; these are the statistics
        of the normal distribution with the same mean and covariance.
        """
        return jnp.concatenate([self.mean, lower_triangle(self.cov)])

    def pooled(self) -> Any:
        """The draws of all chains along one axis."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.latent)

    def checked(self, value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """`value`, or NaN if a check failed."""
        return jnp.where(self.ok, value, jnp.nan)

    def _points(self) -> Float[Array, "draws dim"]:
        flat = nuts.flatten(self.latent)
        return flat.reshape(-1, flat.shape[-1])


class ReferenceWorld(ExactWorld):
    """A world whose posterior is sampled by NUTS.

    The `status` of a posterior is `OK` when split R-hat and effective sample size pass their
    limits. Otherwise it names the failure, and every number from the posterior is NaN.

    >>> from attnlens.worlds import LogisticRegression
    >>> isinstance(LogisticRegression(key_dim=2), ReferenceWorld)
    True
    """

    nuts: eqx.AbstractVar[Nuts]

    @abc.abstractmethod
    def latent_program(self) -> Any:
        """A NumPyro program that samples the latent and returns it."""

    @abc.abstractmethod
    def token_law(self, latent: Any, key: Float[Array, " dim"] | None = None) -> Any:
        """The NumPyro distribution of one token, or of one value given its key."""

    @abc.abstractmethod
    def draw_keys(self, key: Key[Array, ""], count: int) -> Float[Array, "count dim"] | None:
        """Keys of tokens; None where tokens have no key."""

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_points, for_tokens = jax.random.split(key, 3)
        with nuts.relaxed():
            latent = self._draw_latent(for_latent)
            points = self.draw_keys(for_points, length + queries)
            token_keys = jax.random.split(for_tokens, length)
            if points is None:
                law = self._law(latent, None)
                return Episode(latent, _float(jax.vmap(law.sample)(token_keys)))
            value = jax.vmap(lambda point, key: self._law(latent, point).sample(key))(
                points[:length], token_keys
            )
            answer = self._means(latent, points[length:])
            return Episode(latent, Pairs(points[:length], _float(value)), points[length:], answer)

    def prior(self, dtype: Any = None) -> SampledPosterior:
        """Independent draws from the prior, in JAX's default precision."""
        shape = (self.nuts.chains, self.nuts.draws)
        seeds = jax.random.split(jax.random.key(self.nuts.seed), shape)
        with nuts.relaxed():
            from numpyro import handlers

            def one(key: Key[Array, ""]) -> tuple[Any, Any]:
                trace = handlers.trace(handlers.seed(self.latent_program, key))
                recorded = trace.get_trace()
                drawn = {
                    name: site["value"]
                    for name, site in recorded.items()
                    if site["type"] == "sample" and not site["is_observed"]
                }
                return drawn, self._latent_at(drawn)

            sites, latent = jax.vmap(jax.vmap(one))(seeds)
        dim = nuts.flatten(latent).shape[-1]
        effective = jnp.full(dim, float(self.nuts.chains * self.nuts.draws))
        divergences = jnp.zeros((), int)
        return SampledPosterior(latent, sites, None, None, jnp.ones(dim), effective, divergences)

    def update(
        self,
        posterior: SampledPosterior,
        tokens: Any,
        mask: Bool[Array, " length"] | None = None,
    ) -> SampledPosterior:
        """NUTS on all tokens so far; the chains run again, because reweighting is unreliable."""
        length = jax.tree.leaves(tokens)[0].shape[0]
        if length == 0:
            return posterior
        tokens = jax.tree.map(_float, tokens)
        mask = jnp.ones(length, bool) if mask is None else mask
        if posterior.tokens is not None:
            join = lambda old, new: jnp.concatenate([old, new])  # noqa: E731
            tokens = jax.tree.map(join, posterior.tokens, tokens)
            mask = join(posterior.mask, mask)
        chains = nuts.run(self._program, (tokens, mask), self.nuts)
        with nuts.relaxed():
            latent = jax.vmap(jax.vmap(self._latent_at))(chains.sites)
        return SampledPosterior(
            latent,
            chains.sites,
            tokens,
            mask,
            chains.r_hat,
            chains.effective,
            chains.divergences,
        )

    def predictive(self, posterior: SampledPosterior, query: Any = None) -> Moments:
        """Mean and variance of m(q, z) over the draws; without keys, of the next token."""
        with nuts.relaxed():
            if self._has_keys():
                means = jax.vmap(lambda latent: self._means(latent, require_query(self, query)))(
                    posterior.pooled()
                )
                mean, var = jnp.mean(means, 0), jnp.var(means, 0)
            else:
                means, variances = jax.vmap(self._token_moments)(posterior.pooled())
                mean, var = jnp.mean(means, 0), jnp.mean(variances, 0) + jnp.var(means, 0)
        return Moments(posterior.checked(mean), posterior.checked(var))

    def uncertainty(self, posterior: SampledPosterior, query: Any = None) -> Float[Array, ""]:
        if self._has_keys():
            return jnp.mean(self.predictive(posterior, query).var)
        with nuts.relaxed():
            means = jax.vmap(lambda latent: self._token_moments(latent)[0])(posterior.pooled())
        return posterior.checked(jnp.sum(jnp.var(means, 0)))

    def log_likelihood(
        self, latent: Any, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        with nuts.relaxed():
            tokens = jax.tree.map(lambda leaf: hide(leaf, mask), tokens)
            if isinstance(tokens, Pairs):
                one = lambda pair: self._log_prob(latent, pair.value, pair.key)  # noqa: E731
            else:
                one = lambda token: self._log_prob(latent, token, None)  # noqa: E731
            return jnp.sum(hide(jax.vmap(one)(tokens), mask))

    def log_evidence(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log p(tokens); `evidence_and_error` also gives its Monte Carlo error."""
        return self.evidence_and_error(tokens, mask)[0]

    def evidence_and_error(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """log p(tokens) and its standard error."""
        return self.evidence_of(self.posterior(tokens, mask))

    def evidence_of(self, posterior: SampledPosterior) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """log p(all tokens of a posterior) and its standard error, without a new run of NUTS."""
        if posterior.tokens is None:
            return jnp.zeros(()), jnp.zeros(())
        value, error = nuts.log_evidence(
            self._program, (posterior.tokens, posterior.mask), posterior.sites, self.nuts
        )
        return posterior.checked(value), posterior.checked(error)

    def representation(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """Mean and covariance of the posterior (`SampledPosterior.natural`)."""
        return self.posterior(tokens, mask).natural()

    def risk(self, length: int) -> Reading:
        """The mean posterior variance over 64 episodes, in one vmapped run of NUTS."""
        episodes = 64
        with jax.enable_x64(True):
            seeds = jax.random.split(jax.random.key(0), episodes)
            values = np.asarray(_risks(self, seeds, checks.whole("length", length)))
        failed = int(np.isnan(values).sum())
        if failed:
            nan, status = float("nan"), Status.SOME_NOT_CONVERGED
            return ReferenceRisk(nan, nan, episodes, status, failed=failed, episodes=episodes)
        return statistics.mean_reading(values)

    def _program(self, tokens: Any, mask: Bool[Array, " length"]) -> None:
        import numpyro

        latent = self.latent_program()
        numpyro.factor("tokens", self.log_likelihood(latent, tokens, mask))

    def _has_keys(self) -> bool:
        return self.draw_keys(jax.random.key(0), 1) is not None

    def _law(self, latent: Any, key: Any) -> Any:
        """The distribution of a token, with an event of at least one dimension and no batch."""
        law = self.token_law(latent) if key is None else self.token_law(latent, key)
        if not law.batch_shape and not law.event_shape:
            law = law.expand((1,))
        return law.to_event(len(law.batch_shape))

    def _log_prob(self, latent: Any, token: Array, key: Any) -> Float[Array, ""]:
        return self._law(latent, key).log_prob(token)

    def _means(self, latent: Any, points: Array) -> Float[Array, "points value_dim"]:
        return jax.vmap(lambda point: self._law(latent, point).mean)(points)

    def _token_moments(self, latent: Any) -> tuple[Array, Array]:
        law = self._law(latent, None)
        return law.mean, law.variance

    def _draw_latent(self, key: Key[Array, ""]) -> Any:
        from numpyro import handlers

        return handlers.seed(self.latent_program, key)()

    def _latent_at(self, sites: Any) -> Any:
        from numpyro import handlers

        return handlers.substitute(self.latent_program, data=sites)()


class FromModel(ReferenceWorld):
    """A world from a NumPyro model: a prior of the latent and a likelihood of a token.

    `prior` is a NumPyro distribution, or a NumPyro program that returns the latent.
    `likelihood(latent)` is the distribution of one token; where tokens are (key, value) pairs, give
    `key_dim`, and `likelihood(latent, key)` is the distribution of a value at a key.

    >>> import numpyro.distributions as dist
    >>> world = FromModel(dist.Gamma(2.0, 1.0), lambda rate: dist.Poisson(rate))
    >>> world.sample(jax.random.key(0), length=10).tokens.shape
    (10, 1)
    """

    prior_law: Any
    likelihood: Callable[..., Any]
    key_dim: int | None = eqx.field(static=True)
    keys: str = eqx.field(static=True)
    nuts: Nuts

    def __init__(
        self,
        prior: Any,
        likelihood: Any,
        *,
        key_dim: int | None = None,
        keys: str = "sphere",
        nuts: Nuts | None = None,
    ):
        if not callable(likelihood):
            raise checks.BadInput(
                f"likelihood must be a function of the latent that returns a NumPyro "
                f"distribution; got {likelihood!r}."
            )
        self.prior_law, self.likelihood = prior, likelihood
        self.key_dim = None if key_dim is None else checks.whole("key_dim", key_dim, at_least=1)
        self.keys = checks.one_of("keys", keys, key_distributions.NAMES)
        self.nuts = Nuts() if nuts is None else nuts

    def latent_program(self) -> Any:
        import numpyro
        from numpyro.distributions import Distribution

        if isinstance(self.prior_law, Distribution):
            return numpyro.sample("latent", self.prior_law)
        return self.prior_law()

    def token_law(self, latent: Any, key: Float[Array, " dim"] | None = None) -> Any:
        return self.likelihood(latent) if key is None else self.likelihood(latent, key)

    def draw_keys(self, key: Key[Array, ""], count: int) -> Float[Array, "count dim"] | None:
        return (
            None
            if self.key_dim is None
            else key_distributions.draw(self.keys, key, count, self.key_dim)
        )


@eqx.filter_jit
def _risks(world: ReferenceWorld, seeds: Key[Array, " episodes"], length: int) -> Array:
    def one(key: Key[Array, ""]) -> Float[Array, ""]:
        episode = world.sample(key, length, 8)
        return world.uncertainty(world.posterior(episode.tokens), episode.query)

    return jax.vmap(one)(seeds)


def _float(array: Array) -> Array:
    """Counts and labels as floats in the default precision."""
    return jnp.asarray(array, jnp.result_type(float))
