"""Which cells a run needs, which of them are missing, and how long the missing ones take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlens.claims.claim import Claim, Profile
from attnlens.claims.grid import NO_SEEDS, check_seeds
from attnlens.claims.registry import find
from attnlens.core.cells import Cell
from attnlens.core.checks import BadInput

from .code_version import code_version, native_libraries
from .engines.base import program_key
from .provenance import numerical_path
from .store.schema import dump
from .store.store import Store

# Cells that one driver commits per second on an ordinary disk; `python -m benchmarks.store`
# measures more.
CELLS_PER_SECOND = 2000.0
# Seconds to compile the programs that cells with one program key need. The claims of lens A (Zhang
# et al., 2022) in the default profile, 126 keys, took 294 s on two cores with an empty compilation
# cache and 171 s with a full one: 2 × 123 s / 126.
SECONDS_TO_COMPILE = 2.0


class Plan(NamedTuple):
    """The cells of a run and estimates for those that are missing."""

    cells: list[Cell]
    missing: list[Cell]
    seconds: float  # of all missing cells, on one core
    longest: float  # seconds of the longest missing cell
    measured: int  # missing cells estimated from measured ones; the others' seconds are guesses

    @property
    def compiling(self) -> float:
        """Seconds of compilation on one core, the first time on a machine."""
        return SECONDS_TO_COMPILE * len({program_key(cell) for cell in self.missing})

    def spread(self, workers: int) -> tuple[float, float]:
        """Lower and upper bound of the seconds on `workers`.

        No schedule is faster than total / workers, than the longest cell, or than the rate at which
        one driver commits results. List scheduling (each cell goes to the first free worker) takes
        at most total / workers + longest × (1 − 1 / workers) (Graham, Bounds on multiprocessing
        timing anomalies, 1969).
        """
        even, committing = self.seconds / workers, len(self.missing) / CELLS_PER_SECOND
        most = even + self.longest * (1 - 1 / workers)
        return max(even, self.longest, committing), max(most, committing)


def cells_of(claim: Claim, profile: Profile) -> list[Cell]:
    """The cells that `profile` needs, in the order in which they are computed.

    Nothing is compiled here: a native library that is not compiled yet counts as native. `verify`
    compiles before it asks for cells, so a library whose compilation failed does not count.
    """
    module = claim.measure.__module__
    name, code = f"{module}:{claim.measure.__name__}", code_version(module)
    path = numerical_path(native_libraries(module)).key
    works = list(claim.plan(profile))
    check_seeds(claim.id, works, getattr(claim.plan, "pilot", NO_SEEDS))
    return [
        Cell(claim.id, work.arm, name, dict(work.parameters), work.seeds, code, work.cost, path)
        for work in works
    ]


def plan(
    profile: Profile,
    claims: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of `verify`: its cells, the missing ones, and an estimate of their seconds.

    The estimate for a cell is the mean of measured cells with the same parameters where `out` has
    any, else the rough figure that the claim declares.
    """
    selected = runnable(selection(claims, settings))[0]
    cells = [cell for claim in selected for cell in cells_of(claim, profile)]
    finished, measured = set(), {}
    if out is not None and (Path(out) / "results.sqlite").is_file():
        with Store.reading(Path(out)) as store:
            finished, measured = store.keys(), store.mean_seconds()
    missing = [cell for cell in cells if cell.key not in finished]
    known = [measured.get((c.claim, c.arm, dump(c.parameters))) for c in missing]
    seconds = [c.cost if k is None else k for c, k in zip(missing, known, strict=True)]
    count = len(known) - known.count(None)
    return Plan(cells, missing, sum(seconds), max(seconds, default=0.0), count)


def selection(
    names: Sequence[str] | None, settings: Mapping[str, Any] | None = None
) -> list[Claim]:
    """The claims with these names; with `settings`, the variation of the one that is named."""
    claims = find(names)
    if not settings:
        return claims
    if len(claims) != 1:
        raise BadInput(
            f"settings belong to one claim; got {len(claims)} claims; name the one to vary."
        )
    return [claims[0].at(settings)]


def runnable(claims: Sequence[Claim]) -> tuple[list[Claim], list[str]]:
    """The claims whose packages are installed, and a sentence for each of the others."""
    skipped = [sentence for claim in claims if (sentence := claim.needs)]
    if len(skipped) == len(claims):
        raise BadInput(skipped[0])
    return [claim for claim in claims if not claim.needs], skipped
