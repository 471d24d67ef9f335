"""What instruments show: the numbers behind each view, and both libraries drawing all of them."""

from __future__ import annotations

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import attention_maps, tightening
from attnlens.attention import softmax
from attnlens.checks import BadInput
from attnlens.figures import (
    COLOURS,
    GREY,
    MOST,
    colours,
    drawable,
    map_to_plotly,
    to_plotly,
)
from attnlens.instruments.audit import Audit, Ends
from attnlens.instruments.learning import LearningCurves
from attnlens.instruments.sufficiency import Representation
from attnlens.instruments.transfer import Transfer, against
from attnlens.networks import Encoder, SelfAttention
from attnlens.networks.encoder import Tokens
from attnlens.networks.reader import Asked, Reader
from attnlens.networks.stationary import StationaryPoint, StationaryPoints
from attnlens.records import Figure, Map, Point, Reading, Series, Surface, plain
from attnlens.report.views import restored, views
from attnlens.report.words import describe
from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    LogisticRegression,
    NormalInverseGamma,
    NormalMean,
)

KEY = jax.random.key(0)
EPS = float(np.finfo(float).eps)


# -- attention by head -----------------------------------------------------------------------------


def test_the_weights_of_an_encoder_are_those_that_its_heads_use():
    model = Encoder(KEY, token_dim=3, width=8, heads=2, layers=2)
    tokens = jax.random.normal(jax.random.key(1), (5, 3))
    mask = jnp.arange(5) < 4
    first, second = model.attention(Tokens(tokens, mask))
    assert first.shape == second.shape == (2, 5, 5)
    np.testing.assert_allclose(np.sum(second, -1), 1, rtol=10 * EPS)
    assert not np.any(np.asarray(first)[:, :, 4])  # nobody looks behind the mask
    # The attention of the first block, put together from its weights.
    h = tokens @ model.embedding.T + model.embedding_bias[None]
    block, seen = model.blocks[0], model.blocks[0].before_attention(h)
    by_weights = sum(
        first[i] @ (seen @ block.value[i]) @ block.output[i] for i in range(2)
    )  # fmt: skip
    np.testing.assert_allclose(by_weights, block.attend(seen, mask), atol=100 * EPS)
    drawn = attention_maps(model, tokens, names=list("abcde"))
    assert [name for name, _ in drawn.panels] == [
        f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2)
    ]
    assert drawn.x_names == drawn.y_names == tuple("abcde")


def test_the_weights_of_a_reader_give_what_it_reads():
    model = Reader(KEY, key_dim=2, value_dim=1, heads=3, hidden=4)
    key, value = (jax.random.normal(jax.random.key(i), (6, n)) for i, n in ((1, 2), (2, 1)))
    weights = np.asarray(model.attention(Asked(key, value)))
    reads = np.einsum("hrv,hl,lv->hr", model.value, weights, value).reshape(-1)
    np.testing.assert_allclose(reads, model.represent(Asked(key, value)), atol=100 * EPS)
    drawn = attention_maps(model, Asked(key, value))
    np.testing.assert_array_equal(np.array(drawn.panels[0][1]), weights)
    assert drawn.y_names == ("head 1", "head 2", "head 3")


def test_self_attention_and_plain_weights_are_rows_of_queries():
    model = SelfAttention(KEY, tokens=4, token_dim=3, hidden=2)
    x = jax.random.normal(jax.random.key(1), (3, 4))
    ((_, rows),) = attention_maps(model, x).panels
    queries, keys = (x.T @ part.T for part in (model.layer.query, model.layer.key))
    np.testing.assert_allclose(rows, softmax(queries, keys, jnp.eye(4)), atol=10 * EPS)
    np.testing.assert_array_equal(attention_maps(np.array(rows)).panels[0][1], rows)
    four = np.full((2, 3, 2, 5), 0.2)
    assert len(attention_maps(four).panels) == 6


@pytest.mark.parametrize(
    ("subject", "names", "said"),
    [
        (np.ones(3), (), "2 to 4 dimensions"),
        (np.full((2, 2), np.nan), (), "finite weights"),
        (np.ones((2, 3)), ("a",), "names must be 3 names"),
    ],
)
def test_weights_that_are_none_are_refused(subject: Any, names: Any, said: str):
    with pytest.raises(BadInput, match=said):
        attention_maps(subject, names=names)


