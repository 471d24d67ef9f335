"""What every registered claim promises."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import NamedTuple

import numpy as np
import pytest

from attnlens.claims import CLAIMS, Claim, Measured, find
from attnlens.claims.base import PROFILES
from attnlens.records import Cell, plain
from attnlens.report.page import _formula
from attnlens.report.views import restored, views
from counting import compilations

ALL = find()
each_claim = pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)


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


def ran(claim: Claim, cell: Cell) -> Ran:
    before = compilations()
    values = claim.measure(cell.arm, cell.parameters, cell.seeds)
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return Ran(cell, arrays, compilations() - before)


# Most claims take ten seconds to compile: they are looked at with the slow tests, and `.ci/run`
# runs the smoke profile of all. An exact and a statistical one stay among the quick tests.
QUICK = ("A.weights-are-posterior", "A.softmax-smoothed")
# What these measure is also kept as an example to look at.
SHOWN = (
    "A.weights-are-posterior", "A.exchangeable", "A.heads", "B.known-attention",
    "B.stationary-points", "B.flatness",
)  # fmt: skip


def by_cost(claim: Claim):
    marks = [] if claim.id in QUICK else [pytest.mark.slow]
    return pytest.param(claim, id=claim.id, marks=marks)


@pytest.mark.parametrize("claim", [by_cost(claim) for claim in ALL])
def test_its_smoke_cells_are_pure_share_programs_and_can_be_judged_and_drawn(claim: Claim):
    if claim.needs:
        pytest.skip(claim.needs)
    smoke = [ran(claim, cell) for cell in claim.cells("smoke")]
    # Pure: twice the same bits, whatever ran between, and finite numbers only.
    for first in (smoke[0], smoke[-1]):
        again = ran(claim, first.cell)
        assert first.values.keys() == again.values.keys()
        for name, value in first.values.items():
            assert value.dtype.kind in "fib"
            assert np.isfinite(value).all()
            assert value.tobytes() == again.values[name].tobytes()
    # Cells that differ in their seeds alone share a compiled program.
    seen = set()
    for cell, _, compiled in smoke:
        kind = (cell.arm, json.dumps(cell.parameters), len(cell.seeds))
        assert kind not in seen or compiled == 0, kind
        seen.add(kind)
    # Judged and drawn, arm by arm.
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    for cell, values, _ in smoke:
        arms[cell.arm].append(Measured(cell.parameters, cell.seeds, values))
    figure = claim.figure(arms)
    assert any(series.control for series in figure.series)
    json.dumps(dataclasses.asdict(figure), allow_nan=False)
    drawn = views([restored(plain(view)) for view in claim.views(arms)])
    json.dumps(drawn, allow_nan=False)
    assert bool(drawn) == (claim.id in SHOWN)
    for measured in arms.values():
        parts = claim.judge(measured)
        assert parts
        assert all(np.isfinite([part.estimate, part.low, part.high]).all() for part in parts)
