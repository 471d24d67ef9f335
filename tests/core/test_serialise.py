"""Records as JSON and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.core.readings import BoundedReading, Curve, Reading
from attnlens.core.serialise import (
    part_to_plain,
    reading_from_plain,
    to_plain,
    verdict_to_plain,
    view_from_plain,
)
from attnlens.core.statistics import judge, verdicts
from attnlens.core.status import Status
from attnlens.core.verdicts import Region

VIEWS = {
    "figure": Figure("t", "x", "y", (Series("a", (Point(1.0, 2.0, 0.5),), slope=-0.5),)),
    "surface": Surface("loss", "x", "y", (0.0, 1.0), (0.0,), ((1.0, 2.0),)),
    "map": Map("t", "x", "y", (("head 1", ((0.5, 0.5),)),)),
}


def through_json(record: object) -> dict:
    return json.loads(json.dumps(to_plain(record), allow_nan=False))


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_back(name: str):
    view = VIEWS[name]
    restored = view_from_plain(through_json(view))
    assert type(restored) is type(view)
    assert through_json(restored) == through_json(view)


@pytest.mark.parametrize(
    "reading",
    [
        Reading(0.5, 0.1, 9),
        Reading(0.5, 0.1, 1, freedom=199),
        BoundedReading(9.0, 1.0, 8, Status.EXTRAPOLATED, low=1.0, high=20.0),
    ],
)
def test_readings_are_read_back(reading: Reading):
    restored = reading_from_plain(through_json(reading))
    assert Reading.of(restored) == Reading.of(reading)
    assert restored.details == reading.details


def test_intervals_that_are_not_symmetric_are_read_back():
    points = (Point(1.0, 2.0, 0.5), Point.between(2.0, 2.0, low=1.75, high=4.0))
    figure = Figure("title", "x", "y", (Series("points", points),))
    restored = view_from_plain(through_json(figure))
    assert isinstance(restored, Figure)
    assert restored.series == figure.series
    assert [set(to_plain(p)) - {"x", "y", "half_width"} for p in points] == [set(), {"below"}]


def test_numbers_that_json_lacks_are_read_back_as_nan():
    figure = Figure("t", "x", "y", (Series("a", (Point(1.0, math.nan, math.inf),)),))
    restored = view_from_plain(through_json(figure))
    assert isinstance(restored, Figure)
    (point,) = restored.series[0].points
    assert point.x == 1
    assert np.isnan([point.y, point.half_width]).all()
    lost = reading_from_plain(through_json(Reading(math.nan, math.nan, 0, Status.FEW_TOKENS)))
    assert math.isnan(lost.value)
    assert lost.status is Status.FEW_TOKENS


def test_readings_of_older_documents_have_a_sentence_and_no_degrees_of_freedom():
    old = {"value": None, "standard_error": None, "count": 9, "status": "a sentence", "details": {}}
    reading = reading_from_plain(old)
    assert (reading.status, reading.reason) == (Status.OTHER, "a sentence")
    assert reading.freedom is None


def test_curves_contain_their_readings():
    curve = Curve("length", "error", (16,), (Reading(0.5, 0.1, 9),))
    restored = reading_from_plain(through_json(curve)["readings"][0])
    assert Reading.of(restored) == curve.readings[0]


def test_parts_and_verdicts_have_the_form_of_the_page():
    part = judge("slope", [1.0, 1.1, 0.9], Region(low=0.5))
    content = part_to_plain(part)
    assert content["edges"] == [0.5, None]
    assert (content["low"], content["high"]) == (part.low, part.high)
    (verdict,) = verdicts([[part]])
    assert verdict_to_plain(verdict)["parts"] == [content]
