"""Several runs compared: which verdicts changed, and which estimates moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlens.core.serialise import ledger_entries

from .templating import render_template


def render_comparison(runs: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The page that compares runs, given as (name, ledger)."""
    rows = compare(*(ledger for _, ledger in runs))
    return render_template("comparison.html", drawn=False, rows=rows, runs=runs)


def compare(*ledgers: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per claim of any run, the largest change first.

    The change of a claim is the largest one between any two runs. Its "parts" has one row per
    judged quantity; runs of older versions recorded only the quantity that decides the claim.
    """
    runs = [{entry["id"]: entry for entry in ledger_entries(ledger)} for ledger in ledgers]
    rows = []
    for name in dict.fromkeys(itertools.chain(*runs)):
        entries = [run.get(name) for run in runs]
        rank, change = _largest([_change(*pair) for pair in itertools.combinations(entries, 2)])
        rows.append(
            {
                "id": name,
                "entries": entries,
                "rank": rank,
                "change": change,
                "parts": _parts(entries),
            }
        )
    return sorted(rows, key=lambda row: -row["rank"])


def _largest(changes: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The change with the highest rank; the first one if several have it."""
    return max(changes, key=lambda change: change[0], default=(0, "the same"))


def _change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> tuple[int, str]:
    """How much changed, as a rank from 0 (nothing) to 4 (the verdict), and in words."""
    if old is None or new is None:
        return (0, "in neither run") if old is new else (2, "not in every run")
    if old["verdict"] != new["verdict"]:
        return 4, f"{old['verdict']} → {new['verdict']}"
    if old["control"] != new["control"]:
        return 3, f"control {old['control']} → {new['control']}"
    if None not in (old["estimate"], new["estimate"]) and old["quantity"] != new["quantity"]:
        return 1, "another quantity decides"
    return _moved(
        (old["estimate"], _half_width(old["interval"], old["exact"])),
        (new["estimate"], _half_width(new["interval"], new["exact"])),
    )


def _moved(old: tuple[float | None, float], new: tuple[float | None, float]) -> tuple[int, str]:
    """How far an estimate moved, from (estimate, half-width of its interval)."""
    if old[0] == new[0]:
        return 0, "the same"
    if old[0] is None or new[0] is None:
        return 1, "not measured in every run"
    moved, half = new[0] - old[0], math.hypot(old[1], new[1])
    if half == 0 or not math.isfinite(half):
        return 1, f"estimate moved by {moved:+.3g}"
    # Two independent estimates of one value differ by more than their combined 95 % half-width
    # with probability 5 %.
    by_chance = abs(moved) / half <= 1
    words = "no more than chance explains" if by_chance else "more than chance explains"
    return (1 if by_chance else 3), f"estimate moved by {moved:+.3g}, {words}"


def _half_width(interval: Sequence[float | None] | None, exact: bool) -> float:
    low, high = interval or (None, None)
    return 0.0 if exact or low is None or high is None else (high - low) / 2


def _parts(entries: Sequence[Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """One row per judged quantity: its record in each run (None if absent), and its change."""
    lists = [(entry or {}).get("parts", ()) for entry in entries]
    runs = [{part["quantity"]: part for part in parts} for parts in lists]
    if len({len(parts) for parts in lists}) == 1:
        # Pair quantities by position: their names may contain measured numbers, which differ.
        names = [part["quantity"] for part in lists[0]]
        runs = [dict(zip(names, parts, strict=True)) for parts in lists]
    rows = []
    for quantity in dict.fromkeys(itertools.chain(*runs)):
        parts = [run.get(quantity) for run in runs]
        known = [
            (part["estimate"], _half_width((part["low"], part["high"]), part["exact"]))
            for part in parts
            if part
        ]
        rank, change = _largest([_moved(*pair) for pair in itertools.combinations(known, 2)])
        if len(known) < len(parts):
            rank, change = max(rank, 1), "not in every run"
        rows.append({"quantity": quantity, "parts": parts, "rank": rank, "change": change})
    return rows
