"""Closed forms of lens C, each against an independent computation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from attnlens import attention
from attnlens.claims.later_theory import in_context, kernel_landscape, sparse_tokens, token_rate

# -- C.token-rate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.5, 1.0])
def test_the_limit_of_the_token_rate_is_that_of_quadrature(radius: float):
    """The limit equals E[e^{2R t}((t − R)² + d − 1)]/(E e^{R t})² with t ~ N(0, 1), computed by
    Gauss–Hermite quadrature."""
    t, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()
    top = np.sum(weight * np.exp(2 * radius * t) * ((t - radius) ** 2 + 3))
    expected = np.log(top / np.sum(weight * np.exp(radius * t)) ** 2)
    assert token_rate.limit(4, radius) == pytest.approx(expected, abs=1e-12)


def test_the_error_given_the_products_is_the_mean_error_of_the_operator():
    """The error given the products q·k equals the mean over 4000 draws of the other components of
    the keys. The relative standard error of this mean is √(2/3)/√4000 = 0.013; four of them are
    allowed."""
    random = np.random.default_rng(0)
    along = random.standard_normal(32)
    tokens = random.standard_normal((4000, 32, 4))
    tokens[:, :, 0] = along
    query = np.broadcast_to([1.0, 0, 0, 0], (4000, 1, 4))
    output = attention.softmax(*map(jnp.asarray, (query, tokens, tokens)), temperature=1.0)
    drawn = np.mean(np.sum((np.asarray(output) - query)[:, 0] ** 2, -1))
    assert token_rate.squared_error(along[None], 1.0, 4)[0] == pytest.approx(drawn, rel=0.052)


# -- C.in-context ----------------------------------------------------------------------------------


def moments(cov: np.ndarray, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """E[S] and E[S²] of S = Σ x xᵀ/N by Monte Carlo over 200,000 prompts."""
    random = np.random.default_rng(1)
    x = random.standard_normal((200_000, examples, len(cov))) @ np.linalg.cholesky(cov).T
    s = np.swapaxes(x, 1, 2) @ x / examples
    return s.mean(0), (s @ s).mean(0)


def test_the_predicted_matrix_and_its_loss_are_those_of_sampled_moments():
    """The largest relative standard error of the entries is about 0.4 %."""
    cov = np.array([[1.2, 0.3], [0.3, 0.6]])
    first, second = moments(cov, 3)
    matrix = in_context.predicted(cov, 3)
    np.testing.assert_allclose(matrix, first @ np.linalg.inv(second), rtol=0.03, atol=0.01)
    spread = matrix @ second @ matrix - matrix @ first - first @ matrix + np.eye(2)
    assert in_context.loss_of(matrix, cov, 3) == pytest.approx(np.trace(cov @ spread), rel=0.02)
    closed = np.trace(cov @ (np.eye(2) - matrix @ cov))
    assert in_context.loss_of(matrix, cov, 3) == pytest.approx(closed, rel=1e-12)


def test_the_layer_with_the_predicted_matrix_has_the_predicted_loss():
    """The mean squared error over 50,000 prompts has a relative standard error of about 1 %."""
    cov = in_context.covariance(3, [0.5, 1.5])
    matrix = in_context.predicted(cov, 4)
    weights = np.concatenate([matrix, np.zeros((1, 2))])
    layer = in_context.LinearLayer(np.array([0.0, 0, 1]), weights)
    root = jnp.asarray(np.linalg.cholesky(cov).T)
    errors = in_context.squared_error(layer, in_context.prompts(jax.random.key(0), root, 50_000, 4))
    assert float(errors.mean()) == pytest.approx(in_context.loss_of(matrix, cov, 4), rel=0.04)


# -- C.sparse-tokens -------------------------------------------------------------------------------


def hard_accuracy(strength: float, length: int, informative: int) -> float:
    """The accuracy of the test that compares the largest component with a bound, for the best
    bound."""
    bound = np.linspace(-1, 8, 4001)
    result = norm.cdf(bound) ** (length - informative) * norm.cdf(bound - strength) ** informative
    return float(np.max(0.5 * norm.cdf(bound) ** length + 0.5 * (1 - result)))


@pytest.mark.parametrize(
    ("beta", "strength", "expected"),
    [(0.0, 4.0, norm.cdf(4 * 2 / (2 * np.sqrt(16)))), (100.0, 2.5, hard_accuracy(2.5, 16, 2))],
    ids=["pooled", "hard"],
)
def test_the_accuracy_of_attention_is_that_of_closed_forms(beta, strength, expected):
    """The accuracy over 2 · 4000 samples has the standard error 0.005; four of them are allowed."""
    noise = np.random.default_rng(2).standard_normal((2, 8000, 16))
    (measured,) = sparse_tokens.accuracies(noise, 2, [beta], np.array([strength]))
    assert measured == pytest.approx(expected, abs=0.02)


def test_the_docstring_states_the_strengths_of_hard_attention():
    for length, strength in ((16, 1.93), (64, 2.42), (256, 2.85), (1024, 3.23)):
        assert hard_accuracy(strength, length, 2) == pytest.approx(0.75, abs=0.002)


def test_the_learned_direction_has_the_alignment_of_a_difference_of_mean_tokens():
    """The mean cosine of 400 directions drawn by `alignment` equals that of 400 differences of mean
    tokens, at the strength on the grid nearest to 3."""
    parameters = {"training_samples": 64, "length": 8, "token_dim": 4}
    place = int(np.argmin(np.abs(sparse_tokens.STRENGTHS - 3)))
    random, strength = np.random.default_rng(3), sparse_tokens.STRENGTHS[place]
    stated = [sparse_tokens.alignment(random, parameters, 2 / 8)[place] for _ in range(400)]
    drawn = []
    for _ in range(400):
        tokens = random.standard_normal((2, 32, 8, 4))  # 32 sequences per class
        tokens[1, :, :2, 0] += strength
        difference = tokens[1].mean((0, 1)) - tokens[0].mean((0, 1))
        drawn.append(difference[0] / np.linalg.norm(difference))
    error = np.hypot(np.std(stated), np.std(drawn)) / 20
    assert np.mean(stated) == pytest.approx(np.mean(drawn), abs=4 * error)


def test_a_crossing_is_interpolated():
    strengths = np.array([1.0, 2.0, 4.0])
    assert sparse_tokens.crossing(strengths, np.array([0.5, 0.7, 0.8]), 0.75) == pytest.approx(
        2 * np.sqrt(2)
    )


# -- C.kernel-landscape ----------------------------------------------------------------------------


def test_kernels_are_those_of_the_operators():
    random = np.random.default_rng(4)
    queries, keys, values = (jnp.asarray(random.normal(size=(3, 2))) for _ in range(3))
    pairs = kernel_landscape.between(queries, keys)
    for name, operator in (
        ("softmax", attention.softmax),
        ("normalised-gaussian", attention.kernel),
    ):
        mine = kernel_landscape.weights(name, *pairs) @ values
        np.testing.assert_allclose(mine, operator(queries, keys, values), rtol=1e-5)
    plain = kernel_landscape.weights("gaussian", *pairs)
    direct = np.exp(-np.sum((np.asarray(queries)[:, None] - np.asarray(keys)) ** 2, -1) / 8**0.5)
    np.testing.assert_allclose(plain, direct, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_a_student_with_the_weights_of_its_teacher_gives_its_answers(kernel: str):
    parameters = next(iter(kernel_landscape.GRID("smoke"))).parameters
    world = kernel_landscape.teacher(parameters, kernel)
    episode = world.sample(jax.random.key(0), length=5, queries=5)
    model = kernel_landscape.student(parameters, kernel)(jax.random.key(1))
    latent = episode.latent
    model = eqx.tree_at(
        lambda m: (m.layer.query, m.layer.key, m.layer.value, m.first, m.second),
        model,
        (latent.query[0], latent.key[0], latent.value[0], latent.first, latent.second[None]),
    )
    assert episode.answer is not None
    answers = jax.vmap(model)(episode.query)
    np.testing.assert_allclose(answers, episode.answer, rtol=2e-5, atol=1e-6)
