"""The teachers of lens B: sparse input-dependent attention, rank, and exact noise floor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from attnlens.core.checks import BadInput
from attnlens.worlds import SparseTeacher, TokenTeacher, noise, normalised
from attnlens.worlds.sparse_teacher import softplus


@pytest.mark.parametrize("kind", noise.SUB_GAUSSIAN)
def test_moments_of_the_noise(kind):
    """The noise has mean 0 and variance std² within 4.9 standard errors (1e-6, two-sided) of n
    draws.

    Var(mean) = std²/n, and Var(sample variance) = (m₄ − 1) std⁴/n with m₄ = 3, 9/5 and 1: the
    variance of Rademacher noise is exact.
    """
    count, std = 40_000, 0.3
    draws = np.asarray(noise.draw(kind, jax.random.key(0), (count,), std)) / std
    fourth = {"gaussian": 3, "uniform": 9 / 5, "rademacher": 1}[kind]
    assert abs(draws.mean()) < 4.9 / np.sqrt(count)
    assert abs(np.mean(draws**2) - 1) < 4.9 * np.sqrt((fourth - 1) / count) + 1e-12
    assert abs(np.mean(draws**4) - fourth) < 0.1 * fourth
    bound = {"gaussian": np.inf, "uniform": np.sqrt(3), "rademacher": 1}[kind]
    assert np.abs(draws).max() <= bound * (1 + 1e-12)


def test_heavy_tailed_noise_is_student_t_with_the_given_standard_deviation():
    """The share of |noise| ≤ c·q is P(|t_ν| ≤ q) within 4.9 standard errors, where c² ν/(ν − 2) =
    std². There is no fourth moment that would bound the error of a sample variance."""
    count, std = 40_000, 0.3
    draws = np.asarray(noise.draw("student", jax.random.key(0), (count,), std))
    scale = std * noise.STUDENT_SCALE
    assert abs(scale**2 * stats.t(noise.FREEDOM).var() / std**2 - 1) < 1e-12
    for point in (0.3, 1.0, 5.0, 20.0):
        share = np.mean(np.abs(draws) <= point * scale)
        expected = 1 - 2 * stats.t(noise.FREEDOM).sf(point)
        assert abs(share - expected) < 4.9 * np.sqrt(expected * (1 - expected) / count)


TEACHERS = [SparseTeacher(noise="uniform"), TokenTeacher(noise="rademacher", layers=2)]


@pytest.mark.parametrize("teacher", TEACHERS, ids=["sparse", "token"])
def test_the_noise_floor_is_the_error_of_the_noise_free_answer(teacher):
    """mean (y − E[y | x])² = noise_std², within 4.9 standard errors √((m₄ − 1)/n) with m₄ ≤ 9/5."""
    count = 4000
    episode = teacher.sample(jax.random.key(1), count)
    errors = np.asarray(episode.tokens.value - teacher.answer(episode.latent, episode.tokens.key))
    relative = np.mean(errors**2) / teacher.noise_floor
    assert abs(relative - 1) < 4.9 * np.sqrt(0.8 / count)
    # The variance of the values is well above the floor, so there is something to learn.
    assert np.var(episode.tokens.value) > 2 * teacher.noise_floor


UNIT = [
    SparseTeacher(unit_variance=True),
    SparseTeacher(unit_variance=True, core_features=6, constant=True),
    TokenTeacher(unit_variance=True),
    TokenTeacher(unit_variance=True, hard=True, layers=2),
]


@pytest.mark.parametrize("teacher", UNIT, ids=["sparse", "core", "token", "hard"])
def test_a_normalised_teacher_has_answers_of_variance_one(teacher):
    """A sample variance of n answers has the relative standard error √((κ − 1)/n). Two such errors
    add: that of the fixed inputs that the teacher is normalised on, and that of the fresh inputs.
    The bound is 4.9 standard errors (1e-6, two-sided)."""
    count = 20_000
    for seed in range(3):
        episode = teacher.sample(jax.random.key(seed), 0, count)
        answer = np.asarray(episode.answer)[:, 0]
        kurtosis = stats.kurtosis(answer, fisher=False)
        error = np.sqrt((kurtosis - 1) * (1 / normalised.INPUTS + 1 / count))
        assert abs(answer.var() - 1) < 4.9 * error
        # The normalisation is a function of the weights: a second one changes nothing.
        again = teacher.normalised(episode.latent)
        np.testing.assert_allclose(again.second, episode.latent.second, rtol=1e-12)


def test_a_normalised_teacher_differs_only_in_its_last_weights():
    plain, unit = (
        TokenTeacher(unit_variance=on).teacher(jax.random.key(8)) for on in (False, True)
    )
    ratio = np.asarray(unit.second / plain.second)
    assert ratio.std() < 1e-12 * ratio.mean()
    assert abs(ratio.mean() - 1) > 0.01
    for name in ("query", "key", "value", "first"):
        np.testing.assert_array_equal(getattr(unit, name), getattr(plain, name))


def test_an_embedded_teacher_is_the_same_in_any_number_of_features():
    few, many = (SparseTeacher(features=p, core_features=6) for p in (8, 20))
    small, large = (teacher.sample(jax.random.key(9), 30, 10) for teacher in (few, many))
    np.testing.assert_array_equal(small.tokens.key, large.tokens.key[:, :8])
    assert small.query is not None
    assert large.query is not None
    np.testing.assert_array_equal(small.query, large.query[:, :8])
    np.testing.assert_array_equal(small.latent.first, large.latent.first[:, :8])
    np.testing.assert_allclose(small.tokens.value, large.tokens.value, rtol=1e-12)
    answers = few.answer(small.latent, small.query), many.answer(large.latent, large.query)
    np.testing.assert_allclose(*answers, rtol=1e-12)
    assert large.latent.support[6:].sum() == 0
    assert large.latent.support.sum() == few.attended


def test_constant_attention_does_not_depend_on_the_input():
    teacher = SparseTeacher(features=12, attended=3, constant=True)
    episode = teacher.sample(jax.random.key(10), 5)
    weights = np.asarray(teacher.attention(episode.latent, episode.tokens.key))
    np.testing.assert_array_equal(weights, weights[:1].repeat(5, 0))
    np.testing.assert_allclose(weights.sum(1), 3, rtol=1e-12)
    assert (weights[0] > 0).sum() == 3


def test_hard_attention_selects_the_token_with_the_largest_softmax_weight():
    soft, hard = (TokenTeacher(hard=on) for on in (False, True))
    episode = soft.sample(jax.random.key(11), 20)
    weights = np.asarray(soft.attention(episode.latent, 0, episode.tokens.key))
    chosen = np.asarray(hard.attention(episode.latent, 0, episode.tokens.key))
    np.testing.assert_array_equal(chosen, weights == weights.max(1, keepdims=True))
    assert (chosen.sum(1) == 1).all()


def test_known_attention_is_sparse_positive_and_depends_on_the_input():
    teacher = SparseTeacher(features=12, attended=3)
    episode = teacher.sample(jax.random.key(2), 50)
    weights = np.asarray(teacher.attention(episode.latent, episode.tokens.key))
    assert ((weights > 0).sum(1) == 3).all()
    np.testing.assert_allclose(weights.sum(1), 3, rtol=1e-12)
    assert ((weights > 0) == (weights[:1] > 0)).all()  # each teacher has one support
    assert weights[:, weights[0] > 0].std(0).min() > 0.05  # weights depend on x


def test_features_outside_the_support_have_no_effect():
    teacher = SparseTeacher(features=12, attended=3)
    latent, inputs = teacher.teacher(jax.random.key(3)), jnp.ones((4, 12))
    off = jnp.where(latent.support[None, :] > 0, inputs, 7.0)
    np.testing.assert_allclose(
        teacher.answer(latent, off), teacher.answer(latent, inputs), rtol=1e-12
    )
    dense = SparseTeacher(features=12, attended=3, attend=False)
    assert np.abs(dense.answer(latent, off) - dense.answer(latent, inputs)).min() > 1e-3


@pytest.mark.parametrize("rank", [1, 2, None])
def test_the_query_key_product_has_the_given_rank(rank):
    teacher = TokenTeacher(token_dim=4, query_dim=3, rank=rank)
    latent = teacher.teacher(jax.random.key(4))
    singular = np.linalg.svd(latent.query[0].T @ latent.key[0], compute_uv=False)
    expected = 3 if rank is None else rank
    # Singular values beyond the rank are rounding errors, about 1e-16 of the largest.
    assert (singular > 1e-12 * singular[0]).sum() == expected


def test_the_token_teacher_equals_the_formula_of_lens_b():
    """The teacher equals a loop over tokens that follows the formula of the paper of lens B."""
    teacher = TokenTeacher(tokens=3, token_dim=4, query_dim=2, value_dim=5)
    episode = teacher.sample(jax.random.key(5), 2)
    w = jax.tree.map(np.asarray, episode.latent)
    answers = teacher.answer(episode.latent, episode.tokens.key)
    for x, y in zip(np.asarray(episode.tokens.key), answers, strict=True):
        columns = []
        for z in range(3):
            logits = (w.key[0] @ x).T @ (w.query[0] @ x[:, z]) / np.sqrt(2)
            attention = np.exp(logits) / np.exp(logits).sum()
            columns.append(w.value[0] @ x @ attention)
        hidden = np.log1p(np.exp(5 * w.first @ np.concatenate(columns))) / 5
        np.testing.assert_allclose(w.second @ hidden, y[0], rtol=1e-12)


def test_permuting_tokens_permutes_attention():
    teacher = TokenTeacher(tokens=3)
    episode = teacher.sample(jax.random.key(6), 2)
    order = np.array([2, 0, 1])
    weights = teacher.attention(episode.latent, 0, episode.tokens.key)
    moved = teacher.attention(episode.latent, 0, episode.tokens.key[:, :, order])
    np.testing.assert_allclose(moved, weights[:, order][:, :, order], rtol=1e-12)


def test_softplus_is_within_log_two_of_relu():
    grid = jnp.linspace(-3, 3, 601)
    gap = softplus(grid, 5.0) - softplus(grid, np.inf)
    np.testing.assert_allclose(gap.max(), np.log(2) / 5, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SparseTeacher(features=4, attended=5), "attended must be from 1 to the number"),
        (lambda: SparseTeacher(noise="cauchy"), "noise must be one of gaussian, uniform"),
        (lambda: SparseTeacher(core_features=3), "core_features must be from attended, 4, to the"),
        (lambda: TokenTeacher(rank=5), r"rank must be from 1 to min\(query_dim, token_dim\) = 4"),
        (lambda: TokenTeacher(layers=2, value_dim=3), "value_dim must equal token_dim, 4"),
    ],
)
def test_bad_settings_raise_one_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()
