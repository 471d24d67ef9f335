"""What every registered claim promises."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from counting import compilations

from attnlens.claims import CLAIMS, Claim, Measured, find
from attnlens.claims.base import PROFILES
from attnlens.records import Cell
from attnlens.report.page import _formula

ALL = find()
each_claim = pytest.mark.parametrize(
    "claim",
    # One process a claim: its smoke cells are computed once.
    [pytest.param(claim, marks=pytest.mark.xdist_group(claim.id)) for claim in ALL],
    ids=lambda claim: claim.id,
)


def test_the_registry_lists_each_claim_under_its_own_id():
    assert [claim.id for claim in ALL] == list(CLAIMS)


@each_claim
def test_it_says_what_it_is(claim: Claim):
    assert re.fullmatch(r"[AB]\.[a-z-]+", claim.id)
    for name in ("title", "statement", "formula", "prediction", "meaning", "source"):
        assert getattr(claim, name).strip(), name
    assert claim.controls
    assert claim.assumptions
    assert "<math" in _formula(claim.formula)
    assert claim.measure.__module__.split(".")[-1].replace("_", "-") == claim.id[2:]


@each_claim
@pytest.mark.parametrize("profile", PROFILES)
def test_its_plan_covers_every_arm_with_distinct_plain_cells(claim: Claim, profile):
    cells = claim.cells(profile)
    assert {cell.arm for cell in cells} == set(claim.arms)
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(json.loads(json.dumps(cell.parameters)) == cell.parameters for cell in cells)
    assert all(cell.cost > 0 for cell in cells)


@each_claim
def test_a_larger_profile_costs_more(claim: Claim):
    costs = [sum(cell.cost for cell in claim.cells(profile)) for profile in PROFILES]
    assert costs == sorted(costs)


class Ran(NamedTuple):
    cell: Cell
    values: dict[str, np.ndarray]
    compiled: int


def measured(claim: Claim, cell: Cell) -> Ran:
    before = compilations()
    values = claim.measure(cell.arm, cell.parameters, cell.seeds)
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return Ran(cell, arrays, compilations() - before)


@cache
def smoke(claim_id: str) -> list[Ran]:
    """Every cell of a claim's smoke profile, computed once in this process."""
    (claim,) = find([claim_id])
    return [measured(claim, cell) for cell in claim.cells("smoke")]


@each_claim
def test_a_cell_is_a_pure_function_of_its_content(claim: Claim):
    """Twice the same bits, whatever ran between, and arrays of finite numbers only."""
    ran = smoke(claim.id)
    for first in (ran[0], ran[-1]):
        again = measured(claim, first.cell)
        assert first.values.keys() == again.values.keys()
        for name, value in first.values.items():
            assert value.dtype.kind in "fib"
            assert np.isfinite(value).all()
            assert value.tobytes() == again.values[name].tobytes()


@each_claim
def test_cells_that_differ_in_seeds_alone_share_their_programs(claim: Claim):
    seen = set()
    for ran in smoke(claim.id):
        kind = (ran.cell.arm, json.dumps(ran.cell.parameters), len(ran.cell.seeds))
        assert kind not in seen or ran.compiled == 0, kind
        seen.add(kind)


@each_claim
def test_it_judges_and_draws_its_own_smoke_cells(claim: Claim):
    arms = {
        arm: [Measured(r.cell.parameters, r.cell.seeds, r.values) for r in ran]
        for arm in claim.arms
        if (ran := [r for r in smoke(claim.id) if r.cell.arm == arm])
    }
    figure = claim.figure(arms)
    assert any(series.control for series in figure.series)
    json.dumps(dataclasses.asdict(figure), allow_nan=False)
    for measured_cells in arms.values():
        parts = claim.judge(measured_cells)
        assert parts
        assert all(np.isfinite([part.estimate, part.low, part.high]).all() for part in parts)
