"""Forecasts against brute force, exact laws, and their coverage on draws from the prior."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from attnlens.instruments.samples import forecast
from attnlens.instruments.samples.forecast import (
    DEVIATIONS,
    EXPONENTS,
    FLOORS,
    MeasuredCurve,
    Paths,
    draw_paths,
    forecast_draws,
    posterior,
    used_sizes,
)
from attnlens.instruments.samples.sample_size import interval, sample_size

SIZES = np.geomspace(25, 800, 6)
T = np.log2(SIZES / SIZES[-1])
COVARIANCE = 0.05**2 * (0.5 + 0.5 * np.eye(6))


def table(law: np.ndarray, std: float = 0.0, seed: int = 0) -> np.ndarray:
    """Errors (fold, size) of eight folds around a law."""
    return law * np.exp(std * np.random.default_rng(seed).normal(size=(8, len(law))))


def test_the_likelihood_is_the_normal_density_integrated_over_the_level():
    logs = np.log(0.3 * SIZES**-0.4) + 0.05 * np.random.default_rng(0).normal(size=6)
    result = posterior(MeasuredCurve(T, logs, COVARIANCE))
    walk = np.minimum(-T[:, None], -T)
    for b, r, s in ((3, 5, 1), (12, 10, 3), (20, 19, 6)):
        law = np.log(FLOORS[r] + (1 - FLOORS[r]) * (SIZES / SIZES[-1]) ** -EXPONENTS[b])
        normal = multivariate_normal(np.zeros(6), COVARIANCE + DEVIATIONS[s] ** 2 * walk)
        std = math.sqrt(result.variance[s])
        # Trapezoidal sums of a normal density with 100 points per standard deviation are exact to
        # rounding, which is about 1e−12 for densities of this size.
        levels = result.level[b, r, s] + std * np.arange(-10, 10, 0.01)
        density = normal.pdf(logs - law - levels[:, None])
        total = math.log(density.sum() * 0.01 * std) + 2.5 * math.log(2 * math.pi)
        assert result.likelihood[b, r, s] == pytest.approx(total, abs=1e-9)
        middle = (density * levels).sum() / density.sum()
        assert result.level[b, r, s] == pytest.approx(middle, abs=1e-9)


def test_draws_have_the_quantiles_of_the_mixture():
    data = MeasuredCurve(T, np.log(0.3 * SIZES**-0.4), COVARIANCE)
    result = posterior(data)
    last = np.random.default_rng(1).normal(size=4000)
    paths = draw_paths(800.0, result, last / last.std(), 0)
    law = np.log(FLOORS[:, None] + (1 - FLOORS[:, None]) * 4.0 ** -EXPONENTS[:, None, None])
    mean = result.level + law
    std = np.sqrt(result.variance + 2 * DEVIATIONS**2)
    for share in (0.025, 0.5, 0.975):
        value = np.log(np.quantile(paths.error(3200.0)[1:], share))
        exact = float((result.weights() * ndtr((value - mean) / std)).sum())
        # Four standard errors of the share of 4,000 independent draws below a number.
        assert abs(exact - share) < 4 * math.sqrt(share * (1 - share) / 4000)


@pytest.mark.parametrize("exponent", [0.3, 0.5])
@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_intervals_hold_an_exact_law_and_are_bounded(exponent: float, floor: float):
    law = (1 - floor) * (SIZES / 25) ** -exponent + floor
    (draws,) = forecast_draws(SIZES, table(law)[None], np.ones(6))
    for times in (2, 4):
        truth = (1 - floor) * (times * 800 / 25) ** -exponent + floor
        low, high = interval(draws.extrapolated(times * 800.0)[1:])
        assert low < truth < high < 1.5 * truth
        size = sample_size(draws, truth)
        assert size.low < times * 800 < size.high < math.inf


def test_a_flat_curve_promises_nothing():
    (draws,) = forecast_draws(SIZES, table(np.full(6, 0.3), 0.02)[None], np.ones(6))
    assert sample_size(draws, 0.2).value == math.inf
    # It does not fall from n/32 to n, so four times the labels do not gain a tenth either.
    assert 0.27 < draws.extrapolated(3200.0)[0] < 0.33


def test_a_plateau_at_the_beginning_does_not_count():
    law = 2 * SIZES**-0.5
    longer = np.geomspace(25 / 8, 800, 9)
    before = np.concatenate([np.full(3, law[0]), law])
    assert used_sizes(longer, before) == slice(3, None)
    (alone,) = forecast_draws(SIZES, table(law)[None], np.ones(6))
    (both,) = forecast_draws(longer, table(before)[None], np.ones(9))
    assert both.extrapolated(3200.0) == pytest.approx(alone.extrapolated(3200.0), rel=1e-12)


def test_n_inverts_the_error():
    paths = Paths(800.0, np.zeros(3), np.array([0.2, 1.0, 3.0]), np.full(3, 0.3), np.zeros(3))
    sizes = paths.size(0.9)[1:]
    errors = [paths.error(size)[i] for i, size in enumerate(sizes, 1)]
    # Linear interpolation of log e in log n: at most h²/8 times the largest second derivative,
    # b²/4, with the step h = log 100/120.
    assert np.log(errors) == pytest.approx(
        math.log(0.9), abs=(math.log(100) / 120) ** 2 / 8 * 9 / 4
    )
    assert (paths.size(0.29) == np.inf).all()


def test_models_share_the_level_of_their_folds():
    random = np.random.default_rng(2)
    shared = 0.2 * random.normal(size=(8, 6))
    own = 0.02 * random.normal(size=(2, 8, 6))
    errors = SIZES**-0.5 * np.exp(shared + own)
    one, two = forecast_draws(SIZES, errors, np.ones(6))
    first, second = (np.log(draws.extrapolated(800.0)[1:]) for draws in (one, two))
    assert np.corrcoef(first, second)[0, 1] > 0.9  # 99 % of the variance of the noise is shared
    again = forecast_draws(SIZES, errors, np.ones(6))[1]
    assert (again.extrapolated(1600.0) == two.extrapolated(1600.0)).all()


def test_forecasts_of_curves_from_the_prior_are_covered():
    """Curves drawn from the model itself: 95 % intervals cover 95 %, whatever the prior."""
    random, hits, count = np.random.default_rng(3), 0, 300
    prior = np.exp(forecast.log_prior(forecast.PRIOR)).ravel()
    noise = np.linalg.cholesky(COVARIANCE)
    for i in range(count):
        chosen = random.choice(prior.size, p=prior / prior.sum())
        b, r, s = np.unravel_index(chosen, (len(EXPONENTS), len(FLOORS), len(DEVIATIONS)))
        t = np.append(T, 2.0)
        law = np.log(FLOORS[r] + (1 - FLOORS[r]) * 2.0 ** (-EXPONENTS[b] * t))
        steps = np.sqrt(np.diff(t)) * random.normal(size=6) * DEVIATIONS[s]
        walk = np.concatenate([-np.cumsum(steps[4::-1])[::-1], [0], steps[5:]])
        logs = law + walk
        data = MeasuredCurve(T, logs[:-1] + noise @ random.normal(size=6), COVARIANCE)
        paths = draw_paths(800.0, posterior(data), random.normal(size=1000), i)
        low, high = interval(np.log(paths.error(3200.0)[1:]))
        hits += low <= logs[-1] <= high
    # Four standard errors of a share of 0.95 among 300, and 0.01 for percentiles of 1,000 draws.
    assert abs(hits / count - 0.95) < 4 * math.sqrt(0.95 * 0.05 / count) + 0.01
