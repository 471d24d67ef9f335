"""Tokens that interact in pairs through a matrix and an unknown function of one variable.

A sample has N tokens, and every token gets a value:

    y_i = 1/(N − 1) Σ_{j≠i} φ(x_i · A x_j) + noise,    x_i uniform on the unit sphere in R^d

Such *attention-style models* are those of Zucker, Wang, Lu and Seroussi (2025): A is the product of
key and query matrices, φ takes the place of the exponential, and g(x, x') = φ(x · A x') is the
*interaction*. Here A is a random orthogonal matrix. Then x_i · A x_j has the law of one coordinate
of a point on the sphere, with the distribution function F_d, so s = F_d(x_i · A x_j) is uniform on
[0, 1] in every dimension. φ = f ∘ F_d has a random f of smoothness β:

    f(s) = Σ_{k ≤ terms} c_k √2 cos(π k s),    c_k = ± k^{−β−1/2}/norm,    Σ c_k² = 1

The functions √2 cos(π k s) are orthonormal, so Var g = 1, and the best approximation of g by its
first K terms has the mean squared error Σ_{k>K} c_k². (A, f) and (−A, f(1 − ·)) are the same
interaction.

An episode of n samples has tokens.key of shape (n, N, d) and tokens.value of shape (n, N).
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from .base import Episode, Pairs, World


class Interaction(NamedTuple):
    """One interaction: the orthogonal matrix A and the coefficients c_k."""

    matrix: Float[Array, "token_dim token_dim"]
    coefficients: Float[Array, " terms"]


def distribution(product: Float[Array, "*shape"], token_dim: int) -> Float[Array, "*shape"]:
    """F_d, the distribution function of one coordinate of a uniform point on the sphere in R^d."""
    share = (1 + jnp.clip(product, -1, 1)) / 2
    half = jnp.asarray((token_dim - 1) / 2, share.dtype)
    return share if token_dim == 3 else betainc(half, half, share)


def cosines(
    coefficients: Float[Array, " terms"], place: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Σ c_k √2 cos(π k s) at s = `place`, by the recurrence of the cosines of multiples."""
    first = jnp.cos(jnp.pi * place)

    def step(state, coefficient):
        total, before, now = state
        return (total + coefficient * now, now, 2 * first * now - before), None

    start = (jnp.zeros_like(place), jnp.ones_like(place), first)
    return jnp.sqrt(2).astype(place.dtype) * jax.lax.scan(step, start, coefficients)[0][0]


class PairwiseInteraction(World):
    """Samples of N tokens that interact in pairs, with an interaction drawn for each episode.

    >>> world = PairwiseInteraction(tokens=4, token_dim=3)
    >>> episode = world.sample(jax.random.key(0), length=100, queries=10)
    >>> episode.tokens.key.shape, episode.tokens.value.shape
    ((100, 4, 3), (100, 4))
    """

    tokens: int = eqx.field(default=4, static=True)
    token_dim: int = eqx.field(default=3, static=True)
    smoothness: float = eqx.field(default=1.0, static=True)
    noise_std: float = 0.1
    terms: int = eqx.field(default=256, static=True)

    def __check_init__(self):
        checks.whole("tokens", self.tokens, at_least=2)
        checks.whole("token_dim", self.token_dim, at_least=2)
        checks.whole("terms", self.terms, at_least=1)
        checks.positive("smoothness", self.smoothness)
        checks.positive("noise_std", self.noise_std)

    @property
    def noise_floor(self) -> float:
        """The smallest mean squared error of any predictor of y."""
        return self.noise_std**2

    @property
    def energies(self) -> np.ndarray:
        """c_k², which are the same for all interactions."""
        energies = np.arange(1.0, self.terms + 1) ** (-2 * self.smoothness - 1)
        return energies / energies.sum()

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_inputs, for_noise = jax.random.split(key, 3)
        latent = self.interaction(for_latent)
        shape = (length + queries, self.tokens, self.token_dim)
        inputs = jax.random.normal(for_inputs, shape)
        inputs = inputs / jnp.linalg.norm(inputs, axis=-1, keepdims=True)
        answer = self.answer(latent, inputs)
        noise = self.noise_std * jax.random.normal(for_noise, (length, self.tokens))
        tokens = Pairs(inputs[:length], answer[:length] + noise)
        return Episode(latent, tokens, inputs[length:], answer[length:])

    def interaction(self, key: Key[Array, ""]) -> Interaction:
        """A random interaction."""
        for_matrix, for_signs = jax.random.split(key)
        gaussian = jax.random.normal(for_matrix, (self.token_dim, self.token_dim))
        signs = jax.random.rademacher(for_signs, (self.terms,), gaussian.dtype)
        sizes = jnp.asarray(np.sqrt(self.energies), gaussian.dtype)
        return Interaction(jnp.linalg.qr(gaussian)[0], signs * sizes)

    def answer(
        self, latent: Interaction, inputs: Float[Array, "length tokens token_dim"]
    ) -> Float[Array, "length tokens"]:
        """The noise-free values E[y | x] of all tokens."""
        products = (inputs @ latent.matrix) @ jnp.swapaxes(inputs, 1, 2)
        others = ~np.eye(self.tokens, dtype=bool)
        flat = products[:, others].reshape(len(inputs), self.tokens, self.tokens - 1)
        place = distribution(flat, self.token_dim)
        return jnp.mean(cosines(latent.coefficients, place), axis=-1)
