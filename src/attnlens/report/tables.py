"""A claim's numbers as CSV, for a download link that needs no server."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from attnlens.records import Figure


def as_csv(section: Mapping[str, Any]) -> str:
    """The judged quantities, then the drawn points, in one table."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    rows.writerow(["kind", "name", "x", "value", "low", "high", "region", "replicates"])
    for arm, verdict in _arms(section):
        for part in verdict["parts"]:
            low, high = (None, None) if part["exact"] else (part["low"], part["high"])
            rows.writerow(
                [arm, _plain(part["quantity"]), None, part["estimate"], low, high,
                 _plain(part["region"]), part["count"]]
            )  # fmt: skip
    views = [section["figure"], *section.get("views", ())]
    for series in (s for view in views if view and "series" in view for s in view["series"]):
        for p in series["points"]:
            low, high = p["y"] - p["half_width"], p["y"] + p["half_width"]
            rows.writerow(["point", _plain(series["name"]), p["x"], p["y"], low, high, None, None])
    return text.getvalue()


def download(section: Mapping[str, Any]) -> str:
    """The table as an address that a link can hold."""
    return _address(as_csv(section))


def points_csv(figure: Figure) -> str:
    """The points of one figure, as such an address."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(["name", _plain(figure.x_label), _plain(figure.y_label), "low", "high"])
    for series in figure.series:
        for p in series.points:
            ends = (p.y - p.half_width, p.y + p.half_width)
            rows.writerow([_plain(series.name), p.x, p.y, *ends])
    return _address(text.getvalue())


def _address(table: str) -> str:
    return "data:text/csv;charset=utf-8," + quote(table)


def _arms(section: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [("claim", section["verdict"]), *(("control", c) for c in section["controls"])]


def _plain(text: str) -> str:
    """Text that a spreadsheet cannot take for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text
