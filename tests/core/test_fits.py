"""Fits with jackknife intervals: exact curves, maxima of the likelihood, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_ndtr, ndtri

from attnlens.core.fits import censored_replicates, floor_law, floor_replicates
from attnlens.core.readings import t_quantile

SIZES = np.array([8.0, 16, 32, 64, 128])


@pytest.mark.parametrize(
    ("floor", "drop", "exponent"), [(0.1, 2.0, 0.7), (0.0, 1.0, 1.0), (-0.2, 3.0, 0.5), (1, 0.1, 2)]
)
def test_a_floor_law_is_recovered(floor: float, drop: float, exponent: float):
    """The minimiser locates the exponent to √ε = 1.5e−8 of its bracket, so floor and drop are exact
    to the same order."""
    fit = floor_law(SIZES, floor + drop * (SIZES / 8) ** -exponent)
    np.testing.assert_allclose(fit, (floor, drop, exponent), atol=1e-6)


def test_a_floor_law_of_a_curve_that_is_not_positive_is_nan():
    assert np.isnan(floor_law(SIZES, [3.0, 2, 1, 0.5, -0.1])).all()


def test_a_floor_law_minimises_the_relative_squares():
    y = (0.2 + (SIZES / 8) ** -0.8) * np.array([1.05, 0.93, 1.02, 1.04, 0.97])

    def squares(p: np.ndarray) -> float:
        return float(((1 - (p[0] + p[1] * (SIZES / 8) ** -p[2]) / y) ** 2).sum())

    best: np.ndarray = optimize.minimize(squares, (0.2, 1.0, 0.8), method="BFGS", tol=1e-12).x
    # The minimiser stops at a gradient of about 1e−8, and the curvature at the minimum is above
    # 1e−3.
    np.testing.assert_allclose(floor_law(SIZES, y), best, atol=1e-4)


def coverage(numbers: np.ndarray, truth: float) -> float:
    """The share of rows whose 95 % interval contains `truth`; a row holds the replicates of one
    simulation."""
    count = numbers.shape[1]
    half = t_quantile(count - 1) * numbers.std(1, ddof=1) / math.sqrt(count)
    return float((abs(numbers.mean(1) - truth) <= half).mean())


def allowed(simulations: int) -> float:
    """Four binomial standard errors of a coverage of 0.95."""
    return 4 * math.sqrt(0.95 * 0.05 / simulations)


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "exponent"), [(0.1, 0.7), (0.0, 1.0), (0.3, 1.0)])
def test_intervals_of_a_floor_law_have_their_coverage(floor: float, exponent: float):
    """Coverage with 16 replicates and relative errors of 0.1. The interval of the floor is
    approximate where floor and exponent are hard to tell apart (`floor_replicates`): a coverage of
    0.93 was measured, and 0.02 less than 0.95 is allowed."""
    simulations, random = 500, np.random.default_rng(3)
    noise = np.exp(0.1 * random.normal(size=(simulations, 16, 5)) - 0.1**2 / 2)
    curves = (floor + (SIZES / 8) ** -exponent) * noise
    fits = [floor_replicates(SIZES, rows) for rows in curves]
    truths = {"floor": floor, "drop": 1.0, "exponent": exponent}
    for name, truth in truths.items():
        below = 0.02 if name == "floor" else 0.0
        share = coverage(np.array([getattr(fit, name) for fit in fits]), truth)
        assert 0.95 - below - allowed(simulations) <= share <= 0.95 + allowed(simulations), name


def test_a_censored_mean_without_censoring_is_the_mean():
    values = np.random.default_rng(0).normal(2.0, 0.5, 12)
    np.testing.assert_allclose(censored_replicates(values, -50, 50), values, rtol=1e-9)


def test_a_censored_mean_maximises_the_likelihood():
    values = np.clip(np.random.default_rng(1).normal(0.0, 1.5, 20), -1.0, 0.9)
    assert min((values == -1.0).sum(), (values == 0.9).sum()) >= 1

    def loss(p: np.ndarray) -> float:
        return -sum(_single(value, p) for value in values)

    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000}
    best = optimize.minimize(loss, (0.0, 0.0), method="Nelder-Mead", options=options).x[0]
    others = [
        optimize.minimize(
            lambda p, left=left: loss(p) + _single(left, p),
            (0.0, 0.0),
            method="Nelder-Mead",
            options=options,
        ).x[0]
        for left in values[:3]
    ]
    expected = [20 * best - 19 * other for other in others]
    # The minimiser locates each mean to about √1e−14; a pseudo-value multiplies this error by 20.
    np.testing.assert_allclose(censored_replicates(values, -1.0, 0.9)[:3], expected, atol=2e-5)


def _single(value: float, p: np.ndarray) -> float:
    """The log-likelihood of one value, censored at −1 and 0.9, for the mean p[0] and the standard
    deviation exp(p[1])."""
    scaled = (value - p[0]) / math.exp(p[1])
    if value in (-1.0, 0.9):
        return float(log_ndtr(scaled if value < 0 else -scaled))
    return -(scaled**2) / 2 - float(p[1])


def test_a_censored_mean_needs_two_uncensored_values():
    assert np.isnan(censored_replicates([0.5, 1.0, 1.0, 1.0], -1.0, 1.0)).all()


@pytest.mark.parametrize(("replicates", "beyond"), [(16, 0.25), (24, 0.0), (24, 0.4)])
def test_intervals_of_a_censored_mean_have_their_coverage(replicates: int, beyond: float):
    """A share `beyond` of the values of log n(ε) lies above the grid and is censored. If the
    censored values were replaced by the end of the grid, the mean would be biased by a third of a
    standard deviation for `beyond` = 0.4."""
    simulations, random = 400, np.random.default_rng(5)
    high = -float(ndtri(beyond)) if beyond else 10.0
    drawn = np.minimum(random.normal(size=(simulations, replicates)), high)
    numbers = np.array([censored_replicates(row, -10.0, high) for row in drawn])
    assert coverage(numbers, 0.0) == pytest.approx(0.95, abs=allowed(simulations))
    if beyond == 0.4:
        assert coverage(drawn, 0.0) < 0.8
