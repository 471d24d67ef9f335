"""Faults that are really injected, on this machine: nothing finished is lost, nothing counts twice,
the ledger is that of a run without them, and the page lists them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnlens import verify
from attnlens.records import Cell
from attnlens.store import Store
from running import ENVIRONMENT, TESTS, attnlens, one_sentence, start, toy
from test_verify import comparable, kept, ledger, query


def faults(out: Path) -> list[tuple[str, str]]:
    with Store.reading(out) as store:
        return [(fault["kind"], fault["words"]) for fault in store.faults()]


@pytest.mark.parametrize(
    ("name", "options", "kind", "said"),
    [
        ("RAISES", (), "raised", "ZeroDivisionError: seed 4"),
        pytest.param(
            "HANGS",
            ("--time-limit", 2),
            "time limit",
            "longer than its limit of 2 s",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "HOGS",
            ("--memory-limit", 1.5),
            "memory",
            "MemoryError: Unable to allocate",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_faulty_cell_ends_alone_and_is_listed(
    tmp_path: Path, name: str, options: tuple[object, ...], kind: str, said: str
):
    done = attnlens(*toy(name, tmp_path, "--workers", 2, *options))
    assert done.returncode == 1
    assert "cells have no result" in done.stderr
    assert kept(tmp_path) == 22  # of 24: one of each arm goes wrong
    (entry,) = ledger(tmp_path)["claims"]
    assert (entry["verdict"], entry["cells_without_result"]) == ("undecided", 2)
    assert said in entry["reason"]
    listed = faults(tmp_path)
    assert {each for each, _ in listed} == {kind}
    # A cell that raises would raise again; one whose worker was ended gets a second attempt.
    assert len(listed) == (4 if kind == "time limit" else 2)
    page = (tmp_path / "report.html").read_text()
    assert f"Faults on the way: {len(listed)}" in page
    assert f"{kind}, {entry['id']}" in page


def test_numbers_that_are_none_are_kept_and_listed(tmp_path: Path):
    assert attnlens(*toy("HALF_NAN", tmp_path)).returncode == 0
    assert kept(tmp_path) == 24
    assert ledger(tmp_path)["claims"][0]["verdict"] == "undecided"
    assert faults(tmp_path) == [("not a number", "NaN in x")] * 2


@pytest.mark.parametrize(("name", "kind"), [("LOSES_WORKER", "died"), ("HANGS_ONCE", "time limit")])
def test_after_a_second_attempt_the_ledger_is_that_of_a_run_without_fault(
    tmp_path: Path, name: str, kind: str
):
    marker = tmp_path / "marker"
    command = (*toy(name, tmp_path / "faulty"), "--time-limit", 3)
    assert attnlens(*command, TOY_MARKER=str(marker)).returncode == 0
    assert marker.exists()
    assert [each for each, _ in faults(tmp_path / "faulty")] == [kind]
    assert attnlens(*toy(name, tmp_path / "clean"), TOY_MARKER=str(marker)).returncode == 0
    assert faults(tmp_path / "clean") == []
    assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
    assert "Faults on the way" not in (tmp_path / "clean" / "report.html").read_text()


@pytest.mark.slow
def test_a_run_that_was_killed_is_listed_when_another_has_finished_it(tmp_path: Path):
    process = start(*toy("SLOW", tmp_path), TOY_PAUSE="0.5")
    deadline = time.monotonic() + 60
    while kept(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert attnlens(*toy("SLOW", tmp_path)).returncode == 0
    ((kind, words),) = faults(tmp_path)
    assert kind == "stopped"
    assert words in (tmp_path / "report.html").read_text()


def bits(out: Path) -> list[tuple[object, ...]]:
    """Every number of every cell, to the last bit."""
    return query(out, "SELECT cell, name, dtype, shape, data FROM arrays ORDER BY cell, name")


def fill_the_disk_and_go_on(small_disk: Path, clean: Path, *options: object) -> None:
    """The disk is full in the middle of a run; with more room the same command ends it."""
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
    assert "Faults on the way: 1" in (small_disk / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_disk_that_fills_in_mid_run_loses_nothing_that_was_kept(small_disk: Path, tmp_path: Path):
    fill_the_disk_and_go_on(small_disk, tmp_path / "clean")


def kill_points(tmp_path: Path, count: int, *more: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"kill points from seed {seed}")
    done = subprocess.run(
        [sys.executable, TESTS / "killing.py", tmp_path, str(seed), str(count), *more],
        env={**ENVIRONMENT, "TINY_PAUSE": "0.004"}, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    kills, of_workers = map(int, done.stdout.splitlines()[-1].split())
    print(f"{kills} kills, {of_workers} of workers")
    assert kills >= count
    assert of_workers


@pytest.mark.slow
def test_killed_at_200_random_moments_nothing_is_lost(tmp_path: Path):
    kill_points(tmp_path, 200)


# -- long runs -------------------------------------------------------------------------------------


def resident(process: int) -> int:
    """Bytes of memory that a process has to itself: shared libraries are the system's."""
    pages = Path(f"/proc/{process}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def family(driver: int) -> list[int]:
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    return [driver, *map(int, children)]


@pytest.mark.slow
def test_memory_stays_flat_over_many_cells(tmp_path: Path):
    """After a quarter of the cells nothing may grow by more than 5 %: a leak of 100 bytes a cell
    would be 7.5 MB, 10 % of 70 MB."""
    cells = 100_000
    process = start(*toy("TINY", tmp_path), TOY_CELLS=str(cells))
    sizes: dict[int, list[int]] = {}
    while process.poll() is None:
        count = kept(tmp_path)
        if cells * 0.25 <= count <= cells * 0.98:
            for member in family(process.pid):
                sizes.setdefault(member, []).append(resident(member))
        time.sleep(0.2)
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert kept(tmp_path) == cells
    assert len(sizes) >= 2, "driver and workers"
    assert min(map(len, sizes.values())) >= 5
    for measured in sizes.values():
        assert max(measured) <= 1.05 * measured[0], measured
    assert "T.tiny" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_the_store_keeps_two_thousand_cells_a_second(tmp_path: Path):
    values = {"x": np.zeros(4)}
    cells = [Cell("T", "prediction", "m:f", {"a": 1}, (seed,), "") for seed in range(20_000)]
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        began = time.perf_counter()
        for first in range(0, len(cells), 50):
            with store.together():
                for cell in cells[first : first + 50]:
                    store.keep(cell, values, 0.001)
        seconds = time.perf_counter() - began
        assert len(store.keys()) == len(cells)
    assert len(cells) / seconds >= 2000


def test_verify_refuses_limits_that_are_none(tmp_path: Path):
    for seconds, size in ((0.0, None), (None, -1.0)):
        with pytest.raises(ValueError, match="must be a finite number above 0"):
            verify(
                "smoke", ["toy_claims:CLAIM"], tmp_path / "run",
                time_limit=seconds, memory_limit=size,
            )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
