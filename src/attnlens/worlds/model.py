"""Worlds without a closed form: a prior and a likelihood, with posteriors sampled by NUTS.

A `ReferenceWorld` defines a NumPyro program for its latent and the distribution of a token given
the latent. Sampling, the posterior, predictions and evidence follow:

    posterior    draws from NUTS, checked (`SampledPosterior`)
    prediction   mean and variance, over the draws, of m(q, z) or of the next token
    evidence     importance sampling around the draws (`nuts.log_evidence`)

The draws are checked by split R-hat, effective sample size, the number of divergences, the energy
of the chains (E-BFMI), and a second opinion: agreement with particles that start from the prior
(`second_opinion`). If a check fails, the `status` of the posterior names it, and every number
computed from the posterior is NaN, including its draws: a failed reference posterior is never used
as a result. Random keys are derived from the tokens. So the Monte Carlo errors of different
episodes are independent, and standard errors over episodes include them. (Hoffman and Gelman, The
no-U-turn sampler, JMLR 2014; split R-hat: Gelman et al., Bayesian Data Analysis, 2013, section
11.4; E-BFMI: Betancourt, Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte
Carlo, 2016.)
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks, statistics
from attnlens.core.readings import Reading

from . import key_distributions, nuts, second_opinion, token_laws
from .base import Episode, ExactWorld, Pairs, hide, require_query
from .nuts import Nuts
from .sampled_posterior import Moments as Moments
from .sampled_posterior import ReferenceReading as ReferenceReading
from .sampled_posterior import SampledPosterior as SampledPosterior
from .sampled_posterior import judged, pooled
from .seeding import tokens_key

EPISODES = 64  # default number of episodes of `ReferenceWorld.risk`
TOGETHER = 64  # the chains of at most this many episodes run as one batch


class ReferenceWorld(ExactWorld):
    """A world whose posterior is sampled by NUTS.

    The `status` of a posterior is `OK` when all checks passed (see the module's docstring).
    Otherwise it names the failure, and every number from the posterior is NaN. `UNCONFIRMED`
    posteriors have numbers, but the second opinion had too few effective particles.

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
                return Episode(latent, token_laws.as_floats(jax.vmap(law.sample)(token_keys)))
            value = jax.vmap(lambda point, key: self._law(latent, point).sample(key))(
                points[:length], token_keys
            )
            answer = self._means(latent, points[length:])
            return Episode(
                latent, Pairs(points[:length], token_laws.as_floats(value)), points[length:], answer
            )

    def prior(self, dtype: Any = None) -> SampledPosterior:
        """Independent draws from the prior, in JAX's default precision."""
        return self.prior_draws(jax.random.key(self.nuts.seed))

    def prior_draws(self, key: Key[Array, ""]) -> SampledPosterior:
        """Independent draws from the prior."""
        shape = (self.nuts.chains, self.nuts.draws)
        with nuts.relaxed():
            from numpyro import handlers

            def one(key: Key[Array, ""]) -> tuple[Any, Any]:
                trace = handlers.trace(handlers.seed(self.latent_program, key))
                drawn = nuts.free_sites(trace.get_trace())
                return drawn, self._latent_at(drawn)

            sites, latent = jax.vmap(jax.vmap(one))(jax.random.split(key, shape))
        dim = nuts.flatten(latent).shape[-1]
        everything = jnp.full(dim, float(self.nuts.chains * self.nuts.draws))
        return SampledPosterior(
            latent,
            sites,
            None,
            None,
            jnp.ones(dim),
            everything,
            jnp.zeros((), int),
            jnp.asarray(jnp.inf),
            second_opinion.without(self.nuts.chains, everything.dtype),
            self.nuts,
        )

    def update(
        self,
        posterior: SampledPosterior,
        tokens: Any,
        mask: Bool[Array, " length"] | None = None,
    ) -> SampledPosterior:
        """Run NUTS again on all tokens so far: reweighting the earlier draws is unreliable."""
        tokens = self._checked(tokens, mask)
        length = jax.tree.leaves(tokens)[0].shape[0]
        if length == 0:
            return posterior
        mask = jnp.ones(length, bool) if mask is None else mask
        if posterior.tokens is not None:
            join = lambda old, new: jnp.concatenate([old, new])  # noqa: E731 (a formula in one line)
            tokens = jax.tree.map(join, posterior.tokens, tokens)
            mask = join(posterior.mask, mask)
        return self._sampled(tokens, mask)

    def posterior(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> SampledPosterior:
        """The law of the latent given the tokens; with no tokens, the prior."""
        tokens = self._checked(tokens, mask)
        length = jax.tree.leaves(tokens)[0].shape[0]
        if length == 0:
            return self.prior()
        return self._sampled(tokens, jnp.ones(length, bool) if mask is None else mask)

    def _checked(self, tokens: Any, mask: Bool[Array, " length"] | None) -> Any:
        example = eqx.filter_eval_shape(lambda key: self.sample(key, 1).tokens, jax.random.key(0))
        return token_laws.checked(tokens, example, mask)

    def _sampled(self, tokens: Any, mask: Bool[Array, " length"]) -> SampledPosterior:
        target = nuts.Target(self._program, (tokens, mask), self.latent_program, self._latent_at)
        chains = nuts.run(target, self.nuts, self._key(tokens, mask))
        with nuts.relaxed():
            latent = jax.vmap(jax.vmap(self._latent_at))(chains.sites)
        return SampledPosterior(latent, chains.sites, tokens, mask, *chains[1:], self.nuts)

    def predictive(self, posterior: SampledPosterior, query: Any = None) -> Moments:
        """Mean and variance of m(q, z) over the draws; without keys, of the next token."""
        noise, moments = self._answer(posterior, query)
        var = noise + moments.var
        return Moments(*map(posterior.checked, (moments.mean, var, moments.error)))

    def uncertainty(self, posterior: SampledPosterior, query: Any = None) -> Float[Array, ""]:
        var = self._answer(posterior, query)[1].var
        return posterior.checked(jnp.mean(var) if self._has_keys() else jnp.sum(var))

    def _answer(self, posterior: SampledPosterior, query: Any) -> tuple[Array, Moments]:
        """The mean variance of a token around m (0 where tokens have keys), and the moments of m
        over the draws. They are numbers even if a check has failed."""
        draws = posterior.unchecked_latent
        with nuts.relaxed():
            if self._has_keys():
                points = require_query(self, query)
                means = jax.vmap(jax.vmap(lambda latent: self._means(latent, points)))(draws)
                return jnp.zeros_like(means[0, 0]), posterior.moments(means)
            means, variances = jax.vmap(jax.vmap(self._token_moments))(draws)
        return jnp.mean(pooled(variances), 0), posterior.moments(means)

    def log_likelihood(
        self, latent: Any, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        def one(token: Any, keep: Bool[Array, ""]) -> Array:
            paired = isinstance(token, Pairs)
            law = self._law(latent, token.key if paired else None)
            return token_laws.log_prob(law, token.value if paired else token, keep)

        with nuts.relaxed():
            tokens = jax.tree.map(lambda leaf: hide(leaf, mask), tokens)
            keep = jnp.ones(len(jax.tree.leaves(tokens)[0]), bool) if mask is None else mask
            return jnp.sum(jax.vmap(one)(tokens, keep))

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
        arguments = posterior.tokens, posterior.mask
        key = jax.random.fold_in(self._key(*arguments), 1)
        value, error = nuts.log_evidence(self._program, arguments, posterior.unchecked_sites, key)
        return posterior.checked(value), posterior.checked(error)

    def representation(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """Mean and covariance of the posterior (`SampledPosterior.natural`)."""
        return self.posterior(tokens, mask).natural()

    def representation_and_outcome(self, tokens: Any) -> Float[Array, " size"]:
        """`representation` of the tokens, followed by the outcome of the checks as a number."""
        posterior = self.posterior(tokens)
        natural = posterior.natural()
        return jnp.append(natural, posterior.outcome.astype(natural.dtype))

    def risk(self, length: int, *, episodes: int = EPISODES, seed: int = 0) -> Reading:
        """The mean posterior variance over episodes, in one vmapped run of NUTS.

        Every episode has random numbers of its own, so the standard error over episodes contains
        the Monte Carlo error of the posteriors.
        """
        checks.whole("episodes", episodes, at_least=2)
        with jax.enable_x64(True):
            key = jax.random.key(checks.whole("seed", seed))
            keys = jax.random.split(key, episodes)
            values, outcomes = map(np.asarray, _risks(self, keys, checks.whole("length", length)))
        return judged(ReferenceReading.of(statistics.mean_reading(values)), outcomes)

    def _key(self, tokens: Any, mask: Bool[Array, " length"]) -> Key[Array, ""]:
        return tokens_key(self.nuts.seed, tokens, mask)

    def token_mean(self, latent: Any) -> Float[Array, " dim"]:
        with nuts.relaxed():
            return self._token_moments(latent)[0]

    def _program(self, tokens: Any, mask: Bool[Array, " length"]) -> None:
        import numpyro

        latent = self.latent_program()
        numpyro.factor("tokens", self.log_likelihood(latent, tokens, mask))

    def _has_keys(self) -> bool:
        return self.draw_keys(jax.random.key(0), 1) is not None

    def _law(self, latent: Any, key: Any) -> Any:
        law = self.token_law(latent) if key is None else self.token_law(latent, key)
        return token_laws.event_law(law)

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
    `key_dim`, and `likelihood(latent, key)` is the distribution of a value at a key. Keys are drawn
    uniformly from the "sphere" or the "box" [−1, 1]^d, or by a function that takes a random key and
    a number of rows and returns these rows. Tokens without keys are numbers or vectors.

    >>> import numpyro.distributions as dist
    >>> world = FromModel(dist.Gamma(2.0, 1.0), lambda rate: dist.Poisson(rate))
    >>> world.sample(jax.random.key(0), length=10).tokens.shape
    (10, 1)
    """

    prior_law: Any
    likelihood: Callable[..., Any]
    key_dim: int | None = eqx.field(static=True)
    keys: str | Callable[..., Any] = eqx.field(static=True)
    nuts: Nuts

    def __init__(
        self,
        prior: Any,
        likelihood: Any,
        *,
        key_dim: int | None = None,
        keys: str | Callable[..., Any] = "sphere",
        nuts: Nuts | None = None,
    ):
        token_laws.check_prior(prior)
        token_laws.check_likelihood(likelihood, key_dim)
        self.prior_law, self.likelihood = prior, likelihood
        self.key_dim = None if key_dim is None else checks.whole("key_dim", key_dim, at_least=1)
        self.keys = keys if callable(keys) else checks.one_of("keys", keys, key_distributions.NAMES)
        self.nuts = Nuts() if nuts is None else nuts

    def latent_program(self) -> Any:
        import numpyro
        from numpyro.distributions import Distribution

        if isinstance(self.prior_law, Distribution):
            return numpyro.sample("latent", self.prior_law)
        latent = self.prior_law()
        if not jax.tree.leaves(latent):
            raise checks.BadInput(
                "prior must return the latent; got None; end the program with return."
            )
        return latent

    def token_law(self, latent: Any, key: Float[Array, " dim"] | None = None) -> Any:
        return self.likelihood(latent) if key is None else self.likelihood(latent, key)

    def draw_keys(self, key: Key[Array, ""], count: int) -> Float[Array, "count dim"] | None:
        if self.key_dim is None:
            return None
        if not callable(self.keys):
            return key_distributions.draw(self.keys, key, count, self.key_dim)
        points = jnp.asarray(self.keys(key, count))
        if points.shape != (count, self.key_dim):
            raise checks.BadInput(
                f"keys(random key, count) must return (count, key_dim) = "
                f"{(count, self.key_dim)}; got {points.shape}."
            )
        return points


def over_episodes(world: Any, function: Callable[[Any], Any], episodes: Any) -> Any:
    """Apply `function` to each of `episodes` (keys, or numbers of tokens) in one compiled program.

    Closed forms are computed in sequence, because LAPACK calls must not overlap where JAX runs many
    threads. For a `ReferenceWorld`, the chains of up to 64 episodes run as one batch, which is many
    times faster.
    """
    if isinstance(world, ReferenceWorld):
        return jax.lax.map(function, episodes, batch_size=min(TOGETHER, len(episodes)))
    return jax.lax.map(function, episodes)


@eqx.filter_jit
def _risks(
    world: ReferenceWorld, keys: Key[Array, " episodes"], length: int
) -> tuple[Array, Array]:
    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        for_episode, for_prior = jax.random.split(key)
        episode = world.sample(for_episode, length, 8)
        posterior = world.update(world.prior_draws(for_prior), episode.tokens)
        return world.uncertainty(posterior, episode.query), posterior.outcome

    return jax.vmap(one)(keys)
