"""How fast one driver stores cells, and how much memory grows in long runs.

    python -m benchmarks.store [--cells 100000]

keep    cells per second that the store commits, one at a time and fifty at a time
run     many tiny cells with the local engine: cells per second, and the largest growth of memory,
        of the driver and of each worker, after the first quarter of the cells (aim: at most 5 %)
page    seconds to write the page of that run again
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from attnlens.core.cells import Cell
from attnlens.runs.store.store import Store

TESTS = Path(__file__).parent.parent / "tests" / "support"  # has the claim `toy_claims:TINY`
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}


def keep(together: int, count: int) -> float:
    """Cells per second that a new store commits, with `together` cells in each commit."""
    cells = [Cell("T", "prediction", "m:f", {"a": 1}, (seed,), "") for seed in range(count)]
    assert all(cell.key for cell in cells)  # computes the keys, as planning does in a run
    values = {"x": np.zeros(4)}
    with tempfile.TemporaryDirectory() as folder, Store.writing(Path(folder)) as store:
        store.start_run({}, {})
        began = time.perf_counter()
        for first in range(0, count, together):
            with store.one_commit():
                for cell in cells[first : first + together]:
                    store.keep(cell, values, 0.001)
        return count / (time.perf_counter() - began)


def own_memory(process: int) -> int:
    pages = Path(f"/proc/{process}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def kept(out: Path) -> int:
    try:
        address = f"file:{out / 'results.sqlite'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return connection.execute("SELECT COUNT(*) FROM cells").fetchone()[0]
    except sqlite3.Error:
        return 0


def run(out: Path, cells: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "attnlens", "verify", "--claim", "toy_claims:TINY", "--out", out],
        env={**ENVIRONMENT, "TOY_CELLS": str(cells)},
        stdout=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    sizes: dict[int, list[int]] = {}
    moments: list[tuple[float, int]] = []
    while process.poll() is None:
        count = kept(out)
        if 0 < count < cells:
            moments.append((time.perf_counter(), count))
        if cells / 4 <= count < 0.98 * cells:
            for member in (process.pid, *map(int, children.read_text().split())):
                sizes.setdefault(member, []).append(own_memory(member))
        time.sleep(0.5)
    assert process.returncode == 0
    (start, first), (end, last) = moments[0], moments[-1]
    print(f"run    {cells} cells: {(last - first) / (end - start):.0f} cells/s")
    for member, measured in sizes.items():
        who = "driver" if member == process.pid else "worker"
        growth = max(measured) / measured[0] - 1
        print(f"       {who}: {measured[0] / 1e6:.1f} MB of its own, growth {growth:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=100_000)
    cells = parser.parse_args().cells
    for together in (1, 50):
        rates = sorted(keep(together, 20_000) for _ in range(5))
        print(
            f"keep   {together} a commit: {rates[2]:.0f} cells/s ({rates[0]:.0f}–{rates[-1]:.0f})"
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run(out, cells)
        began = time.perf_counter()
        report = [sys.executable, "-m", "attnlens", "report", str(out)]
        subprocess.run(report, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
        seconds, size = time.perf_counter() - began, (out / "report.html").stat().st_size
        print(f"page   {seconds:.1f} s, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
