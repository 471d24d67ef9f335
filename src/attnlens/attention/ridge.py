"""The ridge λ chosen from the data; one eigendecomposition gives the criterion for every λ.

With κ(K, K) = U diag(e) Uᵀ, w = Uᵀ V and A = κ(K, K) + λ I:

    α = A⁻¹ V = U w/(e + λ),      (A⁻¹)_ii = Σ_k U_ik²/(e_k + λ)
    loo        (1/L) Σ_i ‖α_i / (A⁻¹)_ii‖²     the leave-one-out mean squared error
                                               (Wahba, Spline Models, 1990, ch. 4)
    evidence   −log N(V; 0, A) = ½ Σ_k ‖w_k‖²/(e_k + λ) + ½ d_v Σ_k log(e_k + λ) + constant
                                               (Rasmussen and Williams, 2006, section 5.4)

The minimum is searched on a grid of log λ, then twice on a finer grid around the best point. Each
masked token gives an eigenvalue 0 with w = 0, which adds ½ d_v log λ to the evidence; this term is
subtracted again. The chosen λ is a constant in differentiation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

RULES = ("loo", "evidence")
# Bounds of λ as multiples of the mean of κ(k, k). The lower bound is at least 32 ε L, because
# smaller values are lost in rounding.
SMALLEST, LARGEST = 1e-8, 1e3
GRIDS = (65, 33, 33)  # points of the three grids


def choose(rule: str, gram: Array, value: Array, mask: Array | None) -> Array:
    """The ridge with the smallest leave-one-out error or the largest evidence; a scalar."""
    gram, value = jax.lax.stop_gradient((gram, value))
    length, value_dim = value.shape
    seen = jnp.ones(length, bool) if mask is None else mask
    count = jnp.maximum(jnp.sum(seen), 1).astype(value.dtype)
    eigenvalues, vectors = jnp.linalg.eigh(gram, symmetrize_input=False)
    eigenvalues = jnp.maximum(eigenvalues, 0)
    coordinates = vectors.T @ value

    def loo(log_ridge):
        inverse = 1 / (eigenvalues + jnp.exp(log_ridge))
        alpha = vectors @ (inverse[:, None] * coordinates)
        diagonal = (vectors**2) @ inverse
        errors = jnp.where(seen[:, None], alpha / diagonal[:, None], 0)
        return jnp.sum(errors**2) / count

    def evidence(log_ridge):
        shifted = eigenvalues + jnp.exp(log_ridge)
        fit = jnp.sum(coordinates**2 / shifted[:, None])
        volume = jnp.sum(jnp.log(shifted)) - (length - count) * log_ridge
        return (fit + value_dim * volume) / 2

    objective = {"loo": loo, "evidence": evidence}[rule]
    scale = jnp.maximum(jnp.sum(jnp.diagonal(gram)) / count, jnp.finfo(gram.dtype).tiny)
    smallest = max(SMALLEST, 32 * length * float(jnp.finfo(gram.dtype).eps))
    low, high = jnp.log(scale * smallest), jnp.log(scale * LARGEST)
    best = low
    for points in GRIDS:
        grid = jnp.linspace(low, high, points, dtype=gram.dtype)
        best = grid[jnp.argmin(jax.lax.map(objective, grid))]
        step = (high - low) / (points - 1)
        low, high = jnp.maximum(best - step, low), jnp.minimum(best + step, high)
    return jnp.exp(best)
