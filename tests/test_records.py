"""Records are plain, and a cell's key depends on what decides its result and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnlens.records import Cell, Curve, Reading, Region

CELL = Cell("A.x", "prediction", "module:measure", {"length": 4}, (0, 1), "c0de")


def test_keys_tell_cells_apart():
    others = [
        replace(CELL, claim="A.y"),
        replace(CELL, arm="control"),
        replace(CELL, measure="module:other"),
        replace(CELL, parameters={"length": 8}),
        replace(CELL, seeds=(0, 2)),
        replace(CELL, code="c0df"),
    ]
    assert len({cell.key for cell in (CELL, *others)}) == 7


def test_keys_do_not_depend_on_cost_or_on_the_order_of_parameters():
    one = replace(CELL, parameters={"a": 1, "b": 2})
    assert one.key == replace(one, parameters={"b": 2, "a": 1}, cost=99.0).key


def test_a_parameter_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        _ = replace(CELL, parameters={"x": float("nan")}).key


def test_readings_say_what_they_are():
    assert str(Reading(0.25, 0.01, 64)) == "0.25 ± 0.01 (n = 64)"
    assert str(Reading(0, 0, 0, "diverged")) == "no number: diverged"
    assert [str(Region(high=1)), str(Region(low=0.5)), str(Region(-1, 1))] == [
        "≤ 1",
        "≥ 0.5",
        "-1 to 1",
    ]


def test_a_curve_prints_and_plots():
    readings = (Reading(0.5, 0.01, 9), Reading(0.25, 0.01, 9))
    curve = Curve("length", "error", (16, 64), readings, Reading(-0.5, 0.02, 18))
    assert "slope  -0.5 ± 0.02" in str(curve)
    axes = curve.plot().axes[0]
    assert axes.get_xscale() == "log"
    assert "slope -0.50" in axes.get_legend_handles_labels()[1][0]
