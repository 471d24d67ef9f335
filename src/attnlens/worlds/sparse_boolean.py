"""Sequences of bits whose label is the AND of a few of them.

    y = 1 if x_i = 1 for all i in S, otherwise −1,     |S| = s,   x ∈ {−1, 1}^T

The bits are independent, and each is 1 with probability 2^(−1/s). So P(y = 1) = (2^(−1/s))^s = 1/2:
a constant prediction has the error 1/2 for every s. The set S is the latent and is drawn uniformly
from all sets of s positions. Such *sparse Boolean functions* test how many samples a network needs
to find S (Edelman, Goel, Kakade and Zhang, 2022). There are (T choose s) sets and a label has at
most one bit of information, so no method finds S from fewer than log2 (T choose s) samples.

An episode of n samples has tokens.key of shape (n, T), one sequence per row, and tokens.value of
shape (n, 1). Labels have no noise.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from .base import Episode, Pairs, World


class SparseAnd(World):
    """The AND of `relevant` of `bits` bits, at positions that are drawn for each episode.

    >>> world = SparseAnd(bits=16, relevant=3)
    >>> episode = world.sample(jax.random.key(0), length=100, queries=10)
    >>> episode.tokens.key.shape, int(episode.latent.sum())
    ((100, 16), 3)
    """

    bits: int = eqx.field(default=16, static=True)
    relevant: int = eqx.field(default=3, static=True)

    def __check_init__(self):
        checks.whole("bits", self.bits, at_least=1)
        if not 1 <= checks.whole("relevant", self.relevant) <= self.bits:
            raise checks.BadInput(
                f"relevant must be from 1 to the number of bits, {self.bits}; got {self.relevant}."
            )

    @property
    def information(self) -> float:
        """log2 (T choose s), the bits of information that determine the set S."""
        return math.log2(math.comb(self.bits, self.relevant))

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_set, for_bits = jax.random.split(key)
        order = jax.random.permutation(for_set, self.bits)
        dtype: Any = jnp.zeros(()).dtype
        latent = (order < self.relevant).astype(dtype)
        ones = jax.random.bernoulli(
            for_bits, 2 ** (-1 / self.relevant), (length + queries, self.bits)
        )
        inputs = jnp.where(ones, 1.0, -1.0).astype(dtype)
        answer = self.answer(latent, inputs)
        tokens = Pairs(inputs[:length], answer[:length])
        return Episode(latent, tokens, inputs[length:], answer[length:])

    def answer(
        self, latent: Float[Array, " bits"], inputs: Float[Array, "length bits"]
    ) -> Float[Array, "length 1"]:
        """The label of each row: 1 if all bits of the set are 1, otherwise −1."""
        missing = (inputs < 0).astype(latent.dtype) @ latent
        return jnp.where(missing > 0, -1.0, 1.0).astype(inputs.dtype)[:, None]
