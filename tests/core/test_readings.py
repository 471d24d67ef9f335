"""Readings and curves as text and as figures."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

from attnlens.core.readings import BoundedReading, Curve, Reading
from attnlens.core.sheets import Answer, Sheet
from attnlens.core.status import SENTENCES, Status


def test_a_reading_prints_its_value_or_why_there_is_none():
    assert str(Reading(0.25, 0.01, 64)) == "0.25 ± 0.01 (n = 64)"
    lost = Reading(math.nan, math.nan, 1, Status.FEW_REPLICATES)
    assert str(lost) == "no number: fewer than two finite replicates"
    assert str(Reading(9.0, 1.0, 8, Status.EXTRAPOLATED)) == "9 ± 1 (n = 8), extrapolated"
    assert str(Reading(9.0, 1.0, 8, Status.AT_LEAST)) == "at least 9 (n = 8)"


@pytest.mark.parametrize("status", Status)
def test_a_status_is_read_back_from_its_string(status: Status):
    assert status == status.value
    restored: Any = json.loads(json.dumps(status))
    assert Reading(0.0, 0.0, 1, restored).status is status


def test_only_numbers_and_bounds_count_as_numbers():
    numbers = [status for status in Status if status.has_number]
    bounds = [Status.EXTRAPOLATED, Status.AT_MOST, Status.AT_LEAST]
    assert numbers == [Status.OK, *bounds, Status.UNCONFIRMED]


def test_sentences_of_older_documents_are_kept_as_they_are():
    sentence = "a reason of a third party {"
    reading = Reading(math.nan, math.nan, 0, sentence)  # type: ignore[arg-type] (an invalid value on purpose)
    assert (reading.status, reading.remark) == (Status.OTHER, sentence)
    assert reading.reason == sentence


def test_a_reason_without_its_numbers_is_still_a_sentence():
    for status in SENTENCES:
        assert status.sentence() == status.value


def test_the_json_of_a_sheet_holds_statuses_as_strings():
    reading = BoundedReading(math.inf, math.nan, 9, Status.NOT_COVERED, low=0.5, high=math.inf)
    sheet = Sheet("title", (), (Answer("q", "a", "e", readings={"kappa": reading}),))
    (answer,) = json.loads(json.dumps(sheet.plain()))["answers"]
    kept = answer["readings"]["kappa"]
    assert Status(kept["status"]) is Status.NOT_COVERED
    assert (kept["value"], kept["details"]) == (None, {"low": 0.5, "high": None})


@pytest.mark.parametrize("count", [2, 3, 9, 400])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.995])
def test_the_interval_is_that_of_students_t(count: int, level: float):
    values = np.random.default_rng(count).normal(size=count)
    error = float(scipy.stats.sem(values))
    expected = scipy.stats.t.interval(level, count - 1, values.mean(), error)
    # The two algorithms for the same quantile differ by a few rounding units.
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
    ends = [math.exp(end) for end in reading.interval()]
    assert [point.low, point.high] == pytest.approx(ends, rel=1e-14)
    assert point.half_width > 1.1 * (point.y - point.low)  # the upper side is longer
    assert Reading(0.0, 1e3, 2).exp_point(1).half_width == math.inf


def test_an_interval_that_is_not_symmetric_is_drawn_and_tabulated_as_it_is():
    reading = BoundedReading(9.0, 1.0, 8, low=8.5, high=20.0)
    (point,) = reading.figure().series[0].points
    row, (drawn,) = reading.row(), reading.figure().rows()
    for low, high in (
        reading.interval(),
        (point.low, point.high),
        (row["low"], row["high"]),
        (drawn["low"], drawn["high"]),
    ):
        assert (low, high) == (8.5, 20.0)
    assert reading.interval(0.5) == Reading(9.0, 1.0, 8).interval(0.5)


def test_a_curve_prints_and_plots():
    readings = (Reading(0.5, 0.01, 9), Reading(0.25, 0.01, 9))
    curve = Curve("length", "error", (16, 64), readings, Reading(-0.5, 0.02, 18))
    assert "slope  -0.5 ± 0.02" in str(curve)
    axes = curve.plot().axes[0]
    assert axes.get_xscale() == "log"
    assert "slope -0.50" in axes.get_legend_handles_labels()[1][0]
