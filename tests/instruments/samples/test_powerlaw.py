"""Fits of power laws with known parameters, and a comparison with an independent optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from attnlens.instruments.samples.powerlaw import PowerLaw, fit_power_law, fit_with_floor

SIZES = np.geomspace(8, 1024, 8)
EQUAL_WEIGHTS = np.ones(8)


def law(scale: float, exponent: float, floor: float) -> PowerLaw:
    return PowerLaw(np.array([scale]), np.array([exponent]), np.array([floor]))


def curve(truth: PowerLaw) -> np.ndarray:
    return np.stack([truth.error(size) for size in SIZES], axis=1)


@pytest.mark.parametrize("exponent", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("floor", [0.0, 0.01, 0.2])
def test_the_fit_recovers_an_exact_law(exponent: float, floor: float):
    truth = law(3.0, exponent, floor)
    fitted = fit_with_floor(SIZES, curve(truth), EQUAL_WEIGHTS)
    # The last grid of exponents has steps of 5e−6, and log n is below 7: a relative error of
    # 3.5e−5, of errors up to 2.
    assert fitted.exponent == pytest.approx(truth.exponent, abs=5e-6)
    assert fitted.floor == pytest.approx(truth.floor, abs=7e-5)
    assert fitted.error(5000.0) == pytest.approx(truth.error(5000.0), abs=7e-5)


def test_the_fit_without_a_floor_recovers_an_exact_law():
    truth = law(2.0, 0.4, 0.0)
    fitted = fit_power_law(SIZES, curve(truth), np.arange(1.0, 9.0))
    assert fitted.exponent == pytest.approx(truth.exponent, rel=1e-12)
    assert fitted.scale == pytest.approx(truth.scale, rel=1e-12)


def test_a_rising_curve_has_exponent_zero_and_an_infinite_size():
    fitted = fit_power_law(SIZES, SIZES[None] ** 0.3, EQUAL_WEIGHTS)
    assert fitted.exponent == 0
    assert fitted.size(0.1) == np.inf


def test_size_inverts_error_and_is_infinite_below_the_floor():
    truth = law(3.0, 0.7, 0.05)
    assert truth.size(float(truth.error(300.0)[0])) == pytest.approx([300.0], rel=1e-12)
    assert truth.size(0.05) == np.inf
    assert truth.size(0.01) == np.inf


def test_the_fit_is_as_good_as_that_of_a_nonlinear_optimiser():
    random = np.random.default_rng(0)
    errors = curve(law(3.0, 0.6, 0.05)) * np.exp(0.2 * random.normal(size=(12, 8)))
    weights = np.linspace(1, 3, 8)
    fitted = fit_with_floor(SIZES, errors, weights)
    for row, *parameters in zip(errors, *fitted, strict=True):

        def residuals(parameters: np.ndarray, row: np.ndarray = row) -> np.ndarray:
            a, b, c = parameters
            return np.sqrt(weights) * ((a * SIZES**-b + c) / row - 1)

        bounds = ([0, 0.02, 0], [np.inf, 3, np.inf])
        reference = scipy.optimize.least_squares(residuals, [1.0, 0.5, 0.01], bounds=bounds)
        # The fit is a minimum up to 5e−6 in b, so up to 1e−10 in cost; the reference optimiser
        # stops at 1e−8.
        cost = 0.5 * (residuals(np.array(parameters)) ** 2).sum()
        assert cost <= reference.cost * (1 + 1e-6)
