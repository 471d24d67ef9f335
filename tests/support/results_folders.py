"""Reading results folders in tests, and checks of faults that tests of several engines share."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from attnlens.runs.store.store import Store
from running import ENVIRONMENT, SUPPORT, attnlens, one_sentence, toy


def chosen_seed() -> int:
    """The seed of randomised slow tests: fixed, or ATTNLENS_TEST_SEED from the environment."""
    return int(os.environ.get("ATTNLENS_TEST_SEED", "20261118"))


def ledger(out: Path) -> dict[str, Any]:
    return json.loads((out / "ledger.json").read_text())


def comparable(out: Path) -> dict[str, Any]:
    """A ledger without seconds, machine and packages, so that two equal runs have equal ledgers."""
    content = ledger(out)
    for name in ("seconds", "machine", "packages"):
        del content[name]
    for entry in (*content["claims"], *content["exact_checks"]):
        del entry["seconds"]
    return content


def kept(out: Path) -> int:
    """The number of finished cells; also works while a run is writing."""
    try:
        return query(out, "SELECT COUNT(*) FROM cells")[0][0]
    except sqlite3.Error:
        return 0


def query(out: Path, statement: str) -> list[tuple[Any, ...]]:
    address = f"file:{out / 'results.sqlite'}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        return connection.execute(statement).fetchall()


def faults(out: Path) -> list[tuple[str, str]]:
    """(kind, words) of every recorded fault."""
    with Store.reading(out) as store:
        return [(fault["kind"], fault["words"]) for fault in store.faults()]


def bits(out: Path) -> list[tuple[object, ...]]:
    """The stored row of every array of every cell, with its content as bytes."""
    return query(out, "SELECT cell, name, dtype, shape, data FROM arrays ORDER BY cell, name")


def fill_the_disk_and_go_on(small_disk: Path, clean: Path, *options: object) -> None:
    """The disk fills up during a run; with more space the same command finishes the run."""
    command = toy("BULKY", small_disk / "run", *options)
    done = attnlens(*command)
    assert done.returncode == 2
    assert "is full or failing" in one_sentence(done.stderr)
    before = bits(small_disk / "run")
    assert 0 < kept(small_disk / "run") < 24
    assert attnlens("store", "check", small_disk / "run").returncode == 0
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    assert attnlens(*command).returncode == 0
    assert attnlens(*toy("BULKY", clean)).returncode == 0
    assert set(before) < set(bits(small_disk / "run"))
    assert bits(small_disk / "run") == bits(clean)
    assert comparable(small_disk / "run") == comparable(clean)
    assert [kind for kind, _ in faults(small_disk / "run")] == ["stopped"]
    assert "Faults during the run: 1" in (small_disk / "run" / "report.html").read_text()


def kill_points(tmp_path: Path, count: int, *more: str) -> None:
    """Run `killing.py` with `count` kills at random moments, and check that it succeeds."""
    seed = chosen_seed()
    print(f"kill points from seed {seed}")
    done = subprocess.run(
        [sys.executable, SUPPORT / "killing.py", tmp_path, str(seed), str(count), *more],
        env={**ENVIRONMENT, "TINY_PAUSE": "0.004"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    kills, of_workers = map(int, done.stdout.splitlines()[-1].split())
    print(f"{kills} kills, {of_workers} of workers")
    assert kills >= count
    assert of_workers
