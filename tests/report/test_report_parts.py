"""The rules of the page: the axis of the ledger plot, the findings, the CSV, a comparison."""

from __future__ import annotations

import csv
import io
from typing import Any
from urllib.parse import unquote

import pytest

from attnlens.core.drawing import Figure, Map, Point, Series
from attnlens.core.serialise import to_plain
from attnlens.report.comparison import compare
from attnlens.report.findings import findings
from attnlens.report.ledger_plot import (
    END,
    LEFT,
    RIGHT,
    ledger_plot,
    position,
    weakest,
    x_coordinate,
)
from attnlens.report.tables import as_csv, points_csv, section_csv


def part(estimate: float | None, half: float, low: float | None, high: float | None, exact=False):
    ends = (None, None) if estimate is None else (estimate - half, estimate + half)
    return {
        "quantity": "slope",
        "estimate": estimate,
        "low": ends[0],
        "high": ends[1],
        "edges": [low, high],
        "region": "≤ 1",
        "exact": exact,
        "count": 8,
    }


def section(name: str, verdict: str, *parts: dict, control: str = "refuted", **more: Any):
    deciding = parts[0] if parts else part(None, 0, None, 1.0)
    entry = {
        "id": name,
        "lens": name[0],
        "verdict": verdict,
        "control": control,
        "cells_without_result": 0,
        "exact": deciding["exact"],
        "quantity": "slope",
        "estimate": deciding["estimate"],
        "interval": [deciding["low"], deciding["high"]],
        "region": "≤ 1",
        "reason": f"Slope of {name} decides.",
        **more,
    }
    with_outcome = {"words": "A control.", "outcome": control, "parts": [part(9.0, 1.0, None, 1.0)]}
    return {
        "id": name,
        "anchor": name.replace(".", "-"),
        "title": f"Title of {name}",
        "entry": entry,
        "verdict": {"parts": list(parts)},
        "controls": [with_outcome],
        "meaning": "Meaning.",
        "figure": None,
    }


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (part(0.5, 0.25, None, 1.0), 2.0),  # two half-widths inside of the region
        (part(1.5, 0.25, None, 1.0), -2.0),
        (part(0.0, 0.5, -0.5, 2.0), 1.0),  # the nearer edge counts
        (part(1.0, 0.5, None, 1.0), 0.0),
        (part(0.5, 0.0, None, 1.0), END),  # half-width 0
        (part(0.5, 0.0, None, 1.0, exact=True), END),
        (part(1.5, 0.0, None, 1.0, exact=True), -END),
        (part(0.0, 1e-9, None, 1.0), END),
        (part(None, 0.0, None, 1.0), None),
    ],
)
def test_a_position_is_the_distance_to_the_edge_in_half_widths(measured: dict, expected: Any):
    assert position(measured) == expected


