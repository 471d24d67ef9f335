"""CME attention by conjugate gradients: agreement with Cholesky, its status, and its memory."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import cme
from attnlens.attention.solve import System, preconditioner
from attnlens.core.kernels import KERNELS

pytestmark = pytest.mark.slow  # compiling takes most of a minute

LENGTH = 300


def draw(length=LENGTH, dtype=jnp.float64, queries=7):
    keys = jax.random.split(jax.random.key(0), 3)
    query, key = (
        jax.random.normal(k, (n, 3), dtype) for k, n in zip(keys, (queries, length), strict=False)
    )
    value = jnp.sin(2 * key[:, :2]) + 0.3 * jax.random.normal(keys[2], (length, 2), dtype)
    return query, key, value


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "linear", "polynomial"])
def test_iterative_equals_cholesky(kernel):
    query, key, value = draw()
    mask = jnp.arange(LENGTH) % 7 != 3
    key = jnp.where(mask[:, None], key, jnp.nan)

    # With rank 20 conjugate gradients need several steps. The linear and polynomial kernels have a
    # smaller rank (3 and 10), so their partial factors end early.
    settings = {"ridge": 0.1, "temperature": 1.0, "kernel": kernel, "mask": mask, "rank": 20}

    @partial(jax.jit, static_argnames="method")
    def result(query, key, value, method):
        return cme(query, key, value, method=method, variance=True, return_info=True, **settings)

    direct, iterated = (result(query, key, value, m) for m in ("cholesky", "iterative"))
    assert bool(iterated.info.converged), str(iterated.info)
    assert 0 < int(iterated.info.steps) < 200
    # ‖b − A x‖ ≤ 2e−8 ‖b‖. The mean is κ(q, K) A⁻¹ b, so its error is ‖κ(q, K) A⁻¹‖ 2e−8 ‖b‖, and
    # ‖κ(q, K) A⁻¹‖ ≤ √κ(q, q)/(2√λ) (the maximum of √e/(e + λ)). The same holds for the variance,
    # whose right-hand side κ(K, q) has norm at most √L max κ.
    largest = float(jnp.max(jnp.abs(KERNELS[kernel](query, query, 1.0))))
    gain = np.sqrt(largest) / (2 * np.sqrt(0.1))
    size = np.sqrt(LENGTH) * max(float(jnp.max(jnp.abs(value))), 5 * largest)
    np.testing.assert_allclose(iterated.mean, direct.mean, rtol=0, atol=gain * 2e-8 * size)
    np.testing.assert_allclose(iterated.var, direct.var, rtol=0, atol=gain * 2e-8 * size)


def test_a_solve_that_does_not_converge_warns_and_reports_it():
    inputs = draw(60)

    def stopped_early():
        return cme(
            *inputs,
            ridge=1e-3,
            temperature=0.05,
            method="iterative",
            rank=2,
            max_steps=3,
            return_info=True,
        )

    with pytest.warns(UserWarning, match="not converged: relative residual"):
        estimate = stopped_early()
    assert not bool(estimate.info.converged)
    assert int(estimate.info.steps) == 3
    assert 1e-8 < float(estimate.info.residual) < 10
    assert "raise ridge, rank or max_steps" in str(estimate.info)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # inside jit there is no warning: `info` holds the status
        assert not bool(jax.jit(stopped_early)().info.converged)


def test_the_preconditioner_is_the_inverse_of_its_matrix():
    _, key, _ = draw(50)
    ridge = 0.1
    gram = KERNELS["rbf"](key, key, 1.0)
    correct = preconditioner(System(KERNELS["rbf"], key, None, 1.0, ridge), rank=50)
    inverse = jax.vmap(correct)(jnp.eye(50))
    product = inverse @ (gram + ridge * jnp.eye(50))
    # At full rank the preconditioner is the inverse up to a constant. Its error is ε·cond =
    # 2e−16·501 and the rounding of the 50 columns of the partial factor.
    np.testing.assert_allclose(product / product[0, 0], jnp.eye(50), rtol=0, atol=1e-10)


def test_the_preconditioner_saves_steps():
    inputs = draw()

    def steps(rank):
        settings = {"ridge": 0.01, "temperature": 1.0, "method": "iterative", "rank": rank}
        return int(jax.jit(lambda *a: cme(*a, return_info=True, **settings).info.steps)(*inputs))

    assert steps(128) < steps(1) / 3


def test_single_precision_converges_too():
    inputs = draw(1000)
    direct = cme(*inputs, ridge=0.1, temperature=1.0)
    settings = {"ridge": 0.1, "temperature": 1.0, "method": "iterative", "rank": 64}
    actual = jax.jit(lambda *a: cme(*a, tolerance=1e-4, return_info=True, **settings))(
        *(x.astype(jnp.float32) for x in inputs)
    )
    assert actual.mean.dtype == jnp.float32
    assert bool(actual.info.converged), str(actual.info)
    # The residual is at most 2e−4·‖v‖ with ‖v‖ = √1000·0.8; the error of the mean is this times the
    # gain 1/(2√0.1) derived in `test_iterative_equals_cholesky`.
    np.testing.assert_allclose(actual.mean, direct, rtol=0, atol=2e-4 * np.sqrt(1000) * 0.8 * 1.6)


@pytest.mark.slow
def test_memory_is_linear_in_the_length():
    def scratch(length):
        def loss(query, key, value):
            return jnp.sum(cme(query, key, value, ridge=0.1, method="iterative", rank=32) ** 2)

        shapes = [jax.ShapeDtypeStruct((n, 4), jnp.float32) for n in (16, length, length)]
        analysis = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*shapes).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    short, long = scratch(16384), scratch(65536)
    assert long < 4.5 * short  # memory quadratic in the length would give 16
    assert long < 0.02 * 65536**2 * 4  # 2 % of the memory of the matrix


@pytest.mark.parametrize(("length", "method"), [(8192, "cholesky"), (8193, "iterative")])
def test_the_method_is_chosen_by_length(length, method):
    shapes = [jax.ShapeDtypeStruct((n, 3), jnp.float32) for n in (2, length, length)]
    chosen = jax.eval_shape(lambda *a: cme(*a, ridge=0.1, return_info=True), *shapes)
    assert chosen.info.method == method


@pytest.mark.slow
def test_relative_error_against_cholesky_at_length_8192():
    query, key, value = draw(8192, queries=64)
    direct = cme(query, key, value, ridge=0.1, temperature=1.0, method="cholesky")
    iterated = cme(query, key, value, ridge=0.1, temperature=1.0, method="iterative")
    error = jnp.linalg.norm(iterated - direct) / jnp.linalg.norm(direct)
    assert float(error) < 1e-5
