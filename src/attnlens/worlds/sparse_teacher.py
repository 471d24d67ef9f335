"""The teacher with known attention of lens B (ICLR 2021 submission).

A small network that attends to s of p features:

    y = w₂ᵀ φ(w₁ (x ⊙ f(x))) + noise,    x ~ N(0, I_p)
    f(x)_i = s · softmax over the support S of (u_i x_i)  for i ∈ S,   0 elsewhere

φ(x) = log(1 + e^{τ₀ x})/τ₀ is the softplus of lens B (section 2). f is *known attention*: it is
given to the learner, depends on the input, and is zero outside the support S, a set of s features
that is drawn for each teacher. The s weights are positive and sum to s, so x ⊙ f(x) has the scale
of x. Lens B does not specify f; this one is a choice of this package. Weights are drawn so that
pre-activations and the sum over the hidden units have variance of order one: w₁ ~ N(0, 1/s),
w₂ ~ N(0, 1/d).

`unit_variance=True` divides w₂ by the standard deviation of the noise-free answer (`normalised`).
`core_features=c` embeds one teacher in any number of features p ≥ c: with the same key, weights and
the inputs of the first c features are the same for every p, the support lies among these, and the
other features are irrelevant. `constant=True` gives *global attention*: f(x) = s · softmax(u) on
the support, one mask for all x.

An episode is one teacher and n labelled samples: tokens are Pairs(x, y), the latent holds the
teacher's weights, and answers have no noise. No predictor has a mean squared error below
`noise_floor` = noise_std².
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


class SparseWeights(NamedTuple):
    """One teacher: the support, the scores of the features, and the weights of two layers."""

    support: Float[Array, " features"]
    score: Float[Array, " features"]
    first: Float[Array, "hidden features"]
    second: Float[Array, " hidden"]


def softplus(x: Float[Array, "*shape"], sharpness: float) -> Float[Array, "*shape"]:
    """log(1 + e^{τ₀ x})/τ₀, within log 2/τ₀ of ReLU; an infinite sharpness is ReLU."""
    if math.isinf(sharpness):
        return jnp.maximum(x, 0)
    return jnp.logaddexp(sharpness * x, 0.0) / sharpness


class SparseTeacher(World):
    """A teacher that attends to a few of many features, with weights that depend on the input.

    `attend=False` gives the same teacher with f ≡ 1 on all features, for controls.

    >>> teacher = SparseTeacher(features=16, attended=4)
    >>> episode = teacher.sample(jax.random.key(0), length=100, queries=10)
    >>> teacher.attention(episode.latent, episode.tokens.key).shape
    (100, 16)
    """

    features: int = eqx.field(default=16, static=True)
    attended: int = eqx.field(default=4, static=True)
    hidden: int = eqx.field(default=8, static=True)
    noise_std: float = 0.1
    noise: str = eqx.field(default="gaussian", static=True)
    sharpness: float = 5.0
    attend: bool = eqx.field(default=True, static=True)
    constant: bool = eqx.field(default=False, static=True)
    core_features: int | None = eqx.field(default=None, static=True)
    unit_variance: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        checks.whole("features", self.features, at_least=1)
        checks.whole("hidden", self.hidden, at_least=1)
        checks.positive("noise_std", self.noise_std)
        checks.one_of("noise", self.noise, noise.KINDS)
        if not 1 <= checks.whole("attended", self.attended) <= self.features:
            raise checks.BadInput(
                f"attended must be from 1 to the number of features, {self.features}; got "
                f"{self.attended}."
            )
        core = self.core_features
        if core is None:
            return
        if not self.attended <= checks.whole("core_features", core) <= self.features:
            raise checks.BadInput(
                f"core_features must be from attended, {self.attended}, to the number of features, "
                f"{self.features}; got {core}; leave it out for all features."
            )

    @property
    def noise_floor(self) -> float:
        """The smallest mean squared error of any predictor of y."""
        return self.noise_std**2

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_teacher, for_inputs, for_noise = jax.random.split(key, 3)
        latent = self.teacher(for_teacher)
        inputs = self._inputs(for_inputs, length + queries)
        answer = self.answer(latent, inputs)
        noisy = noise.draw(self.noise, for_noise, (length, 1), self.noise_std)
        tokens = Pairs(inputs[:length], answer[:length] + noisy)
        return Episode(latent, tokens, inputs[length:], answer[length:])

    def teacher(self, key: Key[Array, ""]) -> SparseWeights:
        """A random teacher."""
        for_support, for_score, for_first, for_second = jax.random.split(key, 4)
        core = self.features if self.core_features is None else self.core_features
        order = jax.random.permutation(for_support, core)
        score = jax.random.normal(for_score, (core,))
        fan_in = self.attended if self.attend else core
        first = jax.random.normal(for_first, (self.hidden, core)) / math.sqrt(fan_in)
        second = jax.random.normal(for_second, (self.hidden,)) / math.sqrt(self.hidden)
        support, others = (order < self.attended).astype(score.dtype), self.features - core
        support, score = (jnp.pad(part, (0, others)) for part in (support, score))
        drawn = SparseWeights(support, score, jnp.pad(first, ((0, 0), (0, others))), second)
        return self.normalised(drawn) if self.unit_variance else drawn

    def normalised(self, latent: SparseWeights) -> SparseWeights:
        """The same teacher with w₂ scaled so that the noise-free answer has variance one."""
        std = normalised.scale(lambda x: self.answer(latent, x), (self.features,))
        return latent._replace(second=latent.second / std)

    def _inputs(self, key: Key[Array, ""], rows: int) -> Float[Array, "rows features"]:
        if self.core_features is None:
            return jax.random.normal(key, (rows, self.features))
        # Drawn column by column, so that the first columns do not depend on the number of features.
        keys = jax.vmap(lambda column: jax.random.fold_in(key, column))(jnp.arange(self.features))
        return jax.vmap(lambda one: jax.random.normal(one, (rows,)))(keys).T

    def attention(
        self, latent: SparseWeights, inputs: Float[Array, "length features"]
    ) -> Float[Array, "length features"]:
        """f(x), which is given to a learner with known attention."""
        if not self.attend:
            return jnp.ones_like(inputs)
        scores = latent.score[None, :] * (jnp.ones_like(inputs) if self.constant else inputs)
        logits = jnp.where(latent.support[None, :] > 0, scores, -jnp.inf)
        return self.attended * jax.nn.softmax(logits, axis=-1)

    def answer(
        self, latent: SparseWeights, inputs: Float[Array, "length features"]
    ) -> Float[Array, "length 1"]:
        """The noise-free answer E[y | x]."""
        attended = inputs * self.attention(latent, inputs)
        return (softplus(attended @ latent.first.T, self.sharpness) @ latent.second)[:, None]
