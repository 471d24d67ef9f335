"""CME attention by conjugate gradients: the Cholesky result, its status, and its memory."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import cme
from attnlens.attention.solve import System, preconditioner
from attnlens.kernels import KERNELS

LENGTH = 300


def draw(length=LENGTH, dtype=jnp.float64, queries=7):
    keys = jax.random.split(jax.random.key(0), 3)
    query, key = (
        jax.random.normal(k, (n, 3), dtype) for k, n in zip(keys, (queries, length), strict=False)
    )
    value = jnp.sin(2 * key[:, :2]) + 0.3 * jax.random.normal(keys[2], (length, 2), dtype)
    return query, key, value


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "linear", "polynomial"])
def test_equal_to_cholesky(kernel):
    query, key, value = draw()
    mask = jnp.arange(LENGTH) % 7 != 3
    key = jnp.where(mask[:, None], key, jnp.nan)

    def result(method):
        settings = {"ridge": 0.1, "temperature": 1.0, "kernel": kernel, "mask": mask}
        # Rank 20 leaves conjugate gradients something to do, and is more than the linear and
        # polynomial kernels have (3 and 10): their factors end early.
        return cme(
            query, key, value, method=method, variance=True, return_info=True, rank=20, **settings
        )

    direct, iterated = result("cholesky"), result("iterative")
    assert bool(iterated.info.converged), str(iterated.info)
    assert 0 < int(iterated.info.steps) < 200
    # ‖b − A x‖ ≤ 2e−8 ‖b‖. The mean is κ(q, K) A⁻¹ b, so it is off by ‖κ(q, K) A⁻¹‖ 2e−8 ‖b‖,
    # and ‖κ(q, K) A⁻¹‖ ≤ √κ(q, q)/(2√λ) (the largest of √e/(e + λ)); the same for the variance,
    # whose right side κ(K, q) has norm at most √L max κ.
    largest = float(jnp.max(jnp.abs(KERNELS[kernel](query, query, 1.0))))
    gain = np.sqrt(largest) / (2 * np.sqrt(0.1))
    size = np.sqrt(LENGTH) * max(float(jnp.max(jnp.abs(value))), 5 * largest)
    np.testing.assert_allclose(iterated.mean, direct.mean, rtol=0, atol=gain * 2e-8 * size)
    np.testing.assert_allclose(iterated.var, direct.var, rtol=0, atol=gain * 2e-8 * size)


def test_what_was_not_reached_is_said():
    query, key, value = draw()
    settings = {
        "ridge": 1e-3,
        "temperature": 0.05,
        "method": "iterative",
        "rank": 2,
        "max_steps": 3,
    }
    with pytest.warns(UserWarning, match="not converged: relative residual"):
        estimate = cme(query, key, value, return_info=True, **settings)
    assert not bool(estimate.info.converged)
    assert int(estimate.info.steps) == 3
    assert 1e-8 < float(estimate.info.residual) < 10
    assert "raise ridge, rank or max_steps" in str(estimate.info)
    jitted = jax.jit(lambda: cme(query, key, value, return_info=True, **settings))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not bool(jitted().info.converged)


def test_the_preconditioner_is_the_inverse_of_its_matrix():
    _, key, _ = draw(50)
    ridge = 0.1
    gram = KERNELS["rbf"](key, key, 1.0)
    correct = preconditioner(System(KERNELS["rbf"], key, None, 1.0, ridge), rank=50)
    inverse = jax.vmap(correct)(jnp.eye(50))
    product = inverse @ (gram + ridge * jnp.eye(50))
    # Full rank: the inverse up to a constant, to ε·cond = 2e−16·501 and the partial factor's own
    # rounding, √50 columns of it.
    np.testing.assert_allclose(product / product[0, 0], jnp.eye(50), rtol=0, atol=1e-10)


def test_the_preconditioner_saves_steps():
    query, key, value = draw()
    steps = [
        int(
            cme(
                query,
                key,
                value,
                ridge=0.01,
                temperature=1.0,
                method="iterative",
                rank=rank,
                return_info=True,
            ).info.steps
        )
        for rank in (1, 128)
    ]
    assert steps[1] < steps[0] / 3


def test_single_precision_converges_too():
    inputs = draw(1000)
    direct = cme(*inputs, ridge=0.1, temperature=1.0)
    got = cme(
        *(x.astype(jnp.float32) for x in inputs),
        ridge=0.1,
        temperature=1.0,
        method="iterative",
        tolerance=1e-4,
        return_info=True,
    )
    assert got.mean.dtype == jnp.float32
    assert bool(got.info.converged), str(got.info)
    # A residual of at most 2e−4·‖v‖, ‖v‖ = √1000·0.8, times the gain 1/(2√0.1) above.
    np.testing.assert_allclose(got.mean, direct, rtol=0, atol=2e-4 * np.sqrt(1000) * 0.8 * 1.6)


def test_memory_is_linear_in_the_length():
    def scratch(length):
        def loss(query, key, value):
            return jnp.sum(cme(query, key, value, ridge=0.1, method="iterative", rank=32) ** 2)

        shapes = [jax.ShapeDtypeStruct((n, 4), jnp.float32) for n in (16, length, length)]
        analysis = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*shapes).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    short, long = scratch(16384), scratch(65536)
    assert long < 4.5 * short  # quadratic would be 16
    assert long < 0.02 * 65536**2 * 4  # the matrix alone


def test_the_choice_is_by_length():
    query, key, value = draw(16)
    short = cme(query, key, value, ridge=0.1, return_info=True)
    assert short.info.method == "cholesky"
    shapes = [jax.ShapeDtypeStruct((n, 3), jnp.float32) for n in (2, 8193, 8193)]
    chosen = jax.eval_shape(lambda *a: cme(*a, ridge=0.1, return_info=True), *shapes)
    assert chosen.info.method == "iterative"


@pytest.mark.slow
def test_relative_error_against_cholesky_at_length_8192():
    query, key, value = draw(8192, queries=64)
    direct = cme(query, key, value, ridge=0.1, temperature=1.0, method="cholesky")
    iterated = cme(query, key, value, ridge=0.1, temperature=1.0, method="iterative")
    error = jnp.linalg.norm(iterated - direct) / jnp.linalg.norm(direct)
    assert float(error) < 1e-5
