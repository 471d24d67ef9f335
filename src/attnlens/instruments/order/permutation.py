"""An exact permutation test of exchangeability, with all permutations applied as array operations.

Let M = m + 1. Draw a pool of M permutations P_0 … P_m, independent and uniform, and for sequence i
an offset o_i, uniform on 0 … m. Replicate j orders sequence i by P_k with k = (j + o_i) mod M; the
tokens are first rearranged so that replicate 0 is the observed order. If every sequence is
exchangeable, given its tokens as a set, then shifting all offsets by one maps replicate j to j + 1
and changes no probability, so the observed replicate is equally likely to have any rank. With one
statistic T_j per replicate, larger meaning less exchangeable,

    p = #{j : T_j ≥ T_0} / M = (b + 1)/(m + 1)      satisfies   P(p ≤ α) ≤ α

for every α, every number of tokens and any T that treats replicates alike, rounding included; with
equality at α = k/M where no two replicates tie. (The group of shifts acts transitively on the
replicates, which is all that a rank test needs: Hemerik and Goeman, Exact testing with random
permutations, TEST 27, 2018; (b + 1)/(m + 1): Phipson and Smyth, 2010.) This holds even
*conditionally on the pool*: tests of independent batches that share a pool are uncorrelated.
Sharing makes the test fast: one permutation moves the tokens of all sequences at once.

Where few sequences share a pool, drawing the permutations is the largest cost. The pool then has
two factors: A_1 … A_a and B_1 … B_b are independent and uniform, a b ≥ M, and P_k is one of the
products A_i ∘ B_j. Each product is uniform, and any two of them are independent, so a count of them
has the mean and the variance of a count of independent permutations, while only about 2√M are
drawn. Each sequence is copied a times, ordered by A_1 … A_a, and one B_j moves all copies at once.

T is the largest of several statistics. With w a ramp over positions, w ⊥ 1, ‖w‖ = 1, with y and s
from `sequences.columns`, and with sums over the sequences i of a batch,

    drift         ‖Σ_i Σ_ℓ w_ℓ y_iℓ‖²                 the same movement in every sequence
    own drift     Σ_i ‖Σ_ℓ w_ℓ y_iℓ‖²                 each sequence in its own direction
    scale, own scale                                  drift and own drift of s instead of y
    neighbours    (Σ_i Σ_ℓ ⟨y_iℓ, y_i(ℓ+1)⟩ − mean)²    dependence at lag one
    transitions   ‖Σ_i Σ_ℓ y_iℓ y_i(ℓ+1)ᵀ − mean‖²      the same between any two components
    clusters      (Σ_i Σ_ℓ s_iℓ s_i(ℓ+1) − mean)²       large tokens beside large ones

where "mean" is the mean over replicates. Each statistic is approximately χ², so its cube root is
approximately normal (Wilson and Hilferty, 1931). After standardising over replicates they can be
compared, and T is their maximum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

CACHE_SIZE = 2**16  # numbers gathered at a time: half a megabyte fits into a core's own cache
POOL_SIZE = 2**24  # entries of the largest pool; longer sequences draw permutations one by one
MEMORY_SIZE = 2**22  # number of sums, or of entries of copied sequences, in memory at a time
DIGITS = 9  # sums, of order one, are rounded to these digits, so that equal sums compare as equal


class PermutationTest(NamedTuple):
    """Per batch: the p-value, and each statistic's standardised value in the observed order."""

    p: Float[np.ndarray, " batches"]
    replicates: int
    statistics: dict[str, Float[np.ndarray, " batches"]]


