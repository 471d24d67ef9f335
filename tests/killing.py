"""Kill a run at random moments until it is through, again and again.

    python killing.py FOLDER SEED KILLS [ADDRESS PROCESS]

A process of its own without threads, so that each run can be a fork of it and starts at once. About
half of the kills hit the driver, half one of its workers; on the Ray cluster at ADDRESS, which
PROCESS started, one of Ray's processes that compute cells, or of their workers. After each, no cell
that was kept is gone; when a run got through, one more run without kills must end with the ledger
of a run that was never disturbed. The last line that it prints is the number of kills, in all and
of workers.
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
from attnlens.store import Store
from attnlens.verification import verify


def go(out: Path, options: dict[str, Any]) -> None:
    verify("smoke", ["toy_claims:TINY"], out, workers=2, **options)


def ledger(out: Path) -> dict[str, Any]:
    """Without what differs from run to run."""
    found = json.loads((out / "ledger.json").read_text())
    for entry in (found, *found["claims"]):
        for name in ("seconds", "machine", "packages"):
            entry.pop(name, None)
    return found


def start(out: Path, options: dict[str, Any]) -> int:
    """A run in a fork of this process; its id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    try:
        go(out, options)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def whole(out: Path, options: dict[str, Any]) -> float:
    """A run to its end, and how long it takes: a kill may come at any moment of one."""
    began = time.monotonic()
    _, status = os.waitpid(start(out, options), 0)
    assert status == 0, "a run failed by itself"
    return time.monotonic() - began


def stopped(out: Path) -> int:
    """Runs that are listed as stopped before their end."""
    with Store.reading(out) as store:
        return sum(fault["kind"] == "stopped" for fault in store.faults())


def kept(out: Path, table: str = "cells") -> set[str]:
    with contextlib.suppress(sqlite3.Error):
        address = f"file:{out / 'results.sqlite'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return {key for (key,) in connection.execute(f"SELECT key FROM {table}")}
    return set()


def ended(child: int) -> bool:
    found, status = os.waitpid(child, os.WNOHANG)
    assert status == 0 or os.WIFSIGNALED(status), "a run failed by itself"
    return bool(found)


def children(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{process}/task/{process}/children").read_text()
        return [int(child) for child in found.split()]
    return []


def victims(driver: int, cluster: int | None) -> list[int]:
    """The driver's workers as they are now, or those of a cluster and the processes they belong
    to."""
    if cluster is None:
        return children(driver)
    found, family = [], [cluster]
    for process in family:  # which grows on the way
        family += children(process)
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::work"):
                found += [process, *children(process)]
    return found


class Kills(NamedTuple):
    drivers: int
    workers: int
    in_mid_run: int  # drivers with some cells ended and others not: they must be listed as stopped


def kill_until_through(
    out: Path,
    moments: random.Random,
    longest: float,
    options: dict[str, Any],
    cluster: int | None,
    everything: set[str],
    most: int,
) -> Kills:
    """Kill one run after the other, `most` times at most, until one comes to its end."""
    drivers, workers, in_mid_run, before = 0, 0, 0, set()
    driver = start(out, options)
    while drivers + workers < most:
        of_a_worker = moments.random() < 0.5
        time.sleep(moments.uniform(0, longest))
        there = victims(driver, cluster)
        # On Ray a run is mostly connecting: whoever is after a worker waits until there is one.
        while not (through := ended(driver)) and of_a_worker and not there:
            time.sleep(0.002)
            there = victims(driver, cluster)
        if through:
            return Kills(drivers, workers, in_mid_run)
        if of_a_worker:
            with contextlib.suppress(ProcessLookupError):
                os.kill(moments.choice(there), signal.SIGKILL)
                workers += 1
            continue
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        drivers += 1
        now = kept(out)
        assert before <= now, "a kept cell is gone"
        # A cell whose workers were killed twice has ended too, without a result.
        in_mid_run += before < now and now | kept(out, "failures") < everything
        before = now
        driver = start(out, options)
    _, status = os.waitpid(driver, 0)
    assert status == 0, "a run failed by itself"
    return Kills(drivers, workers, in_mid_run)


def main(
    folder: Path, seed: int, wanted: int, options: dict[str, Any], cluster: int | None
) -> None:
    moments, kills, workers = random.Random(seed), 0, 0
    whole(folder / "undisturbed", {})
    everything = kept(folder / "undisturbed")
    began = time.monotonic()
    longest = min(whole(folder / name, options) for name in ("timed", "again"))
    while kills < wanted:
        out = folder / str(kills)
        left = wanted - kills
        found = kill_until_through(out, moments, longest, options, cluster, everything, left)
        kills, workers = kills + found.drivers + found.workers, workers + found.workers
        whole(out, options)  # cells that ended without a result are tried again
        assert ledger(out) == ledger(folder / "undisturbed"), f"another ledger in {out}"
        assert kept(out) == everything
        assert stopped(out) >= found.in_mid_run, "a killed run is not listed"
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    print(kills, workers)


if __name__ == "__main__":
    ray = len(sys.argv) > 4
    extra = {"engine": "ray", "address": sys.argv[4]} if ray else {}
    cluster = int(sys.argv[5]) if ray else None
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), extra, cluster)
