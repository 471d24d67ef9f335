"""Control worlds: two whose tokens are not exchangeable, two exchangeable but not independent.

    AutoRegressive   x_ℓ = c x_{ℓ−1} + …: identically distributed tokens, but their order matters
    Drifting         the mean depends on the position: independent given z, not identical
    PolyaUrn         drawn in sequence, each draw changes the next, and still exchangeable
    Equicorrelated   exchangeable and dependent; with negative correlation no latent makes the
                     tokens independent (the theorem of de Finetti requires infinitely many
                     tokens; Diaconis and Freedman, 1980)

The last two separate "exchangeable" from "independent".
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from attnlens.core import checks

from . import settings
from .base import Episode, World
from .settings import Numbers


class AutoRegressive(World):
    """x_ℓ = c x_{ℓ−1} + √(1 − c²) std e_ℓ, started in its stationary law N(0, std²).

    >>> AutoRegressive(coefficient=0.5).sample(jax.random.key(0), length=10).tokens.shape
    (10, 1)
    """

    exchangeable: ClassVar[bool] = False
    dim: int = eqx.field(default=1, static=True)
    coefficient: float = 0.5
    token_std: float = 1.0

    def __check_init__(self):
        checks.whole("dim", self.dim, at_least=1)
        checks.positive("token_std", self.token_std)
        if not -1 < self.coefficient < 1:
            raise checks.BadInput(
                f"coefficient must be between -1 and 1 for a stationary sequence; got "
                f"{self.coefficient!r}."
            )

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        draws = self.token_std * jax.random.normal(key, (length, self.dim))
        fresh = math.sqrt(1 - self.coefficient**2)
        # With the first draw scaled up, the recursion starts in its stationary law.
        first = jnp.where(jnp.arange(length) == 0, 1 / fresh, 1.0).astype(draws.dtype)

        def step(before: Array, draw: Array) -> tuple[Array, Array]:
            after = self.coefficient * before + fresh * draw
            return after, after

        start = jnp.zeros(self.dim, draws.dtype)
        return Episode(None, jax.lax.scan(step, start, draws * first[:, None])[1])


class Drifting(World):
    """x_ℓ = z + drift · (ℓ/(L − 1) − ½) + noise_std e_ℓ.

    The mean moves by `drift` from the first token to the last.

    >>> Drifting(drift=2.0).sample(jax.random.key(0), length=10).tokens.shape
    (10, 1)
    """

    exchangeable: ClassVar[bool] = False
    dim: int = eqx.field(default=1, static=True)
    drift: float = 2.0
    noise_std: float = 1.0
    prior_std: float = 1.0

    def __check_init__(self):
        checks.whole("dim", self.dim, at_least=1)
        checks.positive("noise_std", self.noise_std)
        checks.positive("prior_std", self.prior_std)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_noise = jax.random.split(key)
        latent = self.prior_std * jax.random.normal(for_latent, (self.dim,))
        noise = self.noise_std * jax.random.normal(for_noise, (length, self.dim))
        position = jnp.arange(length) / max(length - 1, 1) - 0.5
        moved = latent[None, :] + self.drift * position.astype(noise.dtype)[:, None]
        return Episode(latent, moved + noise)


class PolyaUrn(World):
    """Draw a ball, put it back with another ball of its colour, and repeat; tokens are one-hot.

    The probability of a colour is (α_c + times drawn)/(Σα + draws so far). The joint law does not
    depend on the order: it is that of `DirichletCategorical` (Blackwell and MacQueen, 1973).

    >>> PolyaUrn(classes=3).sample(jax.random.key(0), length=10).tokens.shape
    (10, 3)
    """

    classes: int = eqx.field(static=True)
    concentration: np.ndarray

    def __init__(self, classes: int = 3, concentration: Numbers = 1.0):
        self.classes = checks.whole("classes", classes, at_least=2)
        self.concentration = settings.positives("concentration", concentration, classes)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        start = jnp.asarray(self.concentration, jnp.result_type(float))

        def draw(urn: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
            colour = jax.random.categorical(key, jnp.log(urn))
            ball = jax.nn.one_hot(colour, self.classes, dtype=urn.dtype)
            return urn + ball, ball

        return Episode(None, jax.lax.scan(draw, start, jax.random.split(key, length))[1])


class Equicorrelated(World):
    """Normal tokens of variance one; every pair has the same correlation ρ.

        x_ℓ = √(1 − ρ) (e_ℓ − ē) + √(1 + (L − 1)ρ) ē,     −1/(L − 1) ≤ ρ < 1

    With ρ > 0 a shared latent explains the correlation. With ρ < 0 no latent can, and the tokens
    are still exchangeable.

    >>> Equicorrelated(correlation=0.5).sample(jax.random.key(0), length=10).tokens.shape
    (10, 1)
    """

    dim: int = eqx.field(default=1, static=True)
    correlation: float = 0.5

    def __check_init__(self):
        checks.whole("dim", self.dim, at_least=1)
        if not -1 <= self.correlation < 1:
            raise checks.BadInput(
                f"correlation must be from -1 to below 1; got {self.correlation!r}."
            )

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        common = 1 + (length - 1) * self.correlation if length else 1.0
        if common < 0:
            raise checks.BadInput(
                f"correlation must be at least -1/(length - 1) = {-1 / (length - 1):.3g} for "
                f"{length} tokens; got {self.correlation!r}; use fewer tokens."
            )
        draws = jax.random.normal(key, (length, self.dim))
        mean = jnp.sum(draws, 0, keepdims=True) / max(length, 1)
        own = math.sqrt(1 - self.correlation)
        return Episode(None, own * (draws - mean) + math.sqrt(common) * mean)
