"""The ledger as a picture: every claim, and its control, on one axis.

A claim's quantities have different units, so they are compared by what decides: how far the
estimate lies inside its region (right of the edge) or outside (left), in half-widths of its own
95 % interval,

    position = min(estimate − low, high − estimate) / half-width.

Beyond ±1 the whole interval clears the edge. Of several parts the one that lies furthest left is
shown: the claim is as strong as that one. The axis is logarithmic in |position| past 1; a part
without sampling error stands at its end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

END = 100.0  # beyond this, further is no different
WIDTH, ROW, HEAD, FOOT = 480, 21, 34, 22
LEFT, RIGHT = 172, 466  # where the axis runs
TICKS = (-100, -10, -1, 0, 1, 10, 100)


def position(part: Mapping[str, Any]) -> float | None:
    """Where a part stands on the axis; None where it could not be measured."""
    edges = [edge for edge in part.get("edges", (None, None)) if edge is not None]
    if part["estimate"] is None or not edges:
        return None
    low, high = part.get("edges", (None, None))
    margin = min(
        math.inf if low is None else part["estimate"] - low,
        math.inf if high is None else high - part["estimate"],
    )
    if part["exact"]:
        return END if margin >= 0 else -END
    if part["low"] is None or part["high"] is None:
        return None
    half = (part["high"] - part["low"]) / 2
    if half == 0:
        return END if margin >= 0 else -END
    return max(-END, min(END, margin / half))


def weakest(parts: Sequence[Mapping[str, Any]]) -> float | None:
    """The position of the part that lies furthest left."""
    found = [at for at in map(position, parts) if at is not None]
    return min(found) if found else None


def across(at: float) -> float:
    """The horizontal place of a position: linear to ±1, logarithmic beyond."""
    stretched = at if abs(at) <= 1 else math.copysign(1 + math.log10(abs(at)), at)
    return round(LEFT + (RIGHT - LEFT) * (stretched + 3) / 6, 1)


def picture(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Everything the template needs to draw the ledger: a panel a lens, all on the same axis."""
    lenses: dict[str, list[Mapping[str, Any]]] = {}
    for section in sections:
        lenses.setdefault(section["entry"]["seed"], []).append(section)
    ticks = [{"x": across(at), "label": f"{at:g}".replace("-", "−")} for at in TICKS]
    return [
        {
            "lens": lens, "rows": [_row(section, i) for i, section in enumerate(group)],
            "ticks": ticks, "edge": across(0), "top": HEAD - 6, "bottom": HEAD + ROW * len(group),
            "width": WIDTH, "height": HEAD + ROW * len(group) + FOOT, "left": LEFT, "right": RIGHT,
        }
        for lens, group in lenses.items()
    ]  # fmt: skip


def _row(section: Mapping[str, Any], place: int) -> dict[str, Any]:
    at = weakest(section["verdict"]["parts"])
    controls = [weakest(control["parts"]) for control in section["controls"]]
    row = {
        "id": section["id"],
        "anchor": section["anchor"],
        "title": section["title"],
        "verdict": section["entry"]["verdict"],
        "y": HEAD + ROW * (place + 0.5),
        "x": None if at is None else across(at),
        "controls": [across(c) for c in controls if c is not None],
    }
    if at is not None and abs(at) < END:
        row["low"], row["high"] = across(max(-END, at - 1)), across(min(END, at + 1))
    return row
