"""Losses of one sample, by name: (outputs, target) -> number.

    squared          mean over outputs of (y − ŷ)²
    logistic         log(1 + e^ŷ) − y ŷ,   y ∈ {0, 1}, mean over outputs
    softmax          log Σ_c e^{ŷ_c} − ŷ_y,   y a class number
    gaussian         ½ mean (log v + (z − m)²/v + log 2π),   outputs are m and log v
    mixture          −log q(z) of a mixture of Gaussians q (`mixture.FullMixture`), in nats
    masked-squared   mean of (x − x̂)² over the hidden entries of the tokens
    masked-softmax   mean of the softmax loss over the hidden tokens, tokens being class numbers

The first three are those of lens B (ICLR 2021 submission). The others train the encoder of lens A
(Zhang et al., 2022): `gaussian` and `mixture` fit the posterior of a latent z (their expectations
are smallest where m and v are the posterior's mean and variance, and where q is the posterior), and
the masked losses train a network to predict hidden tokens from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attnlens.core import checks

from .mixture import FullMixture


class Hidden(NamedTuple):
    """The target of masked prediction: all tokens, and which of them enter the loss.

    `tokens` has shape (L, dim), or (L,) for class numbers; `hidden` selects whole tokens (L,) or
    single entries (L, dim).

    >>> target = Hidden(tokens=jnp.zeros((4, 2)), hidden=jnp.array([True, False, False, False]))
    >>> int(target.hidden.sum())
    1
    """

    tokens: Any
    hidden: Any


def squared(outputs: Float[Array, " outputs"], target: Float[Array, " outputs"]) -> Array:
    return jnp.mean((outputs - target) ** 2)


def logistic(outputs: Float[Array, " outputs"], target: Float[Array, " outputs"]) -> Array:
    # log(1 + e^u) = −log σ(−u), which JAX differentiates to any order, also at u = 0.
    return jnp.mean(-jax.nn.log_sigmoid(-outputs) - target * outputs)


def softmax(outputs: Float[Array, " classes"], target: Int[Array, ""]) -> Array:
    return -jax.nn.log_softmax(outputs)[target]


def gaussian(outputs: Float[Array, "2 dim"], target: Float[Array, " dim"]) -> Array:
    mean, log_var = outputs
    terms = log_var + (target - mean) ** 2 * jnp.exp(-log_var) + math.log(2 * math.pi)
    return 0.5 * jnp.mean(terms)


def mixture(outputs: Float[Array, "components entries"], target: Float[Array, " dim"]) -> Array:
    return -FullMixture.of(outputs, target.shape[0]).log_prob(target)


def masked_squared(outputs: Float[Array, "length dim"], target: Hidden) -> Array:
    hidden = target.hidden if target.hidden.ndim == 2 else target.hidden[:, None]
    hidden = jnp.broadcast_to(hidden, outputs.shape)
    error = jnp.where(hidden, (outputs - target.tokens) ** 2, 0)
    return jnp.sum(error) / jnp.maximum(jnp.sum(hidden, dtype=outputs.dtype), 1)


def masked_softmax(outputs: Float[Array, "length classes"], target: Hidden) -> Array:
    log_probability = jnp.take_along_axis(
        jax.nn.log_softmax(outputs, -1), target.tokens[:, None], axis=-1
    )[:, 0]
    error = jnp.where(target.hidden, -log_probability, 0)
    return jnp.sum(error) / jnp.maximum(jnp.sum(target.hidden, dtype=outputs.dtype), 1)


Loss = Callable[[Array, Any], Array]
LOSSES: dict[str, Loss] = {
    "squared": squared,
    "logistic": logistic,
    "softmax": softmax,
    "gaussian": gaussian,
    "mixture": mixture,
    "masked-squared": masked_squared,
    "masked-softmax": masked_softmax,
}
"""Losses by name, as `fit` and `stationary_points` take them."""


def named(loss: str | Loss) -> Loss:
    """The loss of that name; a function of (outputs, target) is returned as it is."""
    return LOSSES[checks.one_of("loss", loss, LOSSES)] if isinstance(loss, str) else loss
