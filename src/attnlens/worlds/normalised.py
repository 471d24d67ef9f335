"""Teachers whose noise-free answers have variance one: noise and errors are then on one scale.

The last weights of a teacher, w₂, are divided by the standard deviation of w₂ᵀφ(…) over
`INPUTS` standard normal inputs. All teachers whose inputs have the same shape get the same inputs,
so the normalisation is a function of the weights. The variance over *all* inputs is then 1 up to
the error of a sample variance: a relative standard deviation of √((κ − 1)/4096), with κ the
kurtosis of the answers; 3 % for κ = 5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

INPUTS = 4096
Weights = TypeVar("Weights")


@lru_cache(maxsize=16)
def standard_inputs(shape: tuple[int, ...]) -> np.ndarray:
    """The fixed sample of inputs of this shape."""
    return np.random.default_rng(0).standard_normal((INPUTS, *shape))


def scale(answer: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """The standard deviation of the answers over the fixed inputs; `shape` is that of one input."""
    inputs = standard_inputs(shape)
    return jnp.std(answer(jnp.asarray(inputs, jax.dtypes.canonicalize_dtype(inputs.dtype))))
