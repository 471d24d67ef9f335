"""Convert records to plain data for JSON and back; no other module does this.

JSON has neither NaN nor infinity: both become None, and None is read back as NaN. A status becomes
its string. If a document of an earlier version lacks a field, the field gets its default value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from .drawing import Figure, Map, Point, Series, Surface, View
from .readings import Reading, StoredReading
from .status import Status
from .verdicts import Part, Verdict

# The attributes of a reading that are stored.
READING = ("value", "standard_error", "count", "status", "details", "freedom")


def to_plain(record: Any) -> Any:
    """A record, or nested data that contains records, as dictionaries, lists, strings and numbers.

    >>> to_plain(Point(1.0, math.inf))
    {'x': 1.0, 'y': None, 'half_width': 0.0}
    """
    if isinstance(record, float):
        return record if math.isfinite(record) else None
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, Reading):
        return to_plain({name: getattr(record, name) for name in READING})
    if isinstance(record, Point) and record.below is None:  # true for most of the many points
        return to_plain({"x": record.x, "y": record.y, "half_width": record.half_width})
    if dataclasses.is_dataclass(record):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {name: to_plain(value) for name, value in record.items()}
    return [to_plain(value) for value in record] if isinstance(record, list | tuple) else record


# -- drawing records and readings ------------------------------------------------------------------


def view_from_plain(content: Mapping[str, Any]) -> View:
    """Restore a figure, surface or map from the output of `to_plain`."""
    if "panels" in content:
        panels = tuple((name, rows) for name, rows in content["panels"])
        return Map(**{**content, "panels": panels})
    if "values" in content:
        rows = tuple(tuple(map(_number, row)) for row in content["values"])
        names = {f.name for f in dataclasses.fields(Surface)} & set(content)
        return Surface(**{**{name: content[name] for name in names}, "values": rows})
    series = tuple(
        Series(**{**line, "points": tuple(map(_point, line["points"]))})
        for line in content["series"]
    )
    return Figure(**{**content, "series": series})


def reading_from_plain(content: Mapping[str, Any]) -> Reading:
    """Restore a reading from the output of `to_plain`; entries of other names are ignored.

    >>> print(reading_from_plain({"value": 0.5, "standard_error": 0.1, "count": 9}))
    0.5 ± 0.1 (n = 9)
    """
    return StoredReading(
        _number(content["value"]),
        _number(content["standard_error"]),
        content["count"],
        content.get("status", Status.OK),
        content.get("freedom"),
        stored=content.get("details", {}),
    )


def _point(content: Mapping[str, Any]) -> Point:
    return Point(**{name: _number(value) for name, value in content.items()})


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def ledger_entries(ledger: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All entries of a ledger: its claims, then its exact checks, if it has any.

    >>> ledger_entries({"claims": [{"id": "A.one"}], "exact_checks": [{"id": "A.two"}]})
    [{'id': 'A.one'}, {'id': 'A.two'}]
    """
    return [*ledger["claims"], *ledger.get("exact_checks", ())]


# -- verdicts --------------------------------------------------------------------------------------


def verdict_to_plain(verdict: Verdict) -> dict[str, Any]:
    """The outcome of a claim or a control with its parts, as plain data for the page document."""
    parts = [part_to_plain(part) for part in verdict.parts]
    return {"outcome": verdict.outcome, "reason": verdict.reason, "parts": parts}


def part_to_plain(part: Part) -> dict[str, Any]:
    """A judged quantity as plain data, with its region in words and as a pair of numbers."""
    return to_plain(
        {
            "quantity": part.quantity,
            "estimate": part.estimate,
            "low": part.low,
            "high": part.high,
            "region": str(part.region),
            "edges": [part.region.low, part.region.high],
            "count": part.count,
            "exact": part.exact,
        }
    )
