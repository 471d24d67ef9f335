"""A contest: attnlens and its peers do the same work in turns, each in a separate process.

A *maker* is a function in a module of `benchmarks`. It imports what it needs, draws its inputs, and
returns a `Run`: a function without arguments that does the work once and returns its answer, and
optionally a function that compares this answer with the truth. `python -m benchmarks.contest ORDER`
calls a maker in its own process and prints the measurements as one line of JSON:

    first     seconds of the first call, which includes compilation
    seconds   seconds of each of the following calls
    peak      megabytes by which the process and its children grew during the calls
    accuracy  errors of the answer, by name
    scale     factor from the part of the work that was run to the whole work

Each measurement uses a new process, because peak memory, thread counts and compiled programs belong
to a process. Rounds alternate between contenders, so that other load of the machine affects all.
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
PATIENCE = 900.0  # seconds after which a process is stopped
HERE = "attnlens"  # the environment that attnlens itself runs in


class Run(NamedTuple):
    """Result of a maker: the work, how its answer is judged, and the factor to the whole work."""

    call: Callable[[], Any]
    accuracy: Callable[[Any], Mapping[str, float]] | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Contender:
    """A library or setting that does the work: maker ("module:function"), environment, threads."""

    name: str
    make: str
    home: str = HERE  # environment: `HERE`, or an extra of pyproject.toml that installs the peer
    threads: str = "all"  # "all", or "one" for one thread per process
    setting: Mapping[str, Any] = field(default_factory=dict)  # added to the work's setting


@dataclass(frozen=True)
class Work:
    """One row of the table: the work and its contenders. The first contender is attnlens."""

    name: str
    group: str
    task: str
    contenders: Sequence[Contender]
    setting: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = None  # changed settings with --quick; None: left out
    repeats: int = 5  # calls after the first one; 0 if one call takes long enough
    rounds: int | None = None  # largest number of rounds
    aims: Mapping[str, float] = field(default_factory=dict)  # ratio to reach: contender → value
    operations: float = 0.0  # number in the whole work, to compare with the machine's `limit`
    limit: str = ""
    why: str = ""  # if attnlens is slower: why


@dataclass(frozen=True)
class Growth:
    """How the cost of one computation grows: the maker's `argument` takes each of the sizes."""

    name: str
    make: str
    sizes: Sequence[int]
    setting: Mapping[str, Any]
    time: float  # exponent of the size that theory gives for large sizes
    memory: float
    argument: str = "length"
    task: str = ""
    threads: str = "all"
    repeats: int = 3


@dataclass
class Entry:
    """The measurements of one contender."""

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
    """Run alternating rounds; yield the entries after the last one, in the contenders' order.

    `python` returns the interpreter of an environment, or raises LookupError with the reason if
    there is none. A contender that fails is not run again, and its error is recorded.
    """
    setting = {**work.setting, **(work.quick or {})} if quick else dict(work.setting)
    entries = [Entry(contender.name) for contender in work.contenders]
    for _ in range(min(rounds, work.rounds or rounds)):
        for contender, entry in zip(work.contenders, entries, strict=True):
            if entry.error:
                continue
            try:
                measured = apart(
                    contender.make,
                    {**setting, **contender.setting},
                    python(contender.home),
                    contender.threads,
                    min(2, work.repeats) if quick else work.repeats,
                )
            except (LookupError, RuntimeError) as error:
                entry.error = str(error)
                continue
            entry.seconds += measured["seconds"]
            entry.first.append(measured["first"])
            entry.peak = max(entry.peak, measured["peak"])
            entry.accuracy = measured["accuracy"]
            entry.scale = measured["scale"]
    yield from entries


def apart(
    make: str, setting: Mapping[str, Any], python: str, threads: str = "all", repeats: int = 5
) -> dict[str, Any]:
    """`measure` in a separate process; if it fails, RuntimeError with its last line of stderr."""
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
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RuntimeError(lines[-1][:300])
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
    """The peak memory of this process and of its present children.

    `getrusage` is not used: a new process inherits the peak of the process that started it.
    """
    family = ["self"]
    for path in Path("/proc/self/task").glob("*/children"):
        family += path.read_text().split()
    total = 0.0
    for member in family:
        try:
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
        except OSError:  # it has ended, or this is not Linux
            continue
        total += sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if "VmHWM" in line)
    return total


def relative_error(value: Any, exact: Any) -> float:
    """|value − exact|₂ / |exact|₂, in float64."""
    import numpy as np

    value, exact = (np.asarray(x, np.float64).ravel() for x in (value, exact))
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    result = measure(*json.loads(sys.argv[1]))
    print(json.dumps(result))
