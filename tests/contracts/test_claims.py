"""Contract of every registered claim: texts, plans, pure measurements, judges and figures."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from typing import NamedTuple

import numpy as np
import pytest

from attnlens.claims import CLAIMS, Claim, Measured, find, lenses
from attnlens.claims.claim import PREDICTION, PROFILES
from attnlens.claims.power import claim_power
from attnlens.core.cells import Cell
from attnlens.core.serialise import to_plain, view_from_plain
from attnlens.report.page import render_formula
from attnlens.report.views import views
from attnlens.runs.planning import cells_of
from counting import compilations

ALL = find()
each_claim = pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)


def test_the_registry_lists_each_claim_under_its_own_id():
    declared = [name for lens, *_ in lenses().values() for name in lens.claims]
    assert [claim.id for claim in ALL] == declared
    assert declared[: len(CLAIMS)] == list(CLAIMS)  # lenses A and B


@each_claim
def test_a_claim_has_all_its_texts(claim: Claim):
    assert re.fullmatch(r"[ABC]\.[a-z-]+", claim.id)
    for name in ("title", "statement", "formula", "prediction", "source"):
        assert getattr(claim, name).strip(), name
    meanings = [claim.meaning.of(outcome) for outcome in ("supported", "refuted", "undecided")]
    assert len({*map(str.strip, meanings)} - {""}) == 3  # three different sentences
    assert claim.controls
    assert claim.assumptions
    assert "<math" in render_formula(claim.formula)
    assert claim.measure.__module__.split(".")[-1].replace("_", "-") == claim.id[2:]


# How the source of a claim must name the paper of its lens, and how it must mark a prediction that
# the paper does not make.
PAPERS = {
    "A": "Lens A (Zhang et al., 2022, arXiv 2212.14852)",
    "B": "Lens B (ICLR 2021 submission)",
}
PAPERS_OF_LENS_C = {
    "C.token-rate": "Bohbot et al. (2025, arXiv 2512.10656)",
    "C.in-context": "Zhang, Frei and Bartlett (2023, arXiv 2306.09927)",
    "C.sparse-tokens": "Barnfield, Cui and Lu (2025, arXiv 2509.25153)",
    "C.sparse-variables": "Edelman, Goel, Kakade and Zhang (2022, arXiv 2110.10090)",
    "C.pairwise": "Zucker, Wang, Lu and Seroussi (2025, arXiv 2510.11789)",
    "C.kernel-landscape": "Song, Han, Zhang, Ding and Hong (2024, arXiv 2411.07538)",
}
OWN = "Our own prediction"
# The numbers of the predictions of each lens in docs/theory.md, and the section that has no
# numbers.
NUMBERS = {"A": range(1, 15), "B": range(15, 21), "C": range(21, 27)}
SECTION = "section A(a)"


def source_problems(lens: str, source: str, paper: str = "") -> list[str]:
    """The problems of the source text of a claim of this lens; an empty list if there are none."""
    problems = []
    if not source.startswith((paper or PAPERS[lens], OWN)):
        problems.append("does not begin with the paper of its lens, nor as our own prediction")
    place = re.search(r"docs/theory\.md, (?:prediction (\d+)\b|(.+))", source)
    if place is None:
        problems.append("does not cite docs/theory.md")
    elif place[1] is None and not place[2].startswith(SECTION):
        problems.append("cites no prediction and no section of docs/theory.md")
    elif place[1] is not None and int(place[1]) not in NUMBERS[lens]:
        problems.append("cites a prediction of another lens")
    return problems


@each_claim
def test_a_claim_names_its_source(claim: Claim):
    paper = PAPERS_OF_LENS_C.get(claim.id, "")
    assert source_problems(claim.lens, claim.source, paper) == []
    docstring = sys.modules[claim.measure.__module__].__doc__ or ""
    words = {"A": "Zhang et al., 2022", "B": "ICLR 2021 submission", "C": paper[-16:-1]}
    assert words[claim.lens] in docstring
    assert "docs/theory.md" in docstring


@pytest.mark.parametrize(
    ("lens", "source"),
    [
        ("A", "A book of 1950; docs/theory.md, prediction 4."),  # does not name the paper of lens A
        ("A", f"{PAPERS['A']}, statement (b); prediction (4) of our formalisation."),
        ("A", f"{PAPERS['A']}, statement (b); docs/theory.md, prediction 17."),  # of lens B
        ("A", f"{PAPERS['B']}, section 2; docs/theory.md, prediction 4."),  # the paper of lens B
        ("B", "Lens B, section 2; docs/theory.md, prediction 15."),
        ("B", f"{OWN} (docs/theory.md, prediction 21)."),  # lens B has predictions 15 to 20
        ("B", f"{PAPERS['B']}, section 2; docs/theory.md, somewhere."),
    ],
)
def test_an_incomplete_source_is_noticed(lens: str, source: str):
    assert len(source_problems(lens, source)) == 1


@each_claim
@pytest.mark.parametrize("profile", PROFILES)
def test_a_plan_covers_every_arm_with_distinct_cells_of_plain_data(claim: Claim, profile):
    cells = cells_of(claim, profile)
    assert {cell.arm for cell in cells} == set(claim.arms)
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(json.loads(json.dumps(cell.parameters)) == cell.parameters for cell in cells)
    assert all(cell.cost > 0 for cell in cells)


@each_claim
def test_a_larger_profile_costs_more(claim: Claim):
    costs = [sum(cell.cost for cell in cells_of(claim, profile)) for profile in PROFILES]
    assert costs == sorted(costs)


class Measurement(NamedTuple):
    cell: Cell
    values: dict[str, np.ndarray]
    compiled: int


def measurement(claim: Claim, cell: Cell) -> Measurement:
    before = compilations()
    values = claim.measure(cell.arm, cell.parameters, cell.seeds)
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return Measurement(cell, arrays, compilations() - before)


# Most claims take ten seconds to compile and are slow tests; `.ci/run` also runs the smoke profile
# of every claim. Only these, exact and statistical ones, are quick tests.
QUICK = ("A.weights-are-posterior", "A.softmax-smoothed", "B.softplus-distance")
# Claims that have further views, drawn from arrays that some of their cells keep as examples.
WITH_VIEWS = (
    "A.weights-are-posterior",
    "A.exchangeable",
    "A.size-free",
    "A.learned-representation",
    "A.heads",
    "B.known-attention",
    "B.self-attention",
    "B.multi-layer",
    "B.misspecified",
    "B.stationary-points",
    "B.flatness",
)


def by_cost(claim: Claim):
    marks = [] if claim.id in QUICK else [pytest.mark.slow]
    return pytest.param(claim, id=claim.id, marks=marks)


@pytest.mark.parametrize("claim", [by_cost(claim) for claim in ALL])
def test_smoke_cells_are_pure_share_programs_and_can_be_judged_and_drawn(claim: Claim):
    if claim.needs:
        pytest.skip(claim.needs)
    smoke = [measurement(claim, cell) for cell in cells_of(claim, "smoke")]
    # Measurements are pure: a second one, after other cells, gives the same bits. All numbers are
    # finite.
    for first in (smoke[0], smoke[-1]):
        again = measurement(claim, first.cell)
        assert first.values.keys() == again.values.keys()
        for name, value in first.values.items():
            assert value.dtype.kind in "fib"
            assert np.isfinite(value).all()
            assert value.tobytes() == again.values[name].tobytes()
    # Cells that differ only in their seeds share a compiled program.
    kinds = set()
    for cell, _, compiled in smoke:
        kind = (cell.arm, json.dumps(cell.parameters), len(cell.seeds))
        assert kind not in kinds or compiled == 0, kind
        kinds.add(kind)
    # Each arm can be judged and drawn.
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    for cell, values, _ in smoke:
        arms[cell.arm].append(Measured(cell.parameters, cell.seeds, values))
    figure = claim.draw(arms)
    assert any(series.control for series in figure.series)
    json.dumps(dataclasses.asdict(figure), allow_nan=False)
    drawn = views([view_from_plain(to_plain(view)) for view in claim.views(arms)])
    json.dumps(drawn, allow_nan=False)
    assert bool(drawn) == (claim.id in WITH_VIEWS)
    # The computation of power assumes as many replicates as are judged.
    planned = claim_power(claim, "smoke")
    judged = {part.quantity: part.count for part in claim.judge(arms[PREDICTION])}
    for part in planned.parts if planned else ():
        assert part.replicates == judged[part.name], part.name
    for measured in arms.values():
        parts = claim.judge(measured)
        assert parts
        assert all(np.isfinite([part.estimate, part.low, part.high]).all() for part in parts)
