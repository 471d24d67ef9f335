"""Text alternatives: what a figure shows, in words."""

from __future__ import annotations

import math

from attnlens.core.drawing import Figure, Point


def alt_text(figure: Figure) -> str:
    """The text alternative of a figure: its axes, and the first and last point of each series."""
    sentences = [
        f"{figure.title}. Horizontal: {figure.x_label or 'names'}; vertical: {figure.y_label}."
    ]
    for series in figure.series:
        points: list[Point] = [p for p in series.points if math.isfinite(p.y)]
        if not points:
            continue
        first, last = points[0], points[-1]
        if len(points) == 1:
            sentences.append(f"{series.name}: {first.y:.3g} at {_place(figure, first.x)}.")
            continue
        sentences.append(
            f"{series.name}: from {first.y:.3g} at {_place(figure, first.x)} to {last.y:.3g} at "
            f"{_place(figure, last.x)}"
            + (f", slope {series.slope:.2f}." if series.slope is not None else ".")
        )
    return " ".join(sentences)


def _place(figure: Figure, x: float) -> str:
    """The label of `x` on the horizontal axis: a name if the axis has names, else the number."""
    index = round(x) - 1
    return figure.names[index] if 0 <= index < len(figure.names) else f"{x:g}"
