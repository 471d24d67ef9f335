"""Results of a benchmark run: plain records for JSON, and quantities derived from them.

ratio    a peer's median over ours; above 1 attnlens is faster. Its range is from the peer's
         lower quartile over our upper one to its upper quartile over our lower one
slope    slope of log cost over log size by least squares, with its standard error
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contest import Entry, Growth, Work

SCHEMA = 1


class Ratio(NamedTuple):
    """How many times as long as attnlens a peer takes: value, range, and the value to reach."""

    value: float
    low: float
    high: float
    aim: float | None


class Slope(NamedTuple):
    value: float
    error: float


def machine() -> dict[str, Any]:
    """Processor, memory, system and package versions, without the name of this machine."""
    from attnlens.runs import provenance

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    names = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "equinox", "optax")
    return {
        **provenance.machine(),
        "memory": f"{memory:.0f} GiB",
        "system": platform.system(),
        "packages": {name: metadata.version(name) for name in names},
    }


def empty(quick: bool, rounds: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "quick": quick,
        "rounds": rounds,
        "machine": machine(),
        "limits": {},
        "works": [],
        "growth": [],
        "not installed": {},
        "not measured": {},
    }


def earlier(path: Path, like: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results of an earlier run on the same machine with the same settings, if any."""
    try:
        previous = json.loads(path.read_text())
        same = all(
            previous[name] == like[name] for name in ("schema", "quick", "rounds", "machine")
        )
        return {**like, **previous} if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record(work: Work, entries: Iterable[Entry], load: float) -> dict[str, Any]:
    names = ("name", "group", "task", "operations", "limit", "why")
    facts = {name: getattr(work, name) for name in names}
    return {**facts, "aims": dict(work.aims), "load": load, "entries": [*map(asdict, entries)]}


def entries_of(work: Mapping[str, Any]) -> list[Entry]:
    return [Entry(**entry) for entry in work["entries"]]


def base(name: str) -> str:
    """The name of a contender without its setting, so "SciPy" for "SciPy (one thread)"."""
    return name.partition(" (")[0]


def best(entries: Sequence[Entry], peer: str) -> Entry | None:
    """The entry of the fastest setting of a peer; None if no setting ran."""
    ran = [entry for entry in entries if base(entry.name) == peer and entry.seconds]
    return min(ran, key=lambda entry: entry.median, default=None)


def ours(entries: Sequence[Entry]) -> Entry | None:
    return best(entries, base(entries[0].name))


def ratio(work: Mapping[str, Any], entry: Entry) -> Ratio | None:
    own = ours(entries_of(work))
    if own is None or not entry.seconds or base(entry.name) == base(own.name):
        return None
    (low, high), (own_low, own_high) = entry.quartiles, own.quartiles
    aims = work["aims"]
    aim = aims.get(entry.name, aims.get(base(entry.name)))
    return Ratio(entry.median / own.median, low / own_high, high / own_low, aim)


def share(work: Mapping[str, Any], limits: Mapping[str, float]) -> float | None:
    """The share of the machine's limit that the fastest setting of attnlens reaches."""
    own = ours(entries_of(work))
    if own is None or not work["operations"] or work["limit"] not in limits:
        return None
    return work["operations"] / own.median / limits[work["limit"]]


def slope(sizes: Sequence[float], costs: Sequence[float]) -> Slope:
    """The slope of log cost over log size.

    >>> slope([1, 2, 4, 8], [3, 12, 48, 192]).value.__round__(12)
    2.0
    """
    x, y = np.log(np.asarray(sizes, float)), np.log(np.maximum(np.asarray(costs, float), 1e-12))
    x = x - x.mean()
    value = float(x @ y / (x @ x))
    residuals = y - y.mean() - value * x
    return Slope(value, float(np.sqrt(residuals @ residuals / max(len(x) - 2, 1) / (x @ x))))


def grown(
    growth: Growth, sizes: Sequence[int], measurements: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A record of the costs of one computation at all sizes, with slopes of time and memory."""
    seconds = [statistics.median(measured["seconds"]) for measured in measurements]
    # Growth can be negative: small sizes fit into memory that the process already has.
    megabytes = [max(measured["peak"], 0.0) for measured in measurements]
    record = {
        "name": growth.name,
        "task": growth.task,
        "argument": growth.argument,
        "sizes": [*sizes],
        "seconds": seconds,
        "peak": megabytes,
        "theory": {"time": growth.time, "memory": growth.memory},
    }
    record["time"] = slope(sizes, seconds)
    counted = [(size, mega) for size, mega in zip(sizes, megabytes, strict=True) if mega >= LEAST]
    if len(counted) >= 3:
        record["memory"] = slope(*zip(*counted, strict=True))
    return record


LEAST = 2.0  # megabytes; smaller growth may come from the allocator alone


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write the file in one step, so that an interrupted write leaves the previous version."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)
