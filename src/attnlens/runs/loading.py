"""A finished run as tidy frames: `attnlens.load`.

Everything is read from the results folder. The code of the claims is not needed, and nothing is
computed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core.checks import BadInput, one_of
from attnlens.core.drawing import View
from attnlens.core.frames import (
    Frames,
    Kind,
    column_kinds,
    frame,
    frame_library,
    frame_of_columns,
    html_table,
)
from attnlens.core.serialise import ledger_entries, view_from_plain

from .citations import bibtex
from .ledger import SCHEMA
from .loaded_replication import LoadedReplication
from .pages import explained_documents, finished
from .store.schema import dump
from .store.store import FinishedCell, Store

PREDICTION = "prediction"  # the arm of the claim itself; all others are controls
CLAIMS: dict[str, Kind] = {
    "id": str,
    "lens": str,
    "exact_check": bool,
    "verdict": str,
    "quantity": str,
    "estimate": float,
    "low": float,
    "high": float,
    "region": str,
    "exact": bool,
    "holm": bool,
    "control": str,
    "power": float,
    "reason": str,
    "cells_without_result": int,
    "seconds": float,
}
PARTS: dict[str, Kind] = {
    "claim": str,
    "arm": str,
    "part": int,
    "quantity": str,
    "estimate": float,
    "low": float,
    "high": float,
    "region": str,
    "region_low": float,
    "region_high": float,
    "replicates": int,
    "exact": bool,
    "outcome": str,
    "expected": str,
}
CELLS: dict[str, Kind] = {
    "claim": str,
    "arm": str,
    "parameters": str,
    "seeds": str,
    "seed_count": int,
    "seconds": float,
    "judged": bool,
    "key": str,
}
REPLICATES: dict[str, Kind] = {
    "claim": str,
    "arm": str,
    "parameters": str,
    "seed": int,
    "array": str,
    "value": float,
    "key": str,
}
LEFT_OUT: dict[str, Kind] = {"claim": str, "arm": str, "array": str, "shape": str, "cells": int}


def load(folder: str | os.PathLike[str], frames: Frames | None = None) -> Any:
    """A finished run, from the folder that `attnlens.verify` wrote, as tidy frames.

    Returns a `LoadedRun`; for a folder that only `attnlens.replicate` wrote, a
    `LoadedReplication` with the verdicts per range of seeds.

    `frames` is the library of the frames: "pandas", "polars" or "pyarrow"; by default the first of
    pandas, pyarrow and polars that is installed.

    >>> import tempfile, attnlens
    >>> folder = tempfile.mkdtemp()
    >>> ledger = attnlens.verify("smoke", ["A.weights-are-posterior"], folder, workers=1)
    >>> run = load(folder, frames="pyarrow")
    >>> run.claims["id"].to_pylist(), run.claims["verdict"].to_pylist()
    (['A.weights-are-posterior'], ['supported'])
    >>> run.hash == ledger["hash"]
    True
    """
    folder = Path(folder)
    library = frame_library(frames)
    with Store.reading(folder) as store, explained_documents(folder):
        replication = store.document("replication")
        if replication is not None and store.document("ledger") is None:
            return LoadedReplication(folder, library, replication)
        ledger, page = finished(store)
        if ledger["schema"] > SCHEMA:
            raise BadInput(
                f"the ledger in {folder} was written by a newer attnlens (schema "
                f"{ledger['schema']}; this one reads up to {SCHEMA}): upgrade attnlens."
            )
        keys = store.document("cells")
        cells = store.finished_cells()
        judged = _judged(ledger, cells) if keys is None else {str(key) for key in keys}
        run = LoadedRun(folder, library, ledger, page, cells, judged)
        run.check()
    return run


def _judged(ledger: Mapping[str, Any], cells: list[FinishedCell]) -> set[str]:
    """The keys of the cells that the run judged: those with its code and numerical path or, if the
    run recorded neither, all cells of the claims in its ledger."""
    record = ledger.get("record")
    claims = {entry["id"] for entry in ledger_entries(ledger)}
    if record is None:
        return {cell.key for cell in cells if cell.claim in claims}
    versions = {name: (set(v["code"]), v["path"]) for name, v in record["claims"].items()}
    return {
        cell.key
        for cell in cells
        if cell.claim in claims
        and cell.code in versions[cell.claim][0]
        and cell.path == versions[cell.claim][1]
    }


class LoadedRun:
    """A finished run; `attnlens.load` returns one.

    claims      one row per claim or exact check, as in the ledger: `estimate`, `low`, `high` and
                `region` are those of the deciding part
    parts       one row per claim, arm and judged quantity; `outcome` is the verdict of the arm, and
                `expected` what a control must come out as; an open end of the region is missing in
                `region_low` or `region_high`
    cells       one row per finished cell of the folder; `judged` says whether this run judged it
                (a folder may also hold cells of other profiles or of older code)
    replicates  one row per judged cell, seed and array. Arrays are left out that do not have one
                number per seed: `left_out` lists them, and `attnlens store export` writes all of
                them. An array that has one number per seed by chance is not recognised.
    figures     drawing records by name: the figure of a claim has its id, its further views the id
                with "-view-1", "-view-2", …; each has a method `plot()`
    hash        the hash of the run; None for runs of versions that did not record it
    profile     the profile of the run
    ledger      the ledger as plain data

    Parameters are JSON with sorted keys; `replicates_of(claim)` has one column per parameter.
    Replicates are read from the folder when they are first used.

    >>> LoadedRun(Path("run"), "pyarrow", {"hash": "ab", "profile": "smoke"}, {}, [], set()).profile
    'smoke'
    """

    def __init__(
        self,
        folder: Path,
        frames: str,
        ledger: dict[str, Any],
        page: dict[str, Any],
        cells: list[FinishedCell],
        judged: set[str],
    ):
        self.folder, self.frames, self.ledger = folder, frames, ledger
        self._page, self._cells, self._judged = page, cells, judged

    def __repr__(self) -> str:
        return f"<run {self.hash} of profile {self.profile} in {self.folder}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of claims."""
        return html_table(self.claim_rows())

    def check(self) -> None:
        """Read everything but the arrays, so that an invalid document raises an error now."""
        for part in (self.claims, self.parts, self.cells, self.figures, self.bibtex()):
            del part

    @property
    def hash(self) -> str | None:
        """The hash of the run."""
        return self.ledger["hash"]

    @property
    def profile(self) -> str:
        """The profile of the run."""
        return self.ledger["profile"]

    def claim_rows(self) -> list[dict[str, Any]]:
        """The rows of `claims` as plain data."""
        checks = {entry["id"] for entry in self.ledger["exact_checks"]}
        return [_claim_row(entry, checks) for entry in ledger_entries(self.ledger)]

    def part_rows(self) -> list[dict[str, Any]]:
        """The rows of `parts` as plain data."""
        return [row for section in self._page["claims"] for row in _part_rows(section)]

    @cached_property
    def claims(self) -> Any:
        """One row per claim or exact check."""
        return frame(self.claim_rows(), self.frames, CLAIMS)

    @cached_property
    def parts(self) -> Any:
        """One row per claim, arm and judged quantity."""
        return frame(self.part_rows(), self.frames, PARTS)

    @cached_property
    def cells(self) -> Any:
        """One row per finished cell of the folder."""
        rows = [
            {
                "claim": cell.claim,
                "arm": cell.arm,
                "parameters": dump(cell.parameters),
                "seeds": dump(cell.seeds),
                "seed_count": len(cell.seeds),
                "seconds": cell.seconds,
                "judged": cell.key in self._judged,
                "key": cell.key,
            }
            for cell in self._cells
        ]
        return frame(rows, self.frames, CELLS)

    @cached_property
    def replicates(self) -> Any:
        """One row per judged cell, seed and array with one number per seed."""
        columns: dict[str, list[Any]] = {name: [] for name in REPLICATES}
        for cell, name, values in self._arrays():
            if _is_per_seed(values, cell):
                _extend(columns, cell, name, values)
        return frame_of_columns(columns, REPLICATES, self.frames)

    def replicates_of(self, claim: str) -> Any:
        """The replicates of one claim, with one column per parameter of its cells.

        The column of a parameter has its name; where `replicates` already has a column of that
        name, "parameter_" is put before it. A parameter that is neither a number nor text is
        written as JSON.
        """
        one_of("claim", claim, [entry["id"] for entry in ledger_entries(self.ledger)])
        own = [name for name in REPLICATES if name != "parameters"]
        columns: dict[str, list[Any]] = {name: [] for name in REPLICATES}
        settings: list[dict[str, Any]] = []
        for cell, name, values in self._arrays(claim):
            if _is_per_seed(values, cell):
                _extend(columns, cell, name, values)
                settings += [_parameters(cell)] * len(cell.seeds)
        kinds = column_kinds(settings)
        data = {name: columns[name] for name in own}
        data |= {name: [row.get(name) for row in settings] for name in kinds}
        return frame_of_columns(
            data, {**{name: REPLICATES[name] for name in own}, **kinds}, self.frames
        )

    @cached_property
    def left_out(self) -> Any:
        """The arrays that `replicates` leaves out: one row per claim, arm, array and shape."""
        counts = Counter(
            (cell.claim, cell.arm, name, dump(values.shape))
            for cell, name, values in self._arrays()
            if not _is_per_seed(values, cell)
        )
        rows = [
            dict(zip(LEFT_OUT, (*place, count), strict=True)) for place, count in counts.items()
        ]
        return frame(rows, self.frames, LEFT_OUT)

    @cached_property
    def figures(self) -> dict[str, View]:
        """The drawing records of all claims, by name."""
        records: dict[str, View] = {}
        for section in self._page["claims"]:
            name = str(section["id"])
            if section["figure"] is not None:
                records[name] = view_from_plain(section["figure"])
            for number, view in enumerate(section.get("views", ()), 1):
                records[f"{name}-view-{number}"] = view_from_plain(view)
        return records

    def bibtex(self) -> str:
        """BibTeX entries: the papers of the lenses that were run, attnlens, and this run."""
        return bibtex(self.ledger)

    def _arrays(self, claim: str | None = None) -> Iterator[tuple[FinishedCell, str, np.ndarray]]:
        """Every array of the judged cells."""
        with Store.reading(self.folder) as store:
            for cell in self._cells:
                if cell.key not in self._judged or claim not in (None, cell.claim):
                    continue
                result = store.result(cell.key)
                if result is None:
                    raise BadInput(
                        f"cell {cell.key[:12]} is no longer in {self.folder}; load the run again."
                    )
                for name, values in result.values.items():
                    yield cell, name, values


