"""`curvature` against exact Hessians and chosen spectra, and its invariance under rescalings."""

from __future__ import annotations

import tracemalloc
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from attnlens.core.checks import BadInput
from attnlens.instruments import CurvatureSettings, Supervised, curvature
from attnlens.instruments.landscape import products
from attnlens.instruments.landscape.products import Subject
from attnlens.networks import SelfAttention
from counting import compilations

EPS = np.finfo(float).eps
random = np.random.default_rng(0)
ROWS = 30
X, Y = random.normal(size=(ROWS, 3, 4)), random.normal(size=(ROWS, 1))
SHAPE = {"tokens": 4, "token_dim": 3, "query_dim": 2, "value_dim": 2, "hidden": 5}
MODEL = SelfAttention(jax.random.key(0), **SHAPE)
LOSS = Supervised("squared")
DATA = (X, Y)
FLAT, RESTORE = ravel_pytree(MODEL)
SAMPLED = {"dense": False, "probes": 4, "steps": 10}


@partial(jax.jit, static_argnums=0)
def exactly(matrix: str, vector, x, y):
    """The matrix that `matrix` names, by jax.hessian or by the Jacobians of all samples at once."""

    def outputs(w):
        return jax.vmap(RESTORE(w))(x)[:, 0]

    def sample_losses(w):
        return (outputs(w) - y[:, 0]) ** 2

    if matrix == "hessian":
        return jax.hessian(lambda w: jnp.mean(sample_losses(w)))(vector)
    jacobian = jax.jacfwd(outputs if matrix == "gauss-newton" else sample_losses)(vector)
    return (2 if matrix == "gauss-newton" else 1) * jacobian.T @ jacobian / x.shape[0]


@pytest.fixture(scope="module")
def exact() -> dict[str, np.ndarray]:
    matrices = ("hessian", "gauss-newton", "fisher")
    return {m: np.asarray(exactly(m, FLAT, jnp.asarray(X), jnp.asarray(Y))) for m in matrices}


@pytest.mark.parametrize("matrix", ["hessian", "gauss-newton", "fisher"])
def test_products_give_the_exact_matrix_for_any_chunks(matrix: str, exact: dict):
    rounding = 1e3 * EPS * np.abs(exact[matrix]).max()  # sums of 30 terms, added in another order
    # The chunks have 20 and 10 rows, and the second has half the weight. The sum over chunks is the
    # same code for all matrices, so it is tested with one matrix.
    for chunk in (ROWS, 20) if matrix == "hessian" else (ROWS,):
        subject = Subject(LOSS, MODEL, DATA, chunk=chunk)
        formed = subject.times(np.eye(subject.size), matrix, width=50)
        np.testing.assert_allclose(formed, exact[matrix], atol=rounding)


def test_all_results_for_a_small_network_are_exact(exact: dict):
    hessian = exact["hessian"]
    result = curvature(
        LOSS, MODEL, DATA, blocks={"attention": "layer", "head": ("first", "second")}
    )
    values = np.linalg.eigvalsh(hessian)
    rounding = 1e3 * EPS * np.abs(values).max()
    assert result.exact
    assert result.largest == pytest.approx(values[-1], abs=rounding)
    assert result.smallest == pytest.approx(values[0], abs=rounding)
    assert result.trace.value == pytest.approx(values.sum(), abs=len(values) * rounding)
    value, slope = jax.value_and_grad(lambda w: LOSS(RESTORE(w), DATA))(FLAT)
    assert result.loss == pytest.approx(float(value), rel=1e3 * EPS)
    assert result.gradient_norm == pytest.approx(float(jnp.linalg.norm(slope)), rel=1e3 * EPS)
    w = np.asarray(FLAT)
    assert result.scaled_trace is not None
    assert result.scaled_trace.value == pytest.approx(w**2 @ np.diag(hessian), abs=100 * rounding)
    assert result.scaled_largest is not None
    scaled = np.linalg.eigvalsh(w[:, None] * hessian * w)
    assert result.scaled_largest.value == pytest.approx(scaled[-1], abs=100 * rounding)
    # The first 18 parameters in the tree are w_Q, w_K (2 × 3 each) and w_V; the head follows.
    inside = np.linalg.eigvalsh(hessian[:18, :18])
    assert result.blocks["attention"].size == 18
    assert result.blocks["attention"].largest.value == pytest.approx(inside[-1], abs=rounding)
    head = result.blocks["head"]
    assert head.trace.value == pytest.approx(np.trace(hessian[18:, 18:]), abs=100 * rounding)
    assert result.density is not None
    assert result.density.share_below(0.0).value == pytest.approx(np.mean(values <= 0))
    area = np.trapezoid(result.density.value, result.density.at)
    assert area == pytest.approx(1, abs=1e-3)  # Gaussian tails beyond 4σ (6e-5), and quadrature
    assert "gradient norm" in str(result)
    assert result.plot() is not None


