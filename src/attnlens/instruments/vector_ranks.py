"""Ranks of vectors among those before them, along a direction that their order cannot move.

At step n, with the first n tokens of every sequence (all tokens of one that has ended),

    scatter     S_n = Σ over sequences of Σ_i (x_i − mean)(x_i − mean)ᵀ, mean that of the sequence
    direction   v_n = the leading eigenvector of S_n's correlation matrix, C = D S_n D with
                D = diag(S_n)^(−1/2); its sign so that ⟨v_n, g⟩ ≥ 0, where g is drawn from the seed
    score       ⟨D v_n, x_i⟩ of the tokens i ≤ n: those of a sequence are compared with its n-th

Nothing after step n enters, so a stream that goes on never changes what was found so far. S_n is
the same in every order of the first n tokens of a sequence, which ranks need to be uniform (see
`martingale`). It grows by (n − 1)/n δδᵀ a token, with δ = x_n less the mean of those before
(Welford, 1962): sums of squares, in which nothing cancels.

Sums are rounded, and rounding depends on the order: it could break ties, of which discrete vectors
are full, in favour of some order. So C and D are rounded to GRID, far above it, before they are
used; and scores are computed entry by entry, never by a matrix product, whose rounding depends on
the place in the matrix: equal tokens have equal scores.

Vectors of more than MOST coordinates are first folded into MOST: every coordinate, with a random
sign, is added to one of MOST sums (a count sketch: Charikar, Chen and Farach-Colton, 2002; here of
equal parts), drawn from the seed and the same for all tokens. Coordinates are standardised only
after that, so those of one sum should have like units.

Time grows as L² d + L d³ for a sequence of length L, memory as its tokens.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from .sequences import EPSILON, Sequences

MOST = 16  # coordinates: an eigenvector of so many takes about a tenth of a millisecond
BLOCK = 64  # steps at a time
CHUNK = 512  # tokens they are compared with at a time: 2¹⁵ scores stay in the caches
GRID = 2.0**-24  # rounding of sums is about ε√n: 2⁻⁴⁵ after a million tokens


def vector_counts(
    sequences: Sequences, random: np.random.Generator
) -> tuple[Float[np.ndarray, "sequences length"], Float[np.ndarray, "sequences length"]]:
    """How many of the tokens up to each are below it, and how many level with it, itself included;
    NaN where a sequence has ended."""
    lengths, starts = sequences.lengths, sequences.starts
    x = coordinates(sequences.tokens, random)
    dims = x.shape[1]
    reference = random.normal(size=dims)
    rows = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    moves = np.concatenate([_moves(x[row]) for row in rows])
    below, equal = (np.full((len(lengths), lengths.max()), np.nan) for _ in range(2))
    scatter, largest, seen = np.zeros((dims, dims)), np.zeros(dims), 0
    for first in range(0, int(lengths.max()), BLOCK):
        width = min(BLOCK, int(lengths.max()) - first)
        grown, peaks = np.zeros((width, dims, dims)), np.zeros((width, dims))
        came = np.zeros(width, int)
        grown[0], peaks[0], came[0] = scatter, largest, seen
        alive = [i for i in range(len(lengths)) if lengths[i] > first]
        for i in alive:
            now = slice(starts[i] + first, starts[i] + min(first + width, lengths[i]))
            move = moves[now]
            grown[: len(move)] += move[:, :, None] * move[:, None, :]
            peaks[: len(move)] = np.maximum(peaks[: len(move)], np.abs(x[now]))
            came[: len(move)] += 1
        grown, peaks, came = grown.cumsum(0), np.maximum.accumulate(peaks), came.cumsum()
        scatter, largest, seen = grown[-1], peaks[-1], int(came[-1])
        # A coordinate that moves by rounding only is constant, as in `sequences`.
        spread = np.diagonal(grown, axis1=1, axis2=2)
        weights = directions(grown, spread > came[:, None] * (4 * EPSILON * peaks) ** 2, reference)
        for i in alive:
            last = int(min(first + width, lengths[i]))
            below[i, first:last], equal[i, first:last] = compared(
                weights[: last - first], x[rows[i]][:last]
            )
    return below, equal


def coordinates(
    tokens: Float[np.ndarray, "tokens dim"], random: np.random.Generator
) -> Float[np.ndarray, "tokens dims"]:
    """At most MOST a token, none above one in size.

    Sizes are brought down by powers of two, so that squares do not overflow: exact, and without
    effect on any score, unless the tokens of a coordinate span more than 150 orders of magnitude.
    """
    dim = tokens.shape[1]
    if dim > MOST:
        order, signs = random.permutation(dim), random.choice([-1.0, 1.0], size=dim)
        tokens = np.ldexp(tokens, -np.frexp(np.abs(tokens).max())[1])
        tokens = np.add.reduceat(tokens[:, order] * signs, np.arange(MOST) * dim // MOST, axis=1)
    return np.ldexp(tokens, -np.frexp(np.abs(tokens).max(0))[1])


def _moves(x: Float[np.ndarray, "length dims"]) -> Float[np.ndarray, "length dims"]:
    """√((n − 1)/n) (x_n − the mean of those before): their squares add up to the scatter."""
    shifted = x - x[0]  # a constant coordinate is exactly zero
    before = np.arange(1.0, len(x))[:, None]
    moves = np.zeros(x.shape)
    moves[1:] = (shifted[1:] - shifted.cumsum(0)[:-1] / before) * np.sqrt(before / (before + 1))
    return moves


def directions(
    scatter: Float[np.ndarray, "steps dims dims"],
    moving: Bool[np.ndarray, "steps dims"],
    reference: Float[np.ndarray, " dims"],
) -> Float[np.ndarray, "steps dims"]:
    """D v of every step; zero in coordinates that do not move."""
    spread = np.sqrt(np.where(moving, np.diagonal(scatter, axis1=1, axis2=2), 1.0))
    size, power = np.frexp(spread)
    spread = np.ldexp(np.round(size / GRID) * GRID, power)
    correlation = scatter / spread[:, :, None] / spread[:, None, :]
    correlation = np.where(moving[:, :, None] & moving[:, None, :], correlation, 0.0)
    leading = np.linalg.eigh(np.round(correlation / GRID) * GRID)[1][..., -1]
    leading = np.where((leading * reference).sum(1, keepdims=True) < 0, -leading, leading)
    return np.where(moving, leading / spread, 0.0)


def compared(
    weights: Float[np.ndarray, "steps dims"], x: Float[np.ndarray, "tokens dims"]
) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, " steps"]]:
    """Of the last tokens of x, each under the weights of its step: how many of the tokens up to it
    have lower scores, and how many the same."""
    steps, first = len(weights), len(x) - len(weights)
    below, equal = np.zeros(steps, int), np.zeros(steps, int)
    own = scores(weights.T, x[first:].T)
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK].T
        score = scores(weights.T[:, :, None], part[:, None, :])
        less, same = score < own[:, None], score == own[:, None]
        if begin + part.shape[1] > first:
            so_far = begin + np.arange(part.shape[1]) <= first + np.arange(steps)[:, None]
            less, same = less & so_far, same & so_far
        below += np.count_nonzero(less, axis=1)
        equal += np.count_nonzero(same, axis=1)
    return below, equal


def scores(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_k weights_k x_k, added in the order of k wherever it stands."""
    total = weights[0] * x[0]
    for weight, coordinate in zip(weights[1:], x[1:], strict=True):
        total += weight * coordinate
    return total
