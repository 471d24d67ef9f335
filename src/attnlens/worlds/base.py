"""What a world promises.

A `World` draws episodes: a latent z, and tokens x¹ … x^L that are i.i.d. given z (exchangeable
by de Finetti). An `ExactWorld` adds closed forms: the posterior of z, the prediction for a query
and the log evidence. Everything is a pure function of a JAX key, so it can be vmapped and jitted.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key


class Pairs(NamedTuple):
    """Tokens that carry a key and a value: (L, d) and (L, dv)."""

    key: Float[Array, "*batch length key_dim"]
    value: Float[Array, "*batch length value_dim"]


class Episode(NamedTuple):
    """One draw: the latent, its tokens, and what could be asked about it.

    `query` holds points to ask about and `answer` the conditional mean m(q, z) = E[v | k = q, z]
    there; both are None in worlds whose tokens carry no key.
    """

    latent: Any
    tokens: Any
    query: Float[Array, "*batch queries key_dim"] | None = None
    answer: Float[Array, "*batch queries value_dim"] | None = None


class Gaussian(NamedTuple):
    """A normal law given by mean and variance, elementwise."""

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]


class World(eqx.Module):
    """A source of tokens."""

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        """An episode of `length` tokens, with `queries` points to ask about."""


class ExactWorld(World):
    """A world that knows its exact answers."""

    @abc.abstractmethod
    def posterior(self, tokens: Any, mask: Bool[Array, " length"] | None = None) -> Any:
        """The law of the latent given the tokens; with no tokens, the prior."""

    @abc.abstractmethod
    def predict(
        self, tokens: Any, query: Any = None, mask: Bool[Array, " length"] | None = None
    ) -> Any:
        """The law of the conditional mean at `query`, or of the next token, given the tokens."""

    @abc.abstractmethod
    def log_evidence(
        self, tokens: Any, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log p(tokens), the latent integrated out."""


def uniform_on_sphere(key: Key[Array, ""], count: int, dim: int) -> Float[Array, "count dim"]:
    """Points drawn uniformly from the unit sphere in R^dim."""
    points = jax.random.normal(key, (count, dim))
    return points / jnp.linalg.norm(points, axis=-1, keepdims=True)
