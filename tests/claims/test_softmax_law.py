"""The law of softmax attention and the exact moments, against operators, worlds and quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import cme, softmax
from attnlens.claims import Measured
from attnlens.claims.exchangeability import (
    desired_parameter,
    efficiency,
    same_limit,
    softmax_estimates,
    softmax_law,
    softmax_smoothed,
)
from attnlens.worlds import GaussianProcess, LinearRegression
from attnlens.worlds.base import Pairs

LENGTH, QUERIES, M = 24, 5, 2


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def episode(seed: int = 3) -> tuple[jax.Array, jax.Array]:
    (points,) = softmax_law.sphere_points([seed], M, LENGTH + QUERIES)
    return jnp.asarray(points[:LENGTH]), jnp.asarray(points[LENGTH:])


def weights(operator: Callable[..., jax.Array], **settings: float) -> jax.Array:
    """The attention weights of an operator, which are its output when the values are unit
    vectors."""
    token, query = episode()
    return operator(query, token, jnp.eye(LENGTH), **settings)


def test_moments_are_the_expected_errors_of_the_operator_given_the_keys():
    token, query = episode()
    measured = softmax_law.moments([3], M, LENGTH, QUERIES, [0.3, 0.05])
    for column, temperature in enumerate((0.3, 0.05)):
        # Softmax attention is linear in the values: for z = e_j its error is (Σ w k − q)_j, and
        # unit noise adds the variance Σ w².
        errors = softmax(query, token, token, temperature=temperature) - query
        w = weights(softmax, temperature=temperature)
        expected = [float(jnp.mean(jnp.sum(x**2, -1))) for x in (errors, w)]
        result = [measured.to_mean[0, column], measured.weight[0, column]]
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_episodes_of_different_lengths_and_seeds_are_independent():
    points = softmax_law.sphere_points([0, 1], 2, 8)
    assert not np.isclose(points[0], points[1]).any()
    assert not np.isclose(points[0], softmax_law.sphere_points([0], 2, 9)[0, :8]).any()
    np.testing.assert_allclose(np.linalg.norm(points, axis=-1), 1)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_schedule_minimises_the_law_without_the_signal(m: int):
    smoothness = softmax_law.of_linear(m)._replace(signal=0.0)
    best = softmax_law.schedule(m, 1000, 0.7)
    at = [softmax_law.two_term_law(m, 1000, 0.7, x * best, smoothness) for x in (0.99, 1, 1.01)]
    assert at[1] == min(at)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_signal_and_noise_have_the_same_variance_at_the_crossover(m: int):
    noise = softmax_law.crossover(m, 5000)
    signal = softmax_law.of_linear(m).signal * softmax_law.schedule(m, 5000, noise)
    assert signal == pytest.approx(noise**2, rel=1e-12)
    slope = math.log(softmax_law.crossover(m, 50_000) / noise) / math.log(10)
    assert slope == pytest.approx(-1 / (m + 2), rel=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_smoothness_of_a_process_by_differentiating_its_covariance(m: int):
    def covariance(t: float) -> jax.Array:
        return jnp.exp((t - 1) / 0.7)

    def laplacian(h: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        first = jax.grad(h)
        return lambda t: (1 - t**2) * jax.grad(first)(t) - m * t * first(t)

    result = softmax_law.of_process(m, 0.7)
    assert result.signal == pytest.approx(-float(laplacian(covariance)(1.0)) / 2, rel=1e-12)
    twice = float(laplacian(laplacian(covariance))(1.0))
    assert result.squared_bias == pytest.approx(twice / 4, rel=1e-12)


def test_the_limiting_constant_by_quadrature():
    """The limit by quadrature: on S² the product t = q·k is uniform, and E(⟨z, k⟩ − A⟨z, q⟩)² = 1 −
    2 A t + A²."""
    t = np.linspace(-1, 1, 200_001)
    kernel = np.exp((t - 1) / 0.5)
    once = (kernel * t).mean() / kernel.mean()
    spread = 0.5**2 + 1 - 2 * once * t + once**2
    expected = (kernel**2 * spread).mean() / kernel.mean() ** 2
    # The mean over all grid points, including both end points, has an error of about 1/(number of
    # points).
    assert softmax_smoothed.limit(2, 0.5, 0.5) == pytest.approx(expected, rel=1e-4)


def test_the_distance_of_the_operators_is_the_expected_one():
    token, query = episode()
    own, noise_std, at = 2.0, 0.5, 0.2
    result = same_limit.distances(token[None], query[None], own, noise_std, jnp.asarray(at))
    difference = weights(softmax, temperature=at) - weights(
        cme, ridge=noise_std**2, temperature=own
    )
    covariance = jnp.exp((token @ token.T - 1) / own) + noise_std**2 * jnp.eye(LENGTH)
    expected = jnp.mean(jnp.einsum("ql,lk,qk->q", difference, covariance, difference))
    np.testing.assert_allclose(result.squared[0], expected, rtol=1e-9)
    world = GaussianProcess(key_dim=M + 1, temperature=own, noise_std=noise_std)
    exact = world.predict(Pairs(token, jnp.zeros((LENGTH, 1))), query).var.mean()
    np.testing.assert_allclose(result.posterior_var[0], exact, rtol=1e-9)


def test_the_posterior_variance_is_that_of_the_linear_world():
    token, query = episode()
    world = LinearRegression(key_dim=M + 1, noise_std=0.8)
    exact = world.predict(Pairs(token, jnp.zeros((LENGTH, 1))), query).var.mean()
    result = efficiency.posterior_var(token[None], query[None], 0.8)
    np.testing.assert_allclose(result[0], exact, rtol=1e-12)


def test_the_error_of_the_ridge_solve_is_that_of_the_operator():
    token, query = episode()
    result = efficiency.by_ridge_solve(token[None], query[None], 0.8, 2.0).squared[0]
    settings: dict[str, Any] = {"ridge": 0.8**2, "temperature": 2.0}
    signal = jnp.sum((cme(query, token, token, **settings) - query) ** 2, -1)
    noise = 0.8**2 * jnp.sum(weights(cme, **settings) ** 2, -1)
    np.testing.assert_allclose(result, jnp.mean(signal + noise), rtol=1e-9)


def test_the_error_with_an_output_gain_is_that_of_the_scaled_operator():
    token, query = episode()
    settings = {**efficiency.GRID.settings, "gain": True, "noise_std": 0.8, "queries": QUERIES}
    result = efficiency.measure(
        "output-gain", {**settings, "manifold_dim": M, "length": LENGTH}, [3]
    )
    temperature = settings["gain_temperature"]
    gain = 1 / LinearRegression(key_dim=M + 1).smoothing(temperature)
    signal = jnp.sum(
        (gain * softmax(query, token, token, temperature=temperature) - query) ** 2, -1
    )
    noise = (0.8 * gain) ** 2 * jnp.sum(weights(softmax, temperature=temperature) ** 2, -1)
    np.testing.assert_allclose(result["squared"][0], jnp.mean(signal + noise), rtol=1e-9)


@pytest.mark.parametrize("gain", [False, True])
def test_training_finds_the_temperature_with_the_lowest_risk_on_a_grid(gain: bool):
    parameters = {**desired_parameter.GRID.settings, "manifold_dim": 2, "length": 64, "gain": gain}
    similarity, value, label = desired_parameter.sequences(parameters, 0)
    trained = desired_parameter.measure("prediction", parameters, [0])
    grid = np.geomspace(0.02, 1, 391)  # the grid has steps of 1 %
    at = np.exp(similarity[None] / grid[:, None, None, None])
    answers = at / at.sum(-1, keepdims=True) @ value
    if gain:  # scale each answer by its least-squares factor
        factors = (answers * label).sum((1, 2, 3)) / (answers**2).sum((1, 2, 3))
        answers = factors[:, None, None, None] * answers
    best = grid[((answers - label) ** 2).mean((1, 2, 3)).argmin()]
    # The tolerance is half a step of the grid plus what |d log risk / d log τ| below 0.01 allows at
    # a curvature of about m = 2. With `gain` the minimum is flatter.
    assert trained["gradient"][0] < 0.01
    assert trained["temperature"][0] == pytest.approx(best, rel=0.03 if gain else 0.015)


def test_the_best_temperature_of_a_block_is_chosen_by_the_other_blocks():
    blocks = ([1.0, 9.0], [5.0, 4.0], [5.0, 4.0])
    cells = [Measured({}, (i,), {"squared": np.array([b])}) for i, b in enumerate(blocks)]
    # For each block, the sums of the other blocks per temperature are (10, 8), (6, 13) and (6, 13).
    assert softmax_estimates.best_of_others(cells).tolist() == [9.0, 5.0, 5.0]


def test_the_crossover_is_where_the_fitted_variances_meet():
    noise = np.array([[0.1, 0.2, 0.4]])
    values = {"noise": noise, "signal": 0.3**2 * np.ones((1, 3)), "weight": np.ones((1, 3))}
    result = softmax_estimates.log_crossovers([Measured({}, (0,), values)])
    assert math.exp(result[0]) == pytest.approx(0.3, rel=1e-12)
