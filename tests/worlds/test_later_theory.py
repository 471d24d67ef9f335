"""The worlds of later theory: sparse Boolean functions and pairwise interactions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import betainc
from scipy.stats import kstest

from attnlens.core.checks import BadInput
from attnlens.worlds import PairwiseInteraction, SparseAnd


@pytest.mark.parametrize("relevant", [1, 3])
def test_labels_are_the_and_of_the_relevant_bits_and_balanced(relevant: int):
    """The share of positive labels is 1/2 within 4.9 standard errors (1e-6, two-sided)."""
    count = 4000
    episode = SparseAnd(bits=12, relevant=relevant).sample(jax.random.key(0), count)
    support = np.flatnonzero(episode.latent)
    assert len(support) == relevant
    labels = np.asarray(episode.tokens.value)[:, 0]
    expected = [1 if all(row[i] == 1 for i in support) else -1 for row in episode.tokens.key]
    np.testing.assert_array_equal(labels, expected)
    assert abs(np.mean(labels > 0) - 0.5) < 4.9 * 0.5 / np.sqrt(count)


def test_the_information_counts_the_sets():
    assert SparseAnd(bits=4, relevant=2).information == pytest.approx(np.log2(6), rel=1e-15)
    with pytest.raises(BadInput, match="from 1 to the number of bits, 4; got 5"):
        SparseAnd(bits=4, relevant=5)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_values_are_means_over_the_other_tokens(dim: int):
    """Against loops over tokens and terms. Recurrences over 8 terms amplify rounding errors by at
    most 8², so 1e-12 holds in float64."""
    world = PairwiseInteraction(tokens=3, token_dim=dim, smoothness=1.5, terms=8)
    with jax.enable_x64(True):
        episode = jax.tree.map(np.asarray, world.sample(jax.random.key(1), 5, 2))
        matrix, coefficients = episode.latent
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(dim), atol=1e-12)
    for x, answer in zip(episode.query, episode.answer, strict=True):
        for i in range(3):
            places = [
                betainc((dim - 1) / 2, (dim - 1) / 2, (1 + x[i] @ matrix @ x[j]) / 2)
                for j in range(3)
                if j != i
            ]
            terms = [
                c * np.sqrt(2) * np.cos(np.pi * k * s)
                for s in places
                for k, c in enumerate(coefficients, 1)
            ]
            assert answer[i] == pytest.approx(sum(terms) / 2, abs=1e-12)


def test_an_interaction_has_variance_one_and_uniform_places():
    """With two tokens a value is the interaction g. By Cauchy and Schwarz g² ≤ 2 · terms = 8, so
    E g⁴ ≤ 8 E g² = 8, and a variance over n values has a standard error of at most √(7/n); 4.9 of
    them are allowed."""
    count = 20_000
    world = PairwiseInteraction(tokens=2, token_dim=4, terms=4)
    episode = world.sample(jax.random.key(2), 0, count)
    answers = np.asarray(episode.answer, float)
    assert abs(np.var(answers[:, 0]) - 1) < 4.9 * np.sqrt(7 / count)
    x = np.asarray(episode.query, float)
    product = np.sum((x[:, 0] @ np.asarray(episode.latent.matrix, float)) * x[:, 1], -1)
    assert kstest(betainc(1.5, 1.5, (1 + product) / 2), "uniform").pvalue > 1e-6


def test_the_noise_floor_is_the_error_of_the_noise_free_values():
    """mean (y − E[y | x])² = noise_std² within 4.9 standard errors √(2/n)."""
    world = PairwiseInteraction(tokens=4, noise_std=0.3, terms=16)
    episode = world.sample(jax.random.key(3), 2000)
    errors = np.asarray(episode.tokens.value - world.answer(episode.latent, episode.tokens.key))
    assert abs(np.mean(errors**2) / world.noise_floor - 1) < 4.9 * np.sqrt(2 / errors.size)
