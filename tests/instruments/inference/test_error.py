"""`inference_error` where the answer is known: the Bayes estimator, a constant, a known bias."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import inference_error
from attnlens.attention import cme, softmax
from attnlens.core.checks import BadInput
from attnlens.core.status import Status
from attnlens.instruments.inference.error import errors
from attnlens.networks import Reader
from attnlens.worlds import GaussianProcess, LinearRegression
from attnlens.worlds.base import Pairs
from attnlens.worlds.seeding import episode_keys
from counting import compilations
from network_builders import blank, put

WORLD = LinearRegression(key_dim=3, noise_std=0.5)


def zero(query, key, value):
    return jnp.zeros((query.shape[0], value.shape[1]), value.dtype)


def test_the_zero_operator_has_the_known_error():
    # The root mean square error of zero is 1: E⟨z, q⟩² = ‖q‖² = 1 for z ~ N(0, I) and q on the
    # sphere.
    curve = inference_error(zero, WORLD, (4,), episodes=2000, queries=4)
    (reading,) = curve.readings
    assert abs(reading.value - 1) < 4.5 * reading.standard_error  # false-positive rate 1 in 1.5e5
    assert reading.standard_error < 0.03


def test_the_bayes_estimator_equals_the_posterior_mean():
    exact = partial(cme, ridge=WORLD.noise_std**2, temperature=1.0, kernel="linear")
    (reading,) = inference_error(exact, WORLD, (16,), target="posterior", episodes=20).readings
    # The operator and the posterior each solve a linear system with a condition number of at most
    # (L + σ²)/σ² = 65, for L = 16 tokens with noise σ: errors of 65 ε times the norm of the values,
    # which is below 50.
    assert reading.value < 65 * 50 * np.finfo(float).eps


def test_the_error_of_the_bayes_estimator_is_the_posterior_standard_deviation():
    world = GaussianProcess(key_dim=3, temperature=0.5, noise_std=0.3)
    operator = partial(cme, ridge=world.noise_std**2, temperature=world.temperature)
    curve = inference_error(operator, world, (16, 64), episodes=400)
    for reading, exact in zip(curve.readings, curve.exact, strict=True):
        assert abs(reading.value - exact) < 4.5 * reading.standard_error


@pytest.mark.slow
def test_softmax_converges_to_the_smoothed_answer_and_not_to_the_answer():
    operator = partial(softmax, temperature=0.5)
    lengths = (64, 256, 1024)
    to_smoothed = inference_error(operator, WORLD, lengths, target="smoothed", temperature=0.5)
    assert to_smoothed.slope is not None
    assert abs(to_smoothed.slope.value + 0.5) < 4.5 * to_smoothed.slope.standard_error
    to_answer = inference_error(operator, WORLD, (4096,), queries=4, episodes=100)
    # The error converges to the bias (1 − A)⟨z, q⟩, whose root mean square is 1 − A.
    bias = 1 - WORLD.smoothing(0.5)
    assert (
        abs(to_answer.readings[0].value - bias) < 4.5 * to_answer.readings[0].standard_error + 0.01
    )


def test_smoothing_agrees_with_the_langevin_function():
    # In R³ the ratio of Bessel functions is coth(c) − 1/c, the Langevin function.
    for temperature in (0.05, 0.5, 5.0):
        c = 1 / temperature
        expected = 1 / math.tanh(c) - 1 / c
        assert LinearRegression(key_dim=3).smoothing(temperature) == pytest.approx(
            expected, rel=1e-12
        )


def test_episodes_differ_by_seed_and_by_label():
    keys = [episode_keys((0, 1), 4), episode_keys((0, 1), 8), episode_keys((0, 1), 8, 4)]
    drawn = {tuple(np.asarray(jax.random.key_data(k)).ravel()) for group in keys for k in group}
    assert len(drawn) == 6


def test_one_program_serves_every_seed_and_ridge():
    world = GaussianProcess(key_dim=2, temperature=0.7, noise_std=0.3)
    counts = []
    for ridge in (0.09, 0.9):
        operator = jax.tree_util.Partial(cme, ridge=jnp.asarray(ridge), temperature=0.7)
        for seeds in ((0, 1), (2, 3)):
            keys = episode_keys(seeds, 8)
            before = compilations()
            errors(operator, world, keys, 8, 3)
            counts.append(compilations() - before)
    assert counts == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": ()}, "lengths must be increasing"),
        ({"lengths": (64, 16)}, "lengths must be increasing"),
        ({"lengths": (0, 4)}, "each length must be a whole number of at least 1"),
        ({"target": "truth"}, "target must be one of answer, smoothed, posterior"),
        ({"episodes": 1}, "episodes must be a whole number of at least 2"),
        ({"queries": 0}, "queries must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"target": "smoothed"}, "needs temperature="),
        (
            {"target": "smoothed", "temperature": -1.0},
            "temperature must be a finite number above 0",
        ),
        (
            {"target": "smoothed", "world": GaussianProcess()},
            "with a known smoothed mean",
        ),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    settings = {"operator": softmax, "world": WORLD, "lengths": (4, 8), "episodes": 4, **changes}
    with pytest.raises(BadInput, match=message):
        inference_error(
            settings.pop("operator"), settings.pop("world"), settings.pop("lengths"), **settings
        )


def test_the_rate_is_fitted_where_the_posterior_has_resolved_half_of_the_prior_variance():
    # With noise 3 and three weights the posterior resolves about L/(L + 27) of the variance of each
    # weight: half at L = 27.
    world = LinearRegression(key_dim=3, noise_std=3.0)
    curve = inference_error(zero, world, (4, 64, 256), episodes=200, queries=4)
    assert curve.fitted_from == 64
    assert "fitted from length 64 on" in str(curve)
    # The exact posterior variance is near 27/(L + 27); `expected` is the slope of its root from 64
    # to 256.
    expected = 0.5 * math.log((64 + 27) / (256 + 27)) / math.log(4)
    assert curve.predicted is not None
    assert abs(curve.predicted - expected) < 0.03  # a few percent, because keys are random


def test_a_network_is_measured_like_an_operator():
    # With zero query weights, attention returns the plain mean of values; the skip connection
    # outputs it.
    model = put(
        blank(Reader, key_dim=3, query_dim=3, hidden=0),
        value=[[[1.0]]],
        skip=[[1.0, 0.0, 0.0, 0.0]],
    )

    def mean(query, key, value):
        return jnp.broadcast_to(jnp.mean(value, 0), (query.shape[0], 1))

    trained, plain = (
        inference_error(operator, WORLD, (8,), episodes=20, queries=2)
        for operator in (model.answers, mean)
    )
    # The two sides add eight numbers of size one in different ways.
    assert abs(trained.readings[0].value - plain.readings[0].value) < 100 * np.finfo(float).eps


def test_the_two_longest_are_fitted_where_no_length_resolves_half():
    # With noise 10 and three weights, half of the prior variance is resolved at L = 300.
    world = LinearRegression(key_dim=3, noise_std=10.0)
    for lengths, start in (((4, 8, 16), 8), ((4, 8), 4), ((4,), 4)):
        curve = inference_error(zero, world, lengths, episodes=8, queries=4)
        assert curve.fitted_from == start


def test_an_operator_that_equals_its_target_exactly_has_error_zero_and_no_slope():
    def exact(query, key, value):
        return WORLD.predict(Pairs(key, value), query).mean

    curve = inference_error(exact, WORLD, (4, 16), target="posterior", episodes=4, queries=2)
    assert [(reading.value, reading.standard_error) for reading in curve.readings] == [
        (0.0, 0.0)
    ] * 2
    assert curve.slope is not None
    assert str(curve.slope) == "no number: an error of zero has no logarithm"
    assert curve.figure().series[0].slope is None


def test_an_operator_with_one_number_per_query_raises_instead_of_broadcasting():
    with pytest.raises(BadInput, match=r"\(3, 1\); got \(3,\)"):
        inference_error(
            lambda q, k, v: softmax(q, k, v)[:, 0], LinearRegression(), (4,), episodes=2, queries=3
        )


def test_an_operator_that_returns_nan_has_no_number():
    curve = inference_error(
        lambda q, k, v: softmax(q, k, v) * np.nan, LinearRegression(), (4, 8), episodes=4, queries=2
    )
    assert [reading.status for reading in curve.readings] == [Status.NOT_FINITE] * 2
    assert curve.slope is not None
    assert curve.slope.status is Status.NOT_FINITE
