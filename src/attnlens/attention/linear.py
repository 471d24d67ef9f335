"""Feature-map attention: weights φ(q)·φ(k), so that all queries share one sum over tokens.

    LA(q; K, V) = φ(q)ᵀ Σ_ℓ φ(k_ℓ) v_ℓᵀ / φ(q)ᵀ Σ_ℓ φ(k_ℓ)

Time and memory are linear in the length. Two maps:

    elu        φ(x) = elu(x/√τ) + 1    (Katharopoulos et al., Transformers are RNNs, 2020)
    positive   φ(x) = exp(ω_m·x/√τ − ‖x‖²/2τ) / √M,  m = 1 … M, ω_m ~ N(0, I)
               (Choromanski et al., Rethinking attention with Performers, 2021)

For the second map E φ(q)·φ(k) = exp(q·k/τ), so it estimates softmax attention. Rows of ω are
orthogonal in groups of d, which lowers the variance.

For keys of large norm, or far below zero, φ would overflow or vanish. Therefore, with
a_m = max_ℓ log φ_m(k_ℓ), the sums are computed from φ_m(k)e^{−a_m} and φ_m(q)e^{a_m − max_m(…)}:
both are at most 1, the denominator is at least 1, and the ratio is the same.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attnlens.core import checks

from . import inputs

MAPS = ("elu", "positive")


def linear(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    features: str = "elu",
    count: int = 256,
    seed: int = 0,
    temperature: float | Float[Array, ""] | None = None,
    mask: Bool[Array, ...] | None = None,
) -> Float[Array, "*batch queries value_dim"]:
    """Feature-map attention in time linear in the length.

    `features` is "elu" or "positive" (`count` random features drawn from `seed`). `temperature`
    defaults to 1 for "elu", which does not approximate softmax, and to √d for "positive". `mask`
    must be the same for every query: (..., 1, length), (..., length) or (length,).

    >>> linear(jnp.ones((1, 2)), jnp.eye(2), jnp.array([[1.0], [3.0]]))
    Array([[2.]], dtype=float32)
    """
    checks.one_of("features", features, MAPS)
    query, key, value = inputs.operands(query=query, key=key, value=value)
    seen = inputs.token_mask(mask, key.shape)
    number = 1.0 if temperature is None and features == "elu" else temperature
    scale = inputs.scale("temperature", number, query.shape[-1]) ** 0.5
    q, k = (
        inputs.at_least_single(query) / scale,
        inputs.hide(inputs.at_least_single(key), seen) / scale,
    )
    v = inputs.hide(inputs.at_least_single(value), seen)
    if features == "elu":
        log_q, log_k = _log_elu(q), _log_elu(k)
    else:
        omega = jnp.asarray(
            _orthogonal(
                checks.whole("count", count, 1), q.shape[-1], checks.seed_number("seed", seed)
            ),
            q.dtype,
        )
        log_q, log_k = _log_positive(q, omega), _log_positive(k, omega)
    phi_q, phi_k = _scaled(log_q, log_k, seen)
    summed = jnp.einsum("...lm,...ld->...md", phi_k, v)
    total = jnp.einsum("...qm,...m->...q", phi_q, jnp.sum(phi_k, -2))[..., None]
    empty = total == 0
    output = jnp.einsum("...qm,...md->...qd", phi_q, summed) / jnp.where(empty, 1, total)
    output = jnp.where(empty, 0, output)
    return output.astype(value.dtype) if value.dtype.itemsize < 4 else output


def _log_elu(x: Array) -> Array:
    """log(elu(x) + 1), without the cancellation in eˣ − 1 + 1."""
    return jnp.where(x > 0, jnp.log1p(jnp.maximum(x, 0)), x)


def _log_positive(x: Array, omega: Array) -> Array:
    return jnp.einsum("...ld,md->...lm", x, omega) - jnp.sum(x**2, -1, keepdims=True) / 2


def _scaled(log_q: Array, log_k: Array, seen: Array | None) -> tuple[Array, Array]:
    """The maps of queries and keys, scaled so that neither overflows nor vanishes."""
    if seen is not None:
        log_k = jnp.where(seen[..., None], log_k, -jnp.inf)
    top = jnp.max(log_k, -2, keepdims=True, initial=-jnp.inf)
    top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0, top))
    log_q = log_q + top
    log_q = log_q - jax.lax.stop_gradient(jnp.max(log_q, -1, keepdims=True, initial=-jnp.inf))
    return jnp.exp(log_q), jnp.exp(log_k - top)


@cache
def _orthogonal(count: int, dim: int, seed: int) -> np.ndarray:
    """(count, dim) standard normal rows, orthogonal in groups of `dim`; a NumPy constant."""
    random = np.random.default_rng(seed)
    groups = []
    for _ in range(-(-count // dim)):
        directions, upper = np.linalg.qr(random.normal(size=(dim, dim)))
        # Q is uniform over rotations only if the diagonal of R is positive (Mezzadri, 2007). LAPACK
        # chooses the signs by convention, and with its choice every estimate would be biased.
        directions = directions * np.sign(np.diagonal(upper))
        lengths = np.linalg.norm(random.normal(size=(dim, dim)), axis=-1)
        groups.append(directions * lengths[:, None])
    return np.concatenate(groups)[:count]
