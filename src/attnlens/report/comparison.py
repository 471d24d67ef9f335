"""Two runs compared: which verdicts changed, and which estimates moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .templating import render_template


def render_comparison(runs: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The page that compares two runs, given as (name, ledger)."""
    rows = compare(*(ledger for _, ledger in runs))
    return render_template("comparison.html", drawn=False, rows=rows, runs=runs)


def compare(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per claim of either run, the largest change first."""
    before = {entry["id"]: entry for entry in first["claims"]}
    after = {entry["id"]: entry for entry in second["claims"]}
    rows = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        rank, change = _change(old, new)
        rows.append({"id": name, "before": old, "after": new, "rank": rank, "change": change})
    return sorted(rows, key=lambda row: -row["rank"])


def _change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> tuple[int, str]:
    """How much changed, as a rank from 0 (nothing) to 4 (the verdict), and in words."""
    if old is None or new is None:
        return 2, "only in the second run" if old is None else "only in the first run"
    if old["verdict"] != new["verdict"]:
        return 4, f"{old['verdict']} → {new['verdict']}"
    if old["control"] != new["control"]:
        return 3, f"control {old['control']} → {new['control']}"
    values = old["estimate"], new["estimate"]
    if values[0] == values[1]:
        return 0, "the same"
    if None in values or old["quantity"] != new["quantity"]:
        return 1, "another quantity decides"
    moved = new["estimate"] - old["estimate"]
    half = math.hypot(_half_width(old), _half_width(new))
    if half == 0 or not math.isfinite(half):
        return 1, f"estimate moved by {moved:+.3g}"
    # Two independent estimates of one value differ by more than their combined 95 % half-width
    # with probability 5 %.
    by_chance = abs(moved) / half <= 1
    words = "no more than chance explains" if by_chance else "more than chance explains"
    return (1 if by_chance else 3), f"estimate moved by {moved:+.3g}, {words}"


def _half_width(entry: dict[str, Any]) -> float:
    interval: Any = entry["interval"] or [None]
    return 0.0 if entry["exact"] or None in interval else (interval[1] - interval[0]) / 2
