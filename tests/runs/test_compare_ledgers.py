"""`tools/compare_ledgers.py` compares every number of every claim, but not the wording."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnlens.runs.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))  # a folder of scripts, not a package
compare_ledgers = importlib.import_module("compare_ledgers")

PART = {
    "quantity": "mean",
    "estimate": 0.1,
    "low": 0.0,
    "high": 0.2,
    "region": "≤ 0.5",
    "edges": [None, 0.5],
    "count": 12,
    "exact": False,
}
LEDGER = {
    "schema": 2,
    "profile": "smoke",
    "claims": [
        {
            "id": "T.toy",
            "lens": "T",
            "verdict": "supported",
            "quantity": "mean",
            "estimate": 0.1,
            "interval": [0.0, 0.2],
            "region": "≤ 0.5",
            "exact": False,
            "control": "refuted",
            "controls": {"shifted": "refuted"},
            "reason": "Mean is 0.1.",
            "cells_without_result": 0,
            "seconds": 1.5,
        },
    ],
    "machine": {"cores": 2},
    "seconds": 2.5,
}
PAGE = {
    "profile": "smoke",
    "claims": [
        {
            "id": "T.toy",
            "verdict": {"outcome": "supported", "reason": "", "parts": [PART, PART]},
            "controls": [{"arm": "shifted", "outcome": "refuted", "parts": [PART]}],
        }
    ],
}
Change = Callable[[dict[str, Any], dict[str, Any]], object]
# The ledger has 8 values and 1 control. The page has 2 outcomes, and 3 parts with 5 fields and 2
# edges.
NUMBERS = 9 + 2 + 3 * 7


def folder(path: Path, change: Change = lambda ledger, page: None) -> Path:
    """A results folder with LEDGER and PAGE above, after `change` has been applied to both."""
    ledger, page = json.loads(json.dumps([LEDGER, PAGE]))
    change(ledger["claims"][0], page["claims"][0])
    with Store.writing(path) as store:
        store.write_document("ledger", ledger)
        store.write_document("page", page)
    (path / "ledger.json").write_text(json.dumps(ledger))
    return path


def printed(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, list[str]]:
    status = compare_ledgers.main([*map(str, paths)])
    return status, capsys.readouterr().out.splitlines()


def as_schema_1(entry: dict[str, Any], _: dict[str, Any]) -> None:
    entry["seed"] = entry.pop("lens")


def reworded(entry: dict[str, Any], section: dict[str, Any]) -> None:
    entry.update(reason="other words", region="at most 0.5", seconds=9.0)
    section["verdict"]["reason"] = "other words"


@pytest.mark.parametrize("change", [lambda entry, section: None, as_schema_1, reworded])
def test_equal_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change):
    status, lines = printed(capsys, folder(tmp_path / "old"), folder(tmp_path / "new", change))
    assert (status, lines) == (0, [f"1 claims, {NUMBERS} numbers: all equal"])


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda e, s: e.update(verdict="refuted"), "verdict: 'supported' -> 'refuted'"),
        (
            lambda e, s: e.update(estimate=math.nextafter(0.1, 1)),
            "estimate: 0.1 -> 0.10000000000000002",
        ),
        (lambda e, s: e.update(estimate=None), "estimate: 0.1 -> None"),
        (lambda e, s: e["interval"].__setitem__(1, 0.3), "interval, high: 0.2 -> 0.3"),
        (lambda e, s: e.update(region="≤ 0.6"), "region: ['0.5'] -> ['0.6']"),
        (
            lambda e, s: e["controls"].update(shifted="supported"),
            "control shifted: 'refuted' -> 'supported'",
        ),
        (
            lambda e, s: s["verdict"]["parts"][1].update(count=13),
            "prediction, part 2: count: 12 -> 13",
        ),
        (
            lambda e, s: s["verdict"]["parts"][0].update(edges=[None, 0.6]),
            "prediction, part 1: high edge: 0.5 -> 0.6",
        ),
        (
            lambda e, s: s["controls"][0]["parts"][0].update(low=-1.0),
            "control shifted, part 1: low: 0.0 -> -1.0",
        ),
    ],
)
def test_a_changed_number_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, difference: str
):
    status, lines = printed(capsys, folder(tmp_path / "old"), folder(tmp_path / "new", change))
    expected = [f"differs: T.toy, {difference}", f"1 claims, {NUMBERS} numbers: 1 differences"]
    assert (status, lines) == (1, expected)


def test_a_renamed_quantity_is_mentioned_and_is_not_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new = folder(tmp_path / "new", lambda e, s: s["verdict"]["parts"][1].update(quantity="average"))
    status, lines = printed(capsys, folder(tmp_path / "old"), new)
    assert status == 0
    assert lines[0] == "renamed: T.toy, prediction, part 2: quantity: 'mean' -> 'average'"
    assert lines[1:] == [f"1 claims, {NUMBERS} numbers: all equal"]


def test_missing_parts_and_claims_are_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    fewer = folder(tmp_path / "fewer", lambda e, s: s["verdict"]["parts"].pop())
    status, lines = printed(capsys, folder(tmp_path / "old"), fewer)
    assert status == 1
    assert sum("-> absent" in line for line in lines) == 7
    (tmp_path / "none.json").write_text(json.dumps({**LEDGER, "claims": []}))
    status, lines = printed(capsys, tmp_path / "none.json", tmp_path / "old" / "ledger.json")
    assert status == 1
    assert "differs: T.toy: only in NEW" in lines


def test_a_ledger_file_alone_is_compared_without_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    old = folder(tmp_path / "old")
    status, lines = printed(capsys, old / "ledger.json", old)
    assert status == 0
    assert lines[0].startswith(f"{old / 'ledger.json'} has no page content")
    assert lines[-1] == "1 claims, 9 numbers: all equal"


@pytest.mark.parametrize("content", [None, "{", "[]", '{"claims": [{}]}'])
def test_an_unreadable_ledger_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
):
    if content is not None:
        (tmp_path / "ledger.json").write_text(content)
    assert printed(capsys, tmp_path, tmp_path) == (2, [])
