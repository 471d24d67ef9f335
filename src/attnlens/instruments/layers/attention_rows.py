"""What the rows of attention look like, per head; one number per head and input.

A row a of attention is the distribution of one query over tokens (for a decoder, over those before
it). Averages are over the queries of an input.

    effective tokens   e^H, H = −Σ a_j log a_j: n for a uniform row over n tokens, 1 for one token
    share used         e^H/n, with n the number of tokens that the query can see
    first token        a_1, the share on the first token (attention sinks: Xiao et al., 2024)
    separators         Σ a_j over separator tokens
    own token          a_i of query i
    previous token     a_(i−1) of query i
    distance           Σ a_j |i − j|
    stays              Σ_j min(a_j, a'_j), with a' the row at the same position after a shuffle of
                       the tokens: 1 for a head that looks at positions only
    follows            Σ_j min(a_j, a'_j), with a' the row of the same token after the shuffle, its
                       entries in the original order: 1 for a head that looks at content only
    induction          a_(i−n+1) of query i in the second of two equal halves of length n: the token
                       after the earlier occurrence of this one (Olsson et al., 2022)
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

Weights = Float[np.ndarray, "heads query key"]
PerHead = Float[np.ndarray, " heads"]

DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # lower limits of the bins of `distance_profile`


def effective_tokens(weights: Weights) -> Float[np.ndarray, "heads query"]:
    """Return e^H of every row.

    >>> effective_tokens(np.array([[[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]])).tolist()
    [[2.0, 4.0]]
    """
    rows = np.asarray(weights, float)
    return np.exp(-np.where(rows > 0, rows * np.log(np.where(rows > 0, rows, 1)), 0).sum(-1))


def visible(length: int, causal: bool) -> Int[np.ndarray, " query"]:
    """Return the number of tokens that each query can see.

    >>> visible(3, causal=True).tolist()
    [1, 2, 3]
    """
    return np.arange(1, length + 1) if causal else np.full(length, length)


def row_measures(
    weights: Weights, *, causal: bool, separators: Bool[np.ndarray, " key"] | None = None
) -> dict[str, PerHead]:
    """Return the measures of one input by name, each the mean over its queries, per head.

    Measures that need a shuffled or repeated input are not included. In a decoder (`causal`) the
    first query sees only itself, so it is left out of all measures except "effective tokens".
    """
    _, length, _ = weights.shape
    effective = effective_tokens(weights)
    start = 1 if causal and length > 1 else 0
    rows, places = weights[:, start:], np.arange(start, length)
    distance = np.abs(places[:, None] - np.arange(length))
    before = places > 0
    measures = {
        "effective tokens": effective.mean(1),
        "share used": (effective / visible(length, causal))[:, start:].mean(1),
        "first token": rows[..., 0].mean(1),
        "own token": rows[:, places - start, places].mean(1),
        "previous token": rows[:, places[before] - start, places[before] - 1].mean(1),
        "distance": (rows * distance).sum(-1).mean(1),
    }
    if separators is not None and separators.any():
        measures["separators"] = rows[..., separators].sum(-1).mean(1)
    return {name: np.asarray(values, float) for name, values in measures.items()}


def distance_profile(weights: Weights) -> Float[np.ndarray, "heads bins"]:
    """Return the share of attention per distance |i − j|, in bins that start at `DISTANCES`.

    >>> distance_profile(np.eye(3)[None])[0, :2].tolist()
    [1.0, 0.0]
    """
    _, length, _ = weights.shape
    places = np.arange(length)
    bins = np.digitize(np.abs(places[:, None] - places), DISTANCES) - 1
    shares = [np.where(bins == k, weights, 0).sum((1, 2)) for k in range(len(DISTANCES))]
    return np.stack(shares, axis=1) / length


def overlap(one: Weights, other: Weights) -> PerHead:
    """Return Σ_j min(a_j, a'_j), averaged over queries: one minus the total variation distance."""
    return np.minimum(one, other).sum(-1).mean(-1)


def shuffle_measures(
    weights: Weights, shuffled: Weights, order: Int[np.ndarray, " tokens"]
) -> dict[str, PerHead]:
    """Return `stays` and `follows`; `shuffled` holds the weights for the shuffled input, which has
    token order[i] at position i."""
    undone = np.argsort(order)
    back = shuffled[:, undone][:, :, undone]
    return {"stays": overlap(weights, shuffled), "follows": overlap(weights, back)}


def induction(weights: Weights, start: int, half: int) -> PerHead:
    """Return the mean weight on the token after the earlier occurrence of the query's token.

    The sequence repeats the tokens at start, …, start + half − 1 directly after them; the mean is
    over the queries in the repetition.

    >>> row = np.zeros((1, 4, 4))
    >>> row[0, 2, 1] = row[0, 3, 2] = 1.0
    >>> induction(row, 0, 2).tolist()
    [1.0]
    """
    queries = start + half + np.arange(half)
    return weights[:, queries, queries - half + 1].mean(1, dtype=float)
