"""Budgets as users write them, samples that keep every class, and rounds limited by the data."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.advice import budget
from attnlens.core import durations
from attnlens.core.checks import BadInput
from attnlens.instruments.samples.labelled import labelled


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("30s", 30.0), ("10m", 600.0), ("2h", 7200.0), ("1.5 m", 90.0), ("45", 45.0), (7, 7.0)],
)
def test_durations_are_read_as_seconds(duration: str | float, seconds: float):
    assert durations.parse_duration(duration) == seconds


@pytest.mark.parametrize("duration", ["", "soon", "10x", "-3m", "0s", "1e9m", 0, -1, float("nan")])
def test_invalid_durations_raise_one_sentence(duration: str | float):
    with pytest.raises(BadInput, match=r"budget must be .*got"):
        durations.parse_duration(duration)


def test_a_passed_deadline_raises_unless_it_is_held():
    budget.Deadline(1000)()
    budget.Deadline(-1, held=True)()
    with pytest.raises(budget.OutOfTime):
        budget.Deadline(-1)()


def test_a_stopped_deadline_is_over_whatever_the_clock_reads():
    for start in (0.0, 1e9):
        deadline = budget.Deadline(100, held=True, clock=lambda start=start: start)
        assert not deadline.over
        deadline.stop()
        assert deadline.over
        assert deadline.remaining == "the time is up"


def test_a_deadline_reports_the_remaining_time_every_15_seconds():
    now, lines = 0.0, list[str]()
    deadline = budget.Deadline(100, held=True, say=lines.append, clock=lambda: now)
    for moment in (1.0, 16.0, 17.0):  # a progress line is due 15 s after the start
        now = moment
        deadline()
    assert lines == ["  … 1 min 24 s left, waiting for the first answer"]
    deadline.held, now = False, 60.0
    deadline()
    assert lines[1:] == ["  … 40 s left"]


def test_a_sample_keeps_each_class_with_its_share():
    y = np.repeat([0, 1, 2], [900, 95, 5])
    data = labelled(np.arange(1000.0).reshape(1000, 1), y)
    few = budget.sample_rows(data, 100, seed=0)
    assert np.bincount(few.labels).tolist() == [90, 9, 2]
    assert len(np.unique(few.inputs)) == len(few.inputs)
    assert budget.sample_rows(data, 1000, seed=0) is data


def test_a_round_is_limited_by_the_rows_and_by_memory():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    small = budget.limit_effort(budget.ROUNDS[-1], labelled(rows, rows[:, 0]))
    assert (small.rows, small.folds) == (30, 6)
    wide = np.zeros((3000, 4000))
    data = labelled(wide[:20], np.linspace(0, 1, 20))._replace(inputs=wide)
    limited = budget.limit_effort(budget.ROUNDS[1], data)
    assert 4 * 2 * 4000 * limited.rows * limited.folds * limited.starts <= budget.MOST_INPUT_BYTES
