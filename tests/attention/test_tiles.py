"""Attention tile by tile: equality with the dense computation, derivatives of all orders, and
memory linear in the length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention_references import EPSILON
from attnlens.attention import kernel, sigmoid, softmax
from attnlens.attention.inputs import prepare
from attnlens.attention.normalised import tile_count
from attnlens.core import kernels

OPERATORS = {"softmax": (softmax, {}), "sigmoid": (sigmoid, {})} | {
    name: (kernel, {"kernel": name}) for name in kernels.LOG_PROFILES
}


def draw(queries, length, dim=3, value_dim=2, dtype=jnp.float64):
    keys = jax.random.split(jax.random.key(length), 3)
    shapes = ((queries, dim), (length, dim), (length, value_dim))
    return tuple(jax.random.normal(k, s, dtype) for k, s in zip(keys, shapes, strict=True))


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_tiles_equal_dense_with_mask_and_bias(name):
    operator, settings = OPERATORS[name]
    # 1,201 keys make 3 tiles of 401, the last one incomplete.
    inputs = draw(3, 1201)
    assert tile_count(prepare(*inputs), "blocks") == 3
    mask = jax.random.bernoulli(jax.random.key(1), 0.7, (3, 1201)).at[1].set(False)
    bias = jax.random.normal(jax.random.key(2), (1, 1201))

    weights = jnp.cos(jnp.arange(6.0)).reshape(3, 2)

    def output_and_gradient(method):
        def weighted_sum(inputs, bias):
            out = operator(*inputs, mask=mask, bias=bias, method=method, **settings)
            return jnp.vdot(weights, out), out

        gradient, out = jax.jit(jax.grad(weighted_sum, (0, 1), has_aux=True))(inputs, bias)
        return out, gradient

    tiled, tiled_gradient = output_and_gradient("blocks")
    dense, dense_gradient = output_and_gradient("dense")
    # The error of a sum of L = 1,201 terms is at most L·ε times the sum of their absolute values
    # (about 4, the largest value; times about 10 for the errors of the logits). A squared distance
    # has an error of ε times the squared norms, so the error of a distance near zero would be √ε:
    # no distance here is that small.
    bound = 1201 * EPSILON * 4 * 10
    np.testing.assert_allclose(tiled, dense, rtol=0, atol=bound)
    for actual, expected in zip(
        jax.tree.leaves(tiled_gradient), jax.tree.leaves(dense_gradient), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("bias_shape", [(4, 1), (1, 9), (1, 1), (9,)])
def test_bias_shapes_that_broadcast(bias_shape):
    inputs = draw(4, 9)
    bias = jax.random.normal(jax.random.key(0), bias_shape)
    mask = jnp.array([[True], [False], [True], [True]])
    tiled = softmax(*inputs, bias=bias, mask=mask, method="blocks")
    dense = softmax(*inputs, bias=bias, mask=mask, method="dense")
    np.testing.assert_allclose(tiled, dense, rtol=0, atol=100 * EPSILON)


def test_reverse_over_reverse_and_third_derivatives():
    inputs = draw(2, 9)

    def scalar(method):
        return lambda step: jnp.sum(softmax(step * inputs[0], *inputs[1:], method=method) ** 2)

    def third(f):
        return jax.grad(jax.jacfwd(jax.grad(f)))

    for transform in (lambda f: jax.grad(jax.grad(f)), third):
        actual, expected = (jax.jit(transform(scalar(m)))(1.3) for m in ("blocks", "dense"))
        # Bound on the third derivative of a function of order 10 with unit scale: up to 3! · 10 ·
        # 4³, times ε·L.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4000 * 9 * EPSILON)


def scratch(function, *shapes):
    """Bytes that XLA reserves for the intermediate results of a compiled function."""
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    analysis = jax.jit(function).lower(*arguments).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("operator", [softmax, kernel, sigmoid])
def test_memory_is_linear_in_the_length(operator):
    def loss(query, key, value):
        return jnp.sum(operator(query, key, value) ** 2)

    def hessian_product(query, key, value):
        parts = (query, key, value)
        return jax.jvp(jax.grad(loss, (0, 1, 2)), parts, parts)[1]

    functions = {"forward": operator, "gradient": jax.grad(loss, (0, 1, 2)), "hvp": hessian_product}
    for name, function in functions.items():
        short, long = (scratch(function, *3 * [(length, 16)]) for length in (16384, 65536))
        assert long < 4.5 * short, name  # memory quadratic in the length would give 16
        assert long < 0.04 * 65536**2 * 4, name  # 4 % of the memory of the logits
