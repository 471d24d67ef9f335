"""Slopes that claims judge: the lengths that are fitted, the range that the quantity states, and
the coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from attnlens.claims import Claim, Measured, Quantity, Rule, ScalingLaw, find
from attnlens.claims.cells import group_by
from attnlens.claims.claim import PREDICTION
from attnlens.claims.estimates import replicates
from attnlens.claims.exchangeability import cme_rate, softmax_shrinking
from attnlens.claims.sample_complexity.population_landscape import LogitLaw
from attnlens.core.readings import t_quantile
from attnlens.core.statistics import log_of_mean, mean_reading, slopes
from attnlens.runs.planning import cells_of


def falling(m: int, power: float, lengths: tuple[int, ...] = (16, 64, 256)) -> list[Measured]:
    """Cells with two blocks of seeds per length, whose root mean squares are L^power and √2 L^power
    for length L and m = `m`."""
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
    # The power laws are exact: slopes differ by a few rounding units of log 4096.
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
    """The design (number of replicates, values of the axis) of every slope that a claim judges in
    the default profile, by a name that states claim, quantity and arm."""
    result: dict[str, tuple[int, tuple[int, ...]]] = {}
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
                    result.setdefault(f"{claim.id}, {quantity.key}, {arm}, {design}", design)
    return result


def replicates_and_axis(law: ScalingLaw, cells: list[Measured]) -> tuple[int, tuple[int, ...]]:
    axis = cells[0].parameters[law.axis] if law.within else list(group_by(cells, law.axis))
    at_one_point = cells if law.within else next(iter(group_by(cells, law.axis).values()))
    per_cell = [len(cell.seeds) if law.replicate == "seed" else 1 for cell in at_one_point]
    return sum(per_cell), tuple(axis)


class OtherSlope(NamedTuple):
    """A slope that a claim judges and that is not a `ScalingLaw`: the id of the claim, the key of
    the quantity, and the parameter along the axis."""

    claim: str
    key: str
    axis: str
    pseudo_values: bool = False  # jackknife of the log of a mean

    @property
    def quantity(self) -> Quantity:
        (claim,) = find([self.claim])
        assert isinstance(claim.judge, Rule)
        return next(quantity for quantity in claim.judge.quantities if quantity.key == self.key)

    def design(self) -> tuple[int, tuple[float, ...]]:
        """(number of replicates, values of the axis) in the default profile."""
        (claim,), quantity = find([self.claim]), self.quantity
        works = [work for work in claim.plan("default") if work.arm == PREDICTION]
        works = [work for work in works if quantity.where.items() <= work.parameters.items()]
        group = next(iter(group_by(works, *quantity.per).values())) if quantity.per else works
        axis = np.unique([work.parameters[self.axis] for work in group])
        return replicates(quantity.estimate, group), tuple(axis.tolist())


OTHERS = [
    OtherSlope("A.softmax-shrinking", "noise_free", "length"),
    OtherSlope("A.self-supervised", "slope_in_samples", "samples", True),
    OtherSlope("A.self-supervised", "slope_in_length", "length", True),
    OtherSlope("A.learned-representation", "gap", "samples", True),
    OtherSlope("A.learned-representation", "content", "samples", True),
    OtherSlope("A.condition-number", "slope", "kappa", True),
    OtherSlope("A.condition-number", "encoder_slope", "kappas", True),
    OtherSlope("B.known-attention", "slope", "features"),
]
DESIGNS = {name: design for claim in find() for name, design in designs(claim).items()}
DESIGNS |= {f"{other.claim}, {other.key}, {PREDICTION}": other.design() for other in OTHERS}
SIMULATIONS = 2000


def test_every_slope_that_a_claim_judges_is_simulated():
    judged = {
        f"{claim.id}, {quantity.key}"
        for claim in find()
        for quantity in getattr(claim.judge, "quantities", ())
        if "slope" in quantity.name
    }
    simulated = {", ".join(name.split(", ")[:2]) for name in DESIGNS}
    assert judged - simulated == {"B.population-landscape, slope"}  # a logit: tested below


def coverage(replicates: int, axis: Sequence[float], estimate: Callable[..., np.ndarray]) -> float:
    """The share of simulations in which the 95 % interval of the slope contains the true slope,
    −0.5.

    The standard deviation of the points falls from 1 to 0.1 along the axis. Half of the variance of
    each point comes from an offset that all points of a replicate share.
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
    # Slopes of normal replicates are normal, so the coverage is exactly 0.95. Its estimate has a
    # binomial standard error of √(0.95 · 0.05 / 2000) = 0.0049; four of them are allowed on either
    # side.
    four = 4 * math.sqrt(0.95 * 0.05 / SIMULATIONS)
    assert coverage(*DESIGNS[design], slopes) == pytest.approx(0.95, abs=four)


