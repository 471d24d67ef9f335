"""Plain records -> figures: plotly (as plain JSON) for the page, matplotlib for papers.

Both draw the same `Figure` with the same colours. A series is points with error bars, the power
law fitted through them (solid), the predicted one (dotted), and controls in grey.
"""

from __future__ import annotations

import math
from typing import Any

from attnlens.records import Figure, Point, Series, Surface

# Okabe and Ito's palette: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#8c8c8c"
SCALE = "viridis"  # of surfaces: even steps of lightness, in any kind of colour vision
LEVELS = 24  # contour lines


def colours(figure: Figure) -> list[str]:
    """One colour a series, controls grey."""
    drawn = iter(range(len(figure.series)))
    return [GREY if s.control else COLOURS[next(drawn) % len(COLOURS)] for s in figure.series]


def power_law(series: Series, slope: float) -> tuple[list[float], list[float]]:
    """The line y ∝ x^slope through the series' centre on log–log axes, at its two ends."""
    usable = [p for p in series.points if p.x > 0 and p.y > 0 and math.isfinite(p.y)]
    if len(usable) < 2:
        return [], []
    x0 = math.exp(sum(math.log(p.x) for p in usable) / len(usable))
    y0 = math.exp(sum(math.log(p.y) for p in usable) / len(usable))
    ends = [min(p.x for p in usable), max(p.x for p in usable)]
    return ends, [y0 * (x / x0) ** slope for x in ends]


def to_plotly(figure: Figure) -> dict[str, Any]:
    """The figure as plotly's JSON: data and layout, without importing plotly."""
    traces: list[dict[str, Any]] = []
    for series, colour in zip(figure.series, colours(figure), strict=True):
        points = [p for p in series.points if math.isfinite(p.y)]
        traces.append(
            {
                "type": "scatter",
                "name": series.name,
                "legendgroup": series.name,
                "mode": "lines" if series.line and not series.control else "markers",
                "x": [p.x for p in points],
                "y": [p.y for p in points],
                "error_y": {
                    "type": "data",
                    "array": [p.half_width for p in points],
                    "visible": any(p.half_width for p in points),
                },
                "marker": {"color": colour, "size": 8, "symbol": _symbol(series)},
                "line": {"color": colour, "dash": "dash" if series.line else "solid"},
                "hovertemplate": "%{x:,} → %{y:.4g}<extra>%{fullData.name}</extra>",
            }
        )
        for slope, dash, word in _lines(series):
            x, y = power_law(series, slope)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": x,
                    "y": y,
                    "name": f"{word} slope {slope:.2f}",
                    "legendgroup": series.name,
                    "showlegend": False,
                    "line": {"color": colour, "dash": dash, "width": 1.5},
                    "hovertemplate": "%{fullData.name}<extra></extra>",
                }
            )
    layout = {
        name: {"title": {"text": label}, "type": _scale(log), "exponentformat": "power"}
        for name, label, log in (
            ("xaxis", figure.x_label, figure.log_x),
            ("yaxis", figure.y_label, figure.log_y),
        )
    }
    return {"data": traces, "layout": layout}


def to_matplotlib(figure: Figure) -> Any:
    """The figure as a matplotlib `Figure`, ready for `savefig`."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    for series, colour in zip(figure.series, colours(figure), strict=True):
        x, y = [p.x for p in series.points], [p.y for p in series.points]
        bars = [p.half_width for p in series.points]
        style = "--" if series.line and not series.control else "o"
        label = series.name if series.slope is None else f"{series.name} (slope {series.slope:.2f})"
        axes.errorbar(x, y, yerr=_bars(bars), fmt=style, color=colour, capsize=3, label=label)
        for slope, dash, _ in _lines(series):
            axes.plot(
                *power_law(series, slope), color=colour, lw=1, ls=":" if dash == "dot" else "-"
            )
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label, title=figure.title)
    axes.set_xscale(_scale(figure.log_x))
    axes.set_yscale(_scale(figure.log_y))
    axes.legend(fontsize=8)
    return canvas


def surface_to_plotly(surface: Surface, kind: str = "contour") -> dict[str, Any]:
    """A surface as plotly's JSON: contours, or a surface in three dimensions."""
    values, label = _heights(surface)
    common = {
        "x": list(surface.x), "y": list(surface.y), "z": values, "colorscale": SCALE.capitalize(),
        "colorbar": {"title": {"text": label}},
        "hovertemplate": "%{x:.3g}, %{y:.3g} → %{z:.4g}<extra></extra>",
    }  # fmt: skip
    axes = [{"title": {"text": text}} for text in (surface.x_label, surface.y_label, label)]
    if kind == "surface":
        layout = {"scene": dict(zip(("xaxis", "yaxis", "zaxis"), axes, strict=True))}
        return {"data": [{"type": "surface", **common}], "layout": layout}
    traces = [{"type": "contour", "ncontours": LEVELS, **common}]
    if surface.path:
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": "path",
                "x": [x for x, _ in surface.path], "y": [y for _, y in surface.path],
                "marker": {"color": COLOURS[1], "size": 5}, "line": {"color": COLOURS[1]},
            }
        )  # fmt: skip
    return {"data": traces, "layout": {"xaxis": axes[0], "yaxis": axes[1]}}


def surface_to_matplotlib(surface: Surface, kind: str = "contour") -> Any:
    """The same surface with matplotlib."""
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
        axes.set_zlabel(label)
    else:
        axes = canvas.subplots()
        filled = axes.contourf(x, y, heights, levels=LEVELS, cmap=SCALE)
        canvas.colorbar(filled, label=label)
        if surface.path:
            axes.plot(*zip(*surface.path, strict=True), "o-", color=COLOURS[1], ms=3)
    axes.set(xlabel=surface.x_label, ylabel=surface.y_label, title=surface.quantity)
    return canvas


def _heights(surface: Surface) -> tuple[list[list[float | None]], str]:
    """Values, or their logarithms where they span more than two powers of ten; and the label."""
    known = [v for row in surface.values for v in row if math.isfinite(v)]
    log = min(known) > 0 and max(known) > 100 * min(known)
    rows: list[list[float | None]] = [
        [(math.log10(v) if log else v) if math.isfinite(v) else None for v in row]
        for row in surface.values
    ]
    return rows, f"log₁₀ {surface.quantity}" if log else surface.quantity


def describe(figure: Figure) -> str:
    """The figure in words: its text alternative."""
    said = [f"{figure.title}. Horizontal: {figure.x_label}; vertical: {figure.y_label}."]
    for series in figure.series:
        points: list[Point] = [p for p in series.points if math.isfinite(p.y)]
        if points:
            first, last = points[0], points[-1]
            said.append(
                f"{series.name}: from {first.y:.3g} at {first.x:g} to {last.y:.3g} at {last.x:g}"
                + (f", slope {series.slope:.2f}." if series.slope is not None else ".")
            )
    return " ".join(said)


def _lines(series: Series) -> list[tuple[float, str, str]]:
    fitted = [] if series.slope is None else [(series.slope, "solid", "fitted")]
    return fitted + ([] if series.reference is None else [(series.reference, "dot", "predicted")])


def _symbol(series: Series) -> str:
    return "x" if series.control else "circle"


def _scale(log: bool) -> str:
    return "log" if log else "linear"


def _bars(half_widths: list[float]) -> list[float] | None:
    return half_widths if any(half_widths) else None
