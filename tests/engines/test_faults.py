"""Faults injected into runs on this machine: no finished cell is lost, no cell counts twice, the
ledger equals that of a run without faults, and the page lists the faults."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from attnlens import verify
from attnlens.core.cells import Cell
from attnlens.runs.store.store import Store
from results_folders import (
    comparable,
    faults,
    fill_the_disk_and_go_on,
    kept,
    kill_points,
    ledger,
)
from running import attnlens, start, toy


@pytest.mark.parametrize(
    ("name", "options", "kind", "message"),
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
def test_a_faulty_cell_fails_alone_and_is_listed(
    tmp_path: Path, name: str, options: tuple[object, ...], kind: str, message: str
):
    done = attnlens(*toy(name, tmp_path, "--workers", 2, *options))
    assert done.returncode == 1
    assert "cells have no result" in done.stderr
    assert kept(tmp_path) == 22  # of 24 cells, one per arm fails
    (entry,) = ledger(tmp_path)["claims"]
    assert (entry["verdict"], entry["cells_without_result"]) == ("undecided", 2)
    assert message in entry["reason"]
    listed = faults(tmp_path)
    assert {fault for fault, _ in listed} == {kind}
    # A cell that raises is not tried again; a cell whose worker was killed is tried a second time.
    assert len(listed) == (4 if kind == "time limit" else 2)
    page = (tmp_path / "report.html").read_text()
    assert f"Faults during the run: {len(listed)}" in page
    assert f"{kind}, {entry['id']}" in page


def test_nan_is_stored_and_listed(tmp_path: Path):
    assert attnlens(*toy("HALF_NAN", tmp_path)).returncode == 0
    assert kept(tmp_path) == 24
    assert ledger(tmp_path)["claims"][0]["verdict"] == "undecided"
    assert faults(tmp_path) == [("not a number", "NaN in x")] * 2


@pytest.mark.parametrize(("name", "kind"), [("LOSES_WORKER", "died"), ("HANGS_ONCE", "time limit")])
def test_after_a_second_attempt_the_ledger_is_that_of_a_run_without_faults(
    tmp_path: Path, name: str, kind: str
):
    marker = tmp_path / "marker"
    command = (*toy(name, tmp_path / "faulty"), "--time-limit", 3)
    assert attnlens(*command, TOY_MARKER=str(marker)).returncode == 0
    assert marker.exists()
    assert [fault for fault, _ in faults(tmp_path / "faulty")] == [kind]
    assert attnlens(*toy(name, tmp_path / "clean"), TOY_MARKER=str(marker)).returncode == 0
    assert faults(tmp_path / "clean") == []
    assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
    assert "Faults during the run" not in (tmp_path / "clean" / "report.html").read_text()


@pytest.mark.slow
def test_a_killed_run_is_listed_after_another_run_has_finished_it(tmp_path: Path):
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


@pytest.mark.slow
def test_a_disk_that_fills_during_a_run_loses_no_committed_cell(small_disk: Path, tmp_path: Path):
    fill_the_disk_and_go_on(small_disk, tmp_path / "clean")


@pytest.mark.slow
def test_killed_at_200_random_moments_nothing_is_lost(tmp_path: Path):
    kill_points(tmp_path, 200)


# -- long runs -------------------------------------------------------------------------------------


def resident(process: int) -> int:
    """Resident memory of a process in bytes, without the memory that it shares with others
    (libraries)."""
    pages = Path(f"/proc/{process}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def family(driver: int) -> list[int]:
    """The process ids of the driver and its workers."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    return [driver, *map(int, children)]


@pytest.mark.slow
def test_memory_stays_flat_over_many_cells(tmp_path: Path):
    """After a quarter of the cells, no process may grow by more than 5 %. A leak of 100 bytes per
    cell would be 7.5 MB, 10 % of 70 MB."""
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
def test_the_store_commits_two_thousand_cells_per_second(tmp_path: Path):
    values = {"x": np.zeros(4)}
    cells = [Cell("T", "prediction", "m:f", {"a": 1}, (seed,), "") for seed in range(20_000)]
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        start_time = time.perf_counter()
        for first in range(0, len(cells), 50):
            with store.one_commit():
                for cell in cells[first : first + 50]:
                    store.keep(cell, values, 0.001)
        seconds = time.perf_counter() - start_time
        assert len(store.keys()) == len(cells)
    assert len(cells) / seconds >= 2000


def test_verify_rejects_limits_that_are_not_positive(tmp_path: Path):
    for seconds, size in ((0.0, None), (None, -1.0)):
        with pytest.raises(ValueError, match="must be a finite number above 0"):
            verify(
                "smoke",
                ["toy_claims:CLAIM"],
                tmp_path / "run",
                time_limit=seconds,
                memory_limit=size,
            )
    assert list(tmp_path.iterdir()) == []
