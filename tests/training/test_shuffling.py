"""Passes over the data: exact permutations, every sample once, all places equally likely."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from attnlens.training.shuffling import batch, place


@jax.jit
def permutation(count, seed, epoch):
    """The places of the elements 0 … count−1 for any count up to 100, in an array of length 100;
    the caller drops the entries beyond `count`."""
    element = jnp.minimum(jnp.arange(100, dtype=jnp.uint32), count - 1)
    return place(element, count, seed, jnp.broadcast_to(epoch, (100,)))


def places(count: int, seed: int, epoch: int = 0) -> np.ndarray:
    padded = permutation(jnp.uint32(count), jnp.uint32(seed), jnp.uint32(epoch))
    return np.asarray(padded)[:count]


def test_every_count_gives_a_permutation():
    for count in (1, 2, 3, 7, 16, 33, 64, 100):
        assert sorted(places(count, seed=5)) == list(range(count))


def test_seeds_and_epochs_give_different_permutations():
    drawn = {tuple(places(20, seed, epoch)) for seed in range(10) for epoch in range(10)}
    assert len(drawn) == 100  # of 20! permutations: a repetition has probability 2e-15


def test_places_are_uniform():
    # Counts of (element, place) over 2000 permutations of 8: χ² with (8 − 1)² degrees of freedom.
    many = jax.vmap(lambda seed: permutation(jnp.uint32(8), seed, jnp.uint32(3))[:8])
    drawn = np.asarray(many(jnp.arange(2000, dtype=jnp.uint32)))
    counts = np.zeros((8, 8))
    np.add.at(counts, (np.arange(8)[None], drawn), 1)
    statistic = np.sum((counts - 250) ** 2 / 250)
    assert scipy.stats.chi2.sf(statistic, 49) > 1e-4
    # The pair of places of elements 0 and 1 is uniform too, over 56 ordered pairs.
    pairs = np.bincount(drawn[:, 0].astype(int) * 8 + drawn[:, 1], minlength=64)
    expected = 2000 / 56
    pairs = pairs[[i for i in range(64) if i // 8 != i % 8]]
    assert scipy.stats.chi2.sf(np.sum((pairs - expected) ** 2 / expected), 55) > 1e-4


def test_each_pass_contains_every_sample_once():
    step = jax.jit(batch, static_argnums=0)
    epoch = cursor = jnp.uint32(0)
    drawn = []
    for _ in range(10):
        rows, epoch, cursor = step(4, jnp.uint32(10), jnp.uint32(1), epoch, cursor)
        drawn.extend(np.asarray(rows).tolist())
    for first in range(0, 40, 10):
        assert sorted(drawn[first : first + 10]) == list(range(10))
    assert (int(epoch), int(cursor)) == (4, 0)
    # A batch larger than the data set holds every sample as often as it can.
    rows, *_ = step(4, jnp.uint32(2), jnp.uint32(1), jnp.uint32(0), jnp.uint32(0))
    assert sorted(np.asarray(rows).tolist()) == [0, 0, 1, 1]
