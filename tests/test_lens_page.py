"""The lenses' pages: parts and controls from a run's documents, and stars that are no emphasis."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from attnlens.claims import find
from attnlens.records import Part, Region
from attnlens.statistics import control_verdict, judge, verdicts
from attnlens.store import Store
from attnlens.verification import _section

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))  # no package: scripts
lens_page = importlib.import_module("lens_page")


def part(quantity: str, low: float, high: float, edges: list, exact: bool = False) -> dict:
    estimate = (low + high) / 2
    return {"quantity": quantity, "estimate": estimate, "low": low, "high": high, "exact": exact,
            "region": "somewhere", "edges": edges, "count": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (part("x", 0.1, 0.2, [None, 0.3]), "supported"),
        (part("x", 0.1, 0.4, [None, 0.3]), "undecided"),
        (part("x", 0.4, 0.5, [0.0, 0.3]), "refuted"),
        (part("x", -0.5, -0.4, [0.0, None]), "refuted"),
        (part("x", 0.1, 0.4, [None, 0.3], exact=True), "refuted"),
        (part("x", 0.1, 0.3, [None, 0.3], exact=True), "supported"),
        (part("x", 0.1, 0.2, [None, 0.3]) | {"estimate": None, "low": None}, "undecided"),
    ],
)
def test_a_part_is_judged_by_its_interval(given: dict, outcome: str):
    assert lens_page.outcome_of(given) == outcome


def slope(name: str, centre: float) -> Part:
    """Replicates centre ± 0.01 and ± 0.02: t₃ = 3.18 times 0.0091 is the half-width, 0.029."""
    return judge(name, [centre + d for d in (-0.02, -0.01, 0.01, 0.02)], Region(-0.55, -0.45))


@pytest.mark.parametrize("named", [True, False], ids=["arms named", "arms by their words"])
def test_a_page_lists_all_parts_and_what_decided_a_control(tmp_path: Path, named: bool):
    """From verdicts through the documents of a run and what is kept of them to the page."""
    (claim,) = find(["A.softmax-smoothed"])
    (arm,) = claim.controls
    (verdict,) = verdicts([[slope("slope, |m| = 1", -0.5), slope("slope, m = 2", -0.46)]])
    controls = {arm: control_verdict([slope("slope", 0.0), slope("slope", -0.5)], 1)}
    told = _section(claim, verdict, controls, None, [])
    if not named:
        del told["controls"][0]["arm"]
    entry = {
        "id": claim.id, "verdict": verdict.outcome, "controls": {arm: controls[arm].outcome},
        "reason": verdict.reason,
    }  # fmt: skip
    with Store.writing(tmp_path / "run") as store:
        store.write_document("ledger", {"profile": "smoke", "claims": [entry]})
        store.write_document("page", {"profile": "smoke", "claims": [told]})
    lens_page.keep([tmp_path / "run"], tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())["claims"][claim.id]
    lines = lens_page.section(claim, kept)
    start = lines.index("| part | estimate | 95 % interval | needed | by itself |")
    assert lines[start + 2 : start + 5] == [
        r"| slope, \|m\| = 1 | −0.5 | −0.5291 to −0.4709 | −0.55 to −0.45 | supported |",
        "| slope, m = 2 | −0.46 | −0.4891 to −0.4309 | −0.55 to −0.45 | undecided |",
        "",
    ]
    (said,) = [line for line in lines if line.startswith("- *Control, refuted:*")]
    assert said.startswith(f"- *Control, refuted:* {claim.controls[arm]} *Measured:* Slope is ")
    assert "95 % interval −0.0291 to 0.0291; the claim needs −0.55 to −0.45." in said


def test_a_run_without_parts_is_told_as_far_as_it_goes():
    (claim,) = find(["A.softmax-smoothed"])
    entry = {"verdict": "supported", "reason": "Slope is -0.5.", "controls": {}}
    lines = lens_page.section(claim, {"entry": entry, "drawn": []})
    assert not any(line.startswith("|") for line in lines)
    # A control that is newer than the run.
    (said,) = [line for line in lines if line.startswith("- *Control")]
    assert said.startswith("- *Control, not in that run:*")
    assert "Measured" not in said


def test_starred_letters_are_no_emphasis_outside_code():
    unemphatic = lens_page.unemphatic
    assert unemphatic("E(f̂ − f*)², *so* with W* and W*") == r"E(f̂ − f\*)², *so* with W\* and W\*"
    for as_it_is in ("    train(f̂) − train(f*),", "the name `f*` and *a* word", "*given the pool*"):
        assert unemphatic(as_it_is) == as_it_is
