"""Kill a run at random moments and start it again, until it finishes; repeat for KILLS kills.

    python killing.py FOLDER SEED KILLS [ADDRESS PROCESS]

This process has no threads, so each run can be a fork of it and starts at once. About half of the
kills hit the driver, and half hit one of its workers. On the Ray cluster at ADDRESS, which the
process PROCESS started, they hit a process of Ray that computes cells, or its worker. After each
kill of a driver, no committed cell may be missing. After a run has finished, one more run without
kills must end with the ledger of a run that was never killed. The last line of the output is the
number of kills and the number of kills of workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from attnlens.report.page import render_documents  # noqa: F401 (loaded before the forks)
from attnlens.runs.store.store import Store
from attnlens.runs.verify import verify


def run(out: Path, options: dict[str, Any]) -> None:
    """Run `verify` on the toy claim TINY."""
    verify("smoke", ["toy_claims:TINY"], out, workers=2, **options)


def ledger(out: Path) -> dict[str, Any]:
    """A ledger without the fields that differ from run to run."""
    content = json.loads((out / "ledger.json").read_text())
    for entry in (content, *content["claims"], *content["exact_checks"]):
        for name in ("seconds", "machine", "packages"):
            entry.pop(name, None)
    return content


def start(out: Path, options: dict[str, Any]) -> int:
    """Start a run in a fork of this process; return its process id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    try:
        run(out, options)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def finish(out: Path, options: dict[str, Any]) -> float:
    """Run without kills and return its seconds; kills happen at random moments within this time."""
    start_time = time.monotonic()
    _, status = os.waitpid(start(out, options), 0)
    assert status == 0, "a run failed by itself"
    return time.monotonic() - start_time


def stopped(out: Path) -> int:
    """The number of runs that are listed as stopped before their end."""
    with Store.reading(out) as store:
        return sum(fault["kind"] == "stopped" for fault in store.faults())


def kept(out: Path, table: str = "cells") -> set[str]:
    """The keys of committed cells, or of failed cells if `table` is "failures"."""
    with contextlib.suppress(sqlite3.Error):
        address = f"file:{out / 'results.sqlite'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return {key for (key,) in connection.execute(f"SELECT key FROM {table}")}
    return set()


def has_ended(child: int) -> bool:
    process, status = os.waitpid(child, os.WNOHANG)
    assert status == 0 or os.WIFSIGNALED(status), "a run failed by itself"
    return bool(process)


def children(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
        return [int(child) for child in text.split()]
    return []


def victims(driver: int, cluster: int | None) -> list[int]:
    """Process ids that may be killed: the workers of the driver or, on a cluster, its workers and
    the Ray processes that own them."""
    if cluster is None:
        return children(driver)
    processes, family = [], [cluster]
    for process in family:  # grows during the loop
        family += children(process)
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::work"):
                processes += [process, *children(process)]
    return processes


class Kills(NamedTuple):
    """Numbers of killed processes. `in_mid_run` counts kills of a driver after its first and before
    its last finished cell, which the store lists as a stopped run."""

    drivers: int
    workers: int
    in_mid_run: int


def kill_until_finished(
    out: Path,
    moments: random.Random,
    longest: float,
    options: dict[str, Any],
    cluster: int | None,
    all_cells: set[str],
    most: int,
) -> Kills:
    """Start runs and kill them, until one finishes or `most` processes were killed."""
    drivers, workers, in_mid_run, before = 0, 0, 0, set()
    driver = start(out, options)
    while drivers + workers < most:
        of_a_worker = moments.random() < 0.5
        time.sleep(moments.uniform(0, longest))
        candidates = victims(driver, cluster)
        # A run on Ray spends most of its time connecting, so wait until there is a worker to kill.
        while not (finished := has_ended(driver)) and of_a_worker and not candidates:
            time.sleep(0.002)
            candidates = victims(driver, cluster)
        if finished:
            return Kills(drivers, workers, in_mid_run)
        if of_a_worker:
            with contextlib.suppress(ProcessLookupError):
                os.kill(moments.choice(candidates), signal.SIGKILL)
                workers += 1
            continue
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        drivers += 1
        now = kept(out)
        assert before <= now, "a committed cell is missing"
        # A cell whose worker was killed twice has also ended, without a result.
        in_mid_run += before < now and now | kept(out, "failures") < all_cells
        before = now
        driver = start(out, options)
    _, status = os.waitpid(driver, 0)
    assert status == 0, "a run failed by itself"
    return Kills(drivers, workers, in_mid_run)


def main(folder: Path, seed: int, count: int, options: dict[str, Any], cluster: int | None) -> None:
    moments, kills, workers = random.Random(seed), 0, 0
    finish(folder / "undisturbed", {})
    all_cells = kept(folder / "undisturbed")
    start_time = time.monotonic()
    longest = min(finish(folder / name, options) for name in ("timed", "again"))
    while kills < count:
        out = folder / str(kills)
        left = count - kills
        killed = kill_until_finished(out, moments, longest, options, cluster, all_cells, left)
        kills, workers = kills + killed.drivers + killed.workers, workers + killed.workers
        finish(out, options)  # cells without a result are computed again
        assert ledger(out) == ledger(folder / "undisturbed"), f"another ledger in {out}"
        assert kept(out) == all_cells
        assert stopped(out) >= killed.in_mid_run, "a killed run is not listed"
    print(f"{time.monotonic() - start_time:.0f} s", file=sys.stderr)
    print(kills, workers)


if __name__ == "__main__":
    ray = len(sys.argv) > 4
    extra = {"engine": "ray", "address": sys.argv[4]} if ray else {}
    cluster = int(sys.argv[5]) if ray else None
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), extra, cluster)
