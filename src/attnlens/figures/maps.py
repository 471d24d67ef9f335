"""Maps of attention weights, panel by panel."""

from __future__ import annotations

import math
from typing import Any

from attnlens.records import Map

from .ticks import TICKS
from .words import literal, markup

WEIGHTS = "cividis"  # of maps: as even, and made for colour-blind eyes
PANELS_A_ROW = 3  # of a map


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
                "hovertemplate": "%{y} → %{x}: %{z:.3f}" + f"<extra>{markup(name)}</extra>",
            }
        )  # fmt: skip
        left, right = (column + 0.06) / columns, (column + 0.94) / columns
        bottom, top = (rows - 1 - row + 0.12) / rows, (rows - 1 - row + 0.88) / rows
        names = (record.x_names, len(values[0])), (record.y_names, len(values))
        layout[f"xaxis{number}"] = {
            "domain": [left, right], "anchor": f"y{number}", **_places(*names[0]),
            "title": {"text": markup(record.x_label) if row == rows - 1 else ""},
            "showticklabels": row == rows - 1 or columns > 1,
        }  # fmt: skip
        layout[f"yaxis{number}"] = {
            "domain": [bottom, top], "anchor": f"x{number}", **_places(*names[1]),
            "title": {"text": markup(record.y_label) if column == 0 else ""},
            "autorange": "reversed",
        }  # fmt: skip
        layout["annotations"].append(
            {
                "text": markup(name), "x": (left + right) / 2, "y": top, "xref": "paper",
                "yref": "paper", "yanchor": "bottom", "xanchor": "center", "showarrow": False,
            }
        )  # fmt: skip
    return {"data": traces, "layout": layout}


def _places(names: tuple[str, ...], count: int) -> dict[str, Any]:
    """Ticks of an axis that counts from one, with names where there are any."""
    shown = [markup(name) for name in names] or [str(i + 1) for i in range(count)]
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
        axes.set_title(literal(name), fontsize=9)
        for axis, words, names, count in (
            (axes.xaxis, record.x_label, record.x_names, len(values[0])),
            (axes.yaxis, record.y_label, record.y_names, len(values)),
        ):
            every = range(0, count, math.ceil(count / TICKS))
            labels = [literal(names[i]) if names else str(i + 1) for i in every]
            axis.set_ticks(list(every), labels, fontsize=7)
            axis.set_label_text(literal(words))
    canvas.colorbar(shown, ax=places, label="weight")
    canvas.suptitle(literal(record.title))
    return canvas


def grid(record: Map) -> tuple[int, int]:
    """Rows and columns of panels: wide ones, of more tokens than ticks, below each other."""
    wide = len(record.panels[0][1][0]) > TICKS
    columns = 1 if wide else min(PANELS_A_ROW, len(record.panels))
    return math.ceil(len(record.panels) / columns), columns


def _highest(record: Map) -> float:
    return max(w for _, values in record.panels for row in values for w in row)
