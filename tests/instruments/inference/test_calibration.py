"""Calibration: exact posteriors pass, and posteriors that are wrong in a known way do not."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens import calibration
from attnlens.core.checks import BadInput
from attnlens.instruments import reference_c2st
from attnlens.instruments.inference.calibration import calibration_of, uniform_p_value
from attnlens.worlds import AutoRegressive, LinearRegression, NormalMean

EPISODES, DRAWS, LENGTH = 400, 99, 4
WORLD = NormalMean(dim=2)
# The posterior of z ~ N(0, I₂) given four tokens of variance 1 in each coordinate is N(Σx/5, 1/5).
RANDOM = np.random.default_rng(0)
LATENT = RANDOM.standard_normal((EPISODES, 2))
TOKENS = LATENT[:, None] + RANDOM.standard_normal((EPISODES, LENGTH, 2))
CENTRE = TOKENS.sum(1)[:, None] / 5
NOISE = RANDOM.standard_normal((EPISODES, DRAWS, 2)) / np.sqrt(5)


def test_draws_from_the_exact_posterior_are_calibrated():
    result = calibration_of(LATENT, CENTRE + NOISE, TOKENS)
    assert result.calibrated
    for level, reading in zip(result.coverage.at, result.coverage.readings, strict=True):
        # All 9 levels are within 4 standard errors: false-positive rate below 1 in 1,700.
        assert abs(reading.value - level) < 4 * reading.standard_error
    assert "no miscalibration" in str(result)
    assert [len(figure.axes) for figure in [result.plot()]] == [1]


def correlated(noise: np.ndarray) -> np.ndarray:
    """Noise with the same marginal laws, and correlation 0.95 between the coordinates."""
    return np.stack([noise[..., 0], 0.95 * noise[..., 0] + 0.3122 * noise[..., 1]], -1)


@pytest.mark.parametrize(
    ("draws", "low", "high"),
    [
        pytest.param(CENTRE + 0.5 * NOISE, 0.0, 0.35, id="too-narrow"),
        pytest.param(CENTRE + 2 * NOISE, 0.7, 1.0, id="too-wide"),
        pytest.param(CENTRE + NOISE + 0.3, 0.0, 1.0, id="shifted"),
    ],
)
def test_too_narrow_too_wide_and_shifted_posteriors_are_not_calibrated(draws, low, high):
    """The 50 % interval of draws with half the width has z-limits ±0.34 and contains 26 %; that of
    draws with twice the width contains 82 %."""
    result = calibration_of(LATENT, draws, TOKENS)
    assert not result.calibrated
    assert low <= result.coverage.readings[4].value <= high


def test_distance_sees_what_no_coordinate_shows():
    """Draws from the prior and draws with wrong correlations have uniform ranks in every
    coordinate, but not in the distance to random points."""
    prior = np.random.default_rng(2).standard_normal((EPISODES, DRAWS, 2))
    for draws in (prior, CENTRE + correlated(NOISE)):
        result = [calibration_of(LATENT, draws, TOKENS, seed).p_values for seed in range(4)]
        assert min(min(row[:2]) for row in result) > 1e-3
        # How clearly an error shows depends on the direction of the random points.
        assert min(row[2] for row in result) < 1e-4


def test_ranks_with_ties_are_uniform():
    zeros = np.zeros((EPISODES, 1))
    assert calibration_of(zeros, np.zeros((EPISODES, DRAWS, 1)), TOKENS).p_value > 1e-3


def test_p_values_by_hand():
    # Ten bins of 20 episodes; one episode is moved: χ² = (1 + 1)/20 = 0.1 with 9 degrees of
    # freedom.
    ranked = np.repeat(np.arange(10) * 10, 20)
    assert uniform_p_value(ranked, 99) == 1
    ranked[0] = 10
    assert uniform_p_value(ranked, 99) == pytest.approx(1.0, abs=1e-6)
    assert uniform_p_value(np.zeros(200, int), 99) < 1e-300


@pytest.mark.parametrize("world", [WORLD, LinearRegression(key_dim=2)], ids=["means", "keys"])
def test_the_posteriors_of_worlds_are_calibrated(world):
    result = calibration(None, world, length=LENGTH, episodes=200, draws=19, seed=1)
    assert result.p_value > 1e-3
    assert result.ranks.shape == (200, 2)


def test_a_function_of_the_user_is_judged():
    def narrow(tokens, count, seed):
        noise = np.random.default_rng(seed).standard_normal((count, 2)) / np.sqrt(20)
        return tokens.sum(0) / 5 + noise

    assert calibration(narrow, WORLD, length=LENGTH, episodes=200).p_value < 1e-6
    settings = {"length": LENGTH, "episodes": 3, "draws": 300}
    assert reference_c2st(narrow, WORLD, **settings).value > 0.55


def test_bad_input_is_one_sentence():
    for call in (
        lambda: calibration(None, WORLD),
        lambda: calibration(None, WORLD, length=2, episodes=20),
        lambda: calibration(None, WORLD, length=2, draws=30),
        lambda: calibration(None, AutoRegressive(), length=2),
        lambda: reference_c2st(lambda *_: 0, AutoRegressive(), length=2),
    ):
        with pytest.raises(BadInput):
            call()
