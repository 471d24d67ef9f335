"""The plot of the ledger: every claim, and its controls, on one axis.

Quantities of different claims have different units. The axis shows a position that makes them
comparable: how far the estimate lies inside its region (right of the edge) or outside (left), in
half-widths of its own 95 % interval,

    position = min(estimate − low, high − estimate) / half-width.

where low and high are the ends of the region. Beyond ±1 the whole interval lies on one side of the
edge. A claim that judges several quantities (its parts) is shown at the position of the part
furthest left: a claim is as strong as its weakest part. The axis is linear up to |position| = 1
and logarithmic beyond; a part without sampling error stands at the end of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

END = 100.0  # larger positions are drawn here
WIDTH, ROW, HEAD, FOOT = 480, 21, 34, 22
LEFT, RIGHT = 172, 466  # the ends of the axis
TICKS = (-100, -10, -1, 0, 1, 10, 100)


def position(part: Mapping[str, Any]) -> float | None:
    """The position of a part on the axis; None where it could not be measured."""
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
    """The position of the part that lies furthest left; None where none was measured."""
    return min((p for p in map(position, parts) if p is not None), default=None)


def x_coordinate(at: float) -> float:
    """The horizontal coordinate of a position: linear to ±1, logarithmic beyond."""
    return round(LEFT + (RIGHT - LEFT) * (on_axis(at) + 3) / 6, 1)


def on_axis(at: float) -> float:
    """A position on an axis from −3 to 3, linear to ±1, logarithmic beyond.

    >>> on_axis(0.5), on_axis(-10.0)
    (0.5, -2.0)
    """
    return at if abs(at) <= 1 else math.copysign(1 + math.log10(abs(at)), at)


def ledger_plot(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the template needs to draw the ledger: one panel per lens, all on the same axis."""
    return panels([(section["entry"]["lens"], partial(_row, section)) for section in sections])


def panels(rows: Sequence[tuple[str, Callable[[float], dict[str, Any]]]]) -> list[dict[str, Any]]:
    """One panel per lens, from pairs (lens, function from the height of a row to the row)."""
    lenses: dict[str, list[Callable[[float], dict[str, Any]]]] = {}
    for lens, row in rows:
        lenses.setdefault(lens, []).append(row)
    ticks = [{"x": x_coordinate(at), "label": f"{at:g}".replace("-", "−")} for at in TICKS]
    return [
        {
            "lens": lens,
            "rows": [row(HEAD + ROW * (place + 0.5)) for place, row in enumerate(group)],
            "ticks": ticks,
            "edge": x_coordinate(0),
            "top": HEAD - 6,
            "bottom": HEAD + ROW * len(group),
            "width": WIDTH,
            "height": HEAD + ROW * len(group) + FOOT,
            "left": LEFT,
            "right": RIGHT,
        }
        for lens, group in lenses.items()
    ]


def _row(section: Mapping[str, Any], y: float) -> dict[str, Any]:
    at = weakest(section["verdict"]["parts"])
    controls = [(control, weakest(control["parts"])) for control in section["controls"]]
    row = {
        "id": section["id"],
        "anchor": section["anchor"],
        "title": section["title"],
        "verdict": section["entry"]["verdict"],
        "y": y,
        "x": None if at is None else x_coordinate(at),
        "controls": [
            {
                "x": x_coordinate(place),
                "positive": control.get("expected") == "supported",
                "words": control["words"],
            }
            for control, place in controls
            if place is not None
        ],
    }
    if at is not None and abs(at) < END:
        row["low"], row["high"] = x_coordinate(max(-END, at - 1)), x_coordinate(min(END, at + 1))
    return row
