"""Workers: one thread each, replaced when they die, and no influence on any result."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import toy_claims
from attnlens.engine import Outcome, cache, run
from attnlens.engine.local import Waiting, kind_of
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


class FakeWorker:
    def __init__(self, kind: str | None = None):
        self.kind = kind


def test_workers_keep_to_their_kind_then_spread_then_help():
    def cell(letter: str, seed: int) -> Cell:
        return Cell("T", "prediction", "toy_claims:measure", {"letter": letter}, (seed,), "")

    cells = [cell("a", 0), cell("a", 1), cell("b", 2), cell("c", 3), cell("c", 4), cell("c", 5)]
    waiting = Waiting(cells)
    one, two = FakeWorker(), FakeWorker()
    order = []
    for worker in (one, two, one, two, one, two):
        taken = waiting.next_for(worker, [one, two])  # type: ignore[arg-type]
        assert taken is not None
        worker.kind = kind_of(taken)
        order.append(taken.parameters["letter"])
    # One takes a, two spreads to b, one stays with a, two goes on to c, one helps with c.
    assert order == ["a", "b", "a", "c", "c", "c"]
    assert waiting.next_for(one, [one, two]) is None  # type: ignore[arg-type]
