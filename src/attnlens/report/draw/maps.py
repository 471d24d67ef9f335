"""Maps of attention weights, one panel per head."""

from __future__ import annotations

import math
from typing import Any

from attnlens.core.drawing import Map

from .escape import escape_matplotlib, escape_plotly
from .ticks import MOST_TICKS

WEIGHTS = "cividis"  # even steps of lightness, designed for colour-blind readers
PANELS_PER_ROW = 3


def map_to_plotly(record: Map) -> dict[str, Any]:
    """The map as plotly's JSON: panels of weights, on one scale from 0 to the largest weight."""
    rows, columns = panel_grid(record)
    highest = _highest(record)
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": []}
    for place, (name, values) in enumerate(record.panels):
        row, column = divmod(place, columns)
        number = "" if place == 0 else str(place + 1)
        traces.append(
            {
                "type": "heatmap",
                "z": [list(line) for line in values],
                "zmin": 0,
                "zmax": highest,
                "colorscale": WEIGHTS.capitalize(),
                "showscale": place == 0,
                "colorbar": {
                    "title": {"text": escape_plotly(record.quantity), "side": "right"},
                    "thickness": 15,
                },
                "xaxis": f"x{number}",
                "yaxis": f"y{number}",
                "xgap": 1,
                "ygap": 1,
                "hovertemplate": "%{y} → %{x}: %{z:.3f}" + f"<extra>{escape_plotly(name)}</extra>",
            }
        )
        left, right = (column + 0.06) / columns, (column + 0.94) / columns
        bottom, top = (rows - 1 - row + 0.12) / rows, (rows - 1 - row + 0.88) / rows
        names = (record.x_names, len(values[0])), (record.y_names, len(values))
        layout[f"xaxis{number}"] = {
            "domain": [left, right],
            "anchor": f"y{number}",
            **_places(*names[0]),
            "title": {"text": escape_plotly(record.x_label) if row == rows - 1 else ""},
            "showticklabels": row == rows - 1 or columns > 1,
        }
        layout[f"yaxis{number}"] = {
            "domain": [bottom, top],
            "anchor": f"x{number}",
            **_places(*names[1]),
            "title": {"text": escape_plotly(record.y_label) if column == 0 else ""},
            "autorange": "reversed",
        }
        layout["annotations"].append(
            {
                "text": escape_plotly(name),
                "x": (left + right) / 2,
                "y": top,
                "xref": "paper",
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "center",
                "showarrow": False,
            }
        )
    return {"data": traces, "layout": layout}


def _places(names: tuple[str, ...], count: int) -> dict[str, Any]:
    """Ticks of an axis as plotly takes them: names if there are any, else numbers from one."""
    shown = [escape_plotly(name) for name in names] or [str(i + 1) for i in range(count)]
    every = list(range(0, count, math.ceil(count / MOST_TICKS)))
    return {
        "tickvals": every,
        "ticktext": [shown[i] for i in every],
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }


def map_to_matplotlib(record: Map) -> Any:
    """The map as a matplotlib `Figure`."""
    from matplotlib.figure import Figure as Canvas

    rows, columns = panel_grid(record)
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
        axes.set_title(escape_matplotlib(name), fontsize=9)
        for axis, words, names, count in (
            (axes.xaxis, record.x_label, record.x_names, len(values[0])),
            (axes.yaxis, record.y_label, record.y_names, len(values)),
        ):
            every = range(0, count, math.ceil(count / MOST_TICKS))
            labels = [escape_matplotlib(names[i]) if names else str(i + 1) for i in every]
            axis.set_ticks(list(every), labels, fontsize=7)
            axis.set_label_text(escape_matplotlib(words))
    canvas.colorbar(shown, ax=places, label=escape_matplotlib(record.quantity))
    canvas.suptitle(escape_matplotlib(record.title))
    return canvas


def panel_grid(record: Map) -> tuple[int, int]:
    """(rows, columns) of the grid of panels; one column if a panel has more tokens than ticks."""
    wide = len(record.panels[0][1][0]) > MOST_TICKS
    columns = 1 if wide else min(PANELS_PER_ROW, len(record.panels))
    return math.ceil(len(record.panels) / columns), columns


def _highest(record: Map) -> float:
    return max(w for _, values in record.panels for row in values for w in row)
