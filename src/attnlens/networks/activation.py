"""The activation of lens B (ICLR 2021 submission): softplus of sharpness τ₀, ReLU as its limit.

    φ(x) = log(1 + e^{τ₀ x})/τ₀ = max(x, 0) + log(1 + e^{−τ₀|x|})/τ₀,    φ'(x) = 1/(1 + e^{−τ₀ x})

sup |φ − ReLU| = log 2/τ₀, reached at x = 0. The second form never overflows. Its derivative is
given explicitly: differentiating |x| term by term would give φ''(0) = 0 instead of τ₀/4, and x = 0
is where the stationary point w₁ = 0 lies.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attnlens.core import checks


def sharpness(value: float) -> float:
    """`value` as τ₀, which must be above zero; infinity means ReLU."""
    if not value > 0:
        raise checks.BadInput(
            f"sharpness must be above 0, or infinity for ReLU; got {value!r}; give "
            f"sharpness=5.0, for example."
        )
    return float(value)


def softplus(x: Float[Array, "*shape"], sharpness: float) -> Float[Array, "*shape"]:
    """log(1 + e^{τ₀ x})/τ₀; an infinite sharpness is ReLU, whose derivative at 0 is taken as 0.

    >>> softplus(jnp.array([-1.0, 0.0, 2.0]), math.inf)
    Array([0., 0., 2.], dtype=float32)
    """
    return jax.nn.relu(x) if math.isinf(sharpness) else _softplus(x, sharpness)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _softplus(x: Array, sharpness: float) -> Array:
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-sharpness * jnp.abs(x))) / sharpness


@_softplus.defjvp
def _derivative(sharpness, primals, tangents):
    (x,), (direction,) = primals, tangents
    return _softplus(x, sharpness), jax.nn.sigmoid(sharpness * x) * direction
