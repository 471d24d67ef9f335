"""Records to look at -> what a page needs to draw them: plotly's JSON, a title, words, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attnlens.figures import describe, surface_to_plotly, to_plotly
from attnlens.records import Figure, Point, Series, Surface

from .tables import points_csv

# A path is drawn over contours only: in three dimensions it would hide behind the surface.
KINDS = {"contour": "from above", "surface": "in three dimensions"}


def views(records: Iterable[Figure | Surface]) -> list[dict[str, Any]]:
    """One view a figure; a surface is seen from above and in three dimensions."""
    made = []
    for record in records:
        if isinstance(record, Surface):
            made += [_surface(record, kind) for kind in KINDS]
        else:
            made.append(_view(record.title, to_plotly(record), describe(record)))
            made[-1]["csv"] = points_csv(record)
    return made


def _surface(surface: Surface, kind: str) -> dict[str, Any]:
    title = f"{surface.quantity[:1].upper()}{surface.quantity[1:]} {KINDS[kind]}"
    drawn = surface_to_plotly(surface, kind)
    axes = f"Horizontal: {surface.x_label}; vertical: {surface.y_label}."
    return _view(title, drawn, f"{title}. {axes} {surface}.", tall=True, last=kind == "surface")


def _view(
    title: str, plotly: dict[str, Any], alternative: str, *, tall: bool = False, last: bool = False
) -> dict[str, Any]:
    """`last`: drawn after all others, because it is slow."""
    return {
        "title": title, "plotly": _finite(plotly), "alternative": alternative, "tall": tall,
        "last": last, "csv": None,
    }  # fmt: skip


def restored(plain: Mapping[str, Any]) -> Figure | Surface:
    """A record from its plain form, as the store keeps it."""
    if "values" in plain:
        rows = tuple(tuple(math.nan if v is None else v for v in row) for row in plain["values"])
        return Surface(**{**plain, "values": rows})
    series = tuple(
        Series(**{**each, "points": tuple(Point(**point) for point in each["points"])})
        for each in plain["series"]
    )
    return Figure(**{**plain, "series": series})


def _finite(content: Any) -> Any:
    """Content that JSON can hold: what is not a finite number becomes null."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content
