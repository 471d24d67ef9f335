"""Kill merge, compact, export and report at random moments; repeat each until it finishes.

    python killing_maintenance.py FOLDER SEED KILLS

FOLDER holds two results folders, `first` and `second`. After each kill the results must be
undamaged and complete. Then the command is repeated and must write what a command that was never
killed writes. The last line of the output is the number of commands that were killed before their
end.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet  # noqa: F401 (loaded before the forks, as all below)

from attnlens.report.page import render_documents  # noqa: F401 (loaded before the forks)
from attnlens.runs.pages import write_report
from attnlens.runs.paper import export_run
from attnlens.runs.store.maintenance import check, compact, export, merge
from killing import kept

# By name, the command on a folder that holds copies of `first` and `second`.
COMMANDS: dict[str, Callable[[Path], object]] = {
    "merge": lambda folder: merge(folder / "first", [folder / "second"]),
    "compact": lambda folder: compact(folder / "first"),
    "store export": lambda folder: export(folder / "first", folder / "cells.parquet"),
    "report": lambda folder: write_report(folder / "first"),
    "export": lambda folder: export_run(folder / "first", folder / "paper", tables=("csv",)),
}


def written(folder: Path) -> dict[str, str]:
    """The hash of every file that a command wrote, except databases and figures."""
    paths = (*folder.glob("first/*.html"), *folder.glob("*.parquet"), *folder.glob("paper/*.csv"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def start(folder: Path, name: str) -> int:
    child = os.fork()
    if child:
        return child
    try:
        COMMANDS[name](folder)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def finish(folder: Path, name: str) -> float:
    start_time = time.monotonic()
    _, status = os.waitpid(start(folder, name), 0)
    assert status == 0, f"{name} failed by itself"
    return time.monotonic() - start_time


def fresh(source: Path, folder: Path) -> Path:
    for name in ("first", "second"):
        shutil.copytree(source / name, folder / name)
    return folder


def main(source: Path, seed: int, count: int) -> None:
    moments, at_work = random.Random(seed), 0
    expected, longest = {}, {}
    for name in COMMANDS:
        folder = fresh(source, source / f"{name}, undisturbed")
        longest[name] = finish(folder, name)
        expected[name] = kept(folder / "first"), written(folder)
    for number in range(count):
        name = list(COMMANDS)[number % len(COMMANDS)]
        folder = fresh(source, source / str(number))
        before = kept(folder / "first")
        child = start(folder, name)
        time.sleep(moments.uniform(0, longest[name]))
        os.kill(child, signal.SIGKILL)  # the child is not reaped yet, so its id is not reused
        _, status = os.waitpid(child, 0)
        at_work += os.WIFSIGNALED(status)
        assert before <= kept(folder / "first"), f"{name} lost a cell"
        for place in ("first", "second"):
            assert not check(folder / place).wrong, f"{name} damaged {place}"
        assert not list(folder.glob("*.parquet")) or name == "store export"
        finish(folder, name)
        assert kept(folder / "first") == expected[name][0], f"{name} has other cells"
        assert written(folder) == expected[name][1], f"{name} wrote something else"
        shutil.rmtree(folder)
    print(at_work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
