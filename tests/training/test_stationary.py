"""`stationary_points` finds known points, merges equal ones and lists starts that did not converge
separately."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import Baseline, MultiLayerSelfAttention, SelfAttention, stationary_points
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.training.symmetries import distance, groups
from counting import compilations

EPS = np.finfo(float).eps
random = np.random.default_rng(1)
X = random.normal(size=(40, 2, 2))
Y = np.tanh(X[:, 0, :1] * X[:, 1, 1:]) + 0.1 * random.normal(size=(40, 1))
ATTENTION = partial(SelfAttention, tokens=2, token_dim=2, query_dim=1, value_dim=1, hidden=2)
SETTINGS = {"l2": 1e-3, "test": (X[:10], Y[:10])}


class Quartic(eqx.Module):
    """A model whose squared loss is (a² − 1)² + b²/2, with minima at a = ±1 and a saddle at a = 0,
    all at b = 0."""

    w: jax.Array

    def __init__(self, key):
        self.w = jax.random.normal(key, (2,))

    def __call__(self, x):
        return jnp.stack([self.w[0] ** 2 - 1, self.w[1] / np.sqrt(2.0)]) * np.sqrt(2.0) + 0 * x


ZEROS = np.zeros((3, 2))


def test_both_minima_of_a_quartic_are_found():
    # L is the mean of the squares of √2 (a² − 1, b/√2), (a² − 1)² + b²/2; its Hessian is diag(12a²
    # − 4, 1).
    result = stationary_points(Quartic, ZEROS, ZEROS, starts=8)
    assert result.converged_share == 1
    assert [point.index for point in result.points] == [0, 0]
    for point in result.points:
        # The gradient has ‖g‖ ≤ 1e-8 and the curvature is ≥ 1: points are within 1e-8 of the
        # minimum, and eigenvalues within 24·1e-8.
        np.testing.assert_allclose(np.abs(point.vector), [1, 0], atol=1e-8)
        assert point.smallest_eigenvalue == pytest.approx(1, abs=3e-7)
        assert point.largest_eigenvalue == pytest.approx(8, abs=3e-7)
        assert point.loss < 1e-14
    assert sum(len(point.starts) for point in result.points) == 8


def test_kind_any_reaches_the_saddle():
    near = np.array([[0.1, 0.5], [-0.2, -0.3], [0.9, 0.2]])
    result = stationary_points(Quartic, ZEROS, ZEROS, starts=near, kind="any")
    (minimum,), (saddle,) = result.minima, result.saddles
    np.testing.assert_allclose(saddle.vector, [0, 0], atol=1e-8)
    assert saddle.index == 1
    assert saddle.smallest_eigenvalue == pytest.approx(-4, abs=1e-7)
    assert saddle.loss == pytest.approx(1, abs=1e-14)
    assert saddle.starts == (0, 1)
    assert minimum.starts == (2,)
    # Descents from the same starts find only the minima.
    down = stationary_points(Quartic, ZEROS, ZEROS, starts=near)
    assert (len(down.minima), len(down.saddles)) == (2, 0)


def test_the_trivial_stationary_point_of_self_attention_is_a_saddle():
    # The trivial point is w_Q = w_K = w_V = w₁ = 0 with w₂ fitted to the mean: each hidden unit
    # gives φ(0), so the best equal w₂ solves 2 φ(0) w₂ = mean y. Without a penalty the gradient
    # vanishes there exactly.
    layout = Layout.of(Recipe.of(ATTENTION))
    model = jax.tree.map(jnp.zeros_like, ATTENTION(jax.random.key(0)))
    level = np.mean(Y) / (2 * np.log(2) / 5)
    model = eqx.tree_at(lambda m: m.second, model, jnp.full((1, 2), level))
    start = np.asarray(layout.flatten(model))[None]
    result = stationary_points(ATTENTION, X, Y, starts=start, kind="any")
    (point,) = result.points
    np.testing.assert_allclose(point.vector, start[0], atol=1e-7)
    assert point.loss == pytest.approx(np.var(Y), rel=1e-10)
    assert point.index > 0


@pytest.mark.slow
def test_every_start_of_a_small_network_converges_and_counts_once():
    result = stationary_points(ATTENTION, X, Y, starts=16, **SETTINGS)
    assert result.converged_share == 1
    assert sum(len(point.starts) for point in result.points) == 16
    distinct = len(result.points)
    assert distinct < 16  # some starts end at the same point
    losses = [point.loss for point in result.points]
    assert losses == sorted(losses)
    assert all(point.gradient_norm <= 1e-8 for point in result.points)
    lowest = result.points[0]

    def objective(vector):
        model = Layout.of(Recipe.of(ATTENTION)).restore(vector)
        error = jnp.mean((jax.vmap(model)(jnp.asarray(X)) - jnp.asarray(Y)) ** 2)
        return error + 1e-3 * jnp.sum(vector**2)

    vector = jnp.asarray(lowest.vector)
    # Gradient and Hessian are computed independently, as sums of 40 terms of order one in another
    # order.
    assert float(jnp.linalg.norm(jax.jit(jax.grad(objective))(vector))) < 1e-8 + 1e3 * EPS
    eigenvalues = np.linalg.eigvalsh(jax.jit(jax.hessian(objective))(vector))
    scale = 1e3 * EPS * np.max(np.abs(eigenvalues))
    assert lowest.smallest_eigenvalue == pytest.approx(eigenvalues[0], abs=scale)
    assert lowest.largest_eigenvalue == pytest.approx(eigenvalues[-1], abs=scale)
    model = result.model(lowest)
    outputs = jax.vmap(jax.tree.map(jnp.asarray, model))(jnp.asarray(X[:10]))
    error = np.mean((np.asarray(outputs) - Y[:10]) ** 2)
    assert lowest.test_loss == pytest.approx(error, rel=1e3 * EPS)


@pytest.mark.slow
def test_hessian_products_alone_find_the_same_minima():
    dense = stationary_points(ATTENTION, X, Y, starts=4, **SETTINGS)
    free = stationary_points(ATTENTION, X, Y, starts=4, dense=False, max_steps=4000, **SETTINGS)
    assert free.converged_share == 1
    best, same = dense.points[0], free.points[0]
    # At gradient norm 1e-8 losses differ by (1e-8)²/curvature, where the curvature is ≥ 2 l2 or the
    # direction is flat.
    assert same.loss == pytest.approx(best.loss, abs=1e-12)
    assert same.index == best.index
    assert same.largest_eigenvalue == pytest.approx(best.largest_eigenvalue, rel=1e-6)
    assert same.smallest_eigenvalue == pytest.approx(best.smallest_eigenvalue, abs=1e-6)


def test_starts_that_do_not_converge_are_listed_apart():
    result = stationary_points(ATTENTION, X, Y, starts=3, max_steps=2, **SETTINGS)
    assert result.points == ()
    assert result.converged_share == 0
    assert [point.starts for point in result.not_converged] == [(0,), (1,), (2,)]
    assert all(point.gradient_norm > 1e-8 for point in result.not_converged)
    assert "3 did not reach" in str(result)


def test_stationary_points_of_a_logistic_loss_are_found():
    label = (Y > 0).astype(float)
    make = partial(Baseline, features=4, hidden=2)
    result = stationary_points(make, X, label, loss="logistic", l2=1e-2, starts=4)
    assert result.converged_share == 1
    assert result.points[0].index == 0


def test_all_groups_share_one_compilation_and_the_seed_decides_the_points():
    first = stationary_points(ATTENTION, X, Y, starts=16, **SETTINGS)
    before = compilations()
    again = stationary_points(ATTENTION, X, Y, starts=16, **SETTINGS)
    other = stationary_points(ATTENTION, X, 2 * Y, starts=8, seed=99, **SETTINGS)
    assert compilations() == before
    pairs = zip(first.points, again.points, strict=True)
    assert all(np.array_equal(a.vector, b.vector) for a, b in pairs)
    assert other.points[0].loss != first.points[0].loss


def transformed(model, rng):
    """A network with other parameters that is the same function: queries and values are mixed, and
    hidden units are reordered."""

    def mix(layer, before):
        a = jnp.asarray(rng.normal(size=(layer.query.shape[0],) * 2))
        b = jnp.asarray(rng.normal(size=(layer.value.shape[0],) * 2))
        inverse = jnp.linalg.inv(a)
        changed = eqx.tree_at(
            lambda m: (m.query, m.key, m.value),
            layer,
            (a @ layer.query @ before, inverse.T @ layer.key @ before, b @ layer.value @ before),
        )
        return changed, jnp.linalg.inv(b)

    single = isinstance(model, SelfAttention)
    layers, undo = [], jnp.eye(2)
    for layer in (model.layer,) if single else model.layers:
        layer, undo = mix(layer, undo)
        layers.append(layer)
    order = jnp.asarray(rng.permutation(model.first.shape[0]))
    hidden, width = model.first.shape[0], undo.shape[0]
    first = (model.first.reshape(hidden, -1, width) @ undo[None]).reshape(hidden, -1)
    parts = (layers[0] if single else tuple(layers), first[order], model.second[:, order])
    return eqx.tree_at(lambda m: (m.layer if single else m.layers, m.first, m.second), model, parts)


@pytest.mark.parametrize("kind", [SelfAttention, MultiLayerSelfAttention])
def test_the_same_function_has_distance_zero(kind):
    model = kind(jax.random.key(0), tokens=3, token_dim=2, hidden=4)
    x = jnp.asarray(random.normal(size=(2, 3)))
    for seed in range(3):
        other = transformed(model, np.random.default_rng(seed))
        # The mixing matrices are random 2 × 2 matrices with condition numbers up to ~100; an output
        # has a few products of them.
        np.testing.assert_allclose(other(x), model(x), rtol=1e-10)
        parts = [np.asarray(part) for m in (model, other) for part in m.units()]
        assert distance(*parts) < 1e-10
        assert np.linalg.norm(other.first - model.first) > 0.1  # the parameters do differ
    changed = eqx.tree_at(lambda m: m.second, model, model.second.at[0, 0].add(0.1))
    parts = [np.asarray(part) for m in (model, changed) for part in m.units()]
    assert distance(*parts) > 1e-3  # another function has a positive distance


def test_points_merge_only_when_loss_and_parameters_agree():
    shared = np.array([[0.0], [0.0], [0.0], [1.0]])
    units = np.array([[[1.0], [2.0]], [[2.0], [1.0]], [[2.0], [1.5]], [[1.0], [2.0]]])
    losses = np.array([0.5, 0.5, 0.5, 0.5])
    assert groups(losses, shared, units, 1e-4) == [[0, 1], [2], [3]]
    assert groups(np.array([0.5, 0.6, 0.5, 0.4]), shared, units, 1e-4) == [[3], [0], [2], [1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "maxima"}, "kind must be one of minima, any"),
        ({"starts": 0}, "starts must be a whole number of at least 1"),
        ({"starts": np.zeros((2, 3))}, r"array of shape \(starts, 12\)"),
        ({"l2": -1.0}, "l2 must be"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"loss": "cubed"}, "loss must be one of"),
        ({"max_steps": 0}, "max_steps must be"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    with pytest.raises(BadInput, match=message):
        stationary_points(ATTENTION, X, Y, **changes)
