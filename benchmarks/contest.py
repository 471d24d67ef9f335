"""A contest: the same work by attnlens and by its peers, by turns, each in a process of its own.

A *maker* is a function of a benchmark's module. It loads what it needs, draws its inputs, and
returns a `Run`: a function without arguments that does the work once and gives its answer, and
optionally one that compares this answer with the truth. `python -m benchmarks.contest ORDER` calls
a maker in this process and prints what it measured as one line of JSON:

    first     seconds of the first call, which compiles where there is something to compile
    seconds   of each of the calls that follow
    peak      megabytes by which the process and its children grew above what they had before
    accuracy  distances to the truth, by name
    scale     how many times larger the whole work is than what was run, if not all of it was

Processes are new ones because peak memory, thread counts and compiled programs belong to a process.
Rounds take turns between contenders, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PATIENCE = 900.0  # seconds that one process may take before it is stopped
HERE = "attnlens"  # the environment that attnlens itself runs in


class Run(NamedTuple):
    """What a maker returns."""

    call: Callable[[], Any]
    accuracy: Callable[[Any], Mapping[str, float]] | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Contender:
    """Who does the work: a maker ("module:function"), where it lives, and how many threads."""

    name: str
    make: str
    home: str = HERE  # or the extra of pyproject.toml that installs the peer
    threads: str = "all"  # or "one": a thread a process
    setting: Mapping[str, Any] = field(default_factory=dict)  # beside the work's


@dataclass(frozen=True)
class Work:
    """One line of the table: what is done, and by whom. The first contender is attnlens."""

    name: str
    group: str
    said: str
    contenders: Sequence[Contender]
    setting: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = None  # replaces settings in the quick form; None: left out
    repeats: int = 5  # after the first call; 0 where the first is the work itself, long by design
    rounds: int | None = None  # at most so many
    aims: Mapping[str, float] = field(default_factory=dict)  # ratio wanted, by contender
    operations: float = 0.0  # of the whole work, to be held against the machine's `limit`
    limit: str = ""
    why: str = ""  # why attnlens is behind, where it is


@dataclass(frozen=True)
class Growth:
    """How the cost of one kernel grows: the maker's `argument` takes each of the sizes."""

    name: str
    make: str
    sizes: Sequence[int]
    setting: Mapping[str, Any]
    time: float  # the exponent that theory gives for the largest sizes
    memory: float
    argument: str = "length"
    said: str = ""
    threads: str = "all"
    repeats: int = 3


@dataclass
class Entry:
    """What was measured of one contender."""

    name: str
    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    peak: float = 0.0
    accuracy: dict[str, float] = field(default_factory=dict)
    scale: float = 1.0
    error: str = ""

    @property
    def median(self) -> float:
        return self.scale * statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = quartiles(self.seconds)
        return self.scale * low, self.scale * high

    @property
    def compiling(self) -> float:
        """How much longer the first call took than the others."""
        return max(0.0, statistics.median(self.first) - statistics.median(self.seconds))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def compete(
    work: Work, python: Callable[[str], str], rounds: int, quick: bool = False
) -> Iterator[Entry]:
    """Rounds by turns; yields the entries when all are measured, in the order of the contenders.

    `python` gives the interpreter of an environment, or raises LookupError with the reason why
    there is none. A contender that fails once is not tried again, and its error is kept.
    """
    setting = {**work.setting, **(work.quick or {})} if quick else dict(work.setting)
    entries = [Entry(contender.name) for contender in work.contenders]
    for _ in range(min(rounds, work.rounds or rounds)):
        for contender, entry in zip(work.contenders, entries, strict=True):
            if entry.error:
                continue
            try:
                found = apart(
                    contender.make, {**setting, **contender.setting}, python(contender.home),
                    contender.threads, min(2, work.repeats) if quick else work.repeats,
                )  # fmt: skip
            except (LookupError, RuntimeError) as error:
                entry.error = str(error)
                continue
            entry.seconds += found["seconds"]
            entry.first.append(found["first"])
            entry.peak = max(entry.peak, found["peak"])
            entry.accuracy = found["accuracy"]
            entry.scale = found["scale"]
    yield from entries


def apart(
    make: str, setting: Mapping[str, Any], python: str, threads: str = "all", repeats: int = 5
) -> dict[str, Any]:
    """`measure` in a process of its own. RuntimeError: the last line that it said."""
    environment = {k: v for k, v in os.environ.items() if k not in ONE_THREAD}
    environment |= ONE_THREAD if threads == "one" else {}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    order = json.dumps([make, dict(setting), repeats])
    command = [python, "-W", "ignore", "-m", "benchmarks.contest", order]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {PATIENCE:.0f} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RuntimeError(said[-1][:300])
    return json.loads(done.stdout.splitlines()[-1])


def measure(make: str, setting: Mapping[str, Any], repeats: int) -> dict[str, Any]:
    module, _, function = make.partition(":")
    run: Run = getattr(importlib.import_module(module), function)(**setting)
    before = own_megabytes()
    start = time.perf_counter()
    answer = run.call()
    first = time.perf_counter() - start
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = run.call()
        seconds.append(time.perf_counter() - start)
    peak = own_megabytes() - before
    return {
        "first": first,
        "seconds": seconds or [first],
        "peak": peak,
        "accuracy": {k: float(v) for k, v in run.accuracy(answer).items()} if run.accuracy else {},
        "scale": run.scale,
    }


def own_megabytes() -> float:
    """The high-water mark of this process and of the children that it has now.

    Not `getrusage`'s, which a new process takes over from the one that started it.
    """
    family = ["self"]
    for path in Path("/proc/self/task").glob("*/children"):
        family += path.read_text().split()
    total = 0.0
    for member in family:
        try:
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
        except OSError:  # it ended meanwhile, or this is not Linux
            continue
        total += sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if "VmHWM" in line)
    return total


def relative_error(found: Any, exact: Any) -> float:
    """|found − exact|₂ / |exact|₂, in float64."""
    import numpy as np

    found, exact = (np.asarray(x, np.float64).ravel() for x in (found, exact))
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    result = measure(*json.loads(sys.argv[1]))
    print(json.dumps(result))
