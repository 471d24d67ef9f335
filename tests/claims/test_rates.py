"""Slopes that claims judge: the lengths that are fitted, and the range named with the rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from attnlens.claims import Claim, Measured, Rule, ScalingLaw, find
from attnlens.claims.cells import group_by
from attnlens.claims.exchangeability import cme_rate, softmax_shrinking
from attnlens.core.readings import t_quantile
from attnlens.core.statistics import log_of_mean, mean_reading, slopes
from attnlens.runs.planning import cells_of


def falling(m: int, power: float, lengths: tuple[int, ...] = (16, 64, 256)) -> list[Measured]:
    """Two blocks per length with root mean squares L^power and √2 L^power."""
    return [
        Measured(
            {"manifold_dim": m, "length": length, "part": "slope"},
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


def test_ratios_of_the_calibration_are_judged_at_each_length():
    short, long = cme_rate.RULE(falling(2, -0.5, (16, 64)))
    assert (short.estimate, long.estimate) == (1.0, 1.0)
    assert "m = 2, L = 64" in long.quantity


def designs(claim: Claim) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Replicates and axis of every slope that a claim judges in the default profile."""
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for quantity in claim.judge.quantities if isinstance(claim.judge, Rule) else ():
        law = getattr(quantity.estimate, "__self__", getattr(quantity.estimate, "law", None))
        if not isinstance(law, ScalingLaw):
            continue
        for arm in claim.arms:
            cells = [
                Measured(cell.parameters, cell.seeds, {})
                for cell in cells_of(claim, "default")
                if cell.arm == arm and quantity.where.items() <= cell.parameters.items()
            ]
            for group in (group_by(cells, *quantity.per) if quantity.per else {(): cells}).values():
                if group:
                    design = replicates_and_axis(law, group)
                    found.setdefault(f"{claim.id}, {quantity.key}, {arm}, {design}", design)
    return found


def replicates_and_axis(law: ScalingLaw, cells: list[Measured]) -> tuple[int, tuple[int, ...]]:
    axis = cells[0].parameters[law.axis] if law.within else list(group_by(cells, law.axis))
    at_one_point = cells if law.within else next(iter(group_by(cells, law.axis).values()))
    per_cell = [len(cell.seeds) if law.replicate == "seed" else 1 for cell in at_one_point]
    return sum(per_cell), tuple(axis)


DESIGNS = {name: design for claim in find() for name, design in designs(claim).items()}
SIMULATIONS = 2000


def test_the_slopes_of_most_claims_are_simulated():
    assert len({name.partition(",")[0] for name in DESIGNS}) >= 10


def coverage(replicates: int, axis: tuple[int, ...], estimate: Callable[..., np.ndarray]) -> float:
    """How often the 95 % interval of the slope contains the true one, −0.5.

    The standard deviation of the points falls from 1 to 0.1, and half of their variance is an
    offset that all points of a replicate share, in units of their standard deviations.
    """
    x, spread = np.log(axis), np.geomspace(1.0, 0.1, len(axis))
    random = np.random.default_rng([replicates, len(axis)])
    shared = random.normal(size=(SIMULATIONS, replicates, 1))
    own = random.normal(size=(SIMULATIONS, replicates, len(axis)))
    fitted = estimate(x, -0.5 * x + spread * (shared + own) / math.sqrt(2))
    error = fitted.std(1, ddof=1) / math.sqrt(replicates)
    return float((abs(fitted.mean(1) + 0.5) <= t_quantile(replicates - 1) * error).mean())


@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_of_slopes_have_their_coverage_with_the_replicates_of_each_claim(design: str):
    # Slopes of normal replicates are normal, so the coverage is exactly 0.95; its estimate has a
    # binomial standard error of √(0.95 · 0.05 / 2000) = 0.0049. Four of them on either side.
    four = 4 * math.sqrt(0.95 * 0.05 / SIMULATIONS)
    assert coverage(*DESIGNS[design], slopes) == pytest.approx(0.95, abs=four)


def test_weights_from_the_same_replicates_would_shorten_the_intervals():
    """Why `slopes` has no weights: the simulation above finds weights of 1 / variance."""

    def weighted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        weights = 1 / y.var(1, ddof=1, keepdims=True)
        centred = x - (weights * x).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
        return (weights * centred * y).sum(-1) / (weights * centred**2).sum(-1)

    four = 4 * math.sqrt(0.95 * 0.05 / SIMULATIONS)
    assert coverage(8, (64, 256, 1024, 4096, 16384), weighted) < 0.95 - four


def test_slopes_of_gaps_with_negative_rows_have_intervals_with_nominal_coverage():
    """Gaps are 1/n, and the noise of the smallest gap has its own size as standard deviation: many
    single rows are negative, but no mean over sixteen rows is. Of 300 intervals at 95 % at least
    91.2 % should contain −1: three binomial standard deviations below 95 %,
    0.95 − 3 √(0.95 · 0.05 / 300) = 0.912."""
    random, sizes = np.random.default_rng(0), np.array([1.0, 4.0, 16.0])
    covered, negative = [], 0
    for _ in range(300):
        rows = 1 / sizes + random.normal(size=(16, 3)) / 32 * np.array([1.0, 1.0, 2.0])
        low, high = mean_reading(slopes(np.log(sizes), log_of_mean(rows))).interval()
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
    law = ScalingLaw("gap", "n", replicate="jackknife", within=True)
    np.testing.assert_array_equal(law.logs(cells)[1], logs)
