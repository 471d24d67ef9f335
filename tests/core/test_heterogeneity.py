"""Cochran's Q with Welch's p-value, and the expected share of intervals that contain the pooled
value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnlens.core.heterogeneity import expected_share, heterogeneity
from attnlens.core.readings import t_quantile


def summary(samples: list[np.ndarray]) -> tuple[list[float], list[float], list[int]]:
    means = [float(x.mean()) for x in samples]
    errors = [float(x.std(ddof=1) / math.sqrt(x.size)) for x in samples]
    return means, errors, [x.size for x in samples]


def test_two_estimates_agree_with_welchs_t_test():
    """With two groups, Welch's F is the square of Welch's t and has the same degrees of freedom."""
    random = np.random.default_rng(0)
    samples = [random.normal(0, 1, 5), random.normal(1, 3, 12)]
    result = heterogeneity(*summary(samples))
    statistic, p = map(float, stats.ttest_ind(*samples, equal_var=False))
    assert result is not None
    assert result.p == pytest.approx(p, rel=1e-10)
    assert result.q == pytest.approx(statistic**2, rel=1e-12)


def test_many_replicates_agree_with_chi_squared():
    """With n = 1e8 replicates the p-values of Welch's F and of χ² differ by a term of order Λ ≈ 7/n
    = 7e-8."""
    means, errors = [0.1, -0.3, 0.25, 0.0, 0.4, -0.1, 0.2, 0.05], [0.2] * 8
    result = heterogeneity(means, errors, [10**8] * 8)
    q = np.sum((np.array(means) - np.mean(means)) ** 2) / 0.04
    assert result is not None
    assert result.degrees == 7
    assert result.p == pytest.approx(stats.chi2.sf(q, 7), rel=1e-6)


def test_false_positive_rate_with_few_replicates():
    """With 8 groups of 8 replicates, p ≤ 0.05 in 5 % of 4,000 simulations; 4 standard errors of
    that share are 0.014. With χ² instead of Welch's F the share would be 0.16."""
    random = np.random.default_rng(1)
    p_values, plain = [], []
    for _ in range(4000):
        result = heterogeneity(*summary([random.normal(0, s, 8) for s in np.linspace(1, 3, 8)]))
        assert result is not None
        p_values.append(result.p)
        plain.append(stats.chi2.sf(result.q, 7))
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.014)
    assert np.mean(np.array(plain) <= 0.05) > 0.1


@pytest.mark.parametrize(
    ("estimates", "errors", "counts"),
    [
        ([1.0], [0.1], [8]),
        ([1.0, 2.0], [0.0, 0.1], [8, 8]),
        ([1.0, math.nan], [0.1, 0.1], [8, 8]),
        ([1.0, 2.0], [0.1, math.inf], [8, 8]),
        ([1.0, 2.0], [0.1, 0.1], [8, 1]),
    ],
)
def test_nothing_to_compare(estimates: list[float], errors: list[float], counts: list[int]):
    assert heterogeneity(estimates, errors, counts) is None


def test_the_expected_share_is_the_share_of_simulated_intervals():
    """The share over 200,000 intervals of 6 normal replicates, in sets of 4, has 4 standard errors
    of 0.0015. The tolerance is a little larger, because the mean of 4 is not independent of the
    standard errors."""
    random = np.random.default_rng(2)
    draws = random.normal(size=(50_000, 4, 6))
    means = draws.mean(-1)
    half = t_quantile(5) * draws.std(-1, ddof=1) / math.sqrt(6)
    share = (abs(means - means.mean(-1, keepdims=True)) <= half).mean()
    assert share == pytest.approx(expected_share(6, 4), abs=0.002)
