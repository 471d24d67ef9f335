"""Closed forms of lens C, each against an independent computation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm

from attnlens import attention
from attnlens.claims.later_theory import (
    in_context,
    kernel_landscape,
    pairwise,
    pairwise_estimates,
    sparse_tokens,
    sparse_variables,
    token_rate,
)
from attnlens.worlds import PairwiseInteraction, SparseAnd

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


# -- C.sparse-variables ----------------------------------------------------------------------------


def test_the_head_is_softmax_attention_over_positions_and_contents():
    """The closed form (A + h)/(1 + h A) equals the operator with logits u_t + c x_t, one query."""
    random = np.random.default_rng(5)
    bits = random.choice([-1.0, 1.0], (6, 5))
    theta = {"position": random.normal(size=5), "readout": np.array([1.7, -0.4, 0.8])}
    keys = np.stack([np.broadcast_to(theta["position"], bits.shape), bits], -1)
    query = np.broadcast_to([1.0, theta["readout"][2]], (6, 1, 2))
    mean = attention.softmax(*map(jnp.asarray, (query, keys, bits[..., None])), temperature=1.0)
    expected = 1.7 * np.asarray(mean)[:, 0, 0] - 0.4
    mine = sparse_variables.head({n: jnp.asarray(v) for n, v in theta.items()}, jnp.asarray(bits))
    np.testing.assert_allclose(mine, expected, rtol=1e-5)


@pytest.mark.parametrize("length", [16, 1024])
def test_the_bound_of_the_norm_lets_the_head_represent_the_function(length: int):
    """The stated logits reach the bound; with them the outputs of the two labels are separated by
    one threshold, whatever the irrelevant bits are."""
    parameters = {"length": length, "relevant_share": None, "bound": 10.0}
    _, bounds = sparse_variables.head_start(parameters)
    logits = np.zeros(length)
    logits[:3] = np.log(length) + 2
    assert np.linalg.norm(logits) == pytest.approx(bounds["position"], rel=1e-12)
    share = 3 * np.exp(logits[0]) / (3 * np.exp(logits[0]) + length - 3)
    assert share > 0.95
    # All relevant bits are 1: the mean is at least share − (1 − share); one of them is −1: at most
    # share/3 + (1 − share).
    assert 2 * share - 1 > share / 3 + 1 - share


def test_two_of_three_positions_do_not_reach_the_error():
    """The error of the AND of two of three relevant bits is P(1, 1, −1) = p²(1 − p) > 0.1."""
    world = SparseAnd(bits=3, relevant=3)
    episode = world.sample(jax.random.key(0), 20_000)
    bits, label = np.asarray(episode.tokens.key), np.asarray(episode.tokens.value)[:, 0]
    error = np.mean(np.where((bits[:, :2] > 0).all(1), 1, -1) != label)
    p = 2 ** (-1 / 3)
    assert error == pytest.approx(p**2 * (1 - p), abs=4 * np.sqrt(0.13 * 0.87 / 20_000))
    assert p**2 * (1 - p) > 0.1


def test_the_docstring_states_the_slope_of_the_information():
    needed = [np.log2(t * (t - 1) * (t - 2) / 6) for t in (64, 256, 1024)]
    np.testing.assert_allclose(needed, [15.3, 21.4, 27.4], atol=0.05)
    fitted = np.polyfit(np.log((64, 256, 1024)), np.log(needed), 1)[0]
    assert pytest.approx(fitted, rel=1e-9) == sparse_variables.CENTRE
    assert fitted == pytest.approx(0.21, abs=0.005)


def test_descent_stays_in_its_balls_and_learns_from_weighted_samples_only():
    """Samples of weight 0 have wrong labels; the head learns the others without an error."""
    parameters = {"length": 8, "relevant_share": None, "bound": 10.0}
    start, bounds = sparse_variables.head_start(parameters)
    episode = SparseAnd(8, 3).sample(jax.random.key(1), 100)
    bits, label = episode.tokens.key, episode.tokens.value[:, 0]
    weight = (jnp.arange(100) < 50).astype(label.dtype)
    wrong = jnp.where(weight > 0, label, -label)
    theta = sparse_variables.descend(
        sparse_variables.head, start, bounds, bits, wrong, weight, steps=200, path=10.0
    )
    for name, bound in bounds.items():
        assert float(jnp.linalg.norm(theta[name])) <= bound * (1 + 1e-6)
    assert bool(jnp.all((sparse_variables.head(theta, bits) > 0) == (label > 0)))


def test_the_crossing_is_where_the_error_falls_below_the_goal_for_good():
    crossing = sparse_variables.log_crossing
    sizes = [1, 10, 100, 1000]
    assert crossing(sizes, np.array([0.05, 0.3, 0.1, 0.0]), 0.2) == pytest.approx(np.log(10**1.5))
    assert crossing(sizes, np.zeros(4), 0.2) == 0.0
    assert crossing(sizes, np.ones(4), 0.2) == np.log(1000)


# -- C.pairwise ------------------------------------------------------------------------------------


def drawn_pairs(dim: int, count: int = 40_000) -> np.ndarray:
    """Products of independent points on the sphere in R^d."""
    points = np.random.default_rng(6).standard_normal((2, count, dim))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return np.sum(points[0] * points[1], -1)


@pytest.mark.parametrize("dim", [3, 6])
def test_places_are_uniform_and_the_density_is_the_derivative(dim: int):
    places = pairwise_estimates.distribution(drawn_pairs(dim), dim)
    assert kstest(places, "uniform").pvalue > 1e-4
    product, h = np.linspace(-0.9, 0.9, 7), 1e-5
    slope = (
        pairwise_estimates.distribution(product + h, dim)
        - pairwise_estimates.distribution(product - h, dim)
    ) / (2 * h)
    # The error of a central difference is h²/6 times the third derivative, below 1e-8 here.
    np.testing.assert_allclose(pairwise_estimates.density(product, dim), slope, rtol=1e-6)


def test_sums_of_cosines_and_their_derivative():
    coefficients, place = np.array([0.5, -1.0, 2.0]), np.linspace(0, 1, 11)
    k = np.arange(1, 4)[:, None]
    direct = np.sqrt(2) * coefficients @ np.cos(np.pi * k * place)
    np.testing.assert_allclose(pairwise_estimates.values(coefficients, place), direct, atol=1e-12)
    slope = -np.sqrt(2) * coefficients @ (np.pi * k * np.sin(np.pi * k * place))
    np.testing.assert_allclose(
        pairwise_estimates.derivative(coefficients, place), slope, atol=1e-11
    )


def test_a_sample_has_the_information_of_its_observed_pairs():
    """The Gram matrix of the features of M samples is M N/(N − 1) times the identity. An entry has
    a standard deviation of at most √(2 M N)/(N − 1); five of them are allowed."""
    samples, tokens = 4000, 4
    episode = PairwiseInteraction(tokens=tokens).sample(jax.random.key(2), samples)
    inputs = np.asarray(episode.tokens.key, float)
    features = pairwise_estimates.Places(inputs, np.eye(3)).features(5)
    gram = features.T @ features
    allowed = 5 * np.sqrt(2 * samples * tokens) / (tokens - 1)
    np.testing.assert_allclose(gram, np.eye(5) * samples * tokens / (tokens - 1), atol=allowed)


@pytest.mark.parametrize("dim", [3, 6])
def test_the_matrix_is_found_up_to_its_sign(dim: int):
    """With little noise and an interaction of six cosines the estimate of A is near A or −A. The
    standard error of an entry is of order σ/√(M N) = 2e-4; ten of them are allowed."""
    world = PairwiseInteraction(tokens=2, token_dim=dim, terms=6, noise_std=0.01)
    with jax.enable_x64(True):
        episode = jax.tree.map(np.asarray, world.sample(jax.random.key(3), 1000))
    inputs, target = episode.tokens
    estimate = pairwise_estimates.learned_matrix(inputs, target.ravel(), 6)
    matrix = episode.latent.matrix
    sign = np.sign(np.sum(estimate * matrix))
    np.testing.assert_allclose(sign * estimate, matrix, atol=2e-3)


def test_the_error_with_a_known_matrix_is_the_predicted_one():
    """The mean over 24 interactions agrees with the closed form. Its K σ²/m part has the relative
    standard deviation √(2/K), so the mean of 24 has 2 %; 5 % are left for terms of order K/m."""
    parameters = next(iter(pairwise.RATE("default"))).parameters
    world, observed = pairwise.world_of(parameters), pairwise.observations(parameters)
    errors = []
    with jax.enable_x64(True):
        for seed in range(24):
            episode = jax.tree.map(
                np.asarray, pairwise.draw(world, jax.random.key(seed), parameters["samples"], 0)
            )
            known = {**parameters, "estimate": "known"}
            errors.append(pairwise.errors(known, world, episode, seed)[1])
    assert np.mean(errors) == pytest.approx(pairwise.predicted_error(world, observed), rel=0.13)


def test_nearest_neighbours_of_a_constant_and_of_a_line():
    pairs = np.linspace(0, 1, 101)[:, None]
    assert pairwise_estimates.nearest(pairs, np.ones(101), pairs, np.ones(101)) == 0.0
    error = pairwise_estimates.nearest(pairs, pairs[:, 0], pairs + 0.005, pairs[:, 0] + 0.005)
    # The mean of two neighbours is exact halfway between them, and is off by 0.01 beyond the end.
    assert error == pytest.approx(0.01**2 / 101, rel=1e-9)
