"""Power laws whose parameters are known exactly, and an independent optimiser beside ours."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from attnlens.instruments.powerlaw import PowerLaw, fit_power_law, fit_with_floor

SIZES = np.geomspace(8, 1024, 8)
EVEN = np.ones(8)


def law(scale: float, exponent: float, floor: float) -> PowerLaw:
    return PowerLaw(np.array([scale]), np.array([exponent]), np.array([floor]))


def curve(truth: PowerLaw) -> np.ndarray:
    return np.stack([truth.error(size) for size in SIZES], axis=1)


@pytest.mark.parametrize("exponent", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("floor", [0.0, 0.01, 0.2])
def test_an_exact_law_is_found_again(exponent: float, floor: float):
    truth = law(3.0, exponent, floor)
    found = fit_with_floor(SIZES, curve(truth), EVEN)
    # The grid ends at steps of 5e−6, and log n is below 7: 3.5e−5 relative, of errors up to 2.
    assert found.exponent == pytest.approx(truth.exponent, abs=5e-6)
    assert found.floor == pytest.approx(truth.floor, abs=7e-5)
    assert found.error(5000.0) == pytest.approx(truth.error(5000.0), abs=7e-5)


def test_a_plain_law_is_a_straight_line():
    truth = law(2.0, 0.4, 0.0)
    found = fit_power_law(SIZES, curve(truth), np.arange(1.0, 9.0))
    assert found.exponent == pytest.approx(truth.exponent, rel=1e-12)
    assert found.scale == pytest.approx(truth.scale, rel=1e-12)


def test_a_rising_curve_has_exponent_zero_and_never_reaches_less():
    found = fit_power_law(SIZES, SIZES[None] ** 0.3, EVEN)
    assert found.exponent == 0
    assert found.size(0.1) == np.inf


def test_size_inverts_error_and_is_infinite_below_the_floor():
    truth = law(3.0, 0.7, 0.05)
    assert truth.size(float(truth.error(300.0)[0])) == pytest.approx([300.0], rel=1e-12)
    assert truth.size(0.05) == np.inf
    assert truth.size(0.01) == np.inf


def test_no_optimiser_finds_a_better_fit():
    random = np.random.default_rng(0)
    errors = curve(law(3.0, 0.6, 0.05)) * np.exp(0.2 * random.normal(size=(12, 8)))
    weights = np.linspace(1, 3, 8)
    found = fit_with_floor(SIZES, errors, weights)
    for own, *ours in zip(errors, *found, strict=True):

        def residuals(parameters: np.ndarray, own: np.ndarray = own) -> np.ndarray:
            a, b, c = parameters
            return np.sqrt(weights) * ((a * SIZES**-b + c) / own - 1)

        bounds = ([0, 0.02, 0], [np.inf, 3, np.inf])
        theirs = scipy.optimize.least_squares(residuals, [1.0, 0.5, 0.01], bounds=bounds)
        # Ours is a minimum to 5e−6 in b, so to 1e−10 in cost; theirs stops at 1e−8.
        assert 0.5 * (residuals(np.array(ours)) ** 2).sum() <= theirs.cost * (1 + 1e-6)