# -- the posterior tightening ----------------------------------------------------------------------


def test_a_mean_tightens_as_its_precision_adds_up():
    found = tightening(NormalMean(dim=2, noise_std=0.5, prior_std=2.0), length=16)
    n = np.arange(17)[:, None]
    np.testing.assert_allclose(
        found.standard_deviation**-2.0, np.broadcast_to(0.25 + 4 * n, (17, 2)), rtol=20 * EPS
    )
    np.testing.assert_allclose(found.mean[0], 0, atol=EPS)
    # Four standard deviations: one of these two fails by chance in 8,000 seeds.
    assert np.all(np.abs(found.mean[-1] - found.truth) < 4 * found.standard_deviation[-1])


@pytest.mark.parametrize(
    "world",
    [
        GaussianProcess(),
        FiniteMixture(means=[[-1.0], [1.0]], noise_std=1.0),
        DirichletCategorical(classes=3),
        NormalInverseGamma(),
    ],
    ids=lambda world: type(world).__name__,
)
def test_every_exact_world_can_be_followed_and_ends_nearer_to_the_truth(world: Any):
    found = tightening(world, length=64)
    figure = found.figure()
    assert found.mean.shape == found.standard_deviation.shape == (65, len(found.truth))
    assert all(math.isfinite(p.half_width) for s in figure.series for p in s.points)
    before, after = (np.linalg.norm(found.mean[n] - found.truth) for n in (0, -1))
    assert after < before
    assert "in truth" in str(found)
    assert found.plot().axes


def test_a_posterior_without_a_closed_form_is_not_followed():
    with pytest.raises(BadInput, match="closed form"):
        tightening(LogisticRegression())


# -- the others ------------------------------------------------------------------------------------


def curves() -> LearningCurves:
    sizes = (16, 64, 256)
    errors = {
        name: tuple(tuple(scale * n**-0.5 * (1 + 0.01 * fold) for n in sizes) for fold in range(4))
        for name, scale in (("attention", 1.0), ("baseline", 64.0))
    }
    return LearningCurves("made up", "error", sizes, 0.1, errors, (1.0, 1.0, 1.0))


def test_learning_curves_mark_what_the_target_needs():
    figure = curves().figure()
    marks = [series for series in figure.series if series.mark]
    # 1.015 n^(−1/2) = 0.1 at n = 103; the other never gets there.
    assert marks[0].points[0].y == 0.1
    assert marks[0].points[0].x == pytest.approx(103, rel=0.02)
    assert marks[1].points == ()
    chosen = dict(zip((s.name for s in figure.series), colours(figure), strict=True))
    assert chosen[marks[0].name] == chosen["attention"] == chosen["attention, fitted law"]
    assert len({chosen["attention"], chosen["baseline"], chosen["ε = 0.1"]}) == 3


def test_the_map_of_stationary_points_puts_excess_over_index():
    ends = Ends(np.array([0, 2, -1]), np.array([0.1, 0.5, 9.0]), *(np.zeros(3) for _ in range(2)),
                np.zeros((3, 1)))  # fmt: skip
    audit = Audit(64, 0.05, {"a": (ends,), "b": (ends,)})
    points = [(point.x, point.y) for series in audit.map().series for point in series.points]
    assert points == pytest.approx([(-0.075, 0.1), (1.925, 0.5), (0.075, 0.1), (2.075, 0.5)])
    found = [
        StationaryPoint(np.zeros(1), loss, 0.0, 0.0, 1.0, index, 2 * loss, 1, (0,))
        for index, loss in ((0, 0.5), (1, 1.5))
    ]
    both: Any = StationaryPoints(tuple(found), (), 2, 1e-8, None)  # type: ignore[arg-type]
    drawn = both.figure()
    assert [(p.x, p.y) for p in drawn.series[0].points] == [(0, 1.0), (1, 3.0)]
    assert drawn.y_label == "test loss"


def transfer(kappa: float) -> Transfer:
    return Transfer(Reading(kappa, 0.1, 60), (kappa, kappa), Reading(0.25, 0.02, 60), {})


def test_transfers_stand_at_their_condition_number():
    figure = against({"near": transfer(1.5), "never asked": transfer(math.inf)})
    near, never = figure.series
    assert near.points == (Point(1.5, 0.25, 1.96 * 0.02),)
    assert never.points == ()
    assert never.name == "never asked: κ infinite, error 0.25"


