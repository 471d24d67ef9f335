"""Plain records -> figures: plotly (as plain JSON) for the page, matplotlib for papers.

Both draw the same record with the same colours. A series is points with error bars, the power law
fitted through them (solid), the predicted one (dotted), and controls in grey. Names come from
users: neither library may read them as markup.
"""

from __future__ import annotations

import html
import itertools
import math
from dataclasses import replace
from statistics import fmean
from typing import Any

from attnlens.records import Figure, Map, Point, Series, Surface

# Okabe and Ito's palette: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREYS = ("#8c8c8c", "#6b6b6b", "#a8a8a8")
SCALE = "viridis"  # of surfaces: even steps of lightness, in any kind of colour vision
WEIGHTS = "cividis"  # of maps: as even, and made for colour-blind eyes
LEVELS = 24  # contour lines
SCALES = ("linear", "log")
# Digits at ticks of a logarithmic axis, by the powers of ten that its values span at least.
DIGITS = (
    (2.5, (1,)), (1.0, (1, 2, 5)), (0.4, (1, 1.5, 2, 3, 5, 7)),
    (0.0, (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)),
)  # fmt: skip
CAMERA: dict[str, Any] = {"camera": {"eye": {"x": 1.6, "y": 1.6, "z": 1.2}, "center": {"z": -0.15}}}
MOST = 400  # points of a series that a figure 400 pixels high can show
PANELS_A_ROW = 3  # of a map
TICKS = 12  # along a side of a panel; more names would run into each other


def colours(figure: Figure) -> list[str]:
    """One colour a series, controls grey; `like` another series, its colour."""
    chosen: dict[str, str] = {}
    new, greys = itertools.cycle(COLOURS), itertools.cycle(GREYS)
    made = []
    for series in figure.series:
        if series.control:
            made.append(next(greys))
        else:
            made.append(chosen.get(series.like) or next(new))
        chosen.setdefault(series.name, made[-1])
    return made


def power_law(series: Series, slope: float) -> tuple[list[float], list[float]]:
    """The line y ∝ x^slope through the series' centre on log–log axes, at its two ends."""
    usable = [p for p in series.points if p.x > 0 and p.y > 0 and math.isfinite(p.y)]
    if len(usable) < 2:
        return [], []
    x0 = math.exp(sum(math.log(p.x) for p in usable) / len(usable))
    y0 = math.exp(sum(math.log(p.y) for p in usable) / len(usable))
    ends = [min(p.x for p in usable), max(p.x for p in usable)]
    return ends, [y0 * (x / x0) ** slope for x in ends]


def drawable(series: Series) -> Series:
    """The series as it is drawn: finite points, and of more than `MOST` the means of neighbours.

    A mean of m independent points with half-widths h has the half-width √(Σ h²)/m.
    """
    points = tuple(p for p in series.points if math.isfinite(p.x) and math.isfinite(p.y))
    if len(points) <= MOST or series.line or series.curve:
        step = max(1, math.ceil(len(points) / (4 * MOST)))
        return replace(series, points=points[::step])
    ordered = sorted(points, key=lambda p: (p.x, p.y))
    size = math.ceil(len(ordered) / MOST)
    groups = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    name = f"{series.name} (means of {size})"
    return replace(series, name=name, points=tuple(map(_mean, groups)))


def _mean(points: list[Point]) -> Point:
    x, y = fmean(p.x for p in points), fmean(p.y for p in points)
    return Point(x, y, math.hypot(*(p.half_width for p in points)) / len(points))


# -- lines and points ------------------------------------------------------------------------------


