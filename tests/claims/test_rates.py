"""Slopes that claims judge: which lengths are fitted, and that the range is said with the rate."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.lens_a import cme_rate
from attnlens.claims.lens_a.trained_is_bayes import asymptotic
from attnlens.claims.rates import judge_slopes
from attnlens.claims.trained import within
from attnlens.records import Region
from attnlens.statistics import log_of_mean, mean_reading, slopes, t_interval


def falling(m: int, power: float, lengths: tuple[int, ...] = (16, 64, 256)) -> list[Measured]:
    """Two blocks a length whose root mean square is L^power, the second twice the first."""
    return [
        Measured(
            {"manifold_dim": m, "length": length},
            (2 * block, 2 * block + 1),
            {
                "squared": np.full(2, (block + 1.0) * length ** (2 * power)),
                "posterior_var": np.full(2, (block + 1.0) * length ** (2 * power)),
            },
        )
        for length in lengths
        for block in range(2)
    ]


def test_a_rate_comes_with_its_range_and_with_what_m_is():
    cells = falling(1, -0.5) + falling(3, -0.25, (64, 4096))
    parts = judge_slopes(cells, "slope of the error in length", lambda _: Region(high=0))
    # Exact power laws: a few rounding units of log 4096.
    assert [part.estimate for part in parts] == pytest.approx([-0.5, -0.25], abs=1e-14)
    assert [part.quantity for part in parts] == [
        "slope of the error in length (keys on a sphere of dimension m = 1, L 16 to 256)",
        "slope of the error in length (keys on a sphere of dimension m = 3, L 64 to 4096)",
    ]


def test_a_difference_of_rates_comes_with_its_range():
    *ratios, slope = cme_rate.judge(falling(2, -0.5))
    assert [part.estimate for part in ratios] == [1.0] * 3
    assert "m = 2, L = 64" in ratios[1].quantity
    assert slope.estimate == 0
    assert slope.quantity.endswith("(keys on a sphere of dimension m = 2, L 16 to 256)")


@pytest.mark.parametrize(
    ("uncertainty", "fitted"),
    [
        ((0.9, 0.8, 0.7, 0.6), [64, 128]),  # none resolves half: the two longest
        ((0.9, 0.8, 0.7, 0.4), [64, 128]),
        ((0.9, 0.4, 0.3, 0.2), [32, 64, 128]),
        ((0.4, 0.3, 0.2, 0.1), [16, 32, 64, 128]),
    ],
)
def test_slopes_start_where_half_of_the_prior_variance_is_resolved(
    uncertainty: tuple[float, ...], fitted: list[int]
):
    cells = [
        Measured({"length": length}, (0, 1), {"uncertainty": np.full(2, var)})
        for length, var in zip((16, 32, 64, 128), uncertainty, strict=True)
    ]
    assert [cell.parameters["length"] for cell in asymptotic(cells)] == fitted


def test_a_gap_that_noise_turns_negative_still_has_a_slope_with_an_honest_interval():
    """Gaps 1/n with noise of half of the smallest: of single rows many are below zero, of means
    over sixteen none is. Of 300 intervals at 95 % at least 92 % should hold −1: three binomial
    deviations below, 0.95 − 3 √(0.95 · 0.05 / 300) = 0.912."""
    random, at = np.random.default_rng(0), np.array([1.0, 4.0, 16.0])
    held, negative = [], 0
    for _ in range(300):
        rows = 1 / at + random.normal(size=(16, 3)) / 32 * np.array([1.0, 1.0, 2.0])
        low, high = t_interval(mean_reading(slopes(np.log(at), log_of_mean(rows))))
        held.append(low <= -1 <= high)
        negative += int((rows < 0).sum())
    assert negative > 300
    assert np.mean(held) > 0.912


def test_a_mean_that_is_not_above_zero_has_no_logarithm():
    rows = np.array([[1.0, 1.0], [1.0, -3.0], [1.0, 1.0]])
    logs = log_of_mean(rows)
    np.testing.assert_allclose(logs[:, 0], 0, atol=1e-12)
    assert np.isnan(logs[:, 1]).all()
    cells = [Measured({"n": [1, 2]}, (i,), {"gap": row[None]}) for i, row in enumerate(rows)]
    np.testing.assert_array_equal(within(cells, "gap", "n", average=True)[1], logs)