READING = Reading(2.0, 0.5, 10)
BAND = Series("b", tuple(Point(float(n), 1.0 + n, 0.5) for n in range(5)), curve=True)
ALL: dict[str, Any] = {
    "reading": READING.figure(),
    "lost reading": Reading(math.nan, math.nan, 0, "nothing came").figure(),
    "representation": Representation(READING, READING, READING).figure(),
    "learning curves": curves().figure(),
    "transfer": transfer(2.0).figure(),
    "infinite": transfer(math.inf).figure(),
    "band": Figure("Band", "x", "y", (BAND, Series("c", BAND.points, control=True)), False, False),
    "surface": Surface("loss", "a", "b", (0.0, 1.0), (0.0, 1.0), ((1.0, 2.0), (3.0, math.nan))),
    "map": Map("m", "x", "y", tuple((f"head {i}", ((0.5, 0.5), (0.2, 0.8))) for i in range(6))),
}


@pytest.mark.parametrize("name", ALL)
def test_both_libraries_draw_it_and_the_store_keeps_it(name: str):
    record = ALL[name]
    kept = json.loads(json.dumps(plain(record), allow_nan=False))
    shown, again = views([record]), views([restored(kept)])
    json.dumps(shown, allow_nan=False)
    assert json.dumps(again) == json.dumps(shown)
    for view in shown:
        assert view["alternative"]
        assert view["plotly"]["data"]
    canvas = record.plot()
    canvas.canvas.draw()
    if isinstance(record, Figure):
        traces = [trace for trace in to_plotly(record)["data"] if "marker" in trace]
        used = {trace["marker"]["color"] for trace in traces}
        assert used <= {*COLOURS, GREY}
        lines = {line.get_color() for line in canvas.axes[0].get_lines()}
        assert lines == used or not lines


def test_old_folders_know_nothing_of_new_fields():
    points = [{"x": 1.0, "y": 2.0, "half_width": 0.0}]
    flags = {"slope": None, "reference": None, "control": False, "line": False}
    old = {
        "title": "t", "x_label": "x", "y_label": "y", "log_x": True, "log_y": True,
        "series": [{"name": "a", "points": points, **flags}],
    }  # fmt: skip
    assert restored(old) == Figure("t", "x", "y", (Series("a", (Point(1.0, 2.0),)),))


def test_many_points_are_drawn_as_means_of_neighbours():
    many = Series("a", tuple(Point(float(i), float(i % 2), 3.0) for i in range(10 * MOST)))
    drawn = drawable(many)
    assert drawn.name == "a (means of 10)"
    assert len(drawn.points) == MOST
    assert drawn.points[0] == Point(4.5, 0.5, pytest.approx(3 / math.sqrt(10)))
    assert drawable(Series("a", many.points[:MOST])).points == many.points[:MOST]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([3.0, 40.0], {"1", "2", "5", "10", "50", "100", "0.5"}),
        ([0.02, 0.03], {"0.01", "0.02", "0.05", "0.1"}),
        ([1e-3, 1e3], {"0.001", "1", "1,000"}),
        ([1e-16, 1e-15], {"10<sup>−16</sup>", "5·10<sup>−16</sup>"}),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_numbers_that_people_read(values: Any, shown: set):
    ticks = log_ticks(values)
    assert shown <= set(ticks["ticktext"])
    assert len(ticks["ticktext"]) == len(ticks["tickvals"]) <= 16
    assert ticks["tickvals"][0] <= min(values) <= max(values) <= ticks["tickvals"][-1]
    assert log_ticks([0.0, math.nan]) == {}


def test_names_are_shown_as_they_stand_by_both_libraries():
    name = "<b>$\\frac{$ & <a href='x'>"
    figure = Figure(name, name, name, (Series(name, (Point(1, 2),)),), names=(name,))
    figure.plot().canvas.draw()  # a formula that is none would raise
    assert "<" not in json.dumps(to_plotly(figure)["layout"])
    panels = Map(name, name, name, ((name, ((1.0,),)),), (name,), (name,))
    panels.plot().canvas.draw()
    assert "<b>" not in json.dumps(map_to_plotly(panels))
    assert name in describe(figure)
