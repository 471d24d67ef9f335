"""The self-attention teacher of lens B (ICLR 2021 submission).

A network of one or more layers over p tokens of dimension t:

    K = (w_K x)ᵀ,  Q_z = (w_Q x^z)ᵀ,  a_z = softmax(Q_z Kᵀ/√d_q),   x ∈ R^(t×p)
    y = w₂ᵀ φ(w₁ vec(w_V x a)) + noise                         (lens B, section 3)

With more layers x ← w_V x a(x) is repeated, with separate weights and d_v = t. The rank of the
query–key product w_Qᵀ w_K is a setting: with rank r ≤ d_q both maps factor through the same
r-dimensional subspace of R^{d_q}, w_Q = B q and w_K = B k with orthonormal B ∈ R^(d_q×r). Entries
are drawn so that attention logits have a standard deviation of about `focus` (at 0 attention is
uniform, at large values it selects one token), and all other maps preserve variances of order one.
`attend=False` replaces a by the identity: a teacher without attention, for controls. `hard=True`
replaces the softmax by its limit, top-1 attention: a_z is one at the token with the largest logit
and zero elsewhere, which no network with softmax attention represents. `unit_variance=True` divides
w₂ by the standard deviation of the noise-free answer (`normalised`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from . import noise, normalised
from .base import Episode, Pairs, World
from .sparse_teacher import softplus


class TokenWeights(NamedTuple):
    """The weights of one teacher; query, key and value have a leading axis of layers."""

    query: Float[Array, "layers query_dim token_dim"]
    key: Float[Array, "layers query_dim token_dim"]
    value: Float[Array, "layers value_dim token_dim"]
    first: Float[Array, "hidden flat"]
    second: Float[Array, " hidden"]


class TokenTeacher(World):
    """A self-attention teacher on sequences of tokens.

    The input of a sample is a whole sequence, of shape (token_dim, tokens) as in lens B, so an
    episode of n samples has tokens.key of shape (n, token_dim, tokens) and tokens.value of shape
    (n, 1).

    >>> teacher = TokenTeacher(tokens=4, token_dim=4, rank=1)
    >>> teacher.sample(jax.random.key(0), length=100).tokens.key.shape
    (100, 4, 4)
    """

    tokens: int = eqx.field(default=4, static=True)
    token_dim: int = eqx.field(default=4, static=True)
    query_dim: int = eqx.field(default=4, static=True)
    value_dim: int = eqx.field(default=4, static=True)
    hidden: int = eqx.field(default=8, static=True)
    layers: int = eqx.field(default=1, static=True)
    rank: int | None = eqx.field(default=None, static=True)
    noise_std: float = 0.1
    noise: str = eqx.field(default="gaussian", static=True)
    sharpness: float = 5.0
    focus: float = 2.0
    attend: bool = eqx.field(default=True, static=True)
    hard: bool = eqx.field(default=False, static=True)
    unit_variance: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        for name in ("tokens", "token_dim", "query_dim", "value_dim", "hidden", "layers"):
            checks.whole(name, getattr(self, name), at_least=1)
        checks.positive("noise_std", self.noise_std)
        checks.one_of("noise", self.noise, noise.KINDS)
        largest = min(self.query_dim, self.token_dim)
        if self.rank is not None and not 1 <= checks.whole("rank", self.rank) <= largest:
            raise checks.BadInput(
                f"rank must be from 1 to min(query_dim, token_dim) = {largest}; got {self.rank}; "
                f"leave it out for full rank."
            )
        if self.layers > 1 and self.value_dim != self.token_dim:
            raise checks.BadInput(
                f"with several layers value_dim must equal token_dim, {self.token_dim}; got "
                f"{self.value_dim}."
            )

    @property
    def noise_floor(self) -> float:
        """The smallest mean squared error of any predictor of y."""
        return self.noise_std**2

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_teacher, for_inputs, for_noise = jax.random.split(key, 3)
        latent = self.teacher(for_teacher)
        shape = (length + queries, self.token_dim, self.tokens)
        inputs = jax.random.normal(for_inputs, shape)
        answer = self.answer(latent, inputs)
        noisy = noise.draw(self.noise, for_noise, (length, 1), self.noise_std)
        tokens = Pairs(inputs[:length], answer[:length] + noisy)
        return Episode(latent, tokens, inputs[length:], answer[length:])

    def teacher(self, key: Key[Array, ""]) -> TokenWeights:
        """A random teacher."""
        for_basis, for_query, for_key, for_value, for_first, for_second = jax.random.split(key, 6)
        rank = min(self.query_dim, self.token_dim) if self.rank is None else self.rank
        # The logit ⟨w_Q x, w_K x'⟩/√d_q of independent normal tokens has variance
        # scale⁴ · r t²/d_q when the entries of q and k have standard deviation `scale`.
        target = self.focus * math.sqrt(self.query_dim / rank) / self.token_dim
        scale = math.sqrt(target)
        gaussian = jax.random.normal(for_basis, (self.layers, self.query_dim, rank))
        basis = jnp.linalg.qr(gaussian)[0]
        inner = (self.layers, rank, self.token_dim)
        query = scale * basis @ jax.random.normal(for_query, inner)
        key_map = scale * basis @ jax.random.normal(for_key, inner)
        value = jax.random.normal(for_value, (self.layers, self.value_dim, self.token_dim))
        flat = self.value_dim * self.tokens
        first = jax.random.normal(for_first, (self.hidden, flat)) / math.sqrt(flat)
        second = jax.random.normal(for_second, (self.hidden,)) / math.sqrt(self.hidden)
        value = value / math.sqrt(self.token_dim)
        drawn = TokenWeights(query, key_map, value, first, second)
        return self.normalised(drawn) if self.unit_variance else drawn

    def normalised(self, latent: TokenWeights) -> TokenWeights:
        """The same teacher with w₂ scaled so that the noise-free answer has variance one."""
        shape = (self.token_dim, self.tokens)
        std = normalised.scale(lambda x: self.answer(latent, x), shape)
        return latent._replace(second=latent.second / std)

    def attention(
        self, latent: TokenWeights, layer: int, inputs: Float[Array, "length token_dim tokens"]
    ) -> Float[Array, "length tokens tokens"]:
        """a(x) of one layer: column z holds the weights of query z over the tokens."""
        if not self.attend:
            one = jnp.eye(self.tokens, dtype=inputs.dtype)
            return jnp.broadcast_to(one, (inputs.shape[0], *one.shape))
        queries = jnp.einsum("qt,ntp->npq", latent.query[layer], inputs)
        keys = jnp.einsum("qt,ntp->npq", latent.key[layer], inputs)
        logits = jnp.einsum("nkq,nzq->nkz", keys, queries) / math.sqrt(self.query_dim)
        if self.hard:
            return jax.nn.one_hot(logits.argmax(1), self.tokens, axis=1, dtype=logits.dtype)
        return jax.nn.softmax(logits, axis=1)

    def answer(
        self, latent: TokenWeights, inputs: Float[Array, "length token_dim tokens"]
    ) -> Float[Array, "length 1"]:
        """The noise-free answer E[y | x]; vec(·) stacks the tokens' value vectors in order."""
        for layer in range(self.layers):
            mixed = inputs @ self.attention(latent, layer, inputs)
            inputs = jnp.einsum("vt,ntp->nvp", latent.value[layer], mixed)
        flat = jnp.swapaxes(inputs, 1, 2).reshape(inputs.shape[0], self.value_dim * self.tokens)
        return (softplus(flat @ latent.first.T, self.sharpness) @ latent.second)[:, None]