def test_products_alone_agree_with_the_formed_matrix(exact: dict):
    blocks = {"attention": "layer"}
    whole = curvature(LOSS, MODEL, DATA, eigenpairs=2, blocks=blocks)
    sampled = curvature(LOSS, MODEL, DATA, eigenpairs=2, blocks=blocks, **SAMPLED)
    assert not sampled.exact
    top = np.abs(np.linalg.eigvalsh(exact["hessian"])).max()
    for ours, theirs in zip(
        (*sampled.top, *sampled.bottom), (*whole.top, *whole.bottom), strict=True
    ):
        assert ours.residual <= 1e-6 * top  # 1e-6 is the default of rtol
        assert abs(ours.value - theirs.value) <= ours.residual + 1e3 * EPS * top
    assert sampled.scaled_largest is not None
    assert whole.scaled_largest is not None
    assert sampled.scaled_largest.value == pytest.approx(whole.scaled_largest.value, rel=1e-5)
    attention = sampled.blocks["attention"].largest
    assert attention.value == pytest.approx(whole.blocks["attention"].largest.value, rel=1e-5)
    # With four probes the trace is within five standard errors (t with 3 degrees of freedom: 1.5 %
    # lie beyond). The seed is fixed, so this checks the order of magnitude and never fails by
    # chance.
    assert abs(sampled.trace.value - whole.trace.value) < 5 * sampled.trace.standard_error


def test_a_large_quadratic_of_chosen_spectrum():
    size = 600
    values = np.concatenate([[-4.0, 30.0], np.linspace(0, 1, size - 2)])
    q = np.linalg.qr(random.normal(size=(size, size)))[0]
    matrix = (q * values) @ q.T

    def loss(params, rows):
        w = params["w"]
        return 0.5 * w @ (jnp.mean(rows["matrix"], axis=0) @ w)

    # Two samples whose mean is the matrix.
    data = {"matrix": np.stack([1.5 * matrix, 0.5 * matrix])}
    result = curvature(loss, {"w": np.ones(size)}, data, probes=8, steps=30, scaled=False)
    assert not result.exact
    assert abs(result.largest - 30) <= result.top[0].residual + size * EPS * 30
    assert abs(result.smallest + 4) <= result.bottom[0].residual + size * EPS * 30
    assert result.scaled_trace is None
    assert result.density is not None
    assert 0 < result.trace.standard_error < 10
    assert abs(result.trace.value - values.sum()) < 6 * result.trace.standard_error
    # Half of the eigenvalues lie below the middle of the bulk; Lanczos itself is off by up to 2e-3.
    middle = result.density.mean(lambda t: 1 / (1 + np.exp(-20 * (t - 0.5))))
    truth = np.mean(1 / (1 + np.exp(-20 * (values - 0.5))))
    assert abs(middle.value - truth) < 6 * middle.standard_error + 2e-3
    exact = np.exp(-0.5 * ((result.density.at[:, None] - values) / result.density.bandwidth) ** 2)
    exact = exact.mean(1) / (result.density.bandwidth * np.sqrt(2 * np.pi))
    distance = np.trapezoid(np.abs(result.density.value - exact), result.density.at)
    error = np.trapezoid(result.density.standard_error, result.density.at)
    assert distance < 3 * error + 0.05


