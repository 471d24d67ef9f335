"""Kernels against their formulas and, where a query meets a key, their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import references
from attention.references import EPSILON
from attnlens import kernels

POINTS = jax.random.normal(jax.random.key(0), (6, 3))
OTHERS = jax.random.normal(jax.random.key(1), (4, 3))


@pytest.mark.parametrize("name", sorted(kernels.KERNELS))
@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_formula(name, temperature):
    got = kernels.KERNELS[name](POINTS, OTHERS, temperature)
    wanted = references.gram(name, np.asarray(POINTS), np.asarray(OTHERS), temperature)
    # The exponent (at most r²/τ ~ 300) is right to ε times itself, and so is κ.
    np.testing.assert_allclose(got, wanted, rtol=2000 * EPSILON, atol=EPSILON)


@pytest.mark.parametrize("name", sorted(kernels.LOG_PROFILES))
def test_log_profiles_are_logarithms_of_the_kernels(name):
    temperature = 0.7
    if name == "polynomial":
        u = kernels.products(POINTS, OTHERS) / temperature
    else:
        u = kernels.squared_distances(POINTS, OTHERS) / temperature
    wanted = jnp.log(kernels.KERNELS[name](POINTS, OTHERS, temperature))
    np.testing.assert_allclose(kernels.LOG_PROFILES[name](u), wanted, rtol=0, atol=1000 * EPSILON)


def test_a_far_centre_costs_no_digits():
    # Distances of order 1 at 10⁶ from the origin: without centring ε·10¹² = 2e−4 would be lost.
    # What remains is the rounding of the points themselves, ε·10⁶ each.
    near = kernels.squared_distances(POINTS, OTHERS)
    far = kernels.squared_distances(POINTS + 1e6, OTHERS + 1e6)
    np.testing.assert_allclose(far, near, rtol=0, atol=100 * EPSILON * 1e6)


@pytest.mark.parametrize(
    ("name", "curvature"), [("rbf", 1.0), ("matern32", 3.0), ("matern52", 5 / 3)]
)
def test_derivatives_where_a_query_meets_a_key(name, curvature):
    """At r = 0 the gradient is 0 and the Hessian −c/τ·I, with c the kernel's own constant."""
    temperature, point = 0.5, jnp.zeros((1, 2))

    def value(query):
        return kernels.KERNELS[name](query, point, temperature)[0, 0]

    def log_value(query):
        squared = kernels.squared_distances(query, point)
        return kernels.LOG_PROFILES[name](squared / temperature)[0, 0]

    wanted = -curvature / temperature * np.eye(2)
    for function in (value, log_value):
        assert not np.any(jax.grad(function)(point))
        hessian = jax.hessian(function)(point)[0, :, 0, :]
        np.testing.assert_allclose(hessian, wanted, rtol=10 * EPSILON)


def test_the_laplace_kink_has_gradient_zero():
    gradient = jax.grad(lambda q: kernels.laplace(q, POINTS[:1], 1.0)[0, 0])(POINTS[:1])
    assert not np.any(gradient)