def permutation_test(
    y: Float[np.ndarray, "tokens dims"],
    s: Float[np.ndarray, " tokens"],
    lengths: Int[np.ndarray, " sequences"],
    permutations: int,
    random: np.random.Generator,
    batches: int = 1,
) -> PermutationTest:
    """Test every batch of sequences.

    `y` and `s` are those of `sequences.columns`, with the sequences one after the other; `lengths`
    are the lengths of the sequences, which form `batches` batches of equal size.
    """
    sequences = len(lengths)
    columns = np.concatenate([y, s[:, None]], axis=1)
    starts, batch = np.cumsum(lengths) - lengths, np.arange(sequences) * batches // sequences
    enumerate_all = sequences == 1 and _factorial_at_most(int(lengths[0]), permutations + 1)
    replicates = math.factorial(int(lengths[0])) if enumerate_all else permutations + 1
    pairs = [(a, b) for a in range(y.shape[1]) for b in range(y.shape[1])]
    pairs.append((y.shape[1], y.shape[1]))

    width = columns.shape[1]
    shared = np.zeros((replicates, batches, width + len(pairs)))
    own = np.zeros((replicates, batches, width))
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        tokens = columns[starts[rows][:, None] + np.arange(length)]
        if enumerate_all:
            pool = Pool.of(np.array(list(itertools.permutations(range(length)))))
        else:
            pool = draw_pool(replicates, int(length), width, len(rows), random)
        rows_in_memory = MEMORY_SIZE // (replicates * (len(pairs) + width))
        some = 1 if pool is None else max(1, min(rows_in_memory, CACHE_SIZE // tokens[0].size))
        for first in range(0, len(rows), some):
            part = slice(first, first + some)
            if pool is None:
                sums = _sums(tokens[part], _stream(replicates, int(length), random), pairs)
            else:
                last = 0 if enumerate_all else replicates - 1
                offsets = random.integers(0, last, len(rows[part]), endpoint=True)
                sums = pooled(tokens[part], pool, offsets, pairs)
            if sequences == batches:  # one sequence per batch: there is nothing to add up
                shared[:, rows[part]] = sums
                continue
            owners, firsts = np.unique(batch[rows[part]], return_index=True)
            shared[:, owners] += np.add.reduceat(sums, firsts, axis=1)
            own[:, owners] += np.add.reduceat(sums[..., :width] ** 2, firsts, axis=1)
    moved, lagged = np.split(np.round(shared, DIGITS), [width], axis=-1)
    values = _statistics(moved, np.round(own, DIGITS), lagged, single=sequences == batches)
    worst, standard = largest(values)
    p = (worst >= worst[:1]).mean(0)
    return PermutationTest(p, replicates, dict(zip(values, standard[:, 0], strict=True)))


def uniform(rows: int, length: int, random: np.random.Generator) -> Int[np.ndarray, "rows length"]:
    """Return independent uniform permutations, one per row."""
    return random.permuted(np.broadcast_to(np.arange(length), (rows, length)), axis=1)


class Pool(NamedTuple):
    """Permutations P_k(ℓ) = A_i(B_j(ℓ)) with i = k mod a, j = ⌊k/a⌋, for k below `size`."""

    a: Int[np.ndarray, "a length"]
    b: Int[np.ndarray, "b length"]
    size: int

    @classmethod
    def of(cls, rows: Int[np.ndarray, "rows length"]) -> Pool:
        """A pool of the given permutations: they are the B_j, and the only A_i is the identity."""
        return cls(np.arange(rows.shape[1])[None], rows, len(rows))

    def orders(self, k: Int[np.ndarray, " some"]) -> Int[np.ndarray, "some length"]:
        return np.take_along_axis(self.a[k % len(self.a)], self.b[k // len(self.a)], axis=1)


def draw_pool(
    replicates: int, length: int, width: int, sequences: int, random: np.random.Generator
) -> Pool | None:
    """Return a pool of permutations for sequences of one length, or None if it would be too large.

    width: the number of columns. sequences: the number of sequences that share the pool.
    """
    root = math.isqrt(replicates - 1) + 1
    # With at least `root` sequences, array operations are long enough without copies.
    copies = 1 if sequences >= root else max(1, min(root, MEMORY_SIZE // (length * width)))
    rows = -(-replicates // copies)
    if max(copies, rows) * length > POOL_SIZE:
        return None
    if copies == 1:
        return Pool.of(uniform(replicates, length, random))
    factors = uniform(copies + rows, length, random)
    return Pool(factors[:copies], factors[copies:], replicates)


def pooled(
    tokens: Float[np.ndarray, "sequences length columns"],
    pool: Pool,
    offsets: Int[np.ndarray, " sequences"],
    pairs: list[tuple[int, int]],
) -> Float[np.ndarray, "replicates sequences sums"]:
    """Return `_sums` of every replicate; replicate 0 is the order in which `tokens` are given."""
    # Rearrange tokens so that permutation o_i restores the observed order of sequence i.
    inverse = np.argsort(pool.orders(offsets), axis=1)
    rearranged = np.take_along_axis(tokens, inverse[:, :, None], axis=1)
    sequences, copies = len(tokens), len(pool.a)
    ordered = np.take(rearranged, pool.a, axis=1).reshape(-1, *tokens.shape[1:])
    sums = _sums(ordered, iter([pool.b]), pairs)
    by_k = sums.reshape(-1, sequences, copies, sums.shape[-1]).swapaxes(1, 2)
    turn = (np.arange(pool.size)[:, None] + offsets) % pool.size
    flat = turn * sequences + np.arange(sequences)
    return np.take(by_k.reshape(-1, sums.shape[-1]), flat, axis=0)


def shuffled(
    rows: int, tokens: Float[np.ndarray, "length dims"], random: np.random.Generator
) -> Float[np.ndarray, "rows length dims"]:
    """Return one sequence in `rows` random orders, each uniform, and pairwise independent."""
    length, dims = tokens.shape
    pool = draw_pool(rows, length, dims, 1, random) or Pool.of(uniform(rows, length, random))
    ordered = np.take(np.take(tokens, pool.a, axis=0), pool.b, axis=1)
    return ordered.reshape(-1, *tokens.shape)[:rows]


def ramp(length: int) -> Float[np.ndarray, " length"]:
    """Return the positions of a sequence, shifted to mean zero and scaled to norm one."""
    position = np.arange(length) - (length - 1) / 2
    return position / np.linalg.norm(position)


def _stream(
    replicates: int, length: int, random: np.random.Generator
) -> Iterator[Int[np.ndarray, "rows length"]]:
    """Yield the observed order, then blocks of uniform permutations that fit into memory.

    It serves sequences that are too long for a pool, one sequence at a time.
    """
    yield np.arange(length)[None]
    rows = max(1, POOL_SIZE // length)
    for first in range(1, replicates, rows):
        yield uniform(min(rows, replicates - first), length, random)


def _sums(
    tokens: Float[np.ndarray, "sequences length columns"],
    pools: Iterator[Int[np.ndarray, "rows length"]],
    pairs: list[tuple[int, int]],
) -> Float[np.ndarray, "replicates sequences sums"]:
    """Return, for every permutation π and sequence, Σ_ℓ w_ℓ c_π(ℓ) for every column c, then
    Σ_ℓ a_π(ℓ) b_π(ℓ+1) for every pair (a, b) of columns."""
    sequences, length, width = tokens.shape
    table = np.ascontiguousarray(tokens.transpose(1, 2, 0)).reshape(length, -1)
    weights, results = ramp(length), []
    # If every column is paired with itself only, one einsum computes all pairs.
    diagonal = pairs == [(i, i) for i in range(width)]
    rows = max(1, CACHE_SIZE // table.size)
    gathered = np.empty((rows, length, width * sequences))
    for pool in pools:
        sums = np.empty((len(pool), sequences, width + len(pairs)))
        for first in range(0, len(pool), rows):
            order = pool[first : first + rows]
            flat = np.take(table, order, axis=0, out=gathered[: len(order)], mode="clip")
            here = sums[first : first + len(order)]
            moved = (weights @ flat).reshape(len(order), width, sequences)
            here[..., :width] = moved.swapaxes(1, 2)
            if diagonal:
                lagged = np.einsum("rlk,rlk->rk", flat[:, :-1], flat[:, 1:])
                here[..., width:] = lagged.reshape(moved.shape).swapaxes(1, 2)
                continue
            z = flat.reshape(len(order), length, width, sequences)
            for i, (a, b) in enumerate(pairs, width):
                # Sums are written to contiguous memory and then copied: this is faster than writing
                # them to strided memory.
                here[..., i] = np.einsum("rls,rls->rs", z[:, :-1, a], z[:, 1:, b])
        results.append(sums)
    return results[0] if len(results) == 1 else np.concatenate(results)


def _statistics(
    shared: np.ndarray, own: np.ndarray, lagged: np.ndarray, single: bool
) -> dict[str, np.ndarray]:
    """Return the statistics (replicate, batch) by name.

    With a `single` sequence per batch, "own drift" and "own scale" equal "drift" and "scale" and
    are left out.
    """
    dims = shared.shape[2] - 1
    excess = lagged - lagged.mean(0)
    statistics = {
        "drift": (shared[..., :dims] ** 2).sum(-1),
        "scale": shared[..., dims] ** 2,
        "neighbours": excess[..., :: dims + 1][..., :dims].sum(-1) ** 2,
        "clusters": excess[..., -1] ** 2,
    }
    if dims > 1:
        statistics["transitions"] = (excess[..., :-1] ** 2).sum(-1)
    if not single:
        statistics["own drift"], statistics["own scale"] = own[..., :dims].sum(-1), own[..., dims]
    return statistics


def largest(values: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return T (replicate, batch) and the standardised statistics (statistic, replicate, batch)."""
    normal = np.cbrt(np.stack(list(values.values())))
    spread = normal.std(1, keepdims=True)
    # A statistic that is the same in every order, up to rounding, carries no information.
    varies = spread > 10.0 ** (1 - DIGITS)
    standard = np.where(varies, (normal - normal.mean(1, keepdims=True)), 0)
    standard = np.round(standard / np.where(varies, spread, 1), DIGITS)
    return standard.max(0), standard


def _factorial_at_most(length: int, limit: int) -> bool:
    return length <= 20 and math.factorial(length) <= limit
