"""Power before the run: against the noncentral t distribution and against simulated intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnlens.core.power import decision_power
from attnlens.core.readings import t_quantile
from attnlens.core.verdicts import Region

COUNTS = (2, 3, 8, 64, 4096)
SETTINGS = [(-0.5, 0.1), (-0.42, 0.05), (-0.3, 0.1), (-0.5, 1.0)]  # effect, standard deviation


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("effect", "std"), SETTINGS)
def test_power_for_one_end_is_a_tail_of_the_noncentral_t_distribution(count, effect, std):
    """Both computations are sums of 200 or more terms of order one; they leave out tails beyond
    1e−13."""
    quantile, shift = t_quantile(count - 1), (effect + 0.4) * math.sqrt(count) / std
    law = stats.nct(count - 1, shift)
    expected = law.cdf(-quantile) if effect <= -0.4 else law.sf(quantile)
    assert decision_power(effect, std, count, Region(high=-0.4)) == pytest.approx(
        expected, abs=1e-10
    )
    mirrored = decision_power(-effect, std, count, Region(low=0.4))
    assert mirrored == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("effect", "count"), [(-0.5, 8), (-0.5, 16), (-0.43, 16), (-0.3, 16), (-0.75, 4)]
)
def test_power_for_two_ends_is_the_share_of_simulated_intervals(effect, count):
    """The simulated share over 40,000 intervals has a standard deviation of at most 0.0025; 4 of
    them are allowed."""
    draws, region = 40_000, Region(-0.6, -0.4)
    x = np.random.default_rng(count).normal(effect, 0.1, (draws, count))
    half = t_quantile(count - 1) * x.std(1, ddof=1) / math.sqrt(count)
    low, high = x.mean(1) - half, x.mean(1) + half
    inside = (low >= region.low) & (high <= region.high)
    outside = (high < region.low) | (low > region.high)
    share = (inside if -0.6 <= effect <= -0.4 else outside).mean()
    allowance = 4 * math.sqrt(share * (1 - share) / draws)
    assert decision_power(effect, 0.1, count, region) == pytest.approx(share, abs=allowance)


def test_power_on_the_boundary_is_the_one_sided_error_rate():
    assert decision_power(0.0, 1.0, 9, Region(high=0.0)) == pytest.approx(0.025, abs=1e-10)


def test_power_without_spread_or_without_replicates():
    assert decision_power(1.0, 0.0, 4, Region(0, 2)) == 1
    assert math.isnan(decision_power(1.0, 0.5, 1, Region(0, 2)))


def test_power_of_a_region_narrower_than_any_interval_is_zero():
    assert decision_power(0.0, 1.0, 4, Region(-1e-9, 1e-9)) < 1e-9
