"""Ranks of vectors among those before them, along a direction that does not depend on their order.

At step n, with the first n tokens of every sequence (all tokens of a sequence that has ended),

    scatter     S_n = Σ over sequences of Σ_i (x_i − mean)(x_i − mean)ᵀ, with each sequence's mean
    direction   v_n = the leading eigenvector of S_n's correlation matrix, C = D S_n D with
                D = diag(S_n)^(−1/2); its sign so that ⟨v_n, g⟩ ≥ 0, where g is a random vector
    score       ⟨D v_n, x_i⟩ of the tokens i ≤ n: the n-th token of a sequence is compared with
                those before it

No token after step n is used, so earlier ranks do not change as a stream continues. S_n is the same
in every order of the first n tokens of a sequence, which is what makes ranks uniform (see
`martingale`). Each token adds (n − 1)/n δδᵀ to it, where δ is x_n minus the mean of the tokens
before (Welford, 1962): a sum of squares, without cancellation.

Sums are rounded, and rounding errors depend on the order of the terms. They could break ties, which
are frequent for discrete vectors, in favour of some order. So C and D are rounded to multiples of
GRID, far above the rounding error, before they are used; and scores are computed entry by entry,
never by a matrix product, whose rounding depends on the position in the matrix. Equal tokens then
have equal scores.

Vectors of more than MAX_COORDINATES coordinates are first reduced to MAX_COORDINATES sums: every
coordinate, with a random sign, is added to one of the sums (a count sketch: Charikar, Chen and
Farach-Colton, 2002; here with equally many coordinates per sum). The signs and the assignment to
sums are drawn once, for all tokens. Coordinates are standardised only after that, so coordinates in
the same sum should have similar units.

Time grows as L² d + L d³ for a sequence of length L, memory as L d.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from .sequences import EPSILON, Sequences

MAX_COORDINATES = 16  # an eigenvector of a 16 × 16 matrix takes about a tenth of a millisecond
STEPS_AT_ONCE = 64
TOKENS_AT_ONCE = 512  # with 64 steps, 2¹⁵ scores are computed at a time and stay in the caches
GRID = 2.0**-24  # the rounding error of sums is about ε√n: 2⁻⁴² after a million tokens


def vector_counts(
    sequences: Sequences, random: np.random.Generator
) -> tuple[Float[np.ndarray, "sequences length"], Float[np.ndarray, "sequences length"]]:
    """Return, for every token, how many of the tokens up to it have a lower score, and how many
    have the same score, itself included; NaN where a sequence has ended."""
    lengths, starts = sequences.lengths, sequences.starts
    x = coordinates(sequences.tokens, random)
    dims = x.shape[1]
    reference = random.normal(size=dims)
    rows = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    increments = np.concatenate([_increments(x[row]) for row in rows])
    below, equal = (np.full((len(lengths), lengths.max()), np.nan) for _ in range(2))
    scatter, largest, seen = np.zeros((dims, dims)), np.zeros(dims), 0
    for first in range(0, int(lengths.max()), STEPS_AT_ONCE):
        width = min(STEPS_AT_ONCE, int(lengths.max()) - first)
        grown, peaks = np.zeros((width, dims, dims)), np.zeros((width, dims))
        counts = np.zeros(width, int)
        grown[0], peaks[0], counts[0] = scatter, largest, seen
        alive = [i for i in range(len(lengths)) if lengths[i] > first]
        for i in alive:
            now = slice(starts[i] + first, starts[i] + min(first + width, lengths[i]))
            increment = increments[now]
            grown[: len(increment)] += increment[:, :, None] * increment[:, None, :]
            peaks[: len(increment)] = np.maximum(peaks[: len(increment)], np.abs(x[now]))
            counts[: len(increment)] += 1
        grown, peaks, counts = (
            grown.cumsum(0),
            np.maximum.accumulate(peaks),
            counts.cumsum(),
        )
        scatter, largest, seen = grown[-1], peaks[-1], int(counts[-1])
        # A coordinate that varies only by rounding is constant, as in `sequences`.
        spread = np.diagonal(grown, axis1=1, axis2=2)
        weights = directions(
            grown, spread > counts[:, None] * (4 * EPSILON * peaks) ** 2, reference
        )
        for i in alive:
            last = int(min(first + width, lengths[i]))
            below[i, first:last], equal[i, first:last] = compare_scores(
                weights[: last - first], x[rows[i]][:last]
            )
    return below, equal


def coordinates(
    tokens: Float[np.ndarray, "tokens dim"], random: np.random.Generator
) -> Float[np.ndarray, "tokens dims"]:
    """Return at most MAX_COORDINATES coordinates per token, each at most one in absolute value.

    Values are scaled by powers of two, so that squares do not overflow: this is exact and does not
    change the order of scores, unless the tokens of a coordinate span more than 150 orders of
    magnitude.
    """
    dim = tokens.shape[1]
    if dim > MAX_COORDINATES:
        order, signs = random.permutation(dim), random.choice([-1.0, 1.0], size=dim)
        tokens = np.ldexp(tokens, -np.frexp(np.abs(tokens).max())[1])
        starts = np.arange(MAX_COORDINATES) * dim // MAX_COORDINATES
        tokens = np.add.reduceat(tokens[:, order] * signs, starts, axis=1)
    return np.ldexp(tokens, -np.frexp(np.abs(tokens).max(0))[1])


def _increments(x: Float[np.ndarray, "length dims"]) -> Float[np.ndarray, "length dims"]:
    """Return √((n − 1)/n) (x_n − mean of the tokens before) for every token n of a sequence.

    The sum of their outer products is the scatter matrix.
    """
    shifted = x - x[0]  # a constant coordinate is exactly zero
    before = np.arange(1.0, len(x))[:, None]
    increments = np.zeros(x.shape)
    increments[1:] = (shifted[1:] - shifted.cumsum(0)[:-1] / before) * np.sqrt(
        before / (before + 1)
    )
    return increments


def directions(
    scatter: Float[np.ndarray, "steps dims dims"],
    moving: Bool[np.ndarray, "steps dims"],
    reference: Float[np.ndarray, " dims"],
) -> Float[np.ndarray, "steps dims"]:
    """Return the direction D v of each step (see the module's docstring).

    `moving` says which coordinates vary; the direction is zero in the others. `reference` is the
    vector g that determines the sign.
    """
    spread = np.sqrt(np.where(moving, np.diagonal(scatter, axis1=1, axis2=2), 1.0))
    size, power = np.frexp(spread)
    spread = np.ldexp(np.round(size / GRID) * GRID, power)
    correlation = scatter / spread[:, :, None] / spread[:, None, :]
    correlation = np.where(moving[:, :, None] & moving[:, None, :], correlation, 0.0)
    leading = np.linalg.eigh(np.round(correlation / GRID) * GRID)[1][..., -1]
    leading = np.where((leading * reference).sum(1, keepdims=True) < 0, -leading, leading)
    return np.where(moving, leading / spread, 0.0)


def compare_scores(
    weights: Float[np.ndarray, "steps dims"], x: Float[np.ndarray, "tokens dims"]
) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, " steps"]]:
    """Return, for each of the last tokens of x, how many of the tokens up to it have a lower score,
    and how many have the same score. Row i of `weights` gives the scores of step i."""
    steps, first = len(weights), len(x) - len(weights)
    below, equal = np.zeros(steps, int), np.zeros(steps, int)
    own = scores(weights.T, x[first:].T)
    for begin in range(0, len(x), TOKENS_AT_ONCE):
        part = x[begin : begin + TOKENS_AT_ONCE].T
        score = scores(weights.T[:, :, None], part[:, None, :])
        less, same = score < own[:, None], score == own[:, None]
        if begin + part.shape[1] > first:
            so_far = begin + np.arange(part.shape[1]) <= first + np.arange(steps)[:, None]
            less, same = less & so_far, same & so_far
        below += np.count_nonzero(less, axis=1)
        equal += np.count_nonzero(same, axis=1)
    return below, equal


def scores(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_k weights_k x_k, always added in the order of k."""
    total = weights[0] * x[0]
    for weight, coordinate in zip(weights[1:], x[1:], strict=True):
        total += weight * coordinate
    return total
