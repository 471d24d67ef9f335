"""Loss surfaces: contours, or a surface in three dimensions."""

from __future__ import annotations

import math
from typing import Any

from attnlens.core.drawing import Surface

from .escape import escape_matplotlib, escape_plotly
from .lines import COLOURS

SCALE = "viridis"  # even steps of lightness with any kind of colour vision
LEVELS = 24  # contour lines
CAMERA: dict[str, Any] = {"camera": {"eye": {"x": 1.6, "y": 1.6, "z": 1.2}, "center": {"z": -0.15}}}


def surface_to_plotly(surface: Surface, kind: str = "contour") -> dict[str, Any]:
    """A surface as plotly's JSON: contours, or a surface in three dimensions."""
    values, label = _heights(surface)
    common = {
        "x": list(surface.x),
        "y": list(surface.y),
        "z": values,
        "colorscale": SCALE.capitalize(),
        "colorbar": {"title": {"text": escape_plotly(label), "side": "right"}, "thickness": 15},
        "hovertemplate": "%{x:.3g}, %{y:.3g} → %{z:.4g}<extra></extra>",
    }
    labels = (surface.x_label, surface.y_label, "")
    # The vertical axis has no title: its label is on the colour bar.
    axes = [{"title": {"text": escape_plotly(text)}} for text in labels]
    if kind == "surface":
        scene = dict(zip(("xaxis", "yaxis", "zaxis"), axes, strict=True)) | CAMERA
        layout = {"scene": scene, "margin": {"l": 0, "r": 0, "t": 10, "b": 10}}
        return {"data": [{"type": "surface", **common}], "layout": layout}
    traces = [{"type": "contour", "ncontours": LEVELS, "line": {"width": 0.5}, **common}]
    if surface.path:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "path",
                "x": [x for x, _ in surface.path],
                "y": [y for _, y in surface.path],
                "marker": {"color": COLOURS[1], "size": 5},
                "line": {"color": COLOURS[1]},
            }
        )
    across, along = ({**axis, "automargin": True} for axis in axes[:2])
    return {"data": traces, "layout": {"xaxis": across, "yaxis": along}}


def surface_to_matplotlib(surface: Surface, kind: str = "contour") -> Any:
    """The surface as a matplotlib `Figure`."""
    import numpy as np
    from matplotlib.figure import Figure as Canvas

    values, label = _heights(surface)
    heights = [[math.nan if v is None else v for v in row] for row in values]
    canvas = Canvas(figsize=(6.4, 5.0), layout="constrained")
    x, y = list(surface.x), list(surface.y)
    if kind == "surface":
        across, along = [x for _ in y], [[v for _ in x] for v in y]
        axes: Any = canvas.subplots(subplot_kw={"projection": "3d"})
        grids = [np.array(part) for part in (across, along, heights)]
        axes.plot_surface(*grids, cmap=SCALE, rcount=len(y), ccount=len(x))
        axes.set_zlabel(escape_matplotlib(label))
    else:
        axes = canvas.subplots()
        filled = axes.contourf(x, y, heights, levels=LEVELS, cmap=SCALE)
        canvas.colorbar(filled, label=escape_matplotlib(label))
        if surface.path:
            axes.plot(*zip(*surface.path, strict=True), "o-", color=COLOURS[1], ms=3)
    labels = (surface.x_label, surface.y_label, surface.quantity)
    axes.set(
        **dict(zip(("xlabel", "ylabel", "title"), map(escape_matplotlib, labels), strict=True))
    )
    return canvas


def _heights(surface: Surface) -> tuple[list[list[float | None]], str]:
    """Heights and their label: values, or logarithms if they span over two powers of ten."""
    known = [v for row in surface.values for v in row if math.isfinite(v)]
    log = min(known) > 0 and max(known) > 100 * min(known)
    rows: list[list[float | None]] = [
        [(math.log10(v) if log else v) if math.isfinite(v) else None for v in row]
        for row in surface.values
    ]
    return rows, f"log₁₀ {surface.quantity}" if log else surface.quantity
