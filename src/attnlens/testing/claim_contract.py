"""The contract of a claim: texts, plans of plain data, pure measurements, a judge, a figure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, PROFILES, Check, Claim
from attnlens.claims.lens import Lens
from attnlens.claims.power import PROMISED, claim_power
from attnlens.core.cells import Cell
from attnlens.core.plugins import import_name
from attnlens.core.serialise import to_plain, view_from_plain
from attnlens.report.page import render_formula
from attnlens.report.views import views
from attnlens.runs.planning import cells_of

from .requirement import require

TEXTS = ("title", "statement", "formula", "prediction", "source")


def check_lens(lens: Lens) -> None:
    """Check that every claim of a lens can be loaded, has its id, and passes `check_claim`.

    >>> from attnlens.claims import lenses
    >>> a = lenses()["A"].lens
    >>> one = {"A.weights-are-posterior": a.claims["A.weights-are-posterior"]}
    >>> check_lens(dataclasses.replace(a, claims=one))
    """
    require(lens.claims, f"lens {lens.letter} has at least one claim")
    for name, path in lens.claims.items():
        claim = import_name(path, f"the claim {name}")
        require(isinstance(claim, Claim), f"{path} is a Claim; got {type(claim).__name__}")
        require(claim.id == name, f"{path} has the id {name} of the lens; got {claim.id}")
        check_claim(claim)


def check_claim(claim: Claim) -> None:
    """Check a claim: its texts and plans, then its smoke profile, measured in this process.

    >>> from attnlens.claims import find
    >>> (claim,) = find(["A.weights-are-posterior"])
    >>> check_claim(claim)
    >>> check_claim(dataclasses.replace(claim, controls={}))
    Traceback (most recent call last):
    AssertionError: A.weights-are-posterior has a control that must come out refuted
    """
    _check_texts(claim)
    _check_plans(claim)
    with jax.enable_x64(True):  # workers compute in float64
        _check_measurements(claim)


def _check_texts(claim: Claim) -> None:
    for name in TEXTS:
        require(getattr(claim, name).strip(), f"{claim.id} has a {name}")
    meanings = {claim.meaning.of(o).strip() for o in ("supported", "refuted", "undecided")}
    require(len(meanings - {""}) == 3, f"{claim.id} has a meaning of its own per verdict")
    require(claim.attribution, f"{claim.id} has an Attribution, with the paper's own sentence")
    require("<math" in render_formula(claim.formula), f"the formula of {claim.id} is LaTeX")
    negative = [c for c in claim.controls.values() if c.expected == "refuted"]
    require(negative, f"{claim.id} has a control that must come out refuted")
    require(claim.assumptions, f"{claim.id} states its assumptions")
    for assumption in claim.assumptions:
        named = assumption.control in claim.controls
        require(
            named == (assumption.check == Check.CONTROL) and (named or not assumption.control),
            f"the assumption {assumption.words!r} of {claim.id} names the control that breaks it",
        )
    planned = claim_power(claim, claim.decisive)
    if planned is not None:
        require(
            planned.power >= PROMISED,
            f"{claim.id} has a power of {PROMISED} in {claim.decisive}; got {planned.power:.3f}",
        )


def _check_plans(claim: Claim) -> None:
    costs = []
    for profile in PROFILES:
        cells = cells_of(claim, profile)
        where = f"the plan of {claim.id} in {profile}"
        require({c.arm for c in cells} == set(claim.arms), f"{where} has cells of every arm")
        require(len({c.key for c in cells}) == len(cells), f"{where} lists no cell twice")
        plain = all(json.loads(json.dumps(c.parameters)) == c.parameters for c in cells)
        require(plain, f"{where} has parameters of plain data, as in JSON")
        require(all(c.cost > 0 for c in cells), f"{where} has positive costs")
        costs.append(sum(c.cost for c in cells))
    require(costs == sorted(costs), f"a larger profile of {claim.id} costs more; got {costs}")


def _check_measurements(claim: Claim) -> None:
    require(claim.needs is None, f"the packages of {claim.id} are installed: {claim.needs}")
    cells = cells_of(claim, "smoke")
    values = [_measured(claim, cell) for cell in cells]
    for cell, first in ((cells[0], values[0]), (cells[-1], values[-1])):
        again = _measured(claim, cell)
        same = first.keys() == again.keys() and all(
            value.tobytes() == again[name].tobytes() for name, value in first.items()
        )
        require(same, f"{claim.id} gives the same bits if the cell {cell.arm} is measured again")
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    for cell, arrays in zip(cells, values, strict=True):
        arms[cell.arm].append(Measured(cell.parameters, cell.seeds, arrays))
    _check_judge_and_figures(claim, arms)


def _measured(claim: Claim, cell: Cell) -> dict[str, np.ndarray]:
    measured = claim.measure(cell.arm, cell.parameters, cell.seeds)
    arrays = {name: np.asarray(value) for name, value in measured.items()}
    for name, array in arrays.items():
        finite = array.dtype.kind in "fib" and np.isfinite(array).all()
        require(finite, f"{claim.id} measures finite numbers; {name} of {cell.arm} has others")
    return arrays


def _check_judge_and_figures(claim: Claim, arms: Mapping[str, Sequence[Measured]]) -> None:
    for arm, measured in arms.items():
        parts = claim.judge(measured)
        numbers = [number for p in parts for number in (p.estimate, p.low, p.high)]
        require(numbers and np.isfinite(numbers).all(), f"{claim.id} can judge its arm {arm}")
    planned = claim_power(claim, "smoke")
    judged = {part.quantity: part.count for part in claim.judge(arms[PREDICTION])}
    for part in planned.parts if planned else ():
        require(
            part.replicates == judged[part.name],
            f"the power of {claim.id} counts the replicates of {part.name} that are judged: "
            f"{part.replicates} and {judged[part.name]}; mark the estimate with per_block if it "
            f"is one number per block",
        )
    figure = claim.draw(arms)
    require(any(s.control for s in figure.series), f"the figure of {claim.id} shows a control")
    json.dumps(dataclasses.asdict(figure), allow_nan=False)
    drawn = views([view_from_plain(to_plain(view)) for view in claim.views(arms)])
    json.dumps(drawn, allow_nan=False)
