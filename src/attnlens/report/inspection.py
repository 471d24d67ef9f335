"""The page of `attnlens inspect`: summary, a table of heads to click, lines over depth, tokens."""

from __future__ import annotations

import base64
import math
import os
from pathlib import Path
from typing import Any

from attnlens import __version__
from attnlens.core.inspections import Inspection, Measure

from .sheet import write_page
from .templating import number, render_template
from .views import views


def write_inspection(inspection: Inspection, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` into the folder, which is created if needed, and return its path.

    >>> import tempfile
    >>> write_inspection(Inspection("Mine", ("It is small.",), (), ()), tempfile.mkdtemp()).name
    'report.html'
    """
    return write_page(render_inspection(inspection), folder)


def render_inspection(inspection: Inspection) -> str:
    """The page as text.

    >>> "It is small." in render_inspection(Inspection("Mine", ("It is small.",), (), ()))
    True
    """
    drawn = views(measure.figure() for measure in inspection.measures)
    for view, measure in zip(drawn, inspection.measures, strict=True):
        view["meaning"] = measure.meaning
        view["plotly"]["layout"]["showlegend"] = False  # a single line, which the title names
    if inspection.profiles:
        drawn += views([inspection.profile_figure()])
        drawn[-1]["meaning"] = (
            "The mean over heads and inputs, in bins of distance that start where the points are."
        )
    heads = [measure for measure in inspection.measures if measure.by_head]
    return render_template(
        "inspection.html",
        drawn=bool(drawn),
        inspection=inspection,
        views=drawn,
        heads=heads,
        table=head_table(heads[0]) if heads else [],
        content={"measures": [_measure(m) for m in heads], "views": _token_views(inspection)},
        version=__version__,
    )


def head_table(measure: Measure) -> list[tuple[int, list[dict[str, Any]]]]:
    """Rows (layer, cells) of a measure; a cell has its value as text and its place on the scale."""
    low, high = measure.limits or _range(measure)
    width = high - low or 1.0
    return [
        (
            layer,
            [
                {"words": number(r.value), "share": round(100 * (r.value - low) / width, 1)}
                if math.isfinite(r.value)
                else {"words": "–", "share": 0}
                for r in row
            ],
        )
        for layer, row in zip(measure.at, measure.by_head, strict=True)
    ]


def _range(measure: Measure) -> tuple[float, float]:
    values = [r.value for row in measure.by_head for r in row if math.isfinite(r.value)]
    return (min(values), max(values)) if values else (0.0, 1.0)


def _measure(measure: Measure) -> dict[str, Any]:
    """The table of a measure, with the intervals that are shown when a cell is selected."""
    return {
        "name": measure.name,
        "meaning": measure.meaning,
        "layers": list(measure.at),
        "shares": [[cell["share"] for cell in row] for _, row in head_table(measure)],
        "words": [[cell["words"] for cell in row] for _, row in head_table(measure)],
        "intervals": [
            [
                " to ".join(number(end) for end in r.interval())
                if r.status.has_number
                else r.reason
                for r in row
            ]
            for row in measure.by_head
        ],
    }


def _token_views(inspection: Inspection) -> list[dict[str, Any]]:
    return [
        {
            "tokens": list(view.tokens),
            "layers": list(view.layers),
            "weights": [[base64.b64encode(head).decode() for head in row] for row in view.weights],
        }
        for view in inspection.views
    ]
