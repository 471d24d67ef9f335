"""Views of instruments: each holds the right numbers, and both plotting libraries draw all of
them."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import attention_maps, tightening
from attnlens.core.checks import BadInput
from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.core.readings import Reading
from attnlens.core.serialise import to_plain, view_from_plain
from attnlens.core.status import Status
from attnlens.instruments.landscape.audit import Audit, DescentEnds
from attnlens.instruments.representation.sufficiency import (
    ProbedReading,
    Representation,
    SufficiencyGap,
)
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.transfer.condition import Transfer, against
from attnlens.instruments.transfer.kappa import KappaReading
from attnlens.networks import Encoder, SelfAttention
from attnlens.networks.encoder import Tokens
from attnlens.networks.reader import Reader, ReaderInputs
from attnlens.report.alt_text import alt_text
from attnlens.report.draw.lines import COLOURS, GREYS, MOST_POINTS, colours, drawable, to_plotly
from attnlens.report.draw.maps import map_to_plotly
from attnlens.report.draw.ticks import log_ticks
from attnlens.report.views import views
from attnlens.training.settings import Recipe
from attnlens.training.stationary import StationaryPoint, StationaryPoints
from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    NormalInverseGamma,
    NormalMean,
    PolyaUrn,
)
from network_builders import blank

EPS = float(np.finfo(float).eps)


# -- attention by head -----------------------------------------------------------------------------


def random_model(kind: Any, **settings: Any) -> Any:
    """A network with normal random parameters, drawn by NumPy so that nothing is compiled."""
    random = np.random.default_rng(0)
    leaves, tree = jax.tree.flatten(blank(kind, **settings))
    return jax.tree.unflatten(tree, [jnp.asarray(random.normal(size=x.shape)) for x in leaves])


def test_the_weights_of_an_encoder_are_those_that_its_heads_use():
    model = random_model(Encoder, token_dim=3, width=8, heads=2, layers=2)
    tokens, mask = np.random.default_rng(1).normal(size=(5, 3)), np.arange(5) < 4

    @eqx.filter_jit
    def look(model, tokens, mask):
        """The weights of both layers, then the output of the first layer, computed from its weights
        and by the layer itself."""
        first, second = model.attention(Tokens(tokens, mask))
        layer = model.layers[0]
        seen = layer.before_attention(tokens @ model.embedding.T + model.embedding_bias[None])
        mixed = jnp.einsum("hqt,tw,hwd,hdo->qo", first, seen, layer.value, layer.output)
        return first, second, mixed, layer.attend(seen, mask)

    first, second, mixed, itself = (np.asarray(x) for x in look(model, tokens, mask))
    assert first.shape == second.shape == (2, 5, 5)
    np.testing.assert_allclose(second.sum(-1), 1, rtol=10 * EPS)
    assert not first[:, :, 4].any()  # no weight on a masked token
    # The outputs are sums of at most 40 products of numbers of order one to ten.
    np.testing.assert_allclose(mixed, itself, atol=1000 * EPS * np.abs(itself).max())


def test_the_weights_of_a_reader_give_what_it_reads():
    model = random_model(Reader, key_dim=2, value_dim=1, heads=3, hidden=4)
    inputs = ReaderInputs(
        *(np.random.default_rng(i).normal(size=(6, n)) for i, n in ((1, 2), (2, 1)))
    )
    weights, reads = eqx.filter_jit(lambda m, x: (m.attention(x), m.represent(x)))(model, inputs)
    by_weights = np.einsum("hrv,hl,lv->hr", model.value, weights, inputs.value).reshape(-1)
    np.testing.assert_allclose(by_weights, reads, rtol=1000 * EPS)


def test_there_is_one_panel_per_head_and_one_row_per_query(monkeypatch: pytest.MonkeyPatch):
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5))
    encoder = random_model(Encoder, token_dim=3, width=6, heads=3, layers=2)
    monkeypatch.setattr(Encoder, "attention", lambda *_: tuple(weights))
    maps = attention_maps(encoder, None, names=list("abcde"))
    names = [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2, 3)]
    assert [name for name, _ in maps.panels] == names
    np.testing.assert_array_equal(
        np.array([rows for _, rows in maps.panels]), weights.reshape(6, 5, 5)
    )
    assert maps.x_names == maps.y_names == tuple("abcde")
    assert maps.panels == attention_maps(weights).panels

    reader = random_model(Reader, key_dim=2, heads=3)
    monkeypatch.setattr(Reader, "attention", lambda *_: weights[0, :, 0])
    ((_, rows),) = attention_maps(reader, None).panels
    np.testing.assert_array_equal(rows, weights[0, :, 0])
    assert attention_maps(reader, None).y_names == ("head 1", "head 2", "head 3")

    # The weights of `SelfAttention` have queries as columns, so they are transposed.
    own = random_model(SelfAttention, tokens=5, token_dim=3, hidden=2)
    monkeypatch.setattr(SelfAttention, "attention", lambda *_: (weights[0, 0].T,))
    ((_, rows),) = attention_maps(own, np.ones(1)).panels
    np.testing.assert_array_equal(rows, weights[0, 0])


@pytest.mark.parametrize(
    ("subject", "names", "message"),
    [
        (np.ones(3), (), "2 to 4 dimensions"),
        (np.full((2, 2), np.nan), (), "finite weights"),
        (np.ones((2, 3)), ("a",), "names must be 3 names"),
    ],
)
def test_invalid_weights_are_refused(subject: Any, names: Any, message: str):
    with pytest.raises(BadInput, match=message):
        attention_maps(subject, names=names)


# -- the posterior tightening ----------------------------------------------------------------------


def test_the_precision_of_a_mean_grows_by_the_noise_precision_per_token():
    posterior = tightening(NormalMean(dim=2, noise_std=0.5, prior_std=2.0), length=16)
    n = np.arange(17)[:, None]
    np.testing.assert_allclose(
        posterior.standard_deviation**-2.0, np.broadcast_to(0.25 + 4 * n, (17, 2)), rtol=20 * EPS
    )
    np.testing.assert_allclose(posterior.mean[0], 0, atol=EPS)
    # The bound is four standard deviations: one of the two coordinates exceeds it by chance for 1
    # in 8,000 seeds.
    assert np.all(
        np.abs(posterior.mean[-1] - posterior.truth) < 4 * posterior.standard_deviation[-1]
    )


@pytest.mark.parametrize(
    "world",
    [
        FiniteMixture(means=[[-1.0], [1.0]], noise_std=1.0),
        pytest.param(GaussianProcess(), marks=pytest.mark.slow),
        pytest.param(DirichletCategorical(classes=3), marks=pytest.mark.slow),
        pytest.param(NormalInverseGamma(), marks=pytest.mark.slow),
    ],
    ids=lambda world: type(world).__name__,
)
def test_the_posterior_of_every_exact_world_approaches_the_truth(world: Any):
    posterior = tightening(world, length=64)
    figure = posterior.figure()
    assert posterior.mean.shape == posterior.standard_deviation.shape == (65, len(posterior.truth))
    assert all(math.isfinite(p.half_width) for s in figure.series for p in s.points)
    before, after = (np.linalg.norm(posterior.mean[n] - posterior.truth) for n in (0, -1))
    assert after < before
    assert "true value" in str(posterior)
    assert posterior.plot().axes


def test_a_world_without_a_posterior_is_refused():
    with pytest.raises(BadInput, match="needs a world with a posterior"):
        tightening(PolyaUrn())


# -- the others ------------------------------------------------------------------------------------


def curves() -> LearningCurves:
    sizes = (16, 64, 256)
    errors = {
        name: tuple(tuple(scale * n**-0.5 * (1 + 0.01 * fold) for n in sizes) for fold in range(4))
        for name, scale in (("attention", 1.0), ("baseline", 64.0))
    }
    return LearningCurves("made up", "error", sizes, 0.1, errors, (1.0, 1.0, 1.0))


def test_learning_curves_mark_the_labels_for_the_target_error():
    figure = curves().figure()
    marks = [series for series in figure.series if series.mark]
    # 1.015 n^(−1/2) = 0.1 at n = 103; the other curve does not reach it.
    assert marks[0].points[0].y == 0.1
    assert marks[0].points[0].x == pytest.approx(103, rel=0.02)
    assert marks[1].points == ()
    chosen = dict(zip((s.name for s in figure.series), colours(figure), strict=True))
    assert (
        chosen[marks[0].name]
        == chosen["attention"]
        == chosen["attention, law of the forecast, to 4 times the labels"]
    )
    assert len({chosen["attention"], chosen["baseline"], chosen["ε = 0.1"]}) == 3


def test_the_map_of_stationary_points_draws_excess_over_index():
    nothing = np.zeros(3)
    teacher = DescentEnds(
        np.array([0, 2, -1]), np.array([0.1, 0.5, 9.0]), nothing, nothing, np.zeros((3, 1))
    )
    audit = Audit(64, 0.05, {"a": (teacher,), "b": (teacher,)})
    points = [(point.x, point.y) for series in audit.map().series for point in series.points]
    assert [x for x, _ in points] == pytest.approx([0.925, 2.925, 1.075, 3.075])
    assert [y for _, y in points] == [0.1, 0.5, 0.1, 0.5]
    assert audit.map().names == ("0", "1", "2")  # drawn at x = 1, 2 and 3
    stationary = [
        StationaryPoint(np.zeros(1), loss, 0.0, 0.0, 1.0, index, 2 * loss, 1, (0,))
        for index, loss in ((0, 0.5), (1, 1.5))
    ]
    recipe = Recipe.of(partial(SelfAttention, tokens=2, token_dim=2, hidden=2))
    drawn = StationaryPoints(tuple(stationary), (), 2, 1e-8, recipe).figure()
    assert [(p.x, p.y) for p in drawn.series[0].points] == [(1, 1.0), (2, 3.0)]
    assert drawn.y_label == "test loss"


def transfer(kappa: float) -> Transfer:
    reading = KappaReading(kappa, 0.1, 60, low=kappa, high=kappa, explained=1.0, infinite=0.0)
    return Transfer(reading, Reading(0.25, 0.02, 60), {})


def test_transfers_are_drawn_at_their_condition_number():
    figure = against({"near": transfer(1.5), "not covered": transfer(math.inf)})
    near, never = figure.series
    assert near.points == (Reading(0.25, 0.02, 60).point(1.5),)
    assert never.points == ()
    assert never.name == "not covered: κ infinite, error 0.25"


READING = Reading(2.0, 0.5, 10)
BAND = Series("b", tuple(Point(float(n), 1.0 + n, 0.5) for n in range(5)), curve=True)
ALL: dict[str, Any] = {
    "reading": READING.figure(),
    "lost reading": Reading(math.nan, math.nan, 0, Status.FEW_REPLICATES).figure(),
    "representation": Representation(
        SufficiencyGap.of(READING, of_nothing=3.0),
        ProbedReading.of(READING),
        ProbedReading.of(READING),
    ).figure(),
    "learning curves": curves().figure(),
    "transfer": transfer(2.0).figure(),
    "infinite": transfer(math.inf).figure(),
    "band": Figure("Band", "x", "y", (BAND, Series("c", BAND.points, control=True)), False, False),
    "surface": Surface("loss", "a", "b", (0.0, 1.0), (0.0, 1.0), ((1.0, 2.0), (3.0, math.nan))),
    "map": Map("m", "x", "y", tuple((f"head {i}", ((0.5, 0.5), (0.2, 0.8))) for i in range(6))),
}


@pytest.mark.parametrize("name", ALL)
def test_both_libraries_draw_every_record_and_the_store_keeps_it(name: str):
    record = ALL[name]
    stored = json.loads(json.dumps(to_plain(record), allow_nan=False))
    shown, again = views([record]), views([view_from_plain(stored)])
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
        assert used <= {*COLOURS, *GREYS}
        lines = {line.get_color() for line in canvas.axes[0].get_lines()}
        assert lines == used or not lines


def test_intervals_that_are_not_symmetric_are_drawn_as_they_are():
    points = (Point.between(1.0, 2.0, low=1.75, high=4.0), Point(2.0, 3.0, 0.5))
    for curve in (False, True):
        figure = Figure("t", "x", "y", (Series("s", points, curve=curve),), False, False)
        first, *_ = to_plotly(figure)["data"]
        axes = figure.plot().axes[0]
        if curve:
            assert first["y"] == [4.0, 3.5, 2.5, 1.75]
            drawn = axes.collections[0].get_paths()[0].vertices
            assert {(1.0, 1.75), (1.0, 4.0), (2.0, 2.5), (2.0, 3.5)} <= set(map(tuple, drawn))
        else:
            assert first["error_y"] | {"thickness": None} == {
                "type": "data",
                "array": [2.0, 0.5],
                "arrayminus": [0.25, 0.5],
                "symmetric": False,
                "thickness": None,
            }
            assert first["customdata"] == [[1.75, 4.0], [2.5, 3.5]]
            bars = axes.collections[0].get_segments()
            assert [bar[:, 1].tolist() for bar in bars] == [[1.75, 4.0], [2.5, 3.5]]


@pytest.mark.parametrize("curve", [False, True], ids=["points", "curves"])
def test_controls_of_one_figure_have_different_marks(curve: bool):
    points = (Point(1.0, 2.0), Point(2.0, 3.0))
    series = tuple(
        Series(n, points, control=n != "claim", curve=curve) for n in ("claim", *"abcde")
    )
    figure = Figure("t", "x", "y", series, False, False)
    traces = to_plotly(figure)["data"]
    assert len({(trace["marker"]["symbol"], trace["line"]["color"]) for trace in traces}) == 6
    drawn = figure.plot().axes[0].get_lines()[:6]
    if curve:
        looks = {(trace["line"]["dash"], trace["line"]["color"]) for trace in traces}
        lines = {(line.get_linestyle(), line.get_color()) for line in drawn}
        assert (len(looks), len(lines)) == (6, 6)
    else:
        marks = [c.lines[0].get_marker() for c in figure.plot().axes[0].containers]
        assert len(set(marks)) == 6


def test_intervals_without_finite_ends_are_not_drawn():
    points = (Point(1.0, 2.0, math.inf), Point(2.0, 2.0, math.nan), Point(3.0, 2.0, 0.5))
    shown = views([Figure("t", "x", "y", (Series("a", points),))])
    json.dumps(shown, allow_nan=False)
    assert shown[0]["plotly"]["data"][0]["error_y"]["array"] == [0.0, 0.0, 0.5]


def test_records_of_old_folders_lack_new_fields():
    points = [{"x": 1.0, "y": 2.0, "half_width": 0.0}]
    flags = {"slope": None, "reference": None, "control": False, "line": False}
    old = {
        "title": "t",
        "x_label": "x",
        "y_label": "y",
        "log_x": True,
        "log_y": True,
        "series": [{"name": "a", "points": points, **flags}],
    }
    assert view_from_plain(old) == Figure("t", "x", "y", (Series("a", (Point(1.0, 2.0),)),))


def test_many_points_are_drawn_as_means_of_neighbours():
    many = Series("a", tuple(Point(float(i), float(i % 2), 3.0) for i in range(10 * MOST_POINTS)))
    drawn = drawable(many)
    assert drawn.name == "a (means of 10)"
    assert len(drawn.points) == MOST_POINTS
    first = drawn.points[0]
    assert (first.x, first.y) == (4.5, 0.5)
    assert first.half_width == pytest.approx(3 / math.sqrt(10), rel=10 * EPS)
    assert drawable(Series("a", many.points[:MOST_POINTS])).points == many.points[:MOST_POINTS]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([3.0, 40.0], {"1", "2", "5", "10", "50", "100", "0.5"}),
        ([0.02, 0.03], {"0.018", "0.02", "0.025", "0.03", "0.035"}),
        ([1e-3, 1e3], {"0.001", "1", "1,000"}),
        ([1e-16, 1e-15], {"10<sup>−16</sup>", "5·10<sup>−16</sup>"}),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_plain_numbers(values: Any, shown: set):
    ticks = log_ticks(values)
    assert shown <= set(ticks["ticktext"])
    assert len(ticks["ticktext"]) == len(ticks["tickvals"]) <= 16
    assert ticks["tickvals"][0] <= min(values) <= max(values) <= ticks["tickvals"][-1]
    assert log_ticks([0.0, math.nan]) == {}


def test_both_libraries_show_names_unchanged():
    name = "<b>$\\frac{$ & <a href='x'>"
    figure = Figure(name, name, name, (Series(name, (Point(1, 2),)),), names=(name,))
    figure.plot().canvas.draw()  # an invalid formula would raise
    assert "<" not in json.dumps(to_plotly(figure)["layout"])
    panels = Map(name, name, name, ((name, ((1.0,),)),), (name,), (name,))
    panels.plot().canvas.draw()
    assert "<b>" not in json.dumps(map_to_plotly(panels))
    assert name in alt_text(figure)
