"""Two runs beside each other: which verdicts changed, and which estimates moved."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from attnlens.store import Store, replace_file

from .page import finished
from .templating import rendered

FILE = "comparison.html"


def write_comparison(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Path:
    """Write the comparison of two results folders into the second, and return where it is.

    Both folders must have been written by `attnlens.verify`.

    >>> write_comparison("no-such-run", "nor-this")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.checks.BadInput: ...
    """
    ledgers = []
    for folder in (Path(first), Path(second)):
        with Store.reading(folder) as store:
            ledgers.append(finished(store)[0])
    runs = [*zip((str(first), str(second)), ledgers, strict=True)]
    text = rendered("comparison.html", drawn=False, rows=compare(*ledgers), runs=runs)
    replace_file(Path(second) / FILE, text)
    return Path(second) / FILE


def compare(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a claim of either run, what changed first."""
    before = {entry["id"]: entry for entry in first["claims"]}
    after = {entry["id"]: entry for entry in second["claims"]}
    rows = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        rank, said = _change(old, new)
        rows.append({"id": name, "before": old, "after": new, "rank": rank, "said": said})
    return sorted(rows, key=lambda row: -row["rank"])


def _change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> tuple[int, str]:
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
    size = abs(moved) / half
    # Two independent estimates differ by more than their combined 95 % half-width in 5 %.
    fits = "as chance would have it" if size <= 1 else "more than chance explains"
    return (1 if size <= 1 else 3), f"estimate moved by {moved:+.3g}, {fits}"


def _half_width(entry: dict[str, Any]) -> float:
    interval: Any = entry["interval"] or [None]
    return 0.0 if entry["exact"] or None in interval else (interval[1] - interval[0]) / 2
