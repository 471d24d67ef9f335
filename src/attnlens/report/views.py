"""Views of drawing records for a page: plotly's JSON, title, text alternative and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attnlens.core.drawing import Map, Surface, View
from attnlens.report.draw.lines import to_plotly
from attnlens.report.draw.maps import map_to_plotly, panel_grid
from attnlens.report.draw.surfaces import surface_to_plotly

from .alt_text import alt_text
from .tables import points_csv

# The path of a surface is drawn over contours only: in three dimensions it would be hidden.
KINDS = {"contour": "from above", "surface": "in three dimensions"}


def views(records: Iterable[View]) -> list[dict[str, Any]]:
    """One view per figure or map, two per surface: from above and in three dimensions."""
    result = []
    for record in records:
        if isinstance(record, Surface):
            result += [_surface(record, kind) for kind in KINDS]
        elif isinstance(record, Map):
            alternative = str(record).replace("\n", ". ")
            drawn, tall = map_to_plotly(record), panel_grid(record)[0] > 1
            result.append(_view(record.title, drawn, f"{alternative}.", tall=tall))
        else:
            result.append(_view(record.title, to_plotly(record), alt_text(record)))
            result[-1]["csv"] = points_csv(record)
    return result


def _surface(surface: Surface, kind: str) -> dict[str, Any]:
    title = f"{surface.quantity[:1].upper()}{surface.quantity[1:]} {KINDS[kind]}"
    drawn = surface_to_plotly(surface, kind)
    axes = f"Horizontal: {surface.x_label}; vertical: {surface.y_label}."
    view = _view(title, drawn, f"{title}. {axes} {surface}.", tall=True, last=kind == "surface")
    return {**view, "half": True}


def _view(
    title: str, plotly: dict[str, Any], alternative: str, *, tall: bool = False, last: bool = False
) -> dict[str, Any]:
    """One view as the template reads it.

    tall  shown in a higher box
    last  drawn after all others, because it is slow
    """
    return {
        "title": title,
        "plotly": plotly,
        "alternative": alternative,
        "tall": tall,
        "last": last,
        "half": False,
        "csv": None,
    }
