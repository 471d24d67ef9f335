"""Workers: one thread each, replaced when they die, and no influence on any result."""

from __future__ import annotations

import os
import signal
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import toy_claims
from attnlens.engine import Outcome, cache, run
from attnlens.engine.base import COMPILER, USUAL, Limits, worker_environment
from attnlens.engine.local import Machine, Waiting, all_memory, kind_of
from attnlens.records import Cell


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ATTNLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOY_MARKER", str(tmp_path / "marker"))


def outcomes(claim, workers: int) -> dict[str, Outcome]:
    return {outcome.cell.key: outcome for outcome in run(claim.cells("smoke"), workers)}


def one(name: str) -> Cell:
    return Cell("T", "prediction", f"toy_claims:{name}", {}, (0,), "")


def test_results_do_not_depend_on_the_number_of_workers():
    alone, three = outcomes(toy_claims.CLAIM, 1), outcomes(toy_claims.CLAIM, 3)
    assert alone.keys() == three.keys() == {c.key for c in toy_claims.CLAIM.cells("smoke")}
    for key, outcome in alone.items():
        other = three[key].values
        assert outcome.values is not None
        assert other is not None
        assert outcome.values["x"].tobytes() == other["x"].tobytes()


def test_a_worker_is_held_to_one_thread_and_has_float64():
    (outcome,) = run([one("busy")], 1)
    assert outcome.values is not None, outcome.failure
    # One thread can use at most one core; a tenth allows for the clock's grain and Python's own.
    assert outcome.values["share"] <= 1.1
    assert outcome.values["double"]


def test_the_users_own_flags_for_the_compiler_have_the_last_word(monkeypatch: pytest.MonkeyPatch):
    own = "--xla_backend_optimization_level=3"
    monkeypatch.setenv("XLA_FLAGS", own)
    assert worker_environment()["XLA_FLAGS"].split() == [COMPILER, own]
    monkeypatch.delenv("XLA_FLAGS")
    assert worker_environment()["XLA_FLAGS"] == COMPILER


def test_a_cell_that_raises_ends_alone():
    ended = list(outcomes(toy_claims.RAISES, 2).values())
    failed = [o for o in ended if o.values is None]
    assert {o.cell.seeds[0] for o in failed} == {4}
    assert {o.failure for o in failed} == {"ZeroDivisionError: seed 4 <script>alert(1)</script>"}
    assert len(ended) == 24


def test_a_cell_that_kills_its_worker_is_tried_twice_then_reported():
    ended = list(outcomes(toy_claims.DIES, 2).values())
    failed = [o for o in ended if o.values is None]
    assert {o.cell.seeds[0] for o in failed} == {4}
    assert all("signal 9" in (o.failure or "") and "2 times" in (o.failure or "") for o in failed)
    assert len(ended) == 24


def test_a_worker_that_dies_once_is_replaced_and_nothing_is_lost():
    ended = outcomes(toy_claims.DIES_ONCE, 2).values()
    assert all(o.values is not None for o in ended)
    assert [fault.kind for o in ended for fault in o.faults] == ["died"]
    assert len(ended) == 24


def test_printing_does_not_disturb_results():
    assert all(o.values is not None for o in outcomes(toy_claims.PRINTS, 1).values())


def test_a_measure_that_does_not_exist_is_a_failure_not_a_crash():
    (outcome,) = run([one("no_such_function")], 1)
    assert "no_such_function" in (outcome.failure or "")


def test_closing_stops_the_workers():
    running = run(toy_claims.SLOW.cells("smoke"), 2)
    first = next(running)
    assert first.values is not None
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first.values["process"]), 0)


def test_no_cells_no_workers():
    assert list(run([], 2)) == []


def missed() -> int:
    """Programs that a fresh worker compiles although an earlier one has."""
    (outcome,) = run([one("compiles")], 1)
    assert outcome.values is not None, outcome.failure
    return int(outcome.values["missed"])


