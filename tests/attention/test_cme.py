"""CME attention against SciPy's Cholesky solve and scikit-learn's estimators."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import attention_references as references
from attention_references import EPSILON
from attnlens.attention import Estimate, WithVariance, cme
from attnlens.core import kernels
from attnlens.core.checks import BadInput

LENGTH, QUERIES, DIM = 12, 5, 3


def draw(seed=0, length=LENGTH, queries=QUERIES, dim=DIM, noise=0.3):
    random = np.random.default_rng(seed)
    query, key = random.normal(size=(queries, dim)), random.normal(size=(length, dim))
    value = np.stack([np.sin(2 * key[:, 0]), key[:, 1]], -1) + noise * random.normal(
        size=(length, 2)
    )
    return jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)


@pytest.mark.parametrize("kernel", sorted(kernels.KERNELS))
def test_mean_and_variance_equal_a_scipy_solve(kernel):
    @jax.jit
    def ours(query, key, value, temperature, ridge):
        return cme(
            query, key, value, ridge=ridge, temperature=temperature, kernel=kernel, variance=True
        )

    @given(
        arrangement=st.sampled_from(["random", "duplicate", "collinear", "zero"]),
        log_temperature=st.floats(-3, 3),
        log_ridge=st.floats(-4, 2),
        seed=st.integers(0, 2**32 - 1),
    )
    def check(arrangement, log_temperature, log_ridge, seed):
        random = np.random.default_rng(seed)
        query, key, value = map(np.asarray, draw(seed))
        if arrangement == "duplicate":
            key = key[random.integers(0, 3, LENGTH)]
        elif arrangement == "collinear":
            key = random.normal(size=(LENGTH, 1)) * key[:1]
        elif arrangement == "zero":
            key = np.zeros_like(key)
        temperature, ridge = 10**log_temperature, 10**log_ridge
        mean, var, condition = references.cme(query, key, value, temperature, ridge, kernel)
        actual = ours(*map(jnp.asarray, (query, key, value, temperature, ridge)))
        # The error of a solve is c·ε·cond times ‖κ(q, K)‖ ‖A⁻¹V‖ ≤ √L max κ · √L max v / λ. An
        # error of A itself enters the same way. Where points coincide, a distance has the error √ε,
        # and so κ has the error √(2ε(‖q‖² + ‖k‖²)/τ), at most √ε·4/√τ.
        largest = max(
            np.max(np.abs(references.gram(kernel, query, key, temperature))),
            np.max(np.abs(references.gram(kernel, key, key, temperature))),
            np.max(np.abs(references.gram(kernel, query, query, temperature))),
        )
        # Rounding error of one value of κ, relative to the largest value: 50 ε(1 + r²/τ or
        # |q·k|/τ).
        rounding = 50 * EPSILON * (1 + 40 / temperature)
        if kernel == "laplace":
            rounding += np.sqrt(EPSILON) * 4 / np.sqrt(temperature)
        # The factor by which a change of κ or A is amplified in κ(q, K) A⁻¹ v.
        gain = 1 + LENGTH * largest / ridge
        bound = LENGTH * (EPSILON * condition + rounding) * gain * max(largest, 1)
        np.testing.assert_allclose(actual.mean, mean, rtol=0, atol=bound * np.max(np.abs(value)))
        np.testing.assert_allclose(actual.var, var, rtol=0, atol=bound * gain)

    check()


def test_cme_equals_kernel_ridge_of_scikit_learn():
    kernel_ridge = pytest.importorskip(
        "sklearn.kernel_ridge", reason="scikit-learn is not installed"
    )
    query, key, value = draw()
    temperature, ridge = 0.8, 0.05
    peer = kernel_ridge.KernelRidge(alpha=ridge, kernel="rbf", gamma=1 / (2 * temperature))
    expected = peer.fit(key, value).predict(query)
    # The condition number is at most (L + λ)/λ = 241; values are of order 1.
    bound = 10 * LENGTH * EPSILON * (LENGTH + ridge) / ridge
    np.testing.assert_allclose(
        cme(query, key, value, ridge=ridge, temperature=temperature), expected, rtol=0, atol=bound
    )


@pytest.mark.parametrize(
    ("kernel", "smoothness"), [("laplace", 0.5), ("matern32", 1.5), ("matern52", 2.5)]
)
def test_cme_equals_a_gaussian_process_of_scikit_learn(kernel, smoothness):
    processes = pytest.importorskip(
        "sklearn.gaussian_process", reason="scikit-learn is not installed"
    )
    query, key, value = draw()
    temperature, ridge = 0.8, 0.05
    covariance = processes.kernels.Matern(length_scale=temperature**0.5, nu=smoothness)
    peer = processes.GaussianProcessRegressor(covariance, alpha=ridge, optimizer=None)
    mean, deviation = peer.fit(np.asarray(key), np.asarray(value[:, :1])).predict(
        np.asarray(query), return_std=True
    )
    actual = cme(
        query, key, value[:, :1], ridge=ridge, temperature=temperature, kernel=kernel, variance=True
    )
    assert isinstance(actual, WithVariance)
    bound = 10 * LENGTH * EPSILON * (LENGTH + ridge) / ridge
    if kernel == "laplace":
        # The computed distance of a point to itself is up to √ε·‖k‖ instead of 0, so the diagonal
        # of the matrix has an error of this order.
        bound = 10 * np.sqrt(EPSILON) / ridge
    np.testing.assert_allclose(actual.mean[:, 0], mean, rtol=0, atol=bound)
    np.testing.assert_allclose(actual.var[:, 0], deviation**2, rtol=0, atol=bound)


def test_leave_one_out_residuals_equal_fits_without_the_token():
    query, key, value = draw()
    mask = jnp.ones(LENGTH, bool).at[3].set(False)
    actual = cme(query, key, value, ridge=0.1, temperature=1.0, mask=mask, residuals=True)
    assert isinstance(actual, Estimate)
    assert actual.residuals is not None
    assert not np.any(actual.residuals[3])
    leave = jax.jit(lambda mask: cme(key, key, value, ridge=0.1, temperature=1.0, mask=mask))
    for i in (0, 5, 11):
        without = leave(mask.at[i].set(False))[i]
        # The condition number is at most 121; a residual is a quotient of two solves.
        np.testing.assert_allclose(
            actual.residuals[i], value[i] - without, rtol=0, atol=100 * LENGTH * 121 * EPSILON
        )


@pytest.mark.slow
def test_ridge_by_leave_one_out_minimises_the_error():
    query, key, value = draw(length=40, noise=0.5)

    @jax.jit
    def error(log_ridge):
        estimate = cme(query, key, value, ridge=jnp.exp(log_ridge), temperature=1.0, residuals=True)
        return jnp.mean(jnp.sum(estimate.residuals**2, -1))

    best = scipy.optimize.minimize_scalar(
        lambda x: float(error(x)), bounds=(np.log(1e-4), np.log(1e2)), method="bounded"
    )
    chosen = cme(query, key, value, ridge="loo", temperature=1.0, return_info=True)
    assert isinstance(chosen, Estimate)
    # The search for λ ends with a grid of step (range of log λ = 25)/64·2/32·2/32 = 1.6e−3; SciPy
    # stops at 1e−5.
    np.testing.assert_allclose(
        np.log(chosen.ridge),
        best.x,  # pyright: ignore[reportAttributeAccessIssue] (OptimizeResult declares no fields)
        rtol=0,
        atol=1.6e-3,
    )
    plain = cme(query, key, value, ridge=chosen.ridge, temperature=1.0)
    np.testing.assert_array_equal(chosen.mean, plain)


@pytest.mark.slow
def test_ridge_by_evidence_maximises_it_and_ignores_masked_tokens():
    query, key, value = draw(length=40, noise=0.5)

    def evidence(log_ridge):
        gram = references.gram("rbf", np.asarray(key), np.asarray(key), 1.0)
        law = scipy.stats.multivariate_normal(cov=gram + np.exp(log_ridge) * np.eye(40))
        return -np.sum(law.logpdf(np.asarray(value).T))

    best = scipy.optimize.minimize_scalar(
        evidence, bounds=(np.log(1e-4), np.log(1e2)), method="bounded"
    )
    chosen = cme(query, key, value, ridge="evidence", temperature=1.0, return_info=True)
    np.testing.assert_allclose(
        np.log(chosen.ridge),
        best.x,  # pyright: ignore[reportAttributeAccessIssue] (OptimizeResult declares no fields)
        rtol=0,
        atol=1.6e-3,
    )

    hidden = jnp.full((10, DIM), jnp.nan), jnp.full((10, 2), jnp.nan)
    longer = jnp.concatenate([key, hidden[0]]), jnp.concatenate([value, hidden[1]])
    padded = cme(
        query,
        *longer,
        ridge="evidence",
        temperature=1.0,
        mask=jnp.arange(50) < 40,
        return_info=True,
    )
    np.testing.assert_allclose(np.log(padded.ridge), np.log(chosen.ridge), rtol=0, atol=1.6e-3)


def test_a_ridge_from_the_data_is_one_per_member_and_a_constant_in_differentiation():
    query, key, value = (jnp.stack([x, x]) for x in draw())
    value = value * jnp.array([1.0, 0.0])[:, None, None] + jnp.array([0.0, 1.0])[:, None, None]
    estimate = cme(query, key, value, ridge="loo", return_info=True)
    assert estimate.ridge.shape == (2,)
    assert estimate.ridge[0] != estimate.ridge[1]

    def loss(key, ridge):
        return jnp.sum(cme(query, key, value, ridge=ridge) ** 2)

    np.testing.assert_allclose(
        jax.grad(lambda key: loss(key, "loo"))(key),
        jax.grad(lambda key: loss(key, estimate.ridge))(key),
        rtol=0,
        # The two programs differ only in the origin of the ridge: rounding is cond·ε·L ~ 1e−12.
        atol=1e-10,
    )


def test_the_gradient_does_not_differentiate_the_factorisation():
    query, key, value = draw()
    text = str(jax.make_jaxpr(jax.grad(lambda k: jnp.sum(cme(query, k, value, ridge=0.1))))(key))
    assert len(re.findall(r"= cholesky\b", text)) == 1


def test_the_ridge_can_be_differentiated():
    query, key, value = draw()

    def loss(ridge):
        return jnp.sum(cme(query, key, value, ridge=ridge) ** 2)

    step = 1e-5
    slope = (loss(jnp.array(0.1 + step)) - loss(jnp.array(0.1 - step))) / (2 * step)
    # Error of the central difference: step²·f‴/6 = 2e−8 with f‴ ~ f/λ³ = 1e3 f, and 1e−13/1e−5 of
    # rounding.
    np.testing.assert_allclose(jax.grad(loss)(jnp.array(0.1)), slope, rtol=1e-6)


def test_a_matrix_that_is_not_positive_definite_is_reported():
    query, key, value = (x.astype(jnp.float32) for x in draw(length=40))
    estimate = cme(query, 0 * key, value, ridge=1e-9, temperature=1.0, return_info=True)
    assert not bool(estimate.info.converged)
    assert "not positive definite" in str(estimate.info)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ridge": 0.0}, "ridge must be a finite number above 0"),
        ({"ridge": -1}, "ridge must be a finite number above 0"),
        ({"ridge": "best"}, "must be one of loo, evidence"),
        ({"ridge": 0.1, "kernel": "cubic"}, "kernel must be one of rbf"),
        ({"ridge": 0.1, "method": "lu"}, "method must be one of auto, cholesky, iterative"),
        ({"ridge": "loo", "method": "iterative"}, "need the whole matrix"),
        ({"ridge": 0.1, "method": "iterative", "residuals": True}, "need the whole matrix"),
        ({"ridge": 0.1, "tolerance": 0.0}, "tolerance must be a finite number above 0"),
        ({"ridge": 0.1, "rank": 0}, "rank must be a whole number of at least 1"),
        ({"ridge": 0.1, "mask": jnp.ones((QUERIES, LENGTH), bool)}, "one mask for all queries"),
    ],
)
def test_bad_settings_raise_one_sentence(settings, sentence):
    with pytest.raises(BadInput, match=sentence):
        cme(*draw(), **settings)