def test_weights_from_the_same_replicates_would_shorten_the_intervals():
    """Fits with weights 1 / variance, estimated from the same replicates, have intervals with too
    low a coverage. Therefore `slopes` uses no weights."""

    def weighted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        weights = 1 / y.var(1, ddof=1, keepdims=True)
        centred = x - (weights * x).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
        return (weights * centred * y).sum(-1) / (weights * centred**2).sum(-1)

    four = 4 * math.sqrt(0.95 * 0.05 / SIMULATIONS)
    assert coverage(8, (64, 256, 1024, 4096, 16384), weighted) < 0.95 - four


@pytest.mark.parametrize(
    "other", [other for other in OTHERS if other.pseudo_values], ids=lambda o: f"{o.claim}, {o.key}"
)
def test_slopes_of_pseudo_values_have_their_coverage_with_the_replicates_of_each_claim(
    other: OtherSlope,
):
    """Rows are lognormal, with the spread for which a pseudo-value of the slope has the standard
    deviation that the claim expects. For skew rows the interval of the jackknife is not exact: 0.01
    is allowed for that, and four binomial standard errors."""
    count, axis = other.design()
    x, power, simulations = np.log(axis), other.quantity.power, 500
    assert power is not None
    spread = power.at()[1] * math.sqrt(((x - x.mean()) ** 2).sum())
    variance = math.log1p(spread**2)  # of the logarithm of a row
    random = np.random.default_rng(1)
    covered = []
    for _ in range(simulations):
        noise = random.normal(-variance / 2, math.sqrt(variance), (count, len(x)))
        low, high = mean_reading(slopes(x, log_of_mean(np.exp(noise - x)))).interval()
        covered.append(low <= -1 <= high)
    assert np.mean(covered) >= 0.94 - 4 * math.sqrt(0.95 * 0.05 / simulations)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_slopes_of_the_logit_of_a_share_have_their_coverage(share: float):
    """The teachers have different shares of bad minima, drawn from a beta law for which two starts
    of a teacher have a correlation of 0.3. The shares do not change with n, so the true slope is
    0."""
    (claim,) = find(["B.population-landscape"])
    where = {"role": "judged"}
    works = [w for w in claim.plan("default") if w.arm == PREDICTION]
    works = [w for w in works if where.items() <= w.parameters.items()]
    law, simulations, random = LogitLaw("bad", "samples", "block"), 400, np.random.default_rng(0)
    a, b = (part * (1 / 0.3 - 1) for part in (share, 1 - share))
    covered = []
    for _ in range(simulations):
        cells = []
        for work in works:
            starts = (len(work.seeds), work.parameters["starts"])
            values = random.random(starts) < random.beta(a, b, (len(work.seeds), 1))
            cells.append(Measured(work.parameters, work.seeds, {"bad": values.astype(float)}))
        low, high = mean_reading(law.slopes(cells)).interval()
        covered.append(low <= 0 <= high)
    assert np.mean(covered) >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / simulations)


def test_slopes_of_gaps_with_negative_rows_have_intervals_with_nominal_coverage():
    """Gaps are 1/n. The noise of the smallest gap has a standard deviation equal to this gap, so
    many single rows are negative, but no mean over sixteen rows is. Of 300 intervals at 95 % at
    least 91.2 % should contain −1: three binomial standard deviations below 95 %, 0.95 − 3 √(0.95 ·
    0.05 / 300) = 0.912."""
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
