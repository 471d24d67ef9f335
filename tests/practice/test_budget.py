"""Budgets as people write them, samples that keep every class, and rounds that fit the data."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens import durations
from attnlens.checks import BadInput
from attnlens.instruments.labelled import labelled
from attnlens.practice import budget


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30s", 30.0), ("10m", 600.0), ("2h", 7200.0), ("1.5 m", 90.0), ("45", 45.0), (7, 7.0)],
)
def test_a_budget_is_a_time(given: str | float, seconds: float):
    assert durations.seconds(given) == seconds


@pytest.mark.parametrize("given", ["", "soon", "10x", "-3m", "0s", "1e9m", 0, -1, float("nan")])
def test_what_is_no_time_gets_one_sentence(given: str | float):
    with pytest.raises(BadInput, match=r"budget must be .*came"):
        durations.seconds(given)


def test_a_deadline_ends_what_asks_it():
    budget.Deadline(1000)()
    budget.Deadline(-1, held=True)()
    with pytest.raises(budget.OutOfTime):
        budget.Deadline(-1)()


def test_a_deadline_says_now_and_then_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch):
    now, said = 0.0, list[str]()
    monkeypatch.setattr(budget.time, "monotonic", lambda: now)
    deadline = budget.Deadline(100, held=True, say=said.append)
    for moment in (1.0, 16.0, 17.0):  # a line is due after 15 s
        now = moment
        deadline()
    assert said == ["  … 1 min 24 s left, waiting for the first answer"]
    deadline.held, now = False, 60.0
    deadline()
    assert said[1:] == ["  … 40 s left"]


def test_a_sample_keeps_each_class_with_its_share():
    y = np.repeat([0, 1, 2], [900, 95, 5])
    data = labelled(np.arange(1000.0).reshape(1000, 1), y)
    few = budget.sample(data, 100, seed=0)
    assert np.bincount(few.labels).tolist() == [90, 9, 2]
    assert len(np.unique(few.inputs)) == len(few.inputs)
    assert budget.sample(data, 1000, seed=0) is data


def test_a_round_asks_no_more_than_the_data_and_the_memory_have():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    small = budget.affordable(budget.ROUNDS[-1], labelled(rows, rows[:, 0]))
    assert (small.rows, small.folds) == (30, 6)
    wide = np.zeros((3000, 4000))
    data = labelled(wide[:20], np.linspace(0, 1, 20))._replace(inputs=wide)
    held = budget.affordable(budget.ROUNDS[1], data)
    assert 4 * 2 * 4000 * held.rows * held.folds * held.starts <= budget.MEMORY
