"""Noise with mean zero and standard deviation exactly `std`: three sub-Gaussian kinds, and one with
heavy tails.

    gaussian     N(0, std²)
    uniform      U(−√3 std, √3 std)
    rademacher   ±std with equal probability
    student      c·t_ν with ν = 2.1 degrees of freedom and c = √((ν − 2)/ν) std = 0.218 std

A bounded variable on [−b, b] is sub-Gaussian with parameter b (Hoeffding, 1963), so the first three
have parameters std, √3 std and std. Student's t_ν has the variance ν/(ν − 2) = 21 and no moment of
order ν or higher: it is not sub-Gaussian, and most of its variance comes from rare values. The
smallest mean squared error of any predictor is std² for each kind.
"""

from __future__ import annotations

import math

import jax
from jaxtyping import Array, Float, Key

SUB_GAUSSIAN = ("gaussian", "uniform", "rademacher")
KINDS = (*SUB_GAUSSIAN, "student")
FREEDOM = 2.1  # degrees of freedom of Student's t; its variance is finite above 2
STUDENT_SCALE = math.sqrt((FREEDOM - 2) / FREEDOM)  # gives Student's t the variance 1


def draw(
    kind: str, key: Key[Array, ""], shape: tuple[int, ...], std: float
) -> Float[Array, "*shape"]:
    """Noise of the named kind."""
    if kind == "uniform":
        edge = math.sqrt(3)
        return std * jax.random.uniform(key, shape, minval=-edge, maxval=edge)
    if kind == "rademacher":
        return std * jax.random.rademacher(key, shape, dtype=float)
    if kind == "student":
        return std * STUDENT_SCALE * jax.random.t(key, FREEDOM, shape)
    return std * jax.random.normal(key, shape)