def to_plotly(figure: Figure) -> dict[str, Any]:
    """The figure as plotly's JSON: data and layout, without importing plotly."""
    traces: list[dict[str, Any]] = []
    where = "%{x}" if figure.names else "%{x:,.6~g}"
    for whole, colour in zip(figure.series, colours(figure), strict=True):
        series = drawable(whole)
        group, joined = _markup(whole.name), series.line or series.curve
        widths = [p.half_width for p in series.points]
        if series.curve and any(widths):
            traces.append(_band(series, colour, group))
        trace = {
            "type": "scatter", "name": _markup(series.name), "legendgroup": group,
            "mode": "lines" if joined else "markers",
            # A series without a point still has its line in the legend.
            "x": [p.x for p in series.points] or [None],
            "y": [p.y for p in series.points] or [None],
            "marker": {"color": colour, "size": 13 if series.mark else 8,
                       "symbol": _symbol(series)},
            "line": {"color": colour, "dash": "dash" if series.line else "solid"},
            "hovertemplate": f"{where} → %{{y:.4g}}<extra>%{{fullData.name}}</extra>",
        }  # fmt: skip
        if any(widths) and not series.curve:
            trace["error_y"] = {"type": "data", "array": widths, "thickness": 1.5}
            trace["hovertemplate"] = trace["hovertemplate"].replace(
                "<extra>", " ± %{error_y.array:.2g}<extra>"
            )
        traces.append(trace)
        for slope, dash, word in _lines(series):
            x, y = power_law(series, slope)
            traces.append(
                {
                    "type": "scatter", "mode": "lines", "x": x, "y": y, "legendgroup": group,
                    "name": f"{word} slope {slope:.2f}".replace("-", "−"), "showlegend": False,
                    "line": {"color": colour, "dash": dash, "width": 1.5},
                    "hovertemplate": "%{fullData.name}<extra></extra>",
                }
            )  # fmt: skip
    points = [p for series in figure.series for p in series.points]
    layout: dict[str, Any] = {
        name: {
            "title": {"text": _markup(label)}, "type": SCALES[log], "exponentformat": "power",
            "automargin": True, **(log_ticks(values) if log else {}),
        }
        for name, label, log, values in (
            ("xaxis", figure.x_label, figure.log_x, [p.x for p in points]),
            ("yaxis", figure.y_label, figure.log_y, [p.y for p in points]),
        )
    }  # fmt: skip
    if figure.names:
        layout["xaxis"] |= {
            "tickvals": list(range(1, len(figure.names) + 1)),
            "ticktext": [_markup(name) for name in figure.names],
            "range": [0.5, len(figure.names) + 0.5],
        }
    elif not figure.log_x and _counts([p.x for p in points]):
        layout["xaxis"]["dtick"] = 1
    return {"data": traces, "layout": layout}