def test_only_the_scaled_measures_are_invariant_under_rescalings_of_the_same_function():
    plain = curvature(LOSS, MODEL, DATA)
    for alpha in (3.0, 0.1):
        layer = MODEL.layer
        parts = (alpha * layer.query, layer.key / alpha, alpha * layer.value, MODEL.first / alpha)
        same = eqx.tree_at(
            lambda m: (m.layer.query, m.layer.key, m.layer.value, m.first), MODEL, parts
        )
        other = curvature(LOSS, same, DATA)
        assert other.loss == pytest.approx(plain.loss, rel=1e3 * EPS)
        assert plain.scaled_largest is not None
        assert other.scaled_largest is not None
        assert plain.scaled_trace is not None
        assert other.scaled_trace is not None
        # Entries of the Hessian of the rescaled network are up to α² = 100 times as large, and so
        # is their rounding.
        close = 1e5 * EPS
        assert other.scaled_largest.value == pytest.approx(plain.scaled_largest.value, rel=close)
        assert other.scaled_trace.value == pytest.approx(plain.scaled_trace.value, rel=close)
        assert abs(np.log(other.largest / plain.largest)) > 0.5
        assert abs(np.log(other.trace.value / plain.trace.value)) > 0.5


def test_arrays_are_not_changed_and_other_leaves_are_no_parameters():
    w, count = np.array([1.0, -2.0]), np.array([3, 4])
    params = {"w": w, "count": count, "name": "quartic", "act": jnp.tanh}
    before = w.copy()

    def loss(p):
        return jnp.sum(p["act"](p["w"]) ** 2 * p["count"].astype(float))

    result = curvature(loss, params, blocks="top")
    assert result.size == 2
    assert list(result.blocks) == ["w"]
    np.testing.assert_array_equal(w, before)
    w[0] = 5  # has no effect, because `Subject` copies arrays
    subject = Subject(loss, params)
    w[0] = 7
    assert subject.vector[0] == 5


def test_chunks_are_about_equal_and_fit_the_cache(monkeypatch: pytest.MonkeyPatch):
    subject = Subject(LOSS, MODEL, DATA)
    assert subject.rows_at_once() == ROWS  # all rows fit into one chunk
    row = subject.row_bytes()
    # A row needs at least the logits and weights of 4 × 4 attention and the two layers, in float64.
    assert row > 8 * (2 * 16 + 8 + 5)
    monkeypatch.setattr(products, "CACHE", 14 * row)
    assert subject.rows_at_once() == 10  # chunks of 10, 10, 10 and not 14, 14, 2
    assert subject.rows_at_once(width=5) == 2
    assert [share for share, _ in subject.chunks()] == pytest.approx([1 / 3] * 3)
    assert Subject(LOSS, MODEL, DATA, chunk=7).rows_at_once(width=5) == 7


def test_data_may_stay_on_disk(tmp_path):
    np.save(tmp_path / "x.npy", X)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    settings = {"chunk": 20, "steps": 0, "scaled": False}
    result = curvature(LOSS, MODEL, (on_disk, Y), **settings)
    assert result.largest == curvature(LOSS, MODEL, DATA, **settings).largest


def test_single_precision_agrees_with_double_precision_to_rounding():
    double = curvature(LOSS, MODEL, DATA, steps=0)
    single = curvature(LOSS, MODEL, DATA, steps=0, precision="float32")
    assert single.largest != double.largest
    # A few layers of sums of 30 terms, each with a relative error of 6e-8.
    assert single.largest == pytest.approx(double.largest, rel=1e-4)


def test_other_parameters_and_data_reuse_the_compiled_programs():
    curvature(LOSS, MODEL, DATA, **SAMPLED)
    other = SelfAttention(jax.random.key(1), **SHAPE)
    drawn = compilations()  # drawing a model may compile; measuring it may not
    curvature(LOSS, jax.tree.map(np.asarray, other), (2 * X, Y), seed=1, **SAMPLED)
    assert compilations() == drawn


