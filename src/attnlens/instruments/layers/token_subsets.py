"""The error of attention over m random tokens, compared with attention over all tokens, per head.

    A_S(q) = Σ_{j ∈ S} a_j v_j / Σ_{j ∈ S} a_j        S: m of the n tokens that the query can see

The relative error is the root mean square of ‖A_S − A‖ over queries and draws, divided by the root
mean square deviation of the values from their mean. The mean of a sample without replacement has
variance σ²/m · (n − m)/(n − 1) (Cochran, Sampling Techniques, 1977), so errors are divided by the
root of the last factor. They fall as m^(−1/2) if attention is spread over many tokens, and more
slowly near hardmax, where the error depends on whether the subset contains the one important token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

SIZES = (2, 4, 8, 16)
LEAST = 24  # minimum number of tokens that a query must see: 1.5 times the largest subset
QUERIES = 8  # number of queries per input that are measured, evenly spaced
DRAWS = 8  # number of subsets per query and size


def measured_queries(length: int, causal: bool, least: int = LEAST, count: int = QUERIES):
    """Return evenly spaced queries that see at least `least` tokens; none if the input is shorter.

    >>> measured_queries(32, causal=True).tolist()
    [23, 24, 25, 26, 27, 28, 29, 31]
    """
    first = least - 1 if causal else 0
    if length < least:
        return np.empty(0, int)
    return np.unique(np.linspace(first, length - 1, count).astype(int))


def subset_errors(
    weights: Float[np.ndarray, "heads query key"],
    values: Float[np.ndarray, "heads key dim"],
    random: np.random.Generator,
    *,
    causal: bool,
    sizes: Sequence[int] = SIZES,
    draws: int = DRAWS,
) -> Float[np.ndarray, "heads sizes"] | None:
    """Return the relative errors of one input, or None if it has too few tokens."""
    queries = measured_queries(weights.shape[1], causal)
    if not queries.size:
        return None
    values = np.asarray(values, float)
    squares = np.zeros((len(values), len(sizes)))
    for query in queries:
        seen = query + 1 if causal else weights.shape[-1]
        row, part = np.asarray(weights[:, query, :seen], float), values[:, :seen]
        full = np.einsum("hk,hkd->hd", row, part)
        for place, size in enumerate(sizes):
            chosen = random.random((draws, seen)).argsort(1)[:, :size]
            picked = row[:, chosen]  # (heads, draws, size)
            total = picked.sum(-1, keepdims=True)
            # If all weights of a subset are zero after rounding, its values are averaged equally.
            share = np.where(total > 0, picked / np.where(total > 0, total, 1), 1 / size)
            estimate = np.einsum("hnm,hnmd->hnd", share, part[:, chosen])
            error = ((estimate - full[:, None]) ** 2).sum(-1).mean(1)
            squares[:, place] += error * (seen - 1) / (seen - size)
    spread = ((values - values.mean(1, keepdims=True)) ** 2).sum(-1).mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(squares / len(queries) / spread[:, None])
