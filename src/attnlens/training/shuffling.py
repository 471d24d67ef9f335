"""Shuffled passes over n samples, where n is known only when the program runs.

Members of an ensemble have different sample sizes n but share one compiled program. So n cannot be
the shape of an array, and a permutation cannot come from sorting n random numbers. The swap-or-not
shuffle (Hoang, Morris and Rogaway, An enciphering scheme based on a card shuffle, 2012) permutes
{0 … n−1} one element at a time, for any n: in round r,

    x' = K_r − x mod n;   if b_r(max(x, x')) then x ← x'

with a random K_r and a random bit b_r for each pair {x, x'}. Every round swaps whole pairs, so the
result is exactly a permutation, whatever the quality of the random bits. Bits come from a hash of
(seed, epoch, round, element): nothing is stored, and a resumed run gets the same batches.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt

Numbers = UInt[Array, "*shape"]
ROUNDS = 24  # enough: a test checks that positions after a shuffle are uniform


def mix(x: Numbers) -> Numbers:
    """The finaliser of MurmurHash3 (Appleby, 2011): an input bit flips about half of all bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def place(
    element: Numbers, count: UInt[Array, ""], seed: UInt[Array, ""], epoch: Numbers
) -> Numbers:
    """Return the image of `element` under the permutation of {0 … count−1} of this epoch."""
    pass_key = mix(mix(seed ^ jnp.uint32(0x9E3779B9)) + epoch)

    def one_round(number: Array, x: Numbers) -> Numbers:
        round_key = mix(pass_key + jnp.uint32(0x9E3779B9) * (number.astype(jnp.uint32) + 1))
        pivot = mix(round_key ^ jnp.uint32(0x5BD1E995)) % count
        partner = jnp.where(pivot >= x, pivot - x, pivot + count - x)
        swap = mix(jnp.maximum(x, partner) ^ round_key) & 1
        return jnp.where(swap == 1, partner, x)

    return jax.lax.fori_loop(0, ROUNDS, one_round, element)


def batch(
    size: int,
    count: UInt[Array, ""],
    seed: UInt[Array, ""],
    epoch: UInt[Array, ""],
    cursor: UInt[Array, ""],
) -> tuple[UInt[Array, " size"], UInt[Array, ""], UInt[Array, ""]]:
    """Return the next `size` samples and the position after them: (rows, epoch, cursor).

    Samples are drawn without replacement within a pass; a batch may contain the end of one pass
    and the beginning of the next.
    """
    ahead = cursor + jnp.arange(size, dtype=jnp.uint32)
    rows = place(ahead % count, count, seed, epoch + ahead // count)
    after = cursor + jnp.uint32(size)
    return rows, epoch + after // count, after % count
