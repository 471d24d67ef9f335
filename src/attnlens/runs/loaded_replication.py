"""A finished replication as tidy frames: `attnlens.load` of a folder of `attnlens replicate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from attnlens.core.drawing import Figure, Point, Series, View
from attnlens.core.frames import Kind, frame, html_table
from attnlens.core.verdicts import stability_words
from attnlens.report.ledger_plot import on_axis, weakest

from .citations import bibtex

STABILITY: dict[str, Kind] = {
    "id": str,
    "lens": str,
    "exact_check": bool,
    "pooled": str,
    "stability": str,
    "cells_without_result": int,
}
RANGE_PARTS: dict[str, Kind] = {
    "claim": str,
    "part": int,
    "quantity": str,
    "seed_range": int,
    "estimate": float,
    "low": float,
    "high": float,
    "region": str,
    "replicates": int,
    "exact": bool,
}


class LoadedReplication:
    """A finished replication; `attnlens.load` returns one for a folder that has no run.

    claims   one row per claim: the verdict in each range of seeds ("range_0", "range_1", …), the
             verdict of the pooled cells, and whether the ranges agree
    parts    one row per claim, judged quantity and range of seeds
    figures  "stability": a mark per claim and range, as on the page of the replication
    hash, profile, replication   hash and profile of the replication, and its plain data

    >>> content = {"hash": "ab", "profile": "smoke", "seed_ranges": [0, 1], "claims": []}
    >>> LoadedReplication(Path("run"), "pyarrow", content).hash
    'ab'
    """

    def __init__(self, folder: Path, frames: str, replication: dict[str, Any]):
        self.folder, self.frames, self.replication = folder, frames, replication
        self.ranges = {k: f"range_{k}" for k in replication["seed_ranges"]}

    def __repr__(self) -> str:
        return f"<replication {self.hash} of profile {self.profile} in {self.folder}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of claims."""
        return html_table(self.claim_rows())

    @property
    def hash(self) -> str:
        """The hash of the replication."""
        return self.replication["hash"]

    @property
    def profile(self) -> str:
        """The profile of every range."""
        return self.replication["profile"]

    @property
    def claim_kinds(self) -> dict[str, Kind]:
        """The columns of `claims` and their types."""
        return {**STABILITY, **dict.fromkeys(self.ranges.values(), str)}

    def claim_rows(self) -> list[dict[str, Any]]:
        """The rows of `claims` as plain data."""
        return [
            {
                **{name: entry.get(name) for name in STABILITY},
                "pooled": entry["pooled"]["outcome"],
                "stability": stability_words(entry["verdicts"], entry["exact_check"]),
                **dict(zip(self.ranges.values(), entry["verdicts"], strict=True)),
            }
            for entry in self.replication["claims"]
        ]

    def part_rows(self) -> list[dict[str, Any]]:
        """The rows of `parts` as plain data."""
        return [row for entry in self.replication["claims"] for row in self._parts(entry)]

    def _parts(self, entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for seed_range, parts in zip(self.ranges, entry["ranges"], strict=True):
            for number, part in enumerate(parts, 1):
                added = {
                    "claim": entry["id"],
                    "part": number,
                    "seed_range": seed_range,
                    "replicates": part["count"],
                }
                yield {name: added[name] if name in added else part[name] for name in RANGE_PARTS}

    @cached_property
    def claims(self) -> Any:
        """One row per claim."""
        return frame(self.claim_rows(), self.frames, self.claim_kinds)

    @cached_property
    def parts(self) -> Any:
        """One row per claim, judged quantity and range of seeds."""
        return frame(self.part_rows(), self.frames, RANGE_PARTS)

    @cached_property
    def figures(self) -> dict[str, View]:
        """The drawing record of the replication."""
        entries = self.replication["claims"]
        places = [[weakest(parts) for parts in entry["ranges"]] for entry in entries]
        series = tuple(
            Series(f"seed range {k}", tuple(_points([row[i] for row in places])))
            for i, k in enumerate(self.ranges)
        )
        label = "half-widths inside the region (logarithmic beyond 1)"
        names = tuple(entry["id"] for entry in entries)
        figure = Figure("Verdicts on other seeds", "claim", label, series, False, False, names)
        return {"stability": figure}

    def bibtex(self) -> str:
        """BibTeX entries: the papers of the lenses, attnlens, and this replication."""
        return bibtex(self.replication)


def _points(positions: list[float | None]) -> Iterator[Point]:
    for place, at in enumerate(positions, 1):
        if at is not None:
            yield Point(float(place), on_axis(at))
