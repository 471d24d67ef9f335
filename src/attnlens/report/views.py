"""Records to look at -> what a page needs to draw them: plotly's JSON, a title, words, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attnlens.figures.lines import to_plotly
from attnlens.figures.maps import grid, map_to_plotly
from attnlens.figures.surfaces import surface_to_plotly
from attnlens.records import Figure, Map, Point, Series, Surface, View

from .tables import points_csv
from .words import describe

# A path is drawn over contours only: in three dimensions it would hide behind the surface.
KINDS = {"contour": "from above", "surface": "in three dimensions"}


def views(records: Iterable[View]) -> list[dict[str, Any]]:
    """One view a figure; a surface is seen from above and in three dimensions."""
    made = []
    for record in records:
        if isinstance(record, Surface):
            made += [_surface(record, kind) for kind in KINDS]
        elif isinstance(record, Map):
            words = str(record).replace("\n", ". ")
            drawn, tall = map_to_plotly(record), grid(record)[0] > 1
            made.append(_view(record.title, drawn, f"{words}.", tall=tall))
        else:
            made.append(_view(record.title, to_plotly(record), describe(record)))
            made[-1]["csv"] = points_csv(record)
    return made


def _surface(surface: Surface, kind: str) -> dict[str, Any]:
    title = f"{surface.quantity[:1].upper()}{surface.quantity[1:]} {KINDS[kind]}"
    drawn = surface_to_plotly(surface, kind)
    axes = f"Horizontal: {surface.x_label}; vertical: {surface.y_label}."
    view = _view(title, drawn, f"{title}. {axes} {surface}.", tall=True, last=kind == "surface")
    return {**view, "half": True}


def _view(
    title: str, plotly: dict[str, Any], alternative: str, *, tall: bool = False, last: bool = False
) -> dict[str, Any]:
    """`last`: drawn after all others, because it is slow."""
    return {
        "title": title, "plotly": plotly, "alternative": alternative, "tall": tall,
        "last": last, "half": False, "csv": None,
    }  # fmt: skip


def restored(plain: Mapping[str, Any]) -> View:
    """A record from its plain form, as the store keeps it."""
    if "panels" in plain:
        return Map(**{**plain, "panels": tuple((name, rows) for name, rows in plain["panels"])})
    if "values" in plain:
        rows = tuple(tuple(math.nan if v is None else v for v in row) for row in plain["values"])
        return Surface(**{**plain, "values": rows})
    series = tuple(
        Series(**{**each, "points": tuple(Point(**point) for point in each["points"])})
        for each in plain["series"]
    )
    return Figure(**{**plain, "series": series})
