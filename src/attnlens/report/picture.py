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
WIDTH, ROW, HEAD, FOOT = 760, 24, 30, 40
LEFT, RIGHT = 250, 730  # where the axis runs
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


def picture(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything the template needs to draw the ledger."""
    rows, y, lens = [], HEAD, None
    for section in sections:
        if section["entry"]["seed"] != lens:
            lens = section["entry"]["seed"]
            rows.append({"lens": lens, "y": y + ROW * 0.7})
            y += ROW
        at = weakest(section["verdict"]["parts"])
        controls = [weakest(control["parts"]) for control in section["controls"]]
        row = {
            "id": section["id"],
            "anchor": section["anchor"],
            "title": section["title"],
            "verdict": section["entry"]["verdict"],
            "y": y + ROW / 2,
            "x": None if at is None else across(at),
            "controls": [across(c) for c in controls if c is not None],
        }
        if at is not None and abs(at) < END:
            row["low"], row["high"] = across(max(-END, at - 1)), across(min(END, at + 1))
        rows.append(row)
        y += ROW
    ticks = [{"x": across(at), "label": f"{at:g}".replace("-", "−")} for at in TICKS]
    return {
        "rows": rows, "ticks": ticks, "edge": across(0), "top": HEAD - 8, "bottom": y + 4,
        "width": WIDTH, "height": y + FOOT, "left": LEFT, "right": RIGHT,
    }  # fmt: skip
