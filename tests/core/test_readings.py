"""Readings and curves as text and as figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from attnlens.core.readings import Curve, Reading


def test_a_reading_prints_its_value_or_why_there_is_none():
    assert str(Reading(0.25, 0.01, 64)) == "0.25 ± 0.01 (n = 64)"
    assert str(Reading(0, 0, 0, "diverged")) == "no number: diverged"


@pytest.mark.parametrize("count", [2, 3, 9, 400])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.995])
def test_the_interval_is_that_of_students_t(count: int, level: float):
    values = np.random.default_rng(count).normal(size=count)
    error = float(scipy.stats.sem(values))
    expected = scipy.stats.t.interval(level, count - 1, values.mean(), error)
    # Two algorithms for the same quantile: they differ by a few rounding units.
    reading = Reading(float(values.mean()), error, count)
    assert reading.interval(level) == pytest.approx(expected, rel=1e-12)


def test_degrees_of_freedom_can_differ_from_the_count():
    expected = scipy.stats.t.interval(0.95, 199, 1.0, 0.5)
    assert Reading(1.0, 0.5, 1, freedom=199).interval() == pytest.approx(expected, rel=1e-12)
    expected = scipy.stats.norm.interval(0.95, 1.0, 0.5)
    assert Reading(1.0, 0.5, 1, freedom=math.inf).interval() == pytest.approx(expected, rel=1e-12)


def test_exact_numbers_are_their_own_interval_and_single_draws_have_none():
    assert Reading(2.0, 0.0, 0).interval() == (2.0, 2.0)
    assert np.isnan(Reading(2.0, 0.1, 1).interval()).all()
    assert np.isnan(Reading(math.nan, math.nan, 5).interval()).all()


def test_figures_draw_the_interval():
    readings = (Reading(0.5, 0.02, 3), Reading(0.25, 0.01, 9))
    curve = Curve("length", "error", (16, 64), readings)
    points = [*readings[0].figure().series[0].points, *curve.figure().series[0].points]
    for point, reading in zip(points, (readings[0], *readings), strict=True):
        assert (point.y - point.half_width, point.y + point.half_width) == reading.interval()


def test_logarithms_are_drawn_after_exp():
    reading = Reading(math.log(3.0), 0.1, 5)
    point = reading.exp_point(2)
    assert (point.x, point.y) == (2.0, pytest.approx(3.0, rel=1e-14))
    assert point.y + point.half_width == pytest.approx(math.exp(reading.interval()[1]), rel=1e-14)
    assert Reading(0.0, 1e3, 2).exp_point(1).half_width == math.inf


def test_a_curve_prints_and_plots():
    readings = (Reading(0.5, 0.01, 9), Reading(0.25, 0.01, 9))
    curve = Curve("length", "error", (16, 64), readings, Reading(-0.5, 0.02, 18))
    assert "slope  -0.5 ± 0.02" in str(curve)
    axes = curve.plot().axes[0]
    assert axes.get_xscale() == "log"
    assert "slope -0.50" in axes.get_legend_handles_labels()[1][0]
