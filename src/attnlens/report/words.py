"""A figure in words: the text alternative of what is drawn."""

from __future__ import annotations

import math

from attnlens.records import Figure, Point


def describe(figure: Figure) -> str:
    """The figure in words: its text alternative."""
    said = [f"{figure.title}. Horizontal: {figure.x_label or 'names'}; vertical: {figure.y_label}."]
    for series in figure.series:
        points: list[Point] = [p for p in series.points if math.isfinite(p.y)]
        if not points:
            continue
        first, last = points[0], points[-1]
        if len(points) == 1:
            said.append(f"{series.name}: {first.y:.3g} at {_at(figure, first.x)}.")
            continue
        said.append(
            f"{series.name}: from {first.y:.3g} at {_at(figure, first.x)} to {last.y:.3g} at "
            f"{_at(figure, last.x)}"
            + (f", slope {series.slope:.2f}." if series.slope is not None else ".")
        )
    return " ".join(said)


def _at(figure: Figure, x: float) -> str:
    place = round(x) - 1
    return figure.names[place] if 0 <= place < len(figure.names) else f"{x:g}"
