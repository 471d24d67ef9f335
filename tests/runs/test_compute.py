"""Estimates of the seconds of a run, and which outcomes share a commit."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens.core.cells import Cell
from attnlens.runs.compute import CELLS_PER_COMMIT, commit_batches
from attnlens.runs.engines.base import Outcome
from attnlens.runs.planning import CELLS_PER_SECOND, SECONDS_TO_COMPILE, Plan
from running import attnlens, one_sentence, toy

CELL = Cell("T", "prediction", "m:f", {}, (0,), "")


def greedy(seconds: list[float], workers: int) -> float:
    """The time at which the last cell ends if each cell, in order, goes to the first free
    worker."""
    free = [0.0] * workers
    for duration in seconds:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


@given(
    st.lists(st.floats(0.1, 100.0), min_size=1, max_size=40),
    st.integers(1, 12),
)
def test_list_scheduling_stays_within_the_bounds(seconds: list[float], workers: int):
    plan = Plan([], [CELL] * len(seconds), sum(seconds), max(seconds), 0)
    least, most = plan.spread(workers)
    # Sums in another order differ by the rounding of 40 additions of numbers below 4000.
    assert least - 1e-9 <= greedy(seconds, workers) <= most + 1e-9


def test_bounds_computed_by_hand():
    plan = Plan([], [CELL] * 4, 8.0, 5.0, 4)
    assert plan.spread(1) == (8.0, 8.0)
    assert plan.spread(2) == (5.0, 6.5)
    many = Plan([], [CELL] * 10_000, 1.0, 0.0001, 0)
    assert many.spread(1000) == (10_000 / CELLS_PER_SECOND, 10_000 / CELLS_PER_SECOND)


def test_compilation_is_counted_once_per_program():
    """Cells that differ only in seeds or arm share a program; cells with other parameters do
    not."""
    alike = [CELL, replace(CELL, seeds=(1,)), replace(CELL, arm="control")]
    plan = Plan([], [*alike, replace(CELL, parameters={"length": 2})], 4.0, 1.0, 0)
    assert plan.compiling == 2 * SECONDS_TO_COMPILE


def test_no_outcome_waits_for_one_that_is_still_being_computed():
    consumed = []

    def outcomes():
        for number in range(4):
            yield Outcome(CELL, {"x": np.zeros(1)}, None, 0.0, more=number in (0, 2))
            consumed.append(number)

    batches = commit_batches(outcomes())
    assert len(next(batches)) == 2
    assert consumed == [0]  # the first batch was complete before a third outcome was requested
    assert len(next(batches)) == 2


def test_a_commit_has_an_upper_bound():
    one = Outcome(CELL, {}, None, 0.0, more=True)
    large = Outcome(CELL, {"x": np.zeros(2_000_000)}, None, 0.0, more=True)
    assert [len(b) for b in commit_batches([one] * CELLS_PER_COMMIT * 2)] == [CELLS_PER_COMMIT] * 2
    assert [len(b) for b in commit_batches([large, large])] == [1, 1]


@pytest.mark.parametrize("count", [1, CELLS_PER_COMMIT - 1, CELLS_PER_COMMIT + 1])
def test_an_engine_that_ends_although_it_promised_more_loses_nothing(count: int):
    cells = [replace(CELL, seeds=(seed,)) for seed in range(count)]
    outcomes = [Outcome(cell, {}, None, 0.0, more=True) for cell in cells]
    assert [o.cell for batch in commit_batches(outcomes) for o in batch] == cells


def test_a_dry_run_estimates_for_nodes_from_measured_cells(tmp_path: Path):
    first = ("verify", "--claim", "toy_claims:CLAIM", "--out", tmp_path, "--dry-run")
    guessed = attnlens(*first, "--workers", 4, "--nodes", 10).stdout
    assert "80 cells, 0 of them done, 80 to compute." in guessed
    assert "(0.000222 CPU-hours)" in guessed  # 80 cells of 0.01 s
    assert "of compilation the first time on a machine." in guessed
    assert "0 of them are from measured cells; the rest are the claims' own figures" in guessed
    assert "On 10 nodes with 4 workers each: 0 s to 0 s" in guessed
    attnlens(*toy("CLAIM", tmp_path))
    measured = attnlens(*first, "--nodes", 1).stdout
    assert "Seconds of 56 of them are from measured cells." in measured
    done = attnlens(*toy("CLAIM", tmp_path / "new", "--nodes", 3))
    assert done.returncode == 2
    assert "give --dry-run too" in one_sentence(done.stderr)


def test_an_unknown_engine_raises():
    from attnlens.runs.compute import runner_of

    with pytest.raises(ValueError, match="engine must be one of local, ray"):
        runner_of("abacus")  # type: ignore[arg-type] (an invalid value on purpose)
