"""Local workers: each has one thread, is replaced when it dies, and does not influence results."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import toy_claims
from attnlens.core.cells import Cell
from attnlens.core.private_files import cache_folder
from attnlens.runs.engines import cache, local
from attnlens.runs.engines.base import (
    COMPILER_FLAG,
    DEFAULT_LIMITS,
    Limits,
    Outcome,
    program_key,
    worker_environment,
)
from attnlens.runs.engines.local import CellQueue, WorkerPool, all_memory, run
from attnlens.runs.planning import cells_of


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ATTNLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOY_MARKER", str(tmp_path / "marker"))


def outcomes(claim, workers: int) -> dict[str, Outcome]:
    return {outcome.cell.key: outcome for outcome in run(cells_of(claim, "smoke"), workers)}


def one(name: str) -> Cell:
    return Cell("T", "prediction", f"toy_claims:{name}", {}, (0,), "")


def test_results_do_not_depend_on_the_number_of_workers():
    alone, three = outcomes(toy_claims.CLAIM, 1), outcomes(toy_claims.CLAIM, 3)
    assert alone.keys() == three.keys() == {c.key for c in cells_of(toy_claims.CLAIM, "smoke")}
    for key, outcome in alone.items():
        other = three[key].values
        assert outcome.values is not None
        assert other is not None
        assert outcome.values["x"].tobytes() == other["x"].tobytes()


def test_a_worker_uses_one_thread_and_float64():
    (outcome,) = run([one("busy")], 1)
    assert outcome.values is not None, outcome.failure
    # One thread uses at most one core; a tenth more allows for the resolution of the clocks and for
    # threads of Python itself.
    assert outcome.values["share"] <= 1.1
    assert outcome.values["double"]


def test_compiler_flags_of_the_user_come_last(monkeypatch: pytest.MonkeyPatch):
    own = "--xla_backend_optimization_level=3"
    monkeypatch.setenv("XLA_FLAGS", own)
    assert worker_environment()["XLA_FLAGS"].split() == [COMPILER_FLAG, own]
    monkeypatch.delenv("XLA_FLAGS")
    assert worker_environment()["XLA_FLAGS"] == COMPILER_FLAG


def test_a_cell_that_raises_fails_alone():
    results = list(outcomes(toy_claims.RAISES, 2).values())
    failed = [o for o in results if o.values is None]
    assert {o.cell.seeds[0] for o in failed} == {4}
    assert {o.failure for o in failed} == {"ZeroDivisionError: seed 4 <script>alert(1)</script>"}
    assert len(results) == 24


def test_a_cell_that_kills_its_worker_is_tried_twice_then_fails():
    results = list(outcomes(toy_claims.DIES, 2).values())
    failed = [o for o in results if o.values is None]
    assert {o.cell.seeds[0] for o in failed} == {4}
    assert all("signal 9" in (o.failure or "") and "2 times" in (o.failure or "") for o in failed)
    assert len(results) == 24


def test_a_worker_that_dies_once_is_replaced_and_nothing_is_lost():
    results = outcomes(toy_claims.DIES_ONCE, 2).values()
    assert all(o.values is not None for o in results)
    assert [fault.kind for o in results for fault in o.faults] == ["died"]
    assert len(results) == 24


def test_cells_that_print_have_the_results_of_cells_that_do_not():
    """PRINTS measures the same as CLAIM but also prints to standard output, through which workers
    send their results."""
    printing, silent = (
        {
            (o.cell.arm, o.cell.seeds): o.values["x"].tobytes() if o.values else o.failure
            for o in outcomes(claim, 1).values()
        }
        for claim in (toy_claims.PRINTS, toy_claims.CLAIM)
    )
    assert len(silent) == 24
    assert all(isinstance(values, bytes) for values in silent.values())
    assert printing == silent


def test_a_worker_whose_output_cannot_be_read_is_killed(monkeypatch: pytest.MonkeyPatch):
    def unreadable(_: object) -> None:
        raise ValueError("not JSON")

    monkeypatch.setattr(local, "read_answer", unreadable)
    (outcome,) = run([one("measure")], 1)
    assert outcome.failure == "its worker died (signal 9) (tried 2 times)"


def test_a_measure_that_does_not_exist_fails_its_cell():
    (outcome,) = run([one("no_such_function")], 1)
    assert "no_such_function" in (outcome.failure or "")


def test_closing_stops_the_workers():
    running = run(cells_of(toy_claims.SLOW, "smoke"), 2)
    first = next(running)
    assert first.values is not None
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first.values["process"]), 0)


def test_without_cells_there_are_no_outcomes():
    assert list(run([], 2)) == []


def cache_misses() -> int:
    """The number of programs that a new worker compiles because they are not in the cache."""
    (outcome,) = run([one("compiles")], 1)
    assert outcome.values is not None, outcome.failure
    return int(outcome.values["missed"])


def test_workers_use_the_compilation_cache_and_repair_it():
    assert cache_misses() > 0
    assert cache_misses() == 0
    entries = sorted(cache_folder().glob("*-cache"), key=lambda p: p.stat().st_size)
    intact = entries[-1].read_bytes()
    entries[-1].write_bytes(intact[: len(intact) // 2])
    make_old(entries[-1])
    assert cache_misses() == 1  # the damaged entry was removed and compiled again
    assert cache_misses() == 0
    assert len(entries[-1].read_bytes()) == pytest.approx(len(intact), rel=0.2)


def make_old(entry: Path) -> None:
    """Set the time of `entry` to an hour ago: `repair` then assumes that no process is writing
    it."""
    hour_ago = time.time() - 3600
    os.utime(entry, (hour_ago, hour_ago))


@pytest.fixture
def entries(tmp_path: Path) -> Path:
    """A cache folder with a good, a truncated and an empty entry, and a file that is not an
    entry."""
    tmp_path.chmod(0o700)
    (tmp_path / "good-cache").write_bytes(zlib.compress(b"x" * 1000))
    (tmp_path / "short-cache").write_bytes(zlib.compress(os.urandom(1000))[:500])
    (tmp_path / "empty-cache").write_bytes(b"")
    (tmp_path / "other.txt").write_bytes(b"not an entry")
    return tmp_path


def test_repair_removes_only_damaged_entries(entries: Path):
    for file in entries.iterdir():
        make_old(file)
    assert [p.name for p in cache.repair(entries)] == ["empty-cache", "short-cache"]
    assert sorted(p.name for p in entries.iterdir() if p.is_file()) == ["good-cache", "other.txt"]


def test_repair_leaves_what_another_process_may_be_writing(entries: Path, monkeypatch):
    assert cache.repair(entries) == []
    # With the clock set back by a day the entries have times in the future. No process can be
    # writing them, so they are repaired.
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86400)
    assert [p.name for p in cache.repair(entries)] == ["empty-cache", "short-cache"]


def test_repair_leaves_an_entry_that_changed_after_it_was_read(entries: Path, monkeypatch):
    make_old(entries / "short-cache")

    def finish_writing(entry: Path) -> bool:
        """Replaces `_is_intact`: "short-cache" is found damaged, and is completed as another
        process could do between this check and the removal."""
        if entry.name == "short-cache":
            entry.write_bytes(zlib.compress(b"complete"))
        return entry.name == "good-cache"

    monkeypatch.setattr(cache, "_is_intact", finish_writing)
    assert cache.repair(entries) == []


@pytest.mark.parametrize("kind", ["link", "another owner", "writable by others"])
def test_an_entry_that_is_not_the_users_own_is_removed_unread(entries: Path, kind: str):
    entry = entries / "good-cache"
    if kind == "link":
        entry.rename(entries / "elsewhere")
        entry.symlink_to(entries / "elsewhere")
    elif kind == "another owner":
        if os.getuid():
            pytest.skip("only root can give a file to another user")
        os.chown(entry, 12345, 12345)
    else:
        entries.chmod(0o755)
        entry.chmod(0o666)
    assert cache.repair(entries) == [entry]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_cache_folder_that_others_can_write_is_not_used(tmp_path: Path, mode: int):
    folder = tmp_path / "cache"
    folder.mkdir()
    assert cache.usable_folder(folder) == folder
    folder.chmod(mode)
    assert cache.usable_folder(folder) is None


def test_workers_run_without_a_cache_if_it_cannot_be_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ATTNLENS_CACHE", "/proc/nowhere")
    (outcome,) = run(cells_of(toy_claims.CLAIM, "smoke")[:1], 1)
    assert isinstance(outcome.values, dict)
    assert np.isfinite(outcome.values["x"]).all()


def test_a_cell_that_exceeds_its_time_limit_fails_alone():
    cells = cells_of(toy_claims.HANGS, "smoke")
    results = list(run(cells, 2, limits=Limits(seconds=2.0)))
    assert len(results) == 24
    late = [outcome for outcome in results if outcome.values is None]
    assert {outcome.cell.seeds[0] for outcome in late} == {4}
    for outcome in late:
        assert outcome.failure == "it took longer than its limit of 2 s (tried 2 times)"
        assert [fault.kind for fault in outcome.faults] == ["time limit", "time limit"]


def test_a_cell_that_exceeds_the_memory_limit_fails_alone():
    limits = Limits(memory=1_500_000_000)
    results = list(run(cells_of(toy_claims.HOGS, "smoke"), 1, limits=limits))
    failed = [outcome for outcome in results if outcome.values is None]
    assert {outcome.cell.seeds[0] for outcome in failed} == {4}
    assert {fault.kind for outcome in failed for fault in outcome.faults} == {"memory"}
    # Without this limit the cell, which takes 2 GB, would succeed on this machine.
    assert all_memory() > 3_000_000_000


def test_the_default_time_limit_is_far_above_the_cost():
    cell = one("measure")
    assert DEFAULT_LIMITS.seconds_for(cell) == 1800
    assert DEFAULT_LIMITS.seconds_for(replace(cell, cost=60.0)) == 6000
    assert Limits(5.0).seconds_for(cell) == 5


def test_a_cell_with_an_array_of_another_dtype_fails():
    (outcome,) = run([replace(one("measure"), measure="tiny_cells:half_precision")], 1)
    assert outcome.failure == "TypeError: array 'x' must hold numbers; got float16"


def test_a_cell_with_a_lone_surrogate_in_the_name_of_an_array_fails():
    (outcome,) = run([replace(one("measure"), measure="tiny_cells:name_with_a_surrogate")], 1)
    assert outcome.failure == "TypeError: the name of an array must be text; got 'x\\udc80'"


def test_a_cell_that_calls_sys_exit_fails_and_the_next_one_has_its_result():
    measures = ("tiny_cells:exits", "tiny_cells:measure")
    cells = [Cell("T", "prediction", name, {"shift": 0.0}, (0,), "") for name in measures]
    failures = {outcome.cell.measure: outcome.failure for outcome in run(cells, 1)}
    assert failures == {
        "tiny_cells:exits": "RuntimeError: it called sys.exit(0); let it return instead",
        "tiny_cells:measure": None,
    }


def test_short_cells_are_assigned_ahead_and_long_ones_one_at_a_time():
    cells = [one("measure")] * 200
    waiting, worker = CellQueue(cells), FakeWorker()
    program = program_key(cells[0])
    assert len(waiting.next_for(worker, [worker])) == 1  # type: ignore[arg-type] (a fake worker)
    waiting.pace[program] = 0.001
    assert waiting.ahead(program) == 20
    assert len(waiting.next_for(worker, [worker])) == 20  # type: ignore[arg-type] (a fake worker)
    worker.cells.extend(cells[:11])
    assert waiting.next_for(worker, [worker]) == []  # type: ignore[arg-type] (a fake worker)
    worker.cells.pop()
    assert len(waiting.next_for(worker, [worker])) == 10  # type: ignore[arg-type] (a fake worker)
    waiting.pace[program] = 5.0
    assert waiting.ahead(program) == 1


def test_workers_live_on_between_runs_and_are_replaced_if_they_died():
    pool = WorkerPool(1)
    cells = cells_of(toy_claims.CLAIM, "smoke")
    try:
        first, second = list(pool.run(cells[:2])), list(pool.run(cells[2:4]))
        used = {int(o.values["process"]) for o in first + second if o.values}
        assert len(used) == 1
        os.kill(used.pop(), signal.SIGKILL)
        pool.workers[0].process.wait()
        (third,) = pool.run(cells[4:5])
        assert third.values is not None
        assert third.faults == ()
    finally:
        pool.close()


class FakeWorker:
    """The attributes of a worker that `CellQueue` reads."""

    def __init__(self, program: str | None = None):
        self.program = program
        self.cells: deque[Cell] = deque()


def test_workers_prefer_their_own_program_then_a_new_one_then_share_the_last():
    def cell(letter: str, seed: int) -> Cell:
        return Cell("T", "prediction", "toy_claims:measure", {"letter": letter}, (seed,), "")

    cells = [cell("a", 0), cell("a", 1), cell("b", 2), cell("c", 3), cell("c", 4), cell("c", 5)]
    waiting = CellQueue(cells)
    first, second = FakeWorker(), FakeWorker()
    order = []
    for worker in (first, second, first, second, first, second):
        (assigned,) = waiting.next_for(worker, [first, second])  # type: ignore[arg-type] (a fake worker)
        worker.program = program_key(assigned)
        order.append(assigned.parameters["letter"])
    # The first worker takes a, and the second one b. Then the first stays with a, the second goes
    # on to c, and at the end both share c.
    assert order == ["a", "b", "a", "c", "c", "c"]
    assert waiting.next_for(first, [first, second]) == []  # type: ignore[arg-type] (a fake worker)