def test_the_axis_is_monotone_from_one_end_to_the_other():
    places = [x_coordinate(at) for at in (-END, -10, -1, -0.5, 0, 0.5, 1, 10, END)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (LEFT, RIGHT)


def test_a_claim_is_drawn_at_its_weakest_part():
    parts = [part(0.0, 0.1, None, 1.0), part(0.9, 0.1, None, 1.0), part(None, 0.0, None, 1.0)]
    assert weakest(parts) == pytest.approx(1.0)
    assert weakest([]) is None
    panels = ledger_plot([section("A.one", "supported", *parts), section("B.two", "undecided")])
    assert [panel["lens"] for panel in panels] == ["A", "B"]
    (one,), (two,) = (panel["rows"] for panel in panels)
    assert one["x"] == pytest.approx(x_coordinate(1.0), abs=0.1)
    assert one["low"] < one["x"] < one["high"]
    assert two["x"] is None
    assert [mark["x"] for mark in one["controls"]] == [x_coordinate(-8.0)]


def test_untrusted_claims_come_first_then_refuted_then_supported_by_lens():
    inside, far = part(0.0, 0.5, None, 1.0), part(0.0, 0.1, None, 1.0)
    outside = part(3.0, 0.5, None, 1.0)
    sections = [
        section("A.identity", "supported", part(0.1, 0.0, None, 1.0, exact=True)),
        section("A.rounding", "supported", part(1e-15, 1e-16, None, 1.0)),
        section("A.weak", "supported", inside),
        section("A.strong", "supported", far),
        section("B.only", "supported", inside),
        section("A.open", "undecided", part(0.9, 0.5, None, 1.0)),
    ]
    chosen = findings(sections)
    assert [f["anchor"] for f in chosen] == ["A-strong", "B-only", "A-weak"]
    assert chosen[0]["sentence"] == "Slope is 0 (-0.1 to 0.1); ≤ 1 was needed. Meaning."

    sections += [
        section("B.wrong", "refuted", outside),
        section("B.broken", "supported", far, control="supported"),
        section("B.lost", "undecided", cells_without_result=2, reason="2 cells have no result"),
    ]
    chosen = findings(sections)
    assert [f["anchor"] for f in chosen] == ["B-broken", "B-lost", "B-wrong"]
    assert "the experiment shows nothing: A control." in chosen[0]["sentence"]
    assert chosen[1]["headline"] == "Title of B.lost: no verdict"
    assert chosen[2]["sentence"] == "Slope of B.wrong decides."


def test_surprises_come_before_identities_and_exact_checks():
    sharp, wide = part(0.0, 0.5, -1.0, 1.0), part(0.0, 0.1, None, 1.0)
    check = {"check": True}
    sections = [
        section("A.check", "supported", sharp) | check,
        section("A.wide", "supported", wide),
        section("A.sharp", "supported", sharp),
        section("A.open", "undecided", part(0.9, 0.5, None, 1.0)),
        section("A.fails", "refuted", part(3.0, 0.5, None, 1.0)) | check,
    ]
    chosen = findings(sections)
    assert [f["anchor"] for f in chosen] == ["A-fails", "A-sharp", "A-wide"]
    assert chosen[0]["headline"] == "Title of A.fails: fails"
    assert [f["anchor"] for f in findings(sections[:1] + sections[3:4])] == ["A-open", "A-check"]


def test_there_are_findings_for_any_number_of_claims():
    assert findings([]) == []
    assert len(findings([section("A.one", "undecided")])) == 1


@pytest.mark.parametrize(
    ("label", "cell"),
    [
        ("", ""),
        ("labels n", "labels n"),
        ("x = y - 1", "x = y - 1"),
        ("=1+1", "'=1+1"),
        ("\t=1+1", "'=1+1"),
        (" @SUM(A1)", "'@SUM(A1)"),
        ("\n-1", "'-1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("length\n=cmd|' /C calc'!A0", "length =cmd|' /C calc'!A0"),
        ("length\r\n+1", "length +1"),
    ],
)
def test_no_cell_of_a_csv_begins_a_formula_and_none_gets_a_quote_without_need(label, cell):
    url = points_csv(Figure("t", label, label, (Series(label, (Point(1.0, -2.0, 0.0),)),)))
    header, row = csv.reader(io.StringIO(unquote(url.partition(",")[2])))
    assert header == ["name", cell, cell, "low", "high"]
    assert row == [cell, "1.0", "-2.0", "-2.0", "-2.0"]


def test_the_csv_holds_the_numbers_and_no_spreadsheet_formula():
    one = section("A.one", "supported", part(0.5, 0.25, None, 1.0))
    one["verdict"]["parts"][0]["quantity"] = '=HYPERLINK("x"), "quoted"'
    one["figure"] = to_plain(Figure("t", "x", "y", (Series("a", (Point(8.0, 2.0, 0.5),)),)))
    rows = list(csv.reader(io.StringIO(as_csv(one))))
    assert rows[1][:6] == ["claim", '\'=HYPERLINK("x"), "quoted"', "", "0.5", "0.25", "0.75"]
    assert rows[2][0] == "control"
    assert rows[3][:6] == ["point", "a", "8.0", "2.0", "1.5", "2.5"]
    others = [Map("t", "x", "y", ()), Figure("t", "x", "y", (Series("b", ()),))]
    one["views"] = [*to_plain(others), one["figure"]]
    assert as_csv(one).count("point,a") == 2  # the points of the figure and of the last view
    assert '"' not in section_csv(one)
    assert "<" not in section_csv(one)


def ledger(*entries: dict) -> dict[str, Any]:
    return {"claims": [entry["entry"] for entry in entries]}


def test_a_comparison_lists_the_largest_change_first():
    near = part(0.5, 0.25, None, 1.0)
    before = ledger(
        section("A.same", "supported", near),
        section("A.flips", "supported", near),
        section("A.moves", "supported", near),
        section("A.jumps", "supported", near),
        section("A.gone", "supported", near),
        section("A.control", "supported", near),
    )
    after = ledger(
        section("A.same", "supported", near),
        section("A.flips", "refuted", part(2.0, 0.25, None, 1.0)),
        section("A.moves", "supported", part(0.6, 0.25, None, 1.0)),
        section("A.jumps", "supported", part(-0.5, 0.25, None, 1.0)),
        section("A.new", "supported", near),
        section("A.control", "supported", near, control="undecided"),
    )
    changes = {row["id"]: row["change"] for row in compare(before, after)}
    assert next(iter(changes)) == "A.flips"
    assert changes == {
        "A.flips": "supported → refuted",
        "A.jumps": "estimate moved by -1, more than chance explains",
        "A.control": "control refuted → undecided",
        "A.gone": "not in every run",
        "A.new": "not in every run",
        "A.moves": "estimate moved by +0.1, no more than chance explains",
        "A.same": "the same",
    }


def test_a_comparison_of_three_runs_has_every_quantity():
    one, two = part(0.5, 0.25, None, 1.0), part(0.1, 0.05, None, 1.0)

    def run(second: dict) -> dict[str, Any]:
        written = ledger(section("A.two", "supported", one))
        written["claims"][0]["parts"] = [one, {**second, "quantity": "another"}]
        return written

    (row,) = compare(run(two), run({**two, "estimate": 0.9, "low": 0.85, "high": 0.95}), run(two))
    assert (row["rank"], row["change"], len(row["entries"])) == (0, "the same", 3)
    assert [line["rank"] for line in row["parts"]] == [0, 3]
    assert [judged["estimate"] for judged in row["parts"][1]["parts"]] == [0.1, 0.9, 0.1]
    (row,) = compare(run(two), ledger(section("A.two", "supported", one)))
    assert [line["change"] for line in row["parts"]] == ["not in every run"] * 2
