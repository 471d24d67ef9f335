"""Sub-Gaussian noise of three kinds, with mean zero and standard deviation exactly `std`.

    gaussian     N(0, std²)
    uniform      U(−√3 std, √3 std)
    rademacher   ±std with equal probability

A bounded variable on [−b, b] is sub-Gaussian with parameter b (Hoeffding, 1963), so the three have
parameters std, √3 std and std. The smallest mean squared error of any predictor is std² for each.
"""

from __future__ import annotations

import math

import jax
from jaxtyping import Array, Float, Key

KINDS = ("gaussian", "uniform", "rademacher")


def draw(
    kind: str, key: Key[Array, ""], shape: tuple[int, ...], std: float
) -> Float[Array, "*shape"]:
    """Noise of the named kind."""
    if kind == "uniform":
        edge = math.sqrt(3)
        return std * jax.random.uniform(key, shape, minval=-edge, maxval=edge)
    if kind == "rademacher":
        return std * jax.random.rademacher(key, shape, dtype=float)
    return std * jax.random.normal(key, shape)
