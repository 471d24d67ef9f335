"""Figures of lines and points.

A series is drawn as points with error bars, the power law fitted through them (solid) and the
predicted one (dotted); controls are grey, each with a mark of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from attnlens.core.drawing import Figure, Point, Series

from .escape import escape_matplotlib, escape_plotly
from .ticks import counts_few_things, log_places, log_ticks, tick_label

# Okabe and Ito's palette: distinguishable with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREYS = ("#8c8c8c", "#6b6b6b", "#a8a8a8")
SCALES = ("linear", "log")


class Mark(NamedTuple):
    """How points and curves of a series are drawn, in the words of plotly and of matplotlib."""

    symbol: str
    marker: str
    dash: str
    style: str


USUAL, STAR = Mark("circle", "o", "solid", "-"), Mark("diamond-open", "D", "solid", "-")
# Marks of the controls of a figure, in their order: greys alone look alike.
CONTROLS = (
    Mark("x", "x", "solid", "-"),
    Mark("cross", "P", "dashdot", "-."),
    Mark("star", "*", "longdash", "--"),
    Mark("triangle-down", "v", "longdashdot", "-."),
    Mark("square", "s", "dash", "--"),
)
MOST_POINTS = 400  # per series: more cannot be distinguished in a figure 400 pixels high


def colours(figure: Figure) -> list[str]:
    """One colour per series; controls are grey; `like` names a series with the same colour."""
    chosen: dict[str, str] = {}
    new, greys = itertools.cycle(COLOURS), itertools.cycle(GREYS)
    result = []
    for series in figure.series:
        if series.control:
            result.append(next(greys))
        else:
            result.append(chosen.get(series.like) or next(new))
        chosen.setdefault(series.name, result[-1])
    return result


def marks(figure: Figure) -> list[Mark]:
    """One mark per series; those of different controls differ."""
    others = itertools.cycle(CONTROLS)
    own = [next(others) if series.control else USUAL for series in figure.series]
    return [STAR if s.mark else mark for s, mark in zip(figure.series, own, strict=True)]


def power_law(series: Series, slope: float) -> tuple[list[float], list[float]]:
    """End points (x, y) of the line y ∝ x^slope through the series' centre on log–log axes."""
    usable = [p for p in series.points if p.x > 0 and p.y > 0 and math.isfinite(p.y)]
    if len(usable) < 2:
        return [], []
    x0 = math.exp(sum(math.log(p.x) for p in usable) / len(usable))
    y0 = math.exp(sum(math.log(p.y) for p in usable) / len(usable))
    ends = [min(p.x for p in usable), max(p.x for p in usable)]
    return ends, [y0 * (x / x0) ** slope for x in ends]


def drawable(series: Series) -> Series:
    """The series as it is drawn: its finite points, averaged in groups if over `MOST_POINTS`.

    A mean of m independent points with half-widths h has the half-width √(Σ h²)/m, on either side.
    An interval without finite ends is not drawn: JSON cannot hold it.
    """
    points = tuple(
        p if math.isfinite(p.high - p.low) else Point(p.x, p.y)
        for p in series.points
        if math.isfinite(p.x) and math.isfinite(p.y)
    )
    if len(points) <= MOST_POINTS or series.line or series.curve:
        step = max(1, math.ceil(len(points) / (4 * MOST_POINTS)))
        return replace(series, points=points[::step])
    ordered = sorted(points, key=lambda p: (p.x, p.y))
    size = math.ceil(len(ordered) / MOST_POINTS)
    groups = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    name = f"{series.name} (means of {size})"
    return replace(series, name=name, points=tuple(map(_mean, groups)))


def _mean(points: list[Point]) -> Point:
    x, y = fmean(p.x for p in points), fmean(p.y for p in points)
    below, above = (math.hypot(*widths) / len(points) for widths in _widths(points))
    return Point.between(x, y, y - below, y + above)


