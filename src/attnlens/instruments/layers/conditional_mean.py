"""Does a head smooth or interpolate: softmax attention against kernel ridge regression, per head.

With keys k_j, values v_j and logits ⟨q, k⟩/τ,

    softmax   SM(q)  = Σ_j a_j v_j,     a_j ∝ exp(⟨q, k_j⟩/τ) = κ(q, k_j) e^(‖k_j‖²/2τ) e^(‖q‖²/2τ)
    CME       CM(q)  = v̄ + (V − v̄)ᵀ (κ(K, K) + λ I)⁻¹ κ(K, q),   κ(q, k) = exp(−‖q − k‖²/2τ)

are two estimates of the conditional mean of values given a key from the same pairs of keys and
values (kernel regression, and the conditional mean embedding; lens A (Zhang et al., 2022),
docs/theory.md, predictions 4 to 7). If all keys have the same norm, both use the same kernel. λ
minimises, over a grid, the leave-one-out error of predicting each value from the other pairs,

    Σ_j ‖(v_j − CM(k_j))/(1 − M_jj)‖²,   M = κ(K, K)(κ(K, K) + λ I)⁻¹

The module measures, in units of the values' variance around their mean v̄:

    passed     mean ‖SM(q) − v̄‖²: 0 for a head that smooths everything to the mean, 1 for one that
               passes single values through (it interpolates)
    to CME     mean ‖SM(q) − CM(q)‖²: 0 for a head that computes the ridge estimate
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from .token_subsets import measured_queries

RIDGES = np.logspace(-3, 2, 6)  # κ(k, k) = 1, so with a ridge of 100 CM(q) is nearly the mean
LEAST = 8  # minimum number of tokens that a query must see

PerHead = Float[np.ndarray, " heads"]


def passed_share(
    weights: Float[np.ndarray, "heads query key"],
    values: Float[np.ndarray, "heads key dim"],
    *,
    causal: bool,
) -> PerHead | None:
    """Return `passed` of one input, one number per head, or None if it has too few tokens."""
    queries = measured_queries(weights.shape[1], causal, LEAST)
    if not queries.size:
        return None
    values = np.asarray(values, float)
    deviations, variances = np.zeros(len(values)), np.zeros(len(values))
    for query in queries:
        seen = query + 1 if causal else weights.shape[-1]
        part = values[:, :seen] - values[:, :seen].mean(1, keepdims=True)
        output = np.einsum("hk,hkd->hd", np.asarray(weights[:, query, :seen], float), part)
        deviations += (output**2).sum(-1)
        variances += (part**2).sum(-1).mean(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return deviations / variances


def distance_to_cme(
    weights: Float[np.ndarray, "heads query key"],
    queries: Float[np.ndarray, "heads query dim"],
    keys: Float[np.ndarray, "heads key dim"],
    values: Float[np.ndarray, "heads key _dim"],
    scale: float,
    *,
    causal: bool,
) -> PerHead | None:
    """Return `to CME` of one input per head (None: too few tokens); logits are scale · ⟨q, k⟩."""
    places = measured_queries(weights.shape[1], causal, LEAST)
    if not places.size:
        return None
    parts = (np.asarray(part, float) for part in (weights, queries, keys, values))
    heads = zip(*parts, strict=True)
    return np.array([_distance(w, q, k, v, scale, places, causal) for w, q, k, v in heads])


def _distance(
    weights: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    scale: float,
    places: np.ndarray,
    causal: bool,
) -> float:
    """Return `to CME` of one head."""
    gram = gaussian(keys, keys, scale)
    ridge = leave_one_out_ridge(gram, values)
    cross = gaussian(keys, queries[places], scale)
    squares = variance = 0.0
    all_keys = np.full(len(places), len(keys))
    for seen, columns in _groups(places + 1 if causal else all_keys):
        part = values[:seen] - values[:seen].mean(0)
        solved = np.linalg.solve(gram[:seen, :seen] + ridge * np.eye(seen), part)
        output = weights[places[columns], :seen] @ part
        squares += float(((output - cross[:seen, columns].T @ solved) ** 2).sum())
        variance += len(columns) * float((part**2).sum(-1).mean())
    return squares / variance if variance > 0 else np.nan


def _groups(seen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each number of keys in `seen` with the indices of the queries that see so many keys."""
    for count in np.unique(seen):
        yield int(count), np.flatnonzero(seen == count)


def gaussian(keys: np.ndarray, queries: np.ndarray, scale: float) -> np.ndarray:
    """Return the matrix (keys, queries) of κ(k, q) = exp(−scale ‖k − q‖²/2)."""
    squares = (keys**2).sum(-1)[:, None] + (queries**2).sum(-1) - 2 * keys @ queries.T
    return np.exp(-0.5 * scale * np.maximum(squares, 0))


def leave_one_out_ridge(gram: np.ndarray, values: np.ndarray) -> float:
    """Return the ridge in `RIDGES` with the smallest leave-one-out error.

    One eigendecomposition serves all ridges. v̄ stays the mean of all n values when value j is left
    out, which neglects a change of (v̄ − v_j)/(n − 1).
    """
    spectrum, vectors = np.linalg.eigh(gram)
    spectrum = np.maximum(spectrum, 0)
    centred = values - values.mean(0)
    along = vectors.T @ centred
    errors = []
    for ridge in RIDGES:
        left = ridge / (spectrum + ridge)  # eigenvalues of I − M
        residual = vectors @ (left[:, None] * along)
        diagonal = (vectors**2) @ left
        errors.append(((residual / diagonal[:, None]) ** 2).sum())
    return float(RIDGES[int(np.argmin(errors))])