def test_the_compilation_cache_is_used_and_repaired():
    assert missed() > 0
    assert missed() == 0
    entries = sorted(cache.default_folder().glob("*-cache"), key=lambda p: p.stat().st_size)
    whole = entries[-1].read_bytes()
    entries[-1].write_bytes(whole[: len(whole) // 2])
    assert missed() == 1  # the damaged entry was removed, compiled again and written again
    assert missed() == 0
    assert len(entries[-1].read_bytes()) == pytest.approx(len(whole), rel=0.2)


def test_repair_removes_only_what_is_damaged(tmp_path: Path):
    import zlib

    (tmp_path / "good-cache").write_bytes(zlib.compress(b"x" * 1000))
    (tmp_path / "short-cache").write_bytes(zlib.compress(os.urandom(1000))[:500])
    (tmp_path / "empty-cache").write_bytes(b"")
    (tmp_path / "other.txt").write_bytes(b"not an entry")
    assert [p.name for p in cache.repair(tmp_path)] == ["empty-cache", "short-cache"]
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["good-cache", "other.txt"]


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ATTNLENS_CACHE", "/proc/nowhere")
    (outcome,) = run(toy_claims.CLAIM.cells("smoke")[:1], 1)
    assert isinstance(outcome.values, dict)
    assert np.isfinite(outcome.values["x"]).all()


def test_a_cell_that_takes_too_long_is_stopped_and_the_rest_go_on():
    cells = toy_claims.HANGS.cells("smoke")
    ended = list(run(cells, 2, limits=Limits(seconds=2.0)))
    assert len(ended) == 24
    late = [outcome for outcome in ended if outcome.values is None]
    assert {outcome.cell.seeds[0] for outcome in late} == {4}
    for outcome in late:
        assert outcome.failure == "it took longer than its limit of 2 s (tried 2 times)"
        assert [fault.kind for fault in outcome.faults] == ["time limit", "time limit"]


def test_memory_is_limited_for_a_worker_alone():
    ended = list(run(toy_claims.HOGS.cells("smoke"), 1, limits=Limits(memory=1_500_000_000)))
    short = [outcome for outcome in ended if outcome.values is None]
    assert {outcome.cell.seeds[0] for outcome in short} == {4}
    assert {fault.kind for outcome in short for fault in outcome.faults} == {"memory"}
    # Without a limit of ours the same cell succeeds on a machine that has 2 GB.
    assert all_memory() > 3_000_000_000


def test_a_limit_nobody_set_is_far_above_the_cost():
    cell = one("measure")
    assert USUAL.seconds_for(cell) == 1800
    assert USUAL.seconds_for(replace(cell, cost=60.0)) == 6000
    assert Limits(5.0).seconds_for(cell) == 5


def test_an_array_that_the_store_cannot_keep_is_the_cells_own_failure():
    (outcome,) = run([replace(one("measure"), measure="tiny_cells:half_precision")], 1)
    assert outcome.failure == "TypeError: array 'x' must hold numbers, but it holds float16"


def test_short_cells_are_given_ahead_and_long_ones_one_at_a_time():
    cells = [one("measure")] * 200
    waiting, worker = Waiting(cells), FakeWorker()
    kind = kind_of(cells[0])
    assert len(waiting.next_for(worker, [worker])) == 1  # type: ignore[arg-type]
    waiting.pace[kind] = 0.001
    assert waiting.ahead(kind) == 20
    assert len(waiting.next_for(worker, [worker])) == 20  # type: ignore[arg-type]
    worker.cells.extend(cells[:11])
    assert waiting.next_for(worker, [worker]) == []  # type: ignore[arg-type]
    worker.cells.pop()
    assert len(waiting.next_for(worker, [worker])) == 10  # type: ignore[arg-type]
    waiting.pace[kind] = 5.0
    assert waiting.ahead(kind) == 1


def test_workers_are_kept_between_runs_and_replaced_if_they_died_meanwhile():
    machine = Machine(1)
    cells = toy_claims.CLAIM.cells("smoke")
    try:
        first, second = list(machine.run(cells[:2])), list(machine.run(cells[2:4]))
        used = {int(o.values["process"]) for o in first + second if o.values}
        assert len(used) == 1
        os.kill(used.pop(), signal.SIGKILL)
        machine.alive[0].process.wait()
        (third,) = machine.run(cells[4:5])
        assert third.values is not None
        assert third.faults == ()
    finally:
        machine.close()


class FakeWorker:
    def __init__(self, kind: str | None = None):
        self.kind = kind
        self.cells: deque[Cell] = deque()


def test_workers_keep_to_their_kind_then_spread_then_help():
    def cell(letter: str, seed: int) -> Cell:
        return Cell("T", "prediction", "toy_claims:measure", {"letter": letter}, (seed,), "")

    cells = [cell("a", 0), cell("a", 1), cell("b", 2), cell("c", 3), cell("c", 4), cell("c", 5)]
    waiting = Waiting(cells)
    one, two = FakeWorker(), FakeWorker()
    order = []
    for worker in (one, two, one, two, one, two):
        (taken,) = waiting.next_for(worker, [one, two])  # type: ignore[arg-type]
        worker.kind = kind_of(taken)
        order.append(taken.parameters["letter"])
    # One takes a, two spreads to b, one stays with a, two goes on to c, one helps with c.
    assert order == ["a", "b", "a", "c", "c", "c"]
    assert waiting.next_for(one, [one, two]) == []  # type: ignore[arg-type]
