"""Shares: the interval of Clopper and Pearson, exact tests and their power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attnlens.core.checks import BadInput
from attnlens.core.shares import judge_share, share_interval, share_power
from attnlens.core.statistics import verdicts
from attnlens.core.verdicts import Region

COUNT = 40


@pytest.mark.parametrize("k", [0, 1, 7, 39, 40])
def test_the_interval_is_that_of_scipy(k: int):
    expected = stats.binomtest(k, COUNT).proportion_ci(0.95, "exact")
    low, high = share_interval(k, COUNT)
    # Both sides invert the incomplete beta function, with different implementations.
    assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("share", [0.005, 0.03, 0.05, 0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("count", [12, 40, 200])
def test_the_interval_covers_every_share_on_both_sides(share: float, count: int):
    """On each side the interval misses the true share with probability at most 0.025: the binomial
    probabilities of all counts with such an interval are added, without simulation."""
    k = np.arange(count + 1)
    low, high = share_interval(k, count)
    chance = stats.binom.pmf(k, count, share)
    assert chance[low > share].sum() <= 0.025
    assert chance[high < share].sum() <= 0.025


@pytest.mark.parametrize("region", [Region(high=0.05), Region(low=0.4), Region(0.1, 0.4)])
@pytest.mark.parametrize("k", [0, 1, 9, 20, 40])
def test_p_values_agree_with_scipy_and_with_the_interval(k: int, region: Region):
    part = judge_share("bad", np.repeat([1.0, 0.0], [k, COUNT - k]), region)
    p_low = p_high = 0.0
    if region.low >= 0:
        p_low = stats.binomtest(k, COUNT, region.low, "greater").pvalue
    if region.high <= 1:
        p_high = stats.binomtest(k, COUNT, region.high, "less").pvalue
    assert part.p_support == pytest.approx(max(p_low, p_high), rel=1e-9, abs=1e-15)
    inside = region.low <= part.low and part.high <= region.high
    outside = part.high < region.low or part.low > region.high
    assert (part.p_support <= 0.025) == inside
    assert (part.p_refute <= 0.025) == outside
    assert part.estimate == k / COUNT


def test_power_is_the_share_of_ledgers_with_the_expected_outcome():
    """The power equals the share of 2,000 simulated ledgers that decide; four binomial standard
    errors are at most 0.045."""
    region, random = Region(high=0.05), np.random.default_rng(0)
    for effect, count in ((0.0, 80), (0.01, 150), (0.2, 60)):
        outcome = "supported" if effect <= 0.05 else "refuted"
        draws = random.random((2000, count)) < effect
        decided = [verdicts([[judge_share("bad", row, region)]])[0].outcome for row in draws]
        power = share_power(effect, count, region)
        assert decided.count(outcome) / 2000 == pytest.approx(power, abs=0.045)


def test_a_share_needs_zeros_and_ones():
    with pytest.raises(BadInput):
        judge_share("bad", [0.5, 1.0, 0.0], Region(high=0.1))


def test_a_share_that_was_not_measured_is_undecided():
    part = judge_share("bad", [np.nan, 1.0, 0.0], Region(high=0.1))
    assert (part.p_support, part.p_refute) == (1.0, 1.0)
