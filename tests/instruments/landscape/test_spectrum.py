"""Lanczos, XTrace and quadrature on matrices with a chosen spectrum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.instruments.landscape import spectrum

EPS = np.finfo(float).eps
SIZE = 120


def with_spectrum(values: np.ndarray, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    q = np.linalg.qr(random.normal(size=(len(values),) * 2))[0]
    return (q * values) @ q.T


VALUES = np.sort(np.concatenate([[-3.0, 20.0, 50.0], np.linspace(-0.1, 1, SIZE - 3)]))
MATRIX = with_spectrum(VALUES)


def times(rows: np.ndarray) -> np.ndarray:
    return rows @ MATRIX


def test_both_ends_are_found_with_true_residuals():
    result = spectrum.extremes(times, SIZE, 2, rtol=1e-10)
    # |λ − result| ≤ residual for a symmetric matrix, up to the rounding of forming the matrix.
    for pair, value in zip((*result.top, *result.bottom), VALUES[[-1, -2, 0, 1]], strict=True):
        assert abs(pair.value - value) <= pair.residual + SIZE * EPS * 50
        assert pair.residual <= 1e-10 * 50
        residual = times(pair.vector[None])[0] - pair.value * pair.vector
        assert np.linalg.norm(residual) == pytest.approx(pair.residual, abs=SIZE * EPS * 50)
        assert np.linalg.norm(pair.vector) == pytest.approx(1, abs=SIZE * EPS)
    # More than 52 products: there were restarts, because one space of 52 vectors does not resolve
    # the crowded lower end.
    assert result.products > 52


def test_the_residual_is_large_when_the_products_are_not_enough():
    result = spectrum.extremes(times, SIZE, 2, rtol=1e-10, max_products=12)
    assert result.products == 12
    assert result.bottom[1].residual > 1e-3
    gap = np.abs(VALUES - result.bottom[1].value).min()
    assert gap <= result.bottom[1].residual


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        (np.ones(6), (1, 1)),
        (np.zeros(5), (0, 0)),
        (np.array([2.0]), (2, 2)),
        (np.array([0.0, 0, 0, 5, -5]), (5, -5)),
    ],
)
def test_degenerate_matrices_have_the_right_extremes(values: np.ndarray, ends: tuple[float, float]):
    matrix = with_spectrum(values)
    result = spectrum.extremes(lambda rows: rows @ matrix, len(values))
    assert result.top[0].value == pytest.approx(ends[0], abs=100 * EPS)
    assert result.bottom[0].value == pytest.approx(ends[1], abs=100 * EPS)
    rule = spectrum.quadrature(lambda rows: rows @ matrix, len(values), 4, 10)
    squares = rule.mean(lambda nodes: nodes**2)
    # Every probe integrates a multiple of a projector and the 1 × 1 matrix exactly.
    if len(set(np.abs(values))) == 1:
        np.testing.assert_allclose(squares, np.mean(values**2), atol=1e-12)


def test_quadrature_is_exact_for_polynomials_of_low_degree():
    rule = spectrum.quadrature(times, SIZE, 3, 20, seed=1)
    np.testing.assert_allclose(rule.weights.sum(1), 1, rtol=SIZE * EPS)
    signs = np.random.default_rng(1).integers(0, 2, size=(3, SIZE)) * 2.0 - 1.0
    for power in (1, 2, 7):
        direct = np.einsum("pi,ij,pj->p", signs, np.linalg.matrix_power(MATRIX, power), signs)
        # Quadrature is exact below degree 2·20; rounding grows as ‖A‖^power.
        np.testing.assert_allclose(
            rule.mean(lambda nodes, power=power: nodes**power),
            direct / SIZE,
            atol=1e3 * SIZE * EPS * 50.0**power,
        )


def test_nodes_of_full_quadrature_are_eigenvalues():
    rule = spectrum.quadrature(times, SIZE, 2, 10 * SIZE)
    heavy = rule.nodes[0][rule.weights[0] > 1e-8]
    # Every node with a weight above 1e-8 is an eigenvalue. If orthogonality were lost, some nodes
    # would lie between eigenvalues.
    assert np.abs(heavy[:, None] - VALUES).min(1).max() < 1e-9


def test_the_error_of_quadrature_lies_within_its_standard_error():
    exact = np.mean(np.exp(-VALUES))
    rule = spectrum.quadrature(times, SIZE, 200, 20, seed=3)
    estimates = rule.mean(lambda nodes: np.exp(-nodes))
    error = estimates.std(ddof=1) / np.sqrt(200)
    assert abs(estimates.mean() - exact) < 4.5 * error  # false-positive rate of 7e-6
    assert error < 0.2 * exact


def test_the_trace_is_unbiased_and_its_standard_error_is_about_right():
    falling = with_spectrum(100 * 0.8 ** np.arange(SIZE))
    for matrix, least in ((MATRIX, 0.8), (falling, 0.6)):
        exact = np.trace(matrix)
        result = [
            spectrum.trace(lambda rows, m=matrix: rows @ m, SIZE, 10, seed=s) for s in range(300)
        ]
        errors = np.array([reading.value - exact for reading in result])
        assert abs(errors.mean()) < 4.5 * errors.std() / np.sqrt(300)
        reported = np.sqrt(np.mean([reading.standard_error**2 for reading in result]))
        # The leave-one-out error is known to be too small by a little (see `trace`). With 300 draws
        # a ratio of standard deviations has a standard deviation of about 1/√600 = 0.04.
        assert least < reported / errors.std() < 1.2


def test_the_trace_agrees_with_matfree():
    stochtrace = pytest.importorskip("matfree.stochtrace")
    if not hasattr(stochtrace, "leave_one_out_xtrace"):
        pytest.skip("this matfree has no leave_one_out_xtrace")
    ours = spectrum.trace(times, SIZE, 10, seed=5)
    omega = jnp.asarray(np.random.default_rng(5).normal(size=(SIZE, 10)))
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        integrand = stochtrace.leave_one_out_xtrace()
        estimates = np.asarray(integrand(lambda v: jnp.asarray(MATRIX) @ v, omega.T))
    # The probes and the formula are the same; sums of 120 terms of size up to 50·120 are added in
    # other orders.
    assert ours.value == pytest.approx(estimates.mean(), rel=1e-10)
    assert ours.standard_error == pytest.approx(estimates.std(ddof=1) / np.sqrt(10), rel=1e-8)


def test_the_trace_of_low_rank_and_of_small_matrices_is_exact():
    low = with_spectrum(np.concatenate([np.zeros(SIZE - 3), [1.0, 2.0, 3.0]]))
    reading = spectrum.trace(lambda rows: rows @ low, SIZE, 10)
    assert reading.value == pytest.approx(6, abs=SIZE * EPS * 10)
    assert reading.standard_error < 1e-12
    small = spectrum.trace(lambda rows: rows @ MATRIX[:8, :8], 8, 4)
    assert small.value == pytest.approx(np.trace(MATRIX[:8, :8]), rel=10 * EPS)
    assert small.standard_error == 0


def test_extremes_of_a_large_matrix_need_few_vectors(monkeypatch):
    """The matrix has chosen eigenvalues. Its eigenvectors are rounded to 6e−8; sums of 400 of these
    errors add less than 20 times that, in units of the largest eigenvalue."""
    values = np.concatenate([[-0.2], np.linspace(0, 1, 398), [1.2]])
    monkeypatch.setattr(spectrum, "KRYLOV_BYTES", 12 * 2 * 4 * len(values))
    assert spectrum.krylov_space(len(values), 1) == (12, np.float32)
    result = spectrum.extremes(lambda rows: rows * values, len(values), rtol=1e-5)
    assert abs(result.top[0].value - 1.2) < 20 * 6e-8
    assert abs(result.bottom[0].value + 0.2) < 20 * 6e-8
    assert result.top[0].residual < 1e-5 * 1.3
    assert result.products > 12
