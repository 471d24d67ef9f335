"""The power of a claim: the number of replicates follows from grid and estimate, and the powers of
parts are combined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from attnlens.claims import Attribution, Grid, Origin, Power, Quantity, Rule, ScalingLaw, find
from attnlens.claims.cells import Measured
from attnlens.claims.estimates import per_block, pooled, replicates
from attnlens.claims.power import ClaimPower, PlannedPart, claim_power
from attnlens.core.checks import BadInput
from attnlens.core.power import decision_power
from attnlens.core.statistics import slopes
from attnlens.core.verdicts import Region

GRID = Grid(
    axes={"dim": (1, 2), "length": (8, 16, 32)},
    blocks={"prediction": {"smoke": 2, "default": 6, "full": 9}, "control": 1},
    seeds_per_block=4,
)
REGION = Region(-0.6, -0.4)


@pytest.mark.parametrize(
    ("estimate", "count"),
    [
        (ScalingLaw("x", "length").slopes, 24),
        (ScalingLaw("x", "length", "block").slopes, 6),
        (ScalingLaw("x", "length", "jackknife").last_slopes, 6),
        (pooled("x"), 24),
        (per_block(lambda cells: [cell.values["x"].mean() for cell in cells]), 6),
    ],
)
def test_replicates_before_the_run_are_the_numbers_that_are_judged(estimate, count):
    works = [w for w in GRID("default") if w.arm == "prediction" and w.parameters["dim"] == 1]
    if estimate.__name__ == "estimate":  # `pooled`: one number per seed, so each seed has one cell
        works = [work for work in works if work.parameters["length"] == 8]
    assert replicates(estimate, works) == count
    rng = np.random.default_rng(0)
    cells = [Measured(w.parameters, w.seeds, {"x": 1 + rng.random(4)}) for w in works]
    if estimate.__name__ != "<lambda>":
        assert len(estimate(cells)) == count


def claim_with(*quantities: Quantity):
    (claim,) = find(["A.softmax-smoothed"])
    texts = dict.fromkeys(("prediction", "formula"), "text")
    return dataclasses.replace(claim, plan=GRID, judge=Rule(*quantities), **texts)


def quantity(power: Power | None, region: Region | Callable[..., Region] = REGION) -> Quantity:
    slopes = ScalingLaw("x", "length", "block").slopes
    name = "slope, d = {dim}, L {span}"
    return Quantity("slope", name, slopes, region, per=("dim",), power=power)


def test_planned_parts_take_effect_and_region_per_parameter():
    power = Power(effect=lambda d: -d / 10, std=0.05)
    claim = claim_with(quantity(power, region=lambda d: Region(high=-d / 20)))
    planned = claim_power(claim, "default")
    assert planned is not None
    assert [part.name for part in planned.parts] == [
        "slope, d = 1, L 8 to 32",
        "slope, d = 2, L 8 to 32",
    ]
    assert [(part.effect, part.region.high) for part in planned.parts] == [
        (-0.1, -0.05),
        (-0.2, -0.1),
    ]
    assert [part.replicates for part in planned.parts] == [6, 6]
    powers = [part.power for part in planned.parts]
    assert powers[1] == decision_power(-0.2, 0.05, 6, Region(high=-0.1))
    assert planned.expected == "supported"
    assert planned.power == pytest.approx(1 - sum(1 - power for power in powers))


def test_a_claim_expected_to_be_refuted_pays_for_its_parts():
    outside = PlannedPart("slope", "slope", Region(-0.6, -0.4), -0.3, 0.1, 16)
    inside = PlannedPart("slope", "slope", Region(-0.6, -0.4), -0.5, 0.1, 16)
    planned = ClaimPower("default", (inside, outside))
    assert planned.expected == "refuted"
    assert planned.power == outside.power_at(1 - 0.05 / 2) < outside.power


@pytest.mark.parametrize(
    "quantities", [[quantity(None)], [quantity(Power(-0.5, 0.1)), quantity(None)]]
)
def test_a_claim_with_a_part_without_an_effect_has_no_power(quantities):
    assert claim_power(claim_with(*quantities), "default") is None


def test_exact_quantities_need_no_power():
    exact = Quantity("error", "error", pooled("x"), Region(high=1.0), exact=True)
    planned = claim_power(claim_with(exact, quantity(Power(-0.5, 0.1))), "default")
    assert planned is not None
    assert len(planned.parts) == 2
    assert claim_power(claim_with(exact), "default") is None


def test_power_grows_with_the_profile():
    claim = claim_with(quantity(Power(-0.5, 0.1)))
    powers = [claim_power(claim, profile) for profile in ("smoke", "default", "full")]
    assert sorted(powers, key=lambda planned: planned.power) == powers  # type: ignore[union-attr] (none of them is None)


def test_an_attribution_quotes_the_paper_or_is_ours():
    with pytest.raises(BadInput):
        Attribution(Origin.PAPER)
    with pytest.raises(BadInput):
        Attribution(Origin.FINDING, "a sentence")


def test_the_last_slope_is_that_between_the_last_two_points():
    n = np.array([4, 16, 64, 256])
    rng = np.random.default_rng(1)
    values = {size: rng.random(5) + 1 / size for size in n}
    cells = [Measured({"n": int(size)}, tuple(range(5)), {"x": values[size]}) for size in n]
    law = ScalingLaw("x", "n")
    expected = np.log(values[256] / values[64]) / np.log(4)
    np.testing.assert_allclose(law.last_slopes(cells), expected, rtol=1e-12)
    logs = np.log(np.stack([values[size] for size in n], axis=1))
    np.testing.assert_allclose(law.tail(3).slopes(cells), slopes(np.log(n[1:]), logs[:, 1:]))
    assert law.tail(2).span(cells) == "64 to 256"