def _widths(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """How far the intervals reach below the points, and above."""
    return [p.y - p.low for p in points], [p.half_width for p in points]


def to_plotly(figure: Figure) -> dict[str, Any]:
    """The figure as plotly's JSON: data and layout, without importing plotly."""
    traces: list[dict[str, Any]] = []
    where = "%{x}" if figure.names else "%{x:,.6~g}"
    for whole, colour, mark in zip(figure.series, colours(figure), marks(figure), strict=True):
        series = drawable(whole)
        group, joined = escape_plotly(whole.name), series.line or series.curve
        below, above = _widths(series.points)
        if series.curve and any(above):
            traces.append(_band(series, colour, group))
        trace: dict[str, Any] = {
            "type": "scatter",
            "name": escape_plotly(series.name),
            "legendgroup": group,
            "mode": "lines" if joined else "markers",
            # A series without points still has its entry in the legend.
            "x": [p.x for p in series.points] or [None],
            "y": [p.y for p in series.points] or [None],
            "marker": {
                "color": colour,
                "size": 13 if series.mark else 8,
                "symbol": mark.symbol,
            },
            "line": {"color": colour, "dash": "dash" if series.line else mark.dash},
            "hovertemplate": f"{where} → %{{y:.4g}}<extra>%{{fullData.name}}</extra>",
        }
        if any(above + below) and not series.curve:
            bars: dict[str, Any] = {"type": "data", "array": above, "thickness": 1.5}
            interval = " ± %{error_y.array:.2g}"
            if any(p.below is not None for p in series.points):
                bars |= {"symmetric": False, "arrayminus": below}
                trace["customdata"] = [[p.low, p.high] for p in series.points]
                interval = ", %{customdata[0]:.3g} to %{customdata[1]:.3g}"
            trace["error_y"] = bars
            trace["hovertemplate"] = trace["hovertemplate"].replace("<extra>", f"{interval}<extra>")
        traces.append(trace)
        for slope, dash, word in _lines(series):
            x, y = power_law(series, slope)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": x,
                    "y": y,
                    "legendgroup": group,
                    "name": f"{word} slope {slope:.2f}".replace("-", "−"),
                    "showlegend": False,
                    "line": {"color": colour, "dash": dash, "width": 1.5},
                    "hovertemplate": "%{fullData.name}<extra></extra>",
                }
            )
    points = [p for series in figure.series for p in series.points]
    layout: dict[str, Any] = {
        name: {
            "title": {"text": escape_plotly(label)},
            "type": SCALES[log],
            "exponentformat": "power",
            "automargin": True,
            **(log_ticks(values) if log else {}),
        }
        for name, label, log, values in (
            ("xaxis", figure.x_label, figure.log_x, [p.x for p in points]),
            ("yaxis", figure.y_label, figure.log_y, [p.y for p in points]),
        )
    }
    if figure.names:
        layout["xaxis"] |= {
            "tickvals": list(range(1, len(figure.names) + 1)),
            "ticktext": [escape_plotly(name) for name in figure.names],
            "range": [0.5, len(figure.names) + 0.5],
        }
    elif not figure.log_x and counts_few_things([p.x for p in points]):
        layout["xaxis"]["dtick"] = 1
    return {"data": traces, "layout": layout}


def _band(series: Series, colour: str, group: str) -> dict[str, Any]:
    there, back = series.points, series.points[::-1]
    return {
        "type": "scatter",
        "mode": "lines",
        "fill": "toself",
        "line": {"width": 0},
        "x": [p.x for p in (*there, *back)],
        "y": [*(p.high for p in there), *(p.low for p in back)],
        "fillcolor": f"{colour}40",  # a quarter opaque
        "name": group,
        "legendgroup": group,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def to_matplotlib(figure: Figure) -> Any:
    """The figure as a matplotlib `Figure`, ready for `savefig`."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    for whole, colour, mark in zip(figure.series, colours(figure), marks(figure), strict=True):
        series = drawable(whole)
        x, y = [p.x for p in series.points], [p.y for p in series.points]
        bars = _widths(series.points)
        slope = "" if series.slope is None else f" (slope {series.slope:.2f})"
        label = escape_matplotlib(series.name) + slope
        if series.curve:
            axes.plot(x, y, mark.style, color=colour, label=label)
            low, high = [p.low for p in series.points], [p.high for p in series.points]
            axes.fill_between(x, low, high, color=colour, alpha=0.25, lw=0)
        else:
            style = "--" if series.line else mark.marker
            size = 9 if series.mark else 5
            axes.errorbar(
                x,
                y,
                yerr=bars if any(map(any, bars)) else None,
                fmt=style,
                color=colour,
                capsize=3,
                label=label,
                ms=size,
                mfc="none" if series.mark else colour,
            )
        for slope, dash, _ in _lines(series):
            style = ":" if dash == "dot" else "-"
            axes.plot(*power_law(series, slope), color=colour, lw=1, ls=style)
    labels = (figure.x_label, figure.y_label, figure.title)
    axes.set(
        **dict(zip(("xlabel", "ylabel", "title"), map(escape_matplotlib, labels), strict=True))
    )
    axes.set_xscale(SCALES[figure.log_x])
    axes.set_yscale(SCALES[figure.log_y])
    points = [p for series in figure.series for p in series.points]
    for axis, log, values in (
        (axes.xaxis, figure.log_x, [p.x for p in points]),
        (axes.yaxis, figure.log_y, [p.y for p in points]),
    ):
        ticks = log_places(values) if log else []
        low, high = axis.get_view_interval()
        visible = [(k, d) for k, d in ticks if low <= d * 10.0**k <= high]
        # Where powers of ten are larger or smaller, matplotlib's own labels are used.
        if visible and all(-4 < k < 6 for k, _ in visible):
            axis.set_ticks(
                [d * 10.0**k for k, d in visible], [tick_label(d, k) for k, d in visible]
            )
            axis.set_ticks([], minor=True)
    if figure.names:
        axes.set_xticks(
            range(1, len(figure.names) + 1), [escape_matplotlib(name) for name in figure.names]
        )
        axes.set_xlim(0.5, len(figure.names) + 0.5)
    if axes.get_legend_handles_labels()[0]:
        # Below the axes: inside, it would cover the curves.
        canvas.legend(loc="outside lower center", ncols=2, fontsize=8)
    return canvas


def _lines(series: Series) -> list[tuple[float, str, str]]:
    fitted = [] if series.slope is None else [(series.slope, "solid", "fitted")]
    return fitted + ([] if series.reference is None else [(series.reference, "dot", "predicted")])
