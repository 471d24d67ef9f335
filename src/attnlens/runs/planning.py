"""Which cells a run needs, which of them are missing, and how long the missing ones take."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.claims.cells import Work
from attnlens.claims.claim import Claim, Profile
from attnlens.claims.grid import NO_SEEDS, check_seeds
from attnlens.claims.registry import find
from attnlens.core.cells import Cell
from attnlens.core.checks import SEEDS, BadInput, is_text, whole
from attnlens.core.user_code import user_code

from .code_version import code_version, native_libraries
from .engines.base import program_key
from .provenance import numerical_path
from .store.schema import dump
from .store.store import Store

# Cells that one driver commits per second on an ordinary disk; a cautious value: `python -m
# benchmarks.store` measures more.
CELLS_PER_SECOND = 2000.0
# Seconds to compile the programs that cells with one program key need. The claims of lens A (Zhang
# et al., 2022) in the default profile, 126 keys, took 294 s on two cores with an empty compilation
# cache and 171 s with a full one: 2 × 123 s / 126.
SECONDS_TO_COMPILE = 2.0
# The width of a seed range: more seeds than any claim uses in any profile, including its pilot.
SEEDS_PER_RANGE = 2**17


class Plan(NamedTuple):
    """The cells of a run and estimates for those that are missing."""

    cells: list[Cell]
    missing: list[Cell]
    seconds: float  # sum over all missing cells, on one core
    longest: float  # seconds of the longest missing cell
    measured: int  # missing cells whose seconds were measured before; the rest are guesses

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


def cells_of(claim: Claim, profile: Profile, seed_range: int = 0) -> list[Cell]:
    """The cells that `profile` needs, in the order in which they are computed.

    Seed range 0 has the seeds of the plan; range k adds k × SEEDS_PER_RANGE to each of them, so
    that no two ranges share a seed, and no range has a seed of the pilot.

    Nothing is compiled here: a native library that is not compiled yet counts as native. `verify`
    compiles before it asks for cells, so a library whose compilation failed does not count.
    """
    module = claim.measure.__module__
    name, code = f"{module}:{claim.measure.__name__}", code_version(module)
    path = numerical_path(native_libraries(module)).key
    with user_code(f"the plan of {claim.id}"):
        works = [_plain_work(claim, work) for work in claim.plan(profile)]
    check_seeds(claim.id, works, getattr(claim.plan, "pilot", NO_SEEDS))
    if unknown := sorted({work.arm for work in works} - set(claim.arms)):
        raise BadInput(
            f"every arm in the plan of {claim.id} must be one of {', '.join(claim.arms)}; got "
            f"{unknown[0]!r}; name it in `controls`."
        )
    shifted = [_shifted(claim, work.seeds, seed_range) for work in works]
    return [
        Cell(claim.id, work.arm, name, dict(work.parameters), seeds, code, work.cost, path)
        for work, seeds in zip(works, shifted, strict=True)
    ]


def _shifted(claim: Claim, seeds: tuple[int, ...], seed_range: int) -> tuple[int, ...]:
    """The seeds of a cell in a seed range."""
    if seed_range == 0:
        return seeds
    if any(seed >= SEEDS_PER_RANGE for seed in seeds):
        raise BadInput(
            f"seed ranges of {claim.id} overlap: each seed of its plan must be below "
            f"{SEEDS_PER_RANGE}, the width of a range; got {max(seeds)}."
        )
    return tuple(seed + seed_range * SEEDS_PER_RANGE for seed in seeds)


def check_seed_range(name: str, seed_range: int) -> int:
    """Return `seed_range` if all its seeds are below 2^32, else raise `BadInput`."""
    whole(name, seed_range)
    if seed_range >= SEEDS // SEEDS_PER_RANGE:
        raise BadInput(f"{name} must be below {SEEDS // SEEDS_PER_RANGE}; got {seed_range}.")
    return seed_range


def _plain_work(claim: Claim, work: Any) -> Work:
    """A `Work` as plain data: NumPy numbers become Python numbers; else raises `BadInput`."""
    if not isinstance(work, Work):
        raise BadInput(
            f"the plan of {claim.id} must give a Work(arm, parameters, seeds) per cell; got a "
            f"{type(work).__name__}."
        )
    if work.arm not in claim.arms:
        raise BadInput(
            f"each cell of {claim.id} must belong to one of its arms, {', '.join(claim.arms)}; got "
            f"{work.arm!r}."
        )
    seeds = tuple(whole(f"each seed of {claim.id}", seed) for seed in work.seeds)
    if any(seed >= SEEDS for seed in seeds):
        raise BadInput(f"each seed of {claim.id} must be below 2^32; got {max(seeds)}.")
    cost = float(work.cost)
    if not (math.isfinite(cost) and cost >= 0):
        raise BadInput(f"the cost of a cell of {claim.id} must be seconds; got {work.cost!r}.")
    return Work(work.arm, _plain(claim.id, dict(work.parameters)), seeds, cost)


def _plain(claim: str, value: Any) -> Any:
    """A parameter as JSON stores it; raises `BadInput` if JSON cannot."""
    if isinstance(value, Mapping):
        return {_plain_name(claim, name): _plain(claim, item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if type(value) in (list, tuple):
        return type(value)(_plain(claim, item) for item in value)
    if isinstance(value, str):
        return _plain_name(claim, value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise BadInput(
        f"each parameter of a cell of {claim} must be a finite number, a string, a boolean, None, "
        f"or a list or mapping of these; got {value!r:.80}."
    )


def _plain_name(claim: str, name: Any) -> str:
    """Return `name`; raises `BadInput` if it is not valid text (a lone surrogate, for example)."""
    if not isinstance(name, str) or not is_text(name):
        raise BadInput(
            f"each name and string among the parameters of {claim} must be text; got {name!r:.80}."
        )
    return name


def plan(
    profile: Profile,
    claims: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed_ranges: Sequence[int] = (0,),
) -> Plan:
    """The plan of `verify`: its cells, the missing ones, and an estimate of their seconds.

    The estimate for a cell is the mean of measured cells with the same parameters where `out` has
    any, else the rough figure that the claim declares.
    """
    for seed_range in seed_ranges:
        check_seed_range("seed_range", seed_range)
    selected = runnable(selection(claims, settings))[0]
    cells = [
        cell for k in seed_ranges for claim in selected for cell in cells_of(claim, profile, k)
    ]
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
    """The claims with these names; with `settings`, one claim with those settings replaced."""
    claims = find(names)
    if not settings:
        return claims
    if len(claims) != 1:
        raise BadInput(
            f"settings belong to one claim; got {len(claims)} claims; name the one to vary."
        )
    return [claims[0].at(settings)]


def runnable(claims: Sequence[Claim]) -> tuple[list[Claim], list[str]]:
    """Claims whose packages are installed, and sentences on claims and data that are left out."""
    skipped = [sentence for claim in claims if (sentence := claim.needs)]
    if len(skipped) == len(claims):
        raise BadInput(skipped[0])
    chosen = [claim for claim in claims if not claim.needs]
    return chosen, [*skipped, *(sentence for claim in chosen for sentence in claim.left_out())]
