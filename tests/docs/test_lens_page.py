"""The pages of the lenses: they show parts and controls from the stored documents of a run, and
stars in formulas are escaped."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from attnlens.claims import find
from attnlens.core.statistics import control_verdict, judge, verdicts
from attnlens.core.verdicts import Part, Region
from attnlens.runs.ledger import section
from attnlens.runs.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))  # a folder of scripts, not a package
lens_page = importlib.import_module("lens_page")


def part(quantity: str, low: float, high: float, edges: list, exact: bool = False) -> dict:
    estimate = (low + high) / 2
    return {
        "quantity": quantity,
        "estimate": estimate,
        "low": low,
        "high": high,
        "exact": exact,
        "region": "somewhere",
        "edges": edges,
        "count": 4,
    }


@pytest.mark.parametrize(
    ("row", "outcome"),
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
def test_a_part_is_judged_by_its_interval(row: dict, outcome: str):
    assert lens_page.outcome_of(row) == outcome


def slope(name: str, centre: float) -> Part:
    """A part with the replicates `centre` ± 0.01 and ± 0.02: the half-width of its interval is t₃ =
    3.18 times 0.0091, 0.029."""
    return judge(name, [centre + d for d in (-0.02, -0.01, 0.01, 0.02)], Region(-0.55, -0.45))


@pytest.mark.parametrize("named", [True, False], ids=["arms named", "arms by description"])
def test_a_page_lists_all_parts_and_the_deciding_part_of_a_control(tmp_path: Path, named: bool):
    """Verdicts are stored as documents of a run, and the page is generated from these documents."""
    (claim,) = find(["A.softmax-smoothed"])
    (arm,) = claim.controls
    (verdict,) = verdicts([[slope("slope, |m| = 1", -0.5), slope("slope, m = 2", -0.46)]])
    controls = {arm: control_verdict([slope("slope", 0.0), slope("slope", -0.5)], 1)}
    document = section(claim, verdict, controls, None, [])
    if not named:
        del document["controls"][0]["arm"]
    entry = {
        "id": claim.id,
        "verdict": verdict.outcome,
        "controls": {arm: controls[arm].outcome},
        "reason": verdict.reason,
    }
    with Store.writing(tmp_path / "run") as store:
        store.write_document("ledger", {"profile": "smoke", "claims": [entry]})
        store.write_document("page", {"profile": "smoke", "claims": [document]})
    lens_page.keep([tmp_path / "run"], tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())["claims"][claim.id]
    lines = lens_page.section(claim, kept)
    start = lines.index("| part | estimate | 95 % interval | needed | by itself |")
    assert lines[start + 2 : start + 5] == [
        r"| slope, \|m\| = 1 | −0.5 | −0.5291 to −0.4709 | −0.55 to −0.45 | supported |",
        "| slope, m = 2 | −0.46 | −0.4891 to −0.4309 | −0.55 to −0.45 | undecided |",
        "",
    ]
    (row,) = [line for line in lines if line.startswith("- *Control, refuted:*")]
    assert row.startswith(f"- *Control, refuted:* {claim.controls[arm]} *Measured:* Slope is ")
    assert "95 % interval −0.0291 to 0.0291; the claim needs −0.55 to −0.45." in row


def test_a_stored_run_without_parts_gives_a_section_without_a_table():
    (claim,) = find(["A.softmax-smoothed"])
    entry = {"verdict": "supported", "reason": "Slope is -0.5.", "controls": {}}
    lines = lens_page.section(claim, {"entry": entry, "drawn": []})
    assert not any(line.startswith("|") for line in lines)
    # The stored run has no result for the control, because the control is newer than the run.
    (row,) = [line for line in lines if line.startswith("- *Control")]
    assert row.startswith("- *Control, not in that run:*")
    assert "Measured" not in row


def test_stars_of_letters_are_escaped_outside_code():
    unemphatic = lens_page.unemphatic
    assert unemphatic("E(f̂ − f*)², *so* with W* and W*") == r"E(f̂ − f\*)², *so* with W\* and W\*"
    for text in ("    train(f̂) − train(f*),", "the name `f*` and *a* word", "*given the pool*"):
        assert unemphatic(text) == text
