"""Numbers as CSV in a data URL, for download links that need no server."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from attnlens.core.drawing import Figure
from attnlens.core.serialise import view_from_plain

# Characters that start a formula. Spreadsheets in East Asian settings read the full-width
# characters as their ASCII counterparts.
FORMULA_STARTS = "=+-@\uff1d\uff0b\uff0d\uff20"


def as_csv(section: Mapping[str, Any]) -> str:
    """One CSV table of a claim: its judged quantities, then the points of its figures."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    rows.writerow(["kind", "name", "x", "value", "low", "high", "region", "replicates"])
    for arm, verdict in _arms(section):
        for part in verdict["parts"]:
            low, high = (None, None) if part["exact"] else (part["low"], part["high"])
            rows.writerow(
                [
                    arm,
                    escape_formula(part["quantity"]),
                    None,
                    part["estimate"],
                    low,
                    high,
                    escape_formula(part["region"]),
                    part["count"],
                ]
            )
    views = [
        view_from_plain(view) for view in (section["figure"], *section.get("views", ())) if view
    ]
    for series in (s for view in views if isinstance(view, Figure) for s in view.series):
        name = escape_formula(series.name)
        for p in series.points:
            rows.writerow(["point", name, p.x, p.y, p.low, p.high, None, None])
    return text.getvalue()


def section_csv(section: Mapping[str, Any]) -> str:
    """The table of `as_csv` as a data URL."""
    return _data_url(as_csv(section))


def points_csv(figure: Figure) -> str:
    """The points of one figure as a data URL."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(
        ["name", escape_formula(figure.x_label), escape_formula(figure.y_label), "low", "high"]
    )
    for series in figure.series:
        for p in series.points:
            rows.writerow([escape_formula(series.name), p.x, p.y, p.low, p.high])
    return _data_url(text.getvalue())


def _data_url(table: str) -> str:
    return "data:text/csv;charset=utf-8," + quote(table)


def _arms(section: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [("claim", section["verdict"]), *(("control", c) for c in section["controls"])]


def escape_formula(text: str) -> str:
    """Text that a spreadsheet does not read as a formula: in one line, and marked as text by an
    apostrophe where its first character, behind white space, begins a formula."""
    line = " ".join(text.split())
    return f"'{line}" if line and line[0] in FORMULA_STARTS else line