def log_ticks(values: list[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis in whole numbers: 1, 2, 5, 10, … or powers of ten alone.

    plotly's own put small digits between powers of ten, which few people can read.
    """
    ticks = log_places(values)
    if not ticks:
        return {}
    return {
        "tickvals": [d * 10.0**k for k, d in ticks],
        "ticktext": [_power(d, k) for k, d in ticks],
    }


def log_places(values: list[float]) -> list[tuple[int, float]]:
    """Where ticks of a logarithmic axis stand, as (power of ten, digit): the closer the values lie
    together, the more digits, so that at least two ticks are in sight.

    >>> log_places([1.0, 1e6])[:3]
    [(-1, 1), (0, 1), (1, 1)]
    """
    known = [math.log10(v) for v in values if v > 0 and math.isfinite(v)]
    if not known:
        return []
    low, high = math.floor(min(known)) - 1, math.ceil(max(known)) + 1
    span = max(known) - min(known)
    digits = next(found for least, found in DIGITS if span >= least)
    step = 1 if span < 2.5 else math.ceil((high - low) / 12)
    ticks = [(k, d) for k in range(low, high + 1, step) for d in digits]
    if span >= DIGITS[1][0]:
        return ticks
    # Many digits, so only those that can come into sight.
    return [(k, d) for k, d in ticks if -0.2 <= k + math.log10(d) - min(known) <= span + 0.2]


def _power(digit: float, power: int) -> str:
    if -4 < power < 6:
        return f"{digit * 10.0**power:,.10g}"
    return f"{f'{digit:g}·' * (digit > 1)}10<sup>{power}</sup>".replace("-", "−")


def _counts(places: list[float]) -> bool:
    """Whether an axis counts a few things: there are no half heads."""
    whole = all(math.isfinite(x) and x == round(x) for x in places)
    return whole and bool(places) and max(places) - min(places) <= TICKS


def _band(series: Series, colour: str, group: str) -> dict[str, Any]:
    there, back = series.points, series.points[::-1]
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "line": {"width": 0},
        "x": [p.x for p in (*there, *back)],
        "y": [*(p.y + p.half_width for p in there), *(p.y - p.half_width for p in back)],
        "fillcolor": f"{colour}40",  # a quarter opaque
        "name": group, "legendgroup": group, "showlegend": False, "hoverinfo": "skip",
    }  # fmt: skip


def to_matplotlib(figure: Figure) -> Any:
    """The figure as a matplotlib `Figure`, ready for `savefig`."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    for whole, colour in zip(figure.series, colours(figure), strict=True):
        series = drawable(whole)
        x, y = [p.x for p in series.points], [p.y for p in series.points]
        bars = [p.half_width for p in series.points]
        slope = "" if series.slope is None else f" (slope {series.slope:.2f})"
        label = _literal(series.name) + slope
        if series.curve:
            axes.plot(x, y, "-", color=colour, label=label)
            low, high = ([a + sign * b for a, b in zip(y, bars, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.25, lw=0)
        else:
            style = "--" if series.line else {"x": "x", "circle": "o"}.get(_symbol(series), "D")
            size = 9 if series.mark else 5
            axes.errorbar(
                x, y, yerr=bars if any(bars) else None, fmt=style, color=colour, capsize=3,
                label=label, ms=size, mfc="none" if series.mark else colour,
            )  # fmt: skip
        for slope, dash, _ in _lines(series):
            style = ":" if dash == "dot" else "-"
            axes.plot(*power_law(series, slope), color=colour, lw=1, ls=style)
    labels = (figure.x_label, figure.y_label, figure.title)
    axes.set(**dict(zip(("xlabel", "ylabel", "title"), map(_literal, labels), strict=True)))
    axes.set_xscale(SCALES[figure.log_x])
    axes.set_yscale(SCALES[figure.log_y])
    points = [p for series in figure.series for p in series.points]
    for axis, log, values in (
        (axes.xaxis, figure.log_x, [p.x for p in points]),
        (axes.yaxis, figure.log_y, [p.y for p in points]),
    ):
        ticks = log_places(values) if log else []
        low, high = axis.get_view_interval()
        seen = [(k, d) for k, d in ticks if low <= d * 10.0**k <= high]
        if seen and all(-4 < k < 6 for k, _ in seen):  # beyond, matplotlib writes powers itself
            axis.set_ticks([d * 10.0**k for k, d in seen], [_power(d, k) for k, d in seen])
            axis.set_ticks([], minor=True)
    if figure.names:
        axes.set_xticks(range(1, len(figure.names) + 1), [_literal(name) for name in figure.names])
        axes.set_xlim(0.5, len(figure.names) + 0.5)
    if axes.get_legend_handles_labels()[0]:
        # Below the axes: inside, it would cover what it explains.
        canvas.legend(loc="outside lower center", ncols=2, fontsize=8)
    return canvas


# -- surfaces --------------------------------------------------------------------------------------


def surface_to_plotly(surface: Surface, kind: str = "contour") -> dict[str, Any]:
    """A surface as plotly's JSON: contours, or a surface in three dimensions."""
    values, label = _heights(surface)
    common = {
        "x": list(surface.x), "y": list(surface.y), "z": values, "colorscale": SCALE.capitalize(),
        "colorbar": {"title": {"text": _markup(label), "side": "right"}, "thickness": 15},
        "hovertemplate": "%{x:.3g}, %{y:.3g} → %{z:.4g}<extra></extra>",
    }  # fmt: skip
    labels = (surface.x_label, surface.y_label, "")
    axes = [{"title": {"text": _markup(text)}} for text in labels]  # heights have a colour bar
    if kind == "surface":
        scene = dict(zip(("xaxis", "yaxis", "zaxis"), axes, strict=True)) | CAMERA
        layout = {"scene": scene, "margin": {"l": 0, "r": 0, "t": 10, "b": 10}}
        return {"data": [{"type": "surface", **common}], "layout": layout}
    traces = [{"type": "contour", "ncontours": LEVELS, "line": {"width": 0.5}, **common}]
    if surface.path:
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": "path",
                "x": [x for x, _ in surface.path], "y": [y for _, y in surface.path],
                "marker": {"color": COLOURS[1], "size": 5}, "line": {"color": COLOURS[1]},
            }
        )  # fmt: skip
    across, along = ({**axis, "automargin": True} for axis in axes[:2])
    return {"data": traces, "layout": {"xaxis": across, "yaxis": along}}


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
        axes.set_zlabel(_literal(label))
    else:
        axes = canvas.subplots()
        filled = axes.contourf(x, y, heights, levels=LEVELS, cmap=SCALE)
        canvas.colorbar(filled, label=_literal(label))
        if surface.path:
            axes.plot(*zip(*surface.path, strict=True), "o-", color=COLOURS[1], ms=3)
    labels = (surface.x_label, surface.y_label, surface.quantity)
    axes.set(**dict(zip(("xlabel", "ylabel", "title"), map(_literal, labels), strict=True)))
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


# -- maps ------------------------------------------------------------------------------------------


def map_to_plotly(record: Map) -> dict[str, Any]:
    """Panels of weights, on one scale from 0 to the largest weight."""
    rows, columns = grid(record)
    highest = _highest(record)
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": []}
    for place, (name, values) in enumerate(record.panels):
        row, column = divmod(place, columns)
        number = "" if place == 0 else str(place + 1)
        traces.append(
            {
                "type": "heatmap", "z": [list(line) for line in values], "zmin": 0,
                "zmax": highest, "colorscale": WEIGHTS.capitalize(), "showscale": place == 0,
                "colorbar": {"title": {"text": "weight", "side": "right"}, "thickness": 15},
                "xaxis": f"x{number}", "yaxis": f"y{number}", "xgap": 1, "ygap": 1,
                "hovertemplate": "%{y} → %{x}: %{z:.3f}" + f"<extra>{_markup(name)}</extra>",
            }
        )  # fmt: skip
        left, right = (column + 0.06) / columns, (column + 0.94) / columns
        bottom, top = (rows - 1 - row + 0.12) / rows, (rows - 1 - row + 0.88) / rows
        names = (record.x_names, len(values[0])), (record.y_names, len(values))
        layout[f"xaxis{number}"] = {
            "domain": [left, right], "anchor": f"y{number}", **_places(*names[0]),
            "title": {"text": _markup(record.x_label) if row == rows - 1 else ""},
            "showticklabels": row == rows - 1 or columns > 1,
        }  # fmt: skip
        layout[f"yaxis{number}"] = {
            "domain": [bottom, top], "anchor": f"x{number}", **_places(*names[1]),
            "title": {"text": _markup(record.y_label) if column == 0 else ""},
            "autorange": "reversed",
        }  # fmt: skip
        layout["annotations"].append(
            {
                "text": _markup(name), "x": (left + right) / 2, "y": top, "xref": "paper",
                "yref": "paper", "yanchor": "bottom", "xanchor": "center", "showarrow": False,
            }
        )  # fmt: skip
    return {"data": traces, "layout": layout}


def _places(names: tuple[str, ...], count: int) -> dict[str, Any]:
    """Ticks of an axis that counts from one, with names where there are any."""
    shown = [_markup(name) for name in names] or [str(i + 1) for i in range(count)]
    every = list(range(0, count, math.ceil(count / TICKS)))
    return {
        "tickvals": every, "ticktext": [shown[i] for i in every], "showgrid": False,
        "zeroline": False, "automargin": True,
    }  # fmt: skip


def map_to_matplotlib(record: Map) -> Any:
    """The same panels with matplotlib."""
    from matplotlib.figure import Figure as Canvas

    rows, columns = grid(record)
    size = (max(6.4, 2.6 * columns), 1.0 + 2.0 * rows)
    canvas = Canvas(figsize=size, layout="constrained")
    places = canvas.subplots(rows, columns, squeeze=False)
    shown: Any = None
    for place, axes in enumerate(places.ravel()):
        if place >= len(record.panels):
            axes.set_axis_off()
            continue
        name, values = record.panels[place]
        shown = axes.imshow(values, cmap=WEIGHTS, vmin=0, vmax=_highest(record), aspect="auto")
        axes.set_title(_literal(name), fontsize=9)
        for axis, words, names, count in (
            (axes.xaxis, record.x_label, record.x_names, len(values[0])),
            (axes.yaxis, record.y_label, record.y_names, len(values)),
        ):
            every = range(0, count, math.ceil(count / TICKS))
            labels = [_literal(names[i]) if names else str(i + 1) for i in every]
            axis.set_ticks(list(every), labels, fontsize=7)
            axis.set_label_text(_literal(words))
    canvas.colorbar(shown, ax=places, label="weight")
    canvas.suptitle(_literal(record.title))
    return canvas


def grid(record: Map) -> tuple[int, int]:
    """Rows and columns of panels: wide ones, of more tokens than ticks, below each other."""
    wide = len(record.panels[0][1][0]) > TICKS
    columns = 1 if wide else min(PANELS_A_ROW, len(record.panels))
    return math.ceil(len(record.panels) / columns), columns


def _highest(record: Map) -> float:
    return max(w for _, values in record.panels for row in values for w in row)


# -- words -----------------------------------------------------------------------------------------


def _markup(text: str) -> str:
    """Text that plotly shows as it stands: it reads a little HTML in every label."""
    return html.escape(text, quote=False)


def _literal(text: str) -> str:
    """Text that matplotlib shows as it stands: it reads formulas between dollar signs."""
    return text.replace("$", r"\$")


def _lines(series: Series) -> list[tuple[float, str, str]]:
    fitted = [] if series.slope is None else [(series.slope, "solid", "fitted")]
    return fitted + ([] if series.reference is None else [(series.reference, "dot", "predicted")])


def _symbol(series: Series) -> str:
    if series.mark:
        return "diamond-open"
    return "x" if series.control else "circle"
