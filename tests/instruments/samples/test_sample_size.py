"""Sample sizes n(ε) that are known: exact laws inside and outside of the range of sizes, and
coverage of intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlens.core.status import Status
from attnlens.instruments.samples.sample_size import (
    CurveDraws,
    SampleSize,
    crossing,
    curve_draws,
    non_increasing,
    ratio,
    sample_size,
)

SIZES = np.geomspace(16, 512, 6)
REPLICATES = 8
SIMULATIONS = 400
# A coverage has the standard error √(0.95·0.05/400) = 0.011. Four of them are allowed, and below
# also 0.01 for the linearised logarithm with 8 replicates.
COVERAGE = (0.95 - 0.044 - 0.01, 0.95 + 0.044)


def exact(
    scale: float, exponent: float, floor: float = 0.0, sizes: np.ndarray = SIZES
) -> CurveDraws:
    """Curves without noise: every replicate equals scale · n^(−exponent) + floor."""
    errors = np.tile(scale * sizes**-exponent + floor, (1, REPLICATES, 1))
    return curve_draws(sizes, errors, draws=20)[0]


def noisy(
    random: np.random.Generator, laws: np.ndarray, std: float | np.ndarray = 0.2
) -> np.ndarray:
    """Errors (models, replicates, sizes) around the laws, with log-normal noise of mean one.

    Half of its variance is shared by the models, so that pairing matters."""
    shape = (len(laws), REPLICATES, len(SIZES))
    shared = random.normal(size=(1, *shape[1:]))
    noise = std * (shared + random.normal(size=shape)) / math.sqrt(2)
    return laws[:, None, :] * np.exp(noise - np.square(std) / 2)


@pytest.mark.parametrize("error", [0.9, 0.4, 0.18])
def test_n_is_exact_for_a_power_law_inside_the_range(error: float):
    result = sample_size(exact(4.0, 0.5), error)
    assert result.status == "ok"
    assert result.value == pytest.approx((4 / error) ** 2, rel=1e-12)
    assert result.low == pytest.approx(result.high, rel=1e-9)


def test_n_beyond_the_range_is_a_forecast():
    result = sample_size(exact(4.0, 0.5, 0.05), 0.15)  # 4 n^(−1/2) = 0.1 at n = 1600
    assert result.status == "extrapolated"
    assert str(result).endswith(", a forecast")
    # The tolerance allows for an error of 5e−6 in the exponent b, times log n, over 0.1.
    assert result.value == pytest.approx(1600, rel=1e-3)


def test_n_outside_of_the_reach_is_censored():
    below_the_floor = sample_size(exact(4.0, 0.5, 0.05), 0.04)
    assert (below_the_floor.value, below_the_floor.status) == (math.inf, "not reached")
    assert "not reached (95 %: more than 5,120)" in str(below_the_floor)
    too_far = sample_size(exact(4.0, 0.5), 0.01)  # n = 160,000, 312 times the largest size
    assert (too_far.value, too_far.low) == (math.inf, 5120)
    at_first = sample_size(exact(4.0, 0.5), 2.0)
    assert (at_first.value, at_first.status, str(at_first)) == (16, "at most", "at most 16")


def test_ratios_are_paired_and_bounded_where_censored():
    one, two = exact(4.0, 0.5), exact(2.0, 0.5)
    assert ratio(one, two, 0.2).value == pytest.approx(4, rel=1e-9)
    assert ratio(one, one, 0.2).low == ratio(one, one, 0.2).high == 1
    bound = ratio(exact(4.0, 0.5, 0.3), two, 0.2)  # the floor 0.3 lies above 0.2
    assert bound.status == "at least"
    assert bound.value == pytest.approx(5120 / 100, rel=1e-9)
    assert ratio(two, exact(4.0, 0.5, 0.3), 0.2).status == "at most"
    assert math.isnan(ratio(exact(4.0, 0.5, 0.3), exact(4.0, 0.5, 0.3), 0.2).value)


def test_non_increasing_equals_isotonic_regression():
    isotonic = pytest.importorskip("sklearn.isotonic").IsotonicRegression(increasing=False)
    curves = np.random.default_rng(0).normal(size=(20, 7)) - 0.4 * np.arange(7)
    expected = [isotonic.fit_transform(np.arange(7), row) for row in curves]
    assert non_increasing(curves) == pytest.approx(np.array(expected), abs=1e-12)


def test_a_single_low_value_is_not_a_crossing():
    # The value 0.1 at the second size is by chance; isotonic regression pools it with its
    # neighbours.
    logs = np.log([[1.0, 0.1, 1.0, 0.5, 0.2, 0.1]])
    assert np.exp(crossing(SIZES, logs, 0.15)[0]) > SIZES[3]


def test_percentiles_of_draws_are_the_t_interval_at_each_size():
    from scipy.stats import t

    errors = noisy(np.random.default_rng(1), np.array([4 * SIZES**-0.5]))
    (draws,) = curve_draws(SIZES, errors, draws=20_000)
    relative = (errors[0] / errors[0].mean(0)).std(0, ddof=1) / math.sqrt(REPLICATES)
    spread = np.quantile(draws.logs[1:], 0.975, axis=0) - draws.logs[0]
    # The standard error of a quantile of 2e4 draws, where the density of t₇ at its 97.5 % quantile
    # is about 0.03, is √(0.025·0.975/2e4)/0.03 = 0.037 scales; five of them are allowed. The
    # quantile of the normal law is 0.4 away.
    assert np.abs(spread / relative - t.ppf(0.975, REPLICATES - 1)).max() < 0.19


@pytest.mark.slow
def test_intervals_of_sample_sizes_and_ratios_have_their_coverage():
    random = np.random.default_rng(2)
    laws = np.array([4 * SIZES**-0.5, 3 * SIZES**-0.6])
    error = 0.3  # the two curves cross 0.3 at 178 and at 46
    truth = np.array([(4 / error) ** 2, (3 / error) ** (1 / 0.6)])
    hits = np.zeros((SIMULATIONS, 4), bool)
    for i in range(SIMULATIONS):
        one, two = curve_draws(SIZES, noisy(random, laws), draws=200, seed=i)
        results = [sample_size(one, error), sample_size(two, error), ratio(one, two, error)]
        for j, goal in enumerate((*truth, truth[0] / truth[1])):
            hits[i, j] = results[j].low <= goal <= results[j].high
        beyond = sample_size(one, 0.12)  # n = 1111, extrapolated by a law with a floor
        hits[i, 3] = beyond.low <= (4 / 0.12) ** 2 <= beyond.high
    inside, outside = hits[:, :3].mean(0), hits[:, 3].mean()
    assert (inside >= COVERAGE[0]).all(), inside
    assert (inside <= COVERAGE[1]).all(), inside
    assert outside >= COVERAGE[0], outside


@pytest.mark.slow
def test_extrapolated_sizes_have_their_coverage_where_larger_sizes_are_noisier():
    random = np.random.default_rng(3)
    floor, error = 0.1, 0.22  # 4 n^(−1/2) = 0.12 at n = 1111, twice the largest size
    law, std = np.array([4 * SIZES**-0.5 + floor]), np.linspace(0.05, 0.5, len(SIZES))
    hits = 0
    for i in range(SIMULATIONS):
        (draws,) = curve_draws(SIZES, noisy(random, law, std), draws=200, seed=i)
        result = sample_size(draws, error)
        hits += result.low <= (4 / (error - floor)) ** 2 <= result.high
    # Most intervals have no upper end, so their coverage may exceed 95 %.
    assert hits / SIMULATIONS >= COVERAGE[0]


def test_a_number_below_the_first_size_without_an_upper_end_is_not_called_infinite():
    text = str(SampleSize(24.0, 0.0, math.inf, Status.AT_MOST))
    assert text == "24 or fewer, without an upper end"
