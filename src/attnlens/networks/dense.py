"""Models of plain features: the baseline and known attention of lens B, and gates on the inputs.

    Baseline         y = w₂ φ(w₁ x)
    KnownAttention   y = w₂ φ(w₁ (x ⊙ f(x)))      f given, not learned
    Gated            y = model(x ⊙ g),  g ≥ 0      g learned, usually under an ℓ₁ penalty

Symbols: w₁ ∈ R^(d×p) is `first`, w₂ ∈ R^(outputs×d) is `second`, d is `hidden`, p is `features`,
φ is `softplus` with sharpness τ₀ (lens B, ICLR 2021 submission, sections 2 and 3). Regression and
the logistic loss use one output; the softmax loss uses one output per class. Initial entries are
N(0, 1/inputs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from . import activation
from .parameters import normals


class Attended(NamedTuple):
    """Inputs together with their attention: x and f(x), both of shape (features,).

    >>> import jax
    >>> model = KnownAttention(jax.random.key(0), features=2, hidden=3)
    >>> model(Attended(jnp.ones(2), jnp.array([1.0, 0.0]))).shape
    (1,)
    """

    x: Any
    attention: Any


class Baseline(eqx.Module):
    """A network of one hidden layer, without attention; d·p + outputs·d parameters.

    >>> import jax
    >>> model = Baseline(jax.random.key(0), features=8, hidden=16)
    >>> model(jnp.ones(8)).shape
    (1,)
    """

    first: Float[Array, "hidden features"]
    second: Float[Array, "outputs hidden"]
    sharpness: float = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        features: int,
        hidden: int,
        outputs: int = 1,
        sharpness: float = 5.0,
    ):
        checks.whole("features", features, at_least=1)
        checks.whole("hidden", hidden, at_least=1)
        checks.whole("outputs", outputs, at_least=1)
        shapes = ((hidden, features), features), ((outputs, hidden), hidden)
        self.first, self.second = normals(key, *shapes)
        self.sharpness = activation.sharpness(sharpness)

    def __call__(self, x: Float[Array, ...]) -> Float[Array, " outputs"]:
        """The outputs for an array of p numbers: tokens (columns) are joined to one vector."""
        return head(self.first, self.second, flat(x), self.sharpness)

    def units(self) -> tuple[Float[Array, " rest"], Float[Array, "hidden unit"]]:
        """What the function depends on: only the hidden units, whose order does not matter."""
        return jnp.zeros(0, self.first.dtype), jnp.concatenate([self.first, self.second.T], 1)


class KnownAttention(eqx.Module):
    """The baseline applied to x ⊙ f(x); it has as many parameters, because f is not learned.

    `attention` is the function f. If it is None, each sample must contain f(x), as
    `Attended(x, f(x))`.

    >>> import jax
    >>> model = KnownAttention(jax.random.key(0), features=8, hidden=16)
    >>> model(Attended(jnp.ones(8), jnp.ones(8))).shape
    (1,)
    """

    body: Baseline
    attention: Callable[[Array], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        features: int,
        hidden: int,
        outputs: int = 1,
        sharpness: float = 5.0,
        attention: Callable[[Array], Array] | None = None,
    ):
        self.body = Baseline(
            key, features=features, hidden=hidden, outputs=outputs, sharpness=sharpness
        )
        self.attention = attention

    def __call__(self, inputs: Attended | Float[Array, " features"]) -> Float[Array, " outputs"]:
        if isinstance(inputs, Attended):
            return self.body(inputs.x * inputs.attention)
        if self.attention is None:
            raise checks.BadInput(
                "KnownAttention without attention=f needs inputs Attended(x, f(x)); got a plain "
                "array."
            )
        return self.body(inputs * self.attention(inputs))

    def units(self) -> tuple[Float[Array, " rest"], Float[Array, "hidden unit"]]:
        return self.body.units()


class Gated(eqx.Module):
    """Any model whose inputs are multiplied by gates, initially 1; `fit` keeps them at least 0.

    `shape` is that of one input, or a shape that broadcasts to it.

    >>> import jax
    >>> model = Gated(Baseline(jax.random.key(0), features=8, hidden=16), shape=(8,))
    >>> model.gates.shape
    (8,)
    """

    gates: Float[Array, "*shape"]
    model: Any

    def __init__(self, model: Any, *, shape: tuple[int, ...]):
        self.gates = jnp.ones(shape)
        self.model = model

    def __call__(self, inputs: Any) -> Array:
        if isinstance(inputs, Attended):
            return self.model(Attended(inputs.x * self.gates, inputs.attention))
        return self.model(inputs * self.gates)


def flat(x: Float[Array, ...]) -> Float[Array, " features"]:
    """vec(x): columns one after the other, so that a token's features stay together."""
    return jnp.ravel(x.T) if x.ndim > 1 else x


def head(
    first: Float[Array, "hidden features"],
    second: Float[Array, "outputs hidden"],
    x: Float[Array, " features"],
    sharpness: float,
) -> Float[Array, " outputs"]:
    """A hidden layer and a linear readout, w₂ φ(w₁ x)."""
    return second @ activation.softplus(first @ x, sharpness)
