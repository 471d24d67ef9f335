"""Slices of losses known in closed form."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.core.drawing import Surface
from attnlens.core.readings import Curve
from attnlens.instruments import Supervised, surface
from attnlens.instruments.landscape.products import Subject
from attnlens.instruments.landscape.slices import losses, normalised
from attnlens.networks import Baseline
from attnlens.report.draw.surfaces import surface_to_plotly

EPS = np.finfo(float).eps
random = np.random.default_rng(0)
A = random.normal(size=(6, 6))
A = A @ A.T + np.diag([0, 0, 0, 0, 0, -40.0])
PARAMS = {"w": random.normal(size=(2, 2)), "b": random.normal(size=2)}


def flat(params):
    return jnp.concatenate([params["b"], params["w"].ravel()])


def quadratic(params, data):
    """½ wᵀ A w with A the mean of the data."""
    w = flat(params)
    return 0.5 * w @ (jnp.mean(data, axis=0) @ w)


DATA = np.stack([0.5 * A, A, 1.5 * A])
W = np.concatenate([PARAMS["b"], PARAMS["w"].ravel()])


def plane(u: np.ndarray, v: np.ndarray, axis: np.ndarray) -> np.ndarray:
    at = W + axis[None, :, None] * u + axis[:, None, None] * v
    return 0.5 * np.einsum("yxi,ij,yxj->yx", at, A, at)


def as_surface(result: Surface | Curve) -> Surface:
    assert isinstance(result, Surface)
    return result


def as_curve(result: Surface | Curve) -> Curve:
    assert isinstance(result, Curve)
    return result


@pytest.mark.parametrize("chunk", [1024, 2])  # 2: one chunk of two samples, one of one
def test_a_plane_of_a_quadratic_has_its_closed_form(chunk: int):
    u, v = random.normal(size=(2, 6))
    trees = [{"b": d[:2], "w": d[2:].reshape(2, 2)} for d in (u, v)]
    result = as_surface(
        surface(quadratic, PARAMS, DATA, directions=trees, span=2.0, points=11, chunk=chunk)
    )
    axis = np.linspace(-2, 2, 11)
    expected = plane(u, v, axis)
    np.testing.assert_allclose(result.values, expected, atol=100 * EPS * np.abs(expected).max())
    assert result.x == result.y == tuple(axis)
    lowest = np.unravel_index(expected.argmin(), expected.shape)
    assert result.minimum == (axis[lowest[1]], axis[lowest[0]], np.array(result.values).min())
    assert "lowest" in str(result)


def test_the_losses_do_not_depend_on_the_batches_of_points():
    subject = Subject(quadratic, PARAMS, DATA)
    moves, coordinates = random.normal(size=(2, 6)), random.normal(size=(70, 2))
    one_by_one = losses(subject, moves, coordinates)
    at = W + coordinates @ moves
    expected = 0.5 * np.einsum("ci,ij,cj->c", at, A, at)
    within = 100 * EPS * np.abs(expected).max()
    np.testing.assert_allclose(one_by_one, expected, atol=within)
    np.testing.assert_allclose(losses(subject, moves, coordinates, 16), expected, atol=within)


def test_the_loss_along_an_eigenvector_is_half_its_eigenvalue():
    zero = jax.tree.map(np.zeros_like, PARAMS)
    values = np.linalg.eigvalsh(A)
    for directions, expected in (("hessian", values[[-1, -2]]), ("hessian-ends", values[[-1, 0]])):
        result = as_surface(surface(quadratic, zero, DATA, directions=directions, points=3))
        # At distance one from w = 0 along a unit eigenvector the loss is L = λ/2; eigenvectors of
        # six parameters are exact.
        np.testing.assert_allclose(
            [result.values[1][2], result.values[2][1]],
            expected / 2,
            atol=1e4 * EPS * np.abs(A).max(),
        )


def test_maps_of_the_hessian_of_a_quadratic_are_constant():
    values = np.linalg.eigvalsh(A)
    settings = {"points": 2, "directions": "random"}
    ratio = as_surface(surface(quadratic, PARAMS, DATA, quantity="hessian-ratio", **settings))
    low = as_surface(surface(quadratic, PARAMS, DATA, quantity="smallest-eigenvalue", **settings))
    np.testing.assert_allclose(ratio.values, abs(values[0] / values[-1]), rtol=1e4 * EPS)
    np.testing.assert_allclose(low.values, values[0], rtol=1e4 * EPS)


def test_filter_normalisation_gives_each_row_the_norm_of_its_weights():
    subject = Subject(quadratic, PARAMS, DATA)
    move = random.normal(size=6)
    for axis in (0, 1):
        scaled = normalised(subject, move, "filter", filter_axis=axis)
        np.testing.assert_array_equal(scaled[:2], 0)  # biases stay
        rows = scaled[2:].reshape(2, 2)
        lengths = np.linalg.norm(PARAMS["w"], axis=1 - axis)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1 - axis), lengths, rtol=10 * EPS)
        # The ratio is constant within a row: the direction of the row is kept.
        ratio = rows / move[2:].reshape(2, 2)
        np.testing.assert_allclose(np.ptp(ratio, axis=1 - axis), 0, atol=10 * EPS)
    own = normalised(subject, move, "filter", biases="own")
    assert np.linalg.norm(own[:2]) == pytest.approx(np.linalg.norm(PARAMS["b"]), rel=10 * EPS)
    whole = normalised(subject, move, "array")
    assert np.linalg.norm(whole[2:]) == pytest.approx(np.linalg.norm(PARAMS["w"]), rel=10 * EPS)


def test_filter_normalised_planes_do_not_depend_on_the_scale_of_a_homogeneous_network():
    # With ReLU, (α w₁, w₂/α) is the same function and has the same filter-normalised plane.
    model = Baseline(jax.random.key(0), features=3, hidden=4, sharpness=float("inf"))
    scaled = eqx.tree_at(
        lambda m: (m.first, m.second), model, (10 * model.first, model.second / 10)
    )
    data = (random.normal(size=(20, 3)), random.normal(size=(20, 1)))
    pictures = [
        np.array(as_surface(surface(Supervised(), m, data, points=5, normalise=kind)).values)
        for kind in ("filter", "none")
        for m in (model, scaled)
    ]
    np.testing.assert_allclose(pictures[0], pictures[1], rtol=1e3 * EPS)
    assert np.abs(pictures[2] - pictures[3]).max() > 0.1  # without normalisation they differ


def test_the_mean_over_random_lines_has_its_closed_form_within_the_error():
    # The mean over lines u ~ N(0, I) is E L(w + t u) = L(w) + t² tr(A)/2.
    curve = as_curve(
        surface(quadratic, PARAMS, DATA, dims=1, normalise="none", points=3, draws=400)
    )
    assert isinstance(curve, Curve)
    expected = 0.5 * W @ A @ W + 0.5 * np.trace(A)
    for reading in (curve.readings[0], curve.readings[2]):
        assert reading.count == 400
        assert abs(reading.value - expected) < 4.5 * reading.standard_error
    assert curve.readings[1].standard_error == pytest.approx(0, abs=1e-12)
    assert curve.plot() is not None


def test_principal_directions_reproduce_the_trajectory():
    # The trajectory lies in a plane: two directions contain all of it, and coordinates keep its
    # lengths.
    u, v = np.linalg.qr(random.normal(size=(6, 2)))[0].T
    coordinates = random.normal(size=(10, 2)) * [3.0, 0.5]
    steps = W + coordinates @ np.stack([u, v])
    trees = [{"b": s[:2], "w": s[2:].reshape(2, 2)} for s in steps]
    result = as_surface(
        surface(quadratic, PARAMS, DATA, directions="principal", trajectory=trees, points=3)
    )
    np.testing.assert_allclose(
        np.linalg.norm(result.path, axis=1), np.linalg.norm(coordinates, axis=1), rtol=1e3 * EPS
    )
    assert max(result.x) == pytest.approx(1.2 * np.abs(result.path).max())
    assert "%" in result.x_label
    drawn = surface_to_plotly(result)
    assert [trace["type"] for trace in drawn["data"]] == ["contour", "scatter"]


def test_parameters_are_not_changed_and_the_seed_decides_the_surface():
    before = jax.tree.map(np.copy, PARAMS)
    first, again, other = (surface(quadratic, PARAMS, DATA, points=5, seed=s) for s in (0, 0, 1))
    assert first == again
    assert first != other
    jax.tree.map(np.testing.assert_array_equal, before, PARAMS)


@pytest.mark.parametrize("kind", ["contour", "surface"])
def test_plotly_and_matplotlib_draw_the_same_colours(kind):
    rows = ((1.0, 10.0, 1e4), (2.0, float("nan"), 5.0))
    result = Surface("loss", "a", "b", (0.0, 1.0, 2.0), (0.0, 1.0), rows, ((0.0, 0.0), (1.0, 1.0)))
    drawn = surface_to_plotly(result, kind)
    json.dumps(drawn, allow_nan=False)
    assert drawn["data"][0]["colorscale"] == "Viridis"
    assert drawn["data"][0]["z"][0] == [0.0, 1.0, 4.0]  # logarithms of four powers of ten
    canvas = result.plot(kind)
    canvas.canvas.draw()
    shown = canvas.axes[0].collections[0]
    assert shown.get_cmap().name == "viridis"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": 3}, "dims must be 1 or 2"),
        ({"directions": "up"}, "directions must be one of random"),
        ({"directions": [PARAMS]}, "directions must be 2 trees"),
        ({"directions": [PARAMS, {"w": np.ones(2)}]}, "must have the arrays of the parameters"),
        ({"directions": "principal"}, "belong together"),
        ({"trajectory": [PARAMS]}, "belong together"),
        ({"directions": "principal", "trajectory": [PARAMS]}, "at least 2 points"),
        ({"normalise": "layer"}, "normalise must be one of"),
        ({"biases": "drop"}, "biases must be one of"),
        ({"quantity": "height"}, "quantity must be one of"),
        ({"span": -1.0}, "span must be"),
        ({"points": 1}, "points must be"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    with pytest.raises(BadInput, match=message):
        surface(quadratic, PARAMS, DATA, **{"points": 3, **changes})
