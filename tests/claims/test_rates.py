"""Slopes that claims judge: the lengths that are fitted, and the range named with the rate."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.estimates import PowerLaw
from attnlens.claims.exchangeability import cme_rate, softmax_shrinking
from attnlens.claims.exchangeability.trained_is_bayes import asymptotic_cells
from attnlens.core.statistics import log_of_mean, mean_reading, slopes, t_interval


def falling(m: int, power: float, lengths: tuple[int, ...] = (16, 64, 256)) -> list[Measured]:
    """Two blocks per length with root mean squares L^power and √2 L^power."""
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


def test_the_quantity_of_a_rate_names_its_range_and_explains_m():
    cells = falling(1, -0.5) + falling(3, -0.25, (64, 4096))
    parts = softmax_shrinking.RULE(cells)
    # Exact power laws: a few rounding units of log 4096.
    assert [part.estimate for part in parts] == pytest.approx([-0.5, -0.25], abs=1e-14)
    assert [part.quantity for part in parts] == [
        "slope of the error in length (keys on a sphere of dimension m = 1, L 16 to 256)",
        "slope of the error in length (keys on a sphere of dimension m = 3, L 64 to 4096)",
    ]


def test_the_quantity_of_a_difference_of_rates_names_its_range():
    *ratios, slope = cme_rate.RULE(falling(2, -0.5))
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
def test_slopes_are_fitted_where_half_of_the_prior_variance_is_resolved(
    uncertainty: tuple[float, ...], fitted: list[int]
):
    cells = [
        Measured({"length": length}, (0, 1), {"uncertainty": np.full(2, var)})
        for length, var in zip((16, 32, 64, 128), uncertainty, strict=True)
    ]
    assert [cell.parameters["length"] for cell in asymptotic_cells(cells)] == fitted


def test_slopes_of_gaps_with_negative_rows_have_intervals_with_nominal_coverage():
    """Gaps are 1/n, and the noise of the smallest gap has its own size as standard deviation: many
    single rows are negative, but no mean over sixteen rows is. Of 300 intervals at 95 % at least
    91.2 % should contain −1: three binomial standard deviations below 95 %,
    0.95 − 3 √(0.95 · 0.05 / 300) = 0.912."""
    random, sizes = np.random.default_rng(0), np.array([1.0, 4.0, 16.0])
    covered, negative = [], 0
    for _ in range(300):
        rows = 1 / sizes + random.normal(size=(16, 3)) / 32 * np.array([1.0, 1.0, 2.0])
        low, high = t_interval(mean_reading(slopes(np.log(sizes), log_of_mean(rows))))
        covered.append(low <= -1 <= high)
        negative += int((rows < 0).sum())
    assert negative > 300
    assert np.mean(covered) > 0.912


def test_the_logarithm_of_a_mean_that_is_not_positive_is_nan():
    rows = np.array([[1.0, 1.0], [1.0, -3.0], [1.0, 1.0]])
    logs = log_of_mean(rows)
    np.testing.assert_allclose(logs[:, 0], 0, atol=1e-12)
    assert np.isnan(logs[:, 1]).all()
    cells = [Measured({"n": [1, 2]}, (i,), {"gap": row[None]}) for i, row in enumerate(rows)]
    law = PowerLaw("gap", "n", replicate="jackknife", within=True)
    np.testing.assert_array_equal(law.logs(cells)[1], logs)