def _claim_row(entry: Mapping[str, Any], checks: set[str]) -> dict[str, Any]:
    low, high = entry["interval"] or (None, None)
    power = entry["power"]["power"] if entry.get("power") else None
    added = {"exact_check": entry["id"] in checks, "low": low, "high": high, "power": power}
    return {name: added[name] if name in added else entry[name] for name in CLAIMS}


def _part_rows(section: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a claim, then those of its controls."""
    arms = [(PREDICTION, None, section["verdict"])]
    # Folders of older versions have negative controls only.
    arms += [(c["arm"], c.get("expected", "refuted"), c) for c in section["controls"]]
    for arm, expected, verdict in arms:
        for number, part in enumerate(verdict["parts"], 1):
            region_low, region_high = part.get("edges", (None, None))
            added = {
                "claim": section["id"],
                "arm": arm,
                "part": number,
                "region_low": region_low,
                "region_high": region_high,
                "replicates": part["count"],
                "outcome": verdict["outcome"],
                "expected": expected,
            }
            yield {name: added[name] if name in added else part[name] for name in PARTS}


def _is_per_seed(values: np.ndarray, cell: FinishedCell) -> bool:
    """Whether the first axis of an array is that of the seeds, and the others have size 1."""
    return values.ndim > 0 and values.size == len(values) == len(cell.seeds)


def _extend(columns: dict[str, list[Any]], cell: FinishedCell, name: str, values: Any) -> None:
    """Append one row per seed."""
    count = len(cell.seeds)
    row = {"claim": cell.claim, "arm": cell.arm, "parameters": dump(cell.parameters)}
    for column, value in {**row, "array": name, "key": cell.key}.items():
        columns[column] += [value] * count
    columns["seed"] += cell.seeds
    columns["value"] += values.ravel().astype(float).tolist()


def _parameters(cell: FinishedCell) -> dict[str, Any]:
    return {
        f"parameter_{name}" if name in REPLICATES else name: value
        if value is None or isinstance(value, str | int | float)
        else dump(value)
        for name, value in cell.parameters.items()
    }
