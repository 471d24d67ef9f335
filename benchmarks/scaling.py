"""Parallel efficiency of both engines, compared with the cost model.

    python -m benchmarks.scaling [--seconds 0.25] [--cells 96] [--repeats 5] [--workers 1 2 4]

Every cell computes matrix products on one thread for a fixed number of rounds, chosen so that a
cell takes about `--seconds` if nothing else runs. The clock starts at the first outcome: the start
of workers and the connection to Ray, which do not matter in a long run, are not measured. With n
cells, w workers, T(w) seconds for n − w cells and c seconds for one cell alone,

    efficiency = (n − w) c / (w T(w)),      the model says   T(w) = (n − w) c / w + c (1 − 1/w).

The column "beside" is the cost of scheduling after start-up: the processor time of everything
except the cells (the driver, Ray's own processes) as a share of the workers' time (w times the
seconds), measured after the first quarter of the cells. Cells report when they began and ended, on
a clock that all processes of a machine share; of the cells that run when the measurement begins,
only the remaining part counts.

Repeats alternate between engines and numbers of workers, so that other load of the machine affects
all; medians are printed with the smallest and the largest value. More workers than cores cannot be
efficient: their rows show the cost of sharing cores. The machine must be otherwise idle.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core.cells import Cell
from attnlens.runs.compute import runner_of
from attnlens.runs.provenance import cores

SIZE = 200
TICKS = os.sysconf("SC_CLK_TCK")  # clock ticks per second, the unit of process times


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The work of one cell: `rounds` matrix products. It also returns its begin, end and
    processor time."""
    matrix = np.random.default_rng(seeds[0]).normal(size=(SIZE, SIZE)) / SIZE**0.5
    began, spent, product = time.monotonic(), time.process_time(), matrix
    for _ in range(parameters["rounds"]):
        product = np.clip(product @ matrix, -1, 1)
    spent = time.process_time() - spent
    return {"x": product[0, :4], "spent": np.array([began, time.monotonic(), spent])}


def cells(count: int, rounds: int, cost: float) -> list[Cell]:
    name = "benchmarks.scaling:measure"
    parameters = {"rounds": rounds}
    return [Cell("S", "prediction", name, parameters, (seed,), "", cost) for seed in range(count)]


def rounds_for(seconds: float) -> int:
    """The number of matrix products that take `seconds` in a worker."""
    *_, last = runner_of("local", workers=1)(cells(3, 1000, 1.0))
    assert last.values is not None, last.failure
    return max(1, round(1000 * seconds / last.seconds))


def processor_seconds() -> float:
    """Processor time of this process and of all its descendants that still run."""
    spent, parents = dict[int, float](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            spent[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent.get(process, 0.0) for process in ours)


def timed(engine: Any, workers: int, work: list[Cell]) -> tuple[float, float, float]:
    """Seconds from the first to the last outcome, mean seconds per cell, and the overhead: the
    share "beside" of the module docstring."""
    seconds, computing = list[float](), 0.0
    began: float | None = None  # the time of the first outcome
    warmed = before = after = took = 0.0
    spans = list[np.ndarray]()
    warm = len(work) // 4
    for outcome in runner_of(engine, workers=workers)(work):
        assert outcome.values is not None, outcome.failure
        began = time.monotonic() if began is None else began
        seconds.append(outcome.seconds)
        spans.append(outcome.values["spent"])
        if len(seconds) == warm:
            warmed, before = time.monotonic(), processor_seconds()
        elif len(seconds) == len(work):
            took, after = time.monotonic() - began, processor_seconds()
    assert began is not None, "no cell ended"
    for first, last, spent in spans:
        computing += spent * max(0.0, last - max(first, warmed)) / (last - first)
    beside = (after - before - computing) / (workers * (began + took - warmed))
    return took, statistics.mean(seconds), beside


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--cells", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    options = parser.parse_args()
    rounds = rounds_for(options.seconds)
    work = cells(options.cells, rounds, options.seconds)
    settings = [(engine, w) for engine in options.engines for w in options.workers]
    repeats: dict[tuple[str, int], list[tuple[float, float, float]]] = {
        setting: [] for setting in settings
    }
    for _ in range(options.repeats):
        for setting in settings:
            repeats[setting].append(timed(*setting, work))
    alone = statistics.median(
        mean for _, mean, _ in repeats[options.engines[0], options.workers[0]]
    )
    print(f"{options.cells} cells of {alone:.3f} s each alone, {cores()} cores")
    print("engine  workers  seconds  model  efficiency (smallest to largest)   beside")
    for (engine, w), runs in repeats.items():
        left = options.cells - w
        model = left * alone / w + alone * (1 - 1 / w)
        shares = sorted(left * alone / (w * seconds) for seconds, _, _ in runs)
        middle, seconds = statistics.median(shares), statistics.median(s for s, _, _ in runs)
        beside = statistics.median(share for _, _, share in runs)
        spread = f"{middle:.1%} ({shares[0]:.1%} to {shares[-1]:.1%})"
        print(f"{engine:6}  {w:7}  {seconds:7.2f}  {model:5.2f}  {spread}  {beside:.1%}")


if __name__ == "__main__":
    main()
