"""Kernels against their formulas, and their derivatives where a query equals a key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention_references as references
from attention_references import EPSILON
from attnlens.core import kernels

POINTS = jax.random.normal(jax.random.key(0), (6, 3))
OTHERS = jax.random.normal(jax.random.key(1), (4, 3))


@pytest.mark.parametrize("name", sorted(kernels.KERNELS))
@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_kernels_equal_their_formulas(name, temperature):
    gram = kernels.KERNELS[name](POINTS, OTHERS, temperature)
    expected = references.gram(name, np.asarray(POINTS), np.asarray(OTHERS), temperature)
    # The exponent is at most r²/τ ~ 300. Its absolute error ε·300 is the relative error of κ.
    np.testing.assert_allclose(gram, expected, rtol=2000 * EPSILON, atol=EPSILON)


@pytest.mark.parametrize("name", sorted(kernels.LOG_PROFILES))
def test_log_profiles_are_logarithms_of_the_kernels(name):
    temperature = 0.7
    if name == "polynomial":
        u = kernels.products(POINTS, OTHERS) / temperature
    else:
        u = kernels.squared_distances(POINTS, OTHERS) / temperature
    expected = jnp.log(kernels.KERNELS[name](POINTS, OTHERS, temperature))
    np.testing.assert_allclose(kernels.LOG_PROFILES[name](u), expected, rtol=0, atol=1000 * EPSILON)


def test_points_far_from_the_origin_lose_no_digits():
    # The points lie 10⁶ from the origin, at distances of order 1. Without centring, squared
    # distances would lose ε·10¹² = 2e−4. With centring, only the rounding of the points themselves
    # remains, ε·10⁶ per coordinate.
    near = kernels.squared_distances(POINTS, OTHERS)
    far = kernels.squared_distances(POINTS + 1e6, OTHERS + 1e6)
    np.testing.assert_allclose(far, near, rtol=0, atol=100 * EPSILON * 1e6)


@pytest.mark.parametrize(
    ("name", "curvature"), [("rbf", 1.0), ("matern32", 3.0), ("matern52", 5 / 3)]
)
def test_derivatives_where_a_query_equals_a_key(name, curvature):
    """At distance 0 the gradient is 0 and the Hessian is −c/τ·I, where c depends on the kernel
    (`curvature`)."""
    temperature, point = 0.5, jnp.zeros((1, 2))

    def value(query):
        return kernels.KERNELS[name](query, point, temperature)[0, 0]

    def log_value(query):
        squared = kernels.squared_distances(query, point)
        return kernels.LOG_PROFILES[name](squared / temperature)[0, 0]

    expected = -curvature / temperature * np.eye(2)
    for function in (value, log_value):
        assert not np.any(jax.grad(function)(point))
        hessian = jax.hessian(function)(point)[0, :, 0, :]
        np.testing.assert_allclose(hessian, expected, rtol=10 * EPSILON)


def test_the_laplace_kernel_has_gradient_zero_at_distance_zero():
    gradient = jax.grad(lambda q: kernels.laplace(q, POINTS[:1], 1.0)[0, 0])(POINTS[:1])
    assert not np.any(gradient)
