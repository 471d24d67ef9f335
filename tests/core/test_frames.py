"""Results as data frames and as HTML: every number of a result is in its rows."""

from __future__ import annotations

import inspect
import math
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints
from unittest import mock

import numpy as np
import pytest

import attnlens
from attnlens.core import frames
from attnlens.core.checks import BadInput
from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.core.frames import Tabular, column_kinds, frame, frame_library, html_table
from attnlens.core.inspections import Inspection, Measure
from attnlens.core.readings import BoundedReading, Curve, Reading
from attnlens.core.sheets import Answer, Question, Sheet
from attnlens.core.statistics import judge, verdicts
from attnlens.core.status import Status
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.amortised import AmortisedPosterior
from attnlens.instruments.inference.learned import Generalisation
from attnlens.instruments.inference.posterior import Tightening
from attnlens.instruments.landscape.audit import Audit, DescentEnds
from attnlens.instruments.landscape.connectivity import Path
from attnlens.instruments.landscape.hessian import curvature
from attnlens.instruments.order.martingale import Wealth
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.guidelines import Guidelines, Recommendation
from attnlens.instruments.samples.sample_size import SampleSize

HOSTILE = "<script>alert(1)</script> & $x$"
READING = Reading(0.5, 0.1, 9)
CURVE = Curve("length", HOSTILE, (16, 64), (Reading(1.0, 0.1, 9), READING))
PLANE = Surface("loss", "x", "y", (0.0, 1.0), (2.0, 3.0), ((0.0, 1.0), (4.0, 5.0)))
FIGURE = Figure(HOSTILE, "x", "y", (Series(HOSTILE, (Point(1.0, 2.0, 0.5), Point(2.0, 3.0))),))
HEADS = Map("T", "x", "y", (("head", ((0.25, 0.75),)),), x_names=("a", "b"))
ANSWER = Answer("Order?", HOSTILE, "p = 0.1", name=Question.ORDER, readings={"p": READING})
ERRORS = {"one": ((0.5, 0.4, 0.3), (0.6, 0.4, 0.2), (0.5, 0.3, 0.2))}
CURVES = LearningCurves("data", "error", (8, 16, 32), 0.3, ERRORS, (1.0, 1.0, 1.0))
ENDS = DescentEnds(
    np.zeros(2, int), np.array([0.1, 0.2]), np.zeros(2), np.zeros(2), np.zeros((2, 1))
)
VERDICT = verdicts([[judge("slope", [-0.50, -0.51, -0.49, -0.50], Region(-0.55, -0.45))]])[0]
BY_HEAD = ((READING, READING), (READING, READING))
MEASURES = (
    Measure("order", "0 is a bag of words.", (0, 1), (READING, READING)),
    Measure("reach", HOSTILE, (1, 2), (READING, READING), BY_HEAD),
)
RESULTS: dict[str, tuple[Tabular, int]] = {
    "reading": (READING, 1),
    "no number": (Reading(math.nan, math.nan, 1, Status.FEW_REPLICATES), 1),
    "bounded": (BoundedReading(2.0, 0.5, 8, low=1.0, high=4.0), 1),
    "curve": (CURVE, 2),
    "surface": (PLANE, 4),
    "figure": (FIGURE, 2),
    "map": (HEADS, 2),
    "answer": (ANSWER, 1),
    "sheet": (Sheet("Mine", (), (ANSWER,), (FIGURE, PLANE, HEADS)), 1),
    "verdict": (VERDICT, 1),
    "learning curves": (CURVES, 3),
    "wealth": (Wealth((0.0, 0.5), 1), 2),
    "tightening": (Tightening("z", np.ones((3, 2)), np.ones((3, 2)), np.zeros(2)), 6),
    "generalisation": (Generalisation(CURVE, CURVE, 4, 8), 4),
    "path": (Path(CURVE, CURVE, None), 4),
    "audit": (Audit(64, 0.05, {"attention": (ENDS, ENDS)}), 4),
    "guidelines": (Guidelines("d", 8, (Recommendation("a", "w", READING, -1.0, 1.0),)), 1),
    "measure": (MEASURES[1], 6),
    "inspection": (Inspection("Mine", (), (), MEASURES), 8),
    "sample size": (SampleSize(64.0, 32.0, math.inf), 1),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_frame_has_one_row_per_row_of_the_record(name: str, library: str):
    pytest.importorskip(library)
    result, count = RESULTS[name]
    table: Any = result.to_frame(library)  # pyright: ignore[reportArgumentType] (the name of an installed library)
    assert (table.num_rows if library == "pyarrow" else len(table)) == len(result.rows()) == count


@pytest.mark.parametrize("name", RESULTS)
def test_a_notebook_shows_a_table_and_escapes_text(name: str):
    text = RESULTS[name][0]._repr_html_()
    assert text.startswith("<table>")
    assert "<script" not in text
    drawn = {
        "sheet": 3,
        "inspection": 2,
        "generalisation": 2,
        "answer": 0,
        "verdict": 0,
        "sample size": 0,
    }
    assert text.count("<svg") == drawn.get(name, 1)


def test_every_result_of_a_public_function_has_a_frame_and_a_display():
    """Results are the records that public functions return; a posterior, a loaded run (whose frames
    are attributes) and plain data are no results in this sense."""
    returned: set[type] = set()
    for name in dir(attnlens):
        member = getattr(attnlens, name)
        if inspect.isfunction(member):
            hint = get_type_hints(member, include_extras=True).get("return")
            returned |= {kind for kind in (get_args(hint) or (hint,)) if inspect.isclass(kind)}
    records = {kind for kind in returned if is_dataclass(kind)} - {AmortisedPosterior}
    assert len(records) >= 15
    assert {kind for kind in records if not issubclass(kind, Tabular)} == set()


def test_numbers_of_frames_are_those_of_the_records():
    low, high = READING.interval()
    (row,) = READING.to_frame("pyarrow").to_pylist()
    assert (row["value"], row["low"], row["high"], row["count"]) == (0.5, low, high, 9)
    (row,) = RESULTS["bounded"][0].to_frame("pyarrow").to_pylist()
    assert (row["value"], row["low"], row["high"]) == (2.0, 1.0, 4.0)
    assert CURVE.to_frame("pyarrow")["at"].to_pylist() == [16, 64]
    points = PLANE.to_frame("pyarrow").to_pylist()
    assert [(p["x"], p["y"], p["value"]) for p in points][2] == (0.0, 3.0, 4.0)
    (part,) = VERDICT.to_frame("pyarrow").to_pylist()
    assert (part["estimate"], part["region_low"]) == (VERDICT.parts[0].estimate, -0.55)
    rows = CURVES.to_frame("pyarrow").to_pylist()
    means = [reading.value for reading in CURVES["one"].readings]
    assert [row["value"] for row in rows] == means
    assert [row["labels"] for row in rows] == [8, 16, 32]


def test_curvature_with_and_without_a_density():
    bowl = curvature(lambda w: w[0] ** 2 + 3 * w[1] ** 2, np.ones(2))
    rows = {row["quantity"]: row["value"] for row in bowl.to_frame("pyarrow").to_pylist()}
    assert rows["largest 1"] == pytest.approx(6.0)
    assert rows["trace"] == pytest.approx(8.0)
    assert bowl._repr_html_().count("<svg") == (bowl.density is not None)


def test_columns_have_one_type():
    rows = [{"n": np.int64(1), "x": 1, "b": True, "t": "a"}, {"n": 2, "x": None, "b": False}]
    kinds = {"n": int, "x": float, "b": bool, "t": str}
    assert column_kinds(rows) == kinds
    table = frame(rows, "pyarrow")
    assert [str(kind) for kind in table.schema.types] == ["int64", "double", "bool", "string"]
    assert table.to_pylist()[1] == {"n": 2, "x": None, "b": False, "t": None}


def test_long_tables_are_shortened():
    text = html_table([{"n": n} for n in range(1000)])
    assert text.count("<tr>") == frames.MOST_ROWS + 2
    assert "<td>999</td>" in text


def test_the_library_of_frames():
    with pytest.raises(BadInput, match="frames must be one of"):
        frame_library("dask")
    with mock.patch("importlib.util.find_spec", lambda name: name == "pyarrow" or None):
        assert frame_library() == "pyarrow"
        with pytest.raises(BadInput, match="pip install polars"):
            frame_library("polars")
    with (
        mock.patch("importlib.util.find_spec", return_value=None),
        pytest.raises(BadInput, match="a frame needs pandas or pyarrow or polars"),
    ):
        frame_library()
