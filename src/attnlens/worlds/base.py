"""The interfaces `World` and `ExactWorld`, and the records that worlds return.

A `World` draws episodes: a latent z, and tokens x¹ … x^L that are i.i.d. given z. Such tokens are
exchangeable; the converse, for infinitely many tokens, is the theorem of de Finetti (1937). An
`ExactWorld` adds closed forms: the posterior of z, the prediction at a query and the log evidence.
Everything is a pure function of a JAX key, so it can be vmapped and jitted.

An exact world defines its prior, an update, and the prediction from a posterior. The posterior of
many tokens is one update of the prior, so sequential and batch updates are the same code:

    posterior(x¹ … x^L)  =  update(prior, x¹ … x^L)  =  update(… update(prior, x¹) …, x^L)

Precision: the settings of a world are Python floats or NumPy float64; the dtype of the tokens
determines that of every result (float32 in, float32 out). Sampling follows JAX's default (float64
under x64).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks, statistics
from attnlens.core.readings import Reading

from .laws import Gaussian as Gaussian


class Pairs(NamedTuple):
    """Tokens with a key and a value: arrays of shape (L, d) and (L, dv).

    >>> tokens = Pairs(jnp.zeros((4, 2)), jnp.ones((4, 1)))
    >>> tokens.key.shape, tokens.value.shape
    ((4, 2), (4, 1))
    """

    key: Float[Array, "*batch length key_dim"]
    value: Float[Array, "*batch length value_dim"]


class Episode(NamedTuple):
    """One draw of a latent and its tokens, with queries and their answers.

    `answer` is the conditional mean m(q, z) = E[v | k = q, z] at the points `query`; both are None
    in worlds whose tokens have no key.

    >>> from attnlens.worlds import LinearRegression
    >>> episode = LinearRegression(key_dim=2).sample(jax.random.key(0), length=4, queries=3)
    >>> episode.latent.shape, episode.tokens.key.shape, episode.answer.shape
    ((2,), (4, 2), (3, 1))
    """

    latent: Any
    tokens: Any
    query: Float[Array, "*batch queries key_dim"] | None = None
    answer: Float[Array, "*batch queries value_dim"] | None = None


class World(eqx.Module):
    """A source of tokens; `exchangeable` says that their joint law does not depend on their order.

    >>> from attnlens.worlds import AutoRegressive, NormalMean
    >>> NormalMean().exchangeable, AutoRegressive().exchangeable
    (True, False)
    """

    exchangeable: ClassVar[bool] = True

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        """An episode of `length` tokens and `queries` queries."""


class ExactWorld(World):
    """A world with an exact posterior, prediction and evidence.

    With prior p(z) and tokens that are independent given z,

        posterior   p(z | x) ∝ p(z) Π_ℓ p(x_ℓ | z)
        predict     ∫ p(· | z, q) p(z | x) dz
        evidence    p(x) = ∫ p(z) Π_ℓ p(x_ℓ | z) dz

    >>> from attnlens.worlds import NormalMean
    >>> world = NormalMean(dim=1)
    >>> float(world.posterior(jnp.array([[2.0]])).mean[0])  # halfway between prior and token
    1.0
    """

    @abc.abstractmethod
    def prior(self, dtype: Any = None) -> Any:
        """The law of the latent before any token, with arrays of the given dtype."""

    @abc.abstractmethod
    def update(
        self, posterior: Any, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Any:
        """The law of the latent given the tokens behind `posterior` and these additional tokens."""

    @abc.abstractmethod
    def predictive(self, posterior: Any, query: Any = None) -> Any:
        """The law of the conditional mean at `query`, or of the next token, under a posterior."""

    @abc.abstractmethod
    def uncertainty(self, posterior: Any, query: Any = None) -> Float[Array, ""]:
        """The posterior variance of m, E[‖m(q, z) − E m(q, z)‖²], averaged over queries.

        m is the conditional mean of a value at q, or of a token where tokens have no key.
        """

    @abc.abstractmethod
    def log_likelihood(
        self, latent: Any, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log p(tokens | latent); where tokens have keys, log p(values | keys, latent)."""

    @abc.abstractmethod
    def log_evidence(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log p(tokens), with the latent integrated out."""

    @abc.abstractmethod
    def representation(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """The exact representation of the tokens: the posterior's natural statistics in one vector.

        Its size does not depend on the number of tokens.
        """

    @abc.abstractmethod
    def risk(self, length: int) -> Reading:
        """The Bayes risk: the smallest mean squared error of predicting m from `length` tokens.

        m is the conditional mean, as in `uncertainty`. A risk in closed form has standard error 0
        and count 0. Otherwise the risk is the mean of exact conditional risks over episodes
        (`sampled_risk`), with the standard error of that mean.
        """

    def token_mean(self, latent: Any) -> Float[Array, " dim"]:
        """E[token | latent], where tokens have no keys."""
        raise checks.BadInput(
            f"{type(self).__name__} must define token_mean(latent), the mean of a token given the "
            f"latent, if its tokens have no keys."
        )

    def posterior(self, tokens: Any, mask: Bool[Array, " length"] | None = None) -> Any:
        """The law of the latent given the tokens; with no tokens, the prior."""
        return self.update(self.prior(precision(tokens)), tokens, mask)

    def predict(
        self, tokens: Any, query: Any = None, mask: Bool[Array, " length"] | None = None
    ) -> Any:
        """The law of the conditional mean at `query`, or of the next token, given the tokens."""
        return self.predictive(self.posterior(tokens, mask), query)


def sampled_risk(
    world: ExactWorld, length: int, *, episodes: int = 1024, queries: int = 8, seed: int = 0
) -> Reading:
    """The Bayes risk as the mean, over fresh episodes, of the exact conditional risk, in float64.

    E‖m − E[m | X]‖² = E[ E(‖m − E[m | X]‖² | X) ]: the inner expectation is exact (`uncertainty`),
    only the outer one is sampled (Rao–Blackwell). Its variance is far below that of the mean of
    squared errors.

    >>> from attnlens.worlds import NormalMean
    >>> reading = sampled_risk(NormalMean(), length=3, episodes=16)
    >>> round(reading.value, 6), reading.count
    (0.25, 16)
    """
    checks.whole("length", length)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(checks.seed_number("seed", seed)), episodes)
        return statistics.mean_reading(np.asarray(conditional_risks(world, keys, length, queries)))


@eqx.filter_jit
def conditional_risks(
    world: ExactWorld, keys: Key[Array, " episodes"], length: int, queries: int
) -> Float[Array, " episodes"]:
    """The `uncertainty` in one episode per key.

    Episodes are computed in sequence, so that LAPACK calls never overlap.
    """

    def one(key: Key[Array, ""]) -> Float[Array, ""]:
        episode = world.sample(key, length, queries)
        return world.uncertainty(world.posterior(episode.tokens), episode.query)

    return jax.lax.map(one, keys)


def closed_form(value: float) -> Reading:
    """A reading without sampling error."""
    return Reading(float(value), 0.0, 0)


def precision(tokens: Any) -> Any:
    """The dtype of the tokens."""
    return jax.tree.leaves(tokens)[0].dtype


def hide(array: Float[Array, "length ..."], mask: Bool[Array, " length"] | None) -> Array:
    """`array` with masked tokens set to zero, so that no masked number (not even NaN) is used."""
    if mask is None:
        return array
    return jnp.where(mask.reshape(mask.shape + (1,) * (array.ndim - 1)), array, 0)


def count_of(
    array: Float[Array, "length ..."], mask: Bool[Array, " length"] | None
) -> Float[Array, ""]:
    """The number of tokens that are not masked, in the dtype of the tokens."""
    if mask is None:
        return jnp.asarray(array.shape[0], array.dtype)
    return jnp.sum(mask).astype(array.dtype)


def mean_and_scatter(
    tokens: Float[Array, "length dim"], mask: Bool[Array, " length"] | None
) -> tuple[Float[Array, ""], Float[Array, " dim"], Float[Array, " dim"]]:
    """(n, mean, Σ (x − mean)²) in two passes, which avoids a difference of large squares."""
    count = count_of(tokens, mask)
    mean = jnp.sum(hide(tokens, mask), 0) / jnp.maximum(count, 1)
    return count, mean, jnp.sum(hide(tokens - mean[None, :], mask) ** 2, 0)


def require_query(world: ExactWorld, query: Any) -> Any:
    """Return `query`; raise `BadInput` if it is None."""
    if query is None:
        raise checks.BadInput(
            f"{type(world).__name__} needs a query; got none; "
            f"give query=…, an array of shape (queries, key_dim)."
        )
    return query


def require_posterior(instrument: str, world: Any) -> ExactWorld:
    """Return `world`; raise `BadInput` if it has no posterior."""
    if not isinstance(world, ExactWorld):
        raise checks.BadInput(
            f"{instrument} needs a world with a posterior, such as NormalMean or FromModel; got "
            f"{type(world).__name__}."
        )
    return world
