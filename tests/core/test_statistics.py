"""Coverage of intervals, false-discovery rate, slopes, and the rules of verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from attnlens.core import statistics
from attnlens.core.readings import Reading
from attnlens.core.verdicts import Part, Region

# The standard error of a coverage is √(0.95·0.05/4000) = 0.0034: a range of 93 to 97 % is ± 5.8
# standard errors.
SIMULATIONS = 4000


def draws(law: str, replicates: int) -> tuple[np.ndarray, float]:
    """Simulated replicates and their true mean."""
    generator = np.random.default_rng([len(law), replicates])
    shape = (SIMULATIONS, replicates)
    if law == "normal":
        return generator.normal(2.0, 3.0, shape), 2.0
    if law == "log of a block mean":
        # As in claims about rates: a replicate is the log of the mean of 32 squared errors (χ² with
        # 7 degrees of freedom).
        values = np.log(generator.chisquare(7, (*shape, 32)).mean(-1) / 7)
        reference = np.log(generator.chisquare(7, (200_000, 32)).mean(-1) / 7)
        return values, reference.mean()
    # Ratios of squared error to variance: a skewed law with mean exactly 1.
    return generator.chisquare(7, shape) / 7, 1.0


@pytest.mark.parametrize(
    ("law", "replicates"),
    [
        ("normal", 5),
        ("normal", 16),
        ("normal", 32),
        ("log of a block mean", 16),
        ("log of a block mean", 32),
        ("ratio", 64),
        ("ratio", 512),
    ],
)
def test_95_percent_intervals_cover_the_mean_in_93_to_97_percent(law: str, replicates: int):
    values, truth = draws(law, replicates)
    intervals = [statistics.mean_reading(row).interval() for row in values]
    assert 0.93 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.97


def test_the_public_function_is_the_interval_of_the_reading():
    reading = statistics.mean_reading(np.random.default_rng(0).normal(size=9))
    assert statistics.t_interval(reading, 0.9) == reading.interval(0.9)


def test_the_implied_error_gives_an_interval_of_the_same_width():
    error = statistics.implied_error(1.0, 4.0, 8)
    low, high = Reading(2.0, error, 8).interval()
    assert high - low == pytest.approx(3.0, rel=1e-14)
    assert statistics.implied_error(1.0, math.inf, 8) == math.inf


def test_p_values_agree_with_scipy_and_with_the_interval():
    generator = np.random.default_rng(1)
    for _ in range(50):
        values = generator.normal(generator.normal(), 1, 12)
        part = statistics.judge("x", values, Region(-0.5, 0.5))
        above: Any = scipy.stats.ttest_1samp(values, -0.5, alternative="greater")
        below: Any = scipy.stats.ttest_1samp(values, 0.5, alternative="less")
        expected = max(above.pvalue, below.pvalue)
        assert part.p_support == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert (part.p_support <= 0.025) == (part.low >= -0.5 and part.high <= 0.5)
        assert (part.p_refute <= 0.025) == (part.high < -0.5 or part.low > 0.5)


def test_one_sided_regions_are_supported_and_refuted():
    values = np.random.default_rng(2).normal(-1, 0.1, 20)
    assert statistics.judge("x", values, Region(high=-0.2)).p_support < 1e-6
    assert statistics.judge("x", values, Region(low=-0.2)).p_refute < 1e-6


def test_constant_replicates_have_p_values_of_zero_and_one():
    inside = statistics.judge("x", [1.0] * 5, Region(0, 2))
    outside = statistics.judge("x", [3.0] * 5, Region(0, 2))
    assert (inside.p_support, inside.p_refute) == (0.0, 1.0)
    assert (outside.p_support, outside.p_refute) == (1.0, 0.0)


def test_quantities_without_two_finite_replicates_are_undecided():
    for values in ([], [1.0], [1.0, math.nan], [1.0, math.inf]):
        part = statistics.judge("x", values, Region(0, 2))
        (verdict,) = statistics.verdicts([[part]])
        assert verdict.outcome == "undecided"
        assert "could not be measured" in verdict.reason


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**-600, 2.0**600, 2.0**1020])
def test_the_unit_of_extreme_replicates_does_not_matter(unit: float):
    """The unit of the replicates does not matter, although their squares are 0 or infinite in
    float64. With these squares the interval would have no width, or p-values would be NaN."""
    values = np.array([1.0, 3.0, -2.0, 1.5])
    usual = statistics.judge("x", values, Region(-1, 4))
    scaled = statistics.judge("x", values * unit, Region(-unit, 4 * unit))
    assert (scaled.low, scaled.high) == (usual.low * unit, usual.high * unit)
    assert (scaled.p_support, scaled.p_refute) == (usual.p_support, usual.p_refute)


def test_adjusted_p_values_agree_with_scipy():
    p = np.random.default_rng(3).uniform(size=20) ** 3
    expected = scipy.stats.false_discovery_control(p)
    np.testing.assert_allclose(statistics.adjust(list(p)), expected, rtol=1e-12)


def part(p_support: float, p_refute: float, exact: bool = False) -> Part:
    return Part("x", 0.0, -1.0, 1.0, Region(-2, 2), p_support, p_refute, 9, exact)


def test_a_claim_has_the_largest_p_support_of_its_parts():
    assert statistics.combine([part(0.001, 0.9), part(0.2, 0.4)]) == (0.2, 0.8)
    (verdict,) = statistics.verdicts([[part(0.001, 0.9), part(0.2, 0.4)]])
    assert verdict.outcome == "undecided"


def test_one_refuted_part_refutes_a_claim():
    (verdict,) = statistics.verdicts([[part(0.001, 0.9), part(0.999, 0.001)]])
    assert verdict.outcome == "refuted"


def test_a_claim_judged_alone_is_decided_by_its_95_percent_interval():
    assert statistics.verdicts([[part(0.0249, 0.9)]])[0].outcome == "supported"
    assert statistics.verdicts([[part(0.0251, 0.9)]])[0].outcome == "undecided"
    assert statistics.verdicts([[part(0.9, 0.0249)]])[0].outcome == "refuted"


def test_the_false_discovery_rate_is_controlled_over_a_ledger():
    # Each ledger has twenty claims whose true value lies on the boundary of the region. So p-values
    # are uniform, and every decision is a false discovery. Benjamini–Hochberg at 0.05 may decide a
    # claim in at most 5 % of ledgers.
    generator = np.random.default_rng(4)
    ledgers, decided = 1000, 0
    for _ in range(ledgers):
        claims = []
        for _ in range(20):
            p = generator.uniform()
            claims.append([part(p, 1 - p)])
        decided += any(v.outcome != "undecided" for v in statistics.verdicts(claims))
    # The count is binomial(1000, 0.05). It exceeds 0.05 + 4.5 standard errors of 0.0069 by chance
    # once in 3e5.
    assert decided / ledgers <= 0.05 + 4.5 * math.sqrt(0.05 * 0.95 / ledgers)


def test_other_undecided_claims_can_make_a_claim_undecided_but_not_an_exact_claim():
    weak = [[part(0.4, 0.6)] for _ in range(9)]
    verdicts = statistics.verdicts([[part(0.02, 0.98)], *weak, [part(0.0, 1.0, exact=True)]])
    assert verdicts[0].outcome == "undecided"
    assert "number of claims" in verdicts[0].reason
    assert verdicts[-1].outcome == "supported"


def test_controls_are_judged_at_the_rate_divided_by_the_number_of_claims():
    assert statistics.control_verdict([part(0.98, 0.02)], claims=1).outcome == "refuted"
    assert statistics.control_verdict([part(0.98, 0.02)], claims=10).outcome == "undecided"
    assert statistics.control_verdict([part(0.0001, 0.9)], claims=10).outcome == "supported"


def test_exact_parts_are_judged_by_their_worst_value():
    inside = statistics.judge_exactly("x", [0.1, 0.9], Region(high=1.0))
    outside = statistics.judge_exactly("x", [0.1, 1.1], Region(high=1.0))
    assert (inside.estimate, inside.p_support) == (0.9, 0.0)
    assert (outside.estimate, outside.p_refute) == (1.1, 0.0)


@pytest.mark.parametrize("values", [[math.nan], [0.1, math.nan], [5.0, math.nan], []])
def test_an_exact_part_that_was_not_measured_is_undecided(values: list[float]):
    unknown = statistics.judge_exactly("x", values, Region(high=1.0))
    inside = statistics.judge_exactly("y", [0.5], Region(high=1.0))
    outside = statistics.judge_exactly("z", [2.0], Region(high=1.0))
    for parts, outcome in (
        ([unknown], "undecided"),
        ([unknown, inside], "undecided"),
        ([unknown, outside], "refuted"),
    ):
        assert statistics.verdicts([parts])[0].outcome == outcome
        assert statistics.control_verdict(parts, claims=9).outcome == outcome


def test_slopes_recover_a_line_exactly():
    x = np.log([16.0, 64.0, 256.0])
    y = np.stack([-0.5 * x + c for c in (0.0, 1.0, 2.0)])
    # Slopes are three products and sums of numbers of order one: 10 rounding units are allowed.
    np.testing.assert_allclose(statistics.slopes(x, y), -0.5, rtol=10 * np.finfo(float).eps)


def test_slopes_agree_with_polynomial_fits_for_any_leading_axes():
    x = np.log([1.0, 2, 4, 8, 16])
    y = np.random.default_rng(5).normal(size=(3, 4, 5)) * [0.01, 0.1, 1.0, 0.1, 10.0]
    expected = np.polyfit(x, y.reshape(-1, 5).T, 1)[0].reshape(3, 4)
    # Both sides are sums of five numbers of order ten, computed in different ways.
    np.testing.assert_allclose(statistics.slopes(x, y), expected, atol=1e-12)


def test_the_slope_of_a_bent_curve_is_a_weighted_mean_of_its_local_slopes():
    x = np.log([16.0, 64.0, 128.0, 1024.0])
    random = np.random.default_rng(5)
    y = np.cos(x) + random.normal(size=(9, 4)) * [0.1, 0.3, 0.2, 0.5]
    centred = x - x.mean()
    beyond = np.array([centred[j + 1 :].sum() for j in range(3)])
    shares = np.diff(x) * beyond / (centred**2).sum()
    assert shares.min() > 0
    assert shares.sum() == pytest.approx(1, rel=1e-13)
    local = np.diff(y) / np.diff(x)
    # Both sides are the same sum of four numbers of order one, computed in different ways.
    np.testing.assert_allclose(statistics.slopes(x, y), local @ shares, atol=1e-13)


def test_holm_is_the_step_down_of_bonferroni_and_never_below_benjamini_hochberg():
    random = np.random.default_rng(0)
    for p in random.uniform(size=(50, 7)) ** 3:
        adjusted, order = statistics.holm(p), np.argsort(p)
        running = 0.0
        for rank, place in enumerate(order):
            running = max(running, min(1.0, (len(p) - rank) * p[place]))
            assert adjusted[place] == pytest.approx(running, rel=1e-15)
        assert (np.array(adjusted) >= np.array(statistics.adjust(p)) - 1e-15).all()


def test_a_claim_that_only_the_false_discovery_rate_decides_is_marked():
    # The p-values are 2·0.0005, 2·0.02 and 2·0.02. By Benjamini–Hochberg all are below 0.05
    # (largest 0.04 · 3/3); by Holm only the first is (0.003, 0.08, 0.08).
    region = Region(high=0.0)
    parts = [Part("q", -1.0, -2.0, -0.1, region, p, 1 - p, 9) for p in (0.0005, 0.02, 0.02)]
    judged = statistics.verdicts([[part] for part in parts])
    assert [verdict.outcome for verdict in judged] == ["supported"] * 3
    assert [verdict.holm for verdict in judged] == [True, False, False]
    undecided = statistics.verdicts([[replace(parts[0], p_support=0.5, p_refute=0.5)]])
    assert undecided[0].holm