def test_settings_as_one_object_are_the_same_as_keywords():
    by_keywords = curvature(LOSS, MODEL, DATA, seed=3, **SAMPLED)
    by_object = curvature(LOSS, MODEL, DATA, settings=CurvatureSettings(seed=3, **SAMPLED))
    changed = curvature(LOSS, MODEL, DATA, settings=CurvatureSettings(seed=7, **SAMPLED), seed=3)
    other = curvature(LOSS, MODEL, DATA, settings=CurvatureSettings(seed=7, **SAMPLED))
    assert by_keywords.trace == by_object.trace == changed.trace != other.trace
    assert by_keywords.largest == by_object.largest
    with pytest.raises(TypeError, match="unexpected keyword argument 'probess'"):
        curvature(LOSS, MODEL, DATA, probess=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matrix": "kernel"}, "matrix must be one of hessian, gauss-newton, fisher"),
        ({"params": {"n": np.arange(3)}}, "at least one floating-point array"),
        ({"data": (X, Y[:5])}, "equally many samples"),
        ({"matrix": "fisher", "loss": lambda p, d: jnp.sum(p.second)}, "loss=Supervised"),
        ({"blocks": {"a": "body"}}, "block 'a' must name parameters of the tree"),
        ({"blocks": "bottom"}, "blocks must be a mapping"),
        ({"probes": 1}, "probes must be a whole number of at least 2"),
        ({"eigenpairs": 0}, "eigenpairs must be"),
        ({"precision": "float16"}, "precision must be one of"),
        ({"bandwidth": -1.0}, "bandwidth must be"),
        ({"data": (X * np.nan, Y)}, "must be finite at params"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    arguments = {"loss": LOSS, "params": MODEL, "data": DATA, **changes}
    loss, params, data = (arguments.pop(name) for name in ("loss", "params", "data"))
    with pytest.raises(BadInput, match=message):
        curvature(loss, params, data, **arguments)


def test_eigenvalues_that_have_not_converged_are_named():
    """There are 1,000 eigenvalues from 1 to 2, equally spaced, and eight products do not separate
    those at the ends. The matrix is close to a multiple of the identity, so a few probes give its
    trace."""
    scales = jnp.linspace(1.0, 2.0, 1000)

    def loss(w):
        return 0.5 * jnp.sum(scales * w**2)

    few, many = (
        curvature(loss, np.ones(1000), steps=0, scaled=False, max_products=count)
        for count in (8, 1000)
    )
    assert few.not_converged == ("largest 1", "smallest 1")
    assert "not converged: largest 1, smallest 1" in str(few)
    assert many.not_converged == ()


class ShiftedBowl(products.ExternalLoss):
    """The mean over rows x of ‖w − x‖²/2; its Hessian is the identity."""

    def value(self, params, data):
        return float(((np.asarray(params) - np.asarray(data)) ** 2).sum(1).mean() / 2)

    def value_and_gradient(self, params, data):
        return self.value(params, data), np.asarray(params) - np.asarray(data).mean(0)

    def product(self, params, direction, data):
        return np.array(direction)


def test_memory_does_not_grow_with_the_number_of_chunks():
    """A product holds about eight vectors at once (direction, product of a chunk, its share, the
    sum, the result and copies of them); one vector per chunk would be 64 more."""
    size, rows = 20_000, 64
    subject = Subject(ShiftedBowl(), np.ones(size), np.zeros((rows, 1)), chunk=1)
    direction = np.random.default_rng(0).normal(size=size)
    peaks = []
    for compute in (lambda: subject.times(direction), lambda: subject.value_and_gradient()[1]):
        tracemalloc.start()
        product = compute()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        # A sum of 64 shares of 1/64, which are exact: rounding is that of 64 additions.
        expected = direction if len(peaks) == 1 else np.ones(size)
        np.testing.assert_allclose(product, expected, rtol=64 * np.finfo(float).eps)
    assert max(peaks) < 24 * direction.nbytes
