"""Contract of every registered attention operator."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import OPERATORS
from attnlens.core.checks import BadInput

EPSILON = float(jnp.finfo(jnp.float64).eps)
BATCH, QUERIES, LENGTH, DIM, VALUE_DIM = 2, 5, 7, 3, 2
MASK = jnp.array([[[1, 1, 0, 1, 1, 1, 1]], [[1, 0, 1, 1, 1, 0, 1]]], bool)
# Condition number of the linear system: at most (L·max κ + λ)/λ, with κ(k, k) ≤ 10 for these keys
# and the linear kernel. The normalised operators are far below it.
CONDITION = (LENGTH * 10 + 0.1) / 0.1
# Bound on rounding errors: a few operations per token, each amplified by the condition number.
ROUNDING = 10 * LENGTH * CONDITION * EPSILON

every_operator = pytest.mark.parametrize("name", sorted(OPERATORS))


def draw(seed=0, dtype=jnp.float64):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = ((BATCH, QUERIES, DIM), (BATCH, LENGTH, DIM), (BATCH, LENGTH, VALUE_DIM))
    return tuple(jax.random.normal(k, s, dtype) for k, s in zip(keys, shapes, strict=True))


@cache
def compiled(name):
    return jax.jit(lambda inputs, mask: OPERATORS[name](*inputs, mask=mask))


@cache
def loss(name):
    """A scalar function of (query, key, value, τ) that is nonlinear in every output."""
    weights = jax.random.normal(jax.random.key(9), (BATCH, QUERIES, VALUE_DIM))

    @jax.jit
    def total(inputs, mask):
        *inputs, temperature = inputs
        return jnp.sum(weights * OPERATORS[name](*inputs, mask=mask, temperature=temperature) ** 2)

    return total


@cache
def gradient(name):
    return jax.jit(jax.grad(loss(name)))


TEMPERATURE = (jnp.array(1.5),)


@every_operator
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.bfloat16])
def test_outputs_have_the_shape_and_dtype_of_the_inputs(name, dtype):
    out = jax.eval_shape(OPERATORS[name], *draw(dtype=dtype))
    assert out.shape == (BATCH, QUERIES, VALUE_DIM)
    assert out.dtype == dtype


@every_operator
def test_members_of_a_batch_are_independent(name):
    inputs = draw()
    together = compiled(name)(inputs, MASK)
    alone = [compiled(name)(tuple(x[i] for x in inputs), MASK[i]) for i in range(BATCH)]
    mapped = jax.jit(jax.vmap(compiled(name)))(inputs, MASK)
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(together, mapped, rtol=0, atol=ROUNDING)


@every_operator
def test_order_of_tokens_does_not_matter(name):
    query, key, value = draw()
    order = np.random.default_rng(0).permutation(LENGTH)
    moved = compiled(name)((query, key[:, order], value[:, order]), MASK[..., order])
    np.testing.assert_allclose(moved, compiled(name)((query, key, value), MASK), atol=ROUNDING)


@every_operator
def test_masking_tokens_equals_leaving_them_out(name):
    query, key, value = (x[0] for x in draw())
    visible = np.flatnonzero(MASK[0, 0])
    masked = compiled(name)(draw(), MASK)[0]
    np.testing.assert_allclose(
        masked, jax.jit(OPERATORS[name])(query, key[visible], value[visible]), rtol=0, atol=ROUNDING
    )


@every_operator
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_masked_numbers_are_not_read(name, bad):
    query, key, value = draw()
    hidden = jnp.swapaxes(~MASK, -1, -2)
    poisoned = query, jnp.where(hidden, bad, key), jnp.where(hidden, bad, value)
    # The outputs are equal bit for bit, because the same program runs on inputs that differ only
    # where they are masked.
    np.testing.assert_array_equal(
        compiled(name)(poisoned, MASK), compiled(name)((query, key, value), MASK)
    )
    for got, clean in zip(
        gradient(name)(poisoned + TEMPERATURE, MASK),
        gradient(name)((query, key, value, *TEMPERATURE), MASK),
        strict=True,
    ):
        np.testing.assert_array_equal(got, clean)
    assert not np.any(
        np.asarray(gradient(name)(poisoned + TEMPERATURE, MASK)[2])[np.asarray(hidden)[..., 0]]
    )


@every_operator
def test_a_mask_that_hides_all_tokens_gives_zeros(name):
    empty = jnp.zeros_like(MASK)
    assert not np.any(compiled(name)(draw(), empty))
    for part in gradient(name)(draw() + TEMPERATURE, empty):
        assert not np.any(part)


@every_operator
def test_no_tokens_give_zeros(name):
    query, key, value = (x[0] for x in draw())
    out = OPERATORS[name](query, key[:0], value[:0])
    assert out.shape == (QUERIES, VALUE_DIM)
    assert not np.any(out)


@every_operator
def test_gradient_and_hessian_product_agree_with_finite_differences(name):
    inputs, direction = draw(0) + TEMPERATURE, (*draw(1), jnp.array(0.3))
    step = 1e-5

    def moved(by):
        return tuple(x + by * d for x, d in zip(inputs, direction, strict=True))

    def dot(left, right):
        return float(sum(jnp.vdot(a, b) for a, b in zip(left, right, strict=True)))

    # The error of a central difference is step²·f‴/6, 1.7e−8, where f‴ is of order 1,000 times the
    # terms of the slope, plus rounding/step, at most ROUNDING/1e−5; the measured error is 2e−9. The
    # slope is a sum of terms of both signs, so errors are relative to the sum of absolute terms.
    tolerance = 1e-7
    slope = (loss(name)(moved(step), MASK) - loss(name)(moved(-step), MASK)) / (2 * step)
    derivative = gradient(name)(inputs, MASK)
    size = dot(map(jnp.abs, derivative), map(jnp.abs, direction))
    np.testing.assert_allclose(dot(derivative, direction), slope, rtol=0, atol=tolerance * size)

    @jax.jit
    def hessian_product(inputs, direction):
        return jax.jvp(lambda x: gradient(name)(x, MASK), (inputs,), (direction,))[1]

    product = hessian_product(inputs, direction)
    ahead, behind = gradient(name)(moved(step), MASK), gradient(name)(moved(-step), MASK)
    largest = max(float(jnp.max(jnp.abs(part))) for part in product)
    for got, a, b in zip(product, ahead, behind, strict=True):
        np.testing.assert_allclose(got, (a - b) / (2 * step), atol=tolerance * largest)


@pytest.mark.slow
@every_operator
def test_forward_mode_agrees_with_reverse_mode(name):
    inputs, direction = draw(0) + TEMPERATURE, (*draw(1), jnp.array(0.3))
    total = loss(name)  # created before tracing, because `loss` caches its weights
    value, rate = jax.jit(lambda x, d: jax.jvp(lambda x: total(x, MASK), (x,), (d,)))(
        inputs, direction
    )
    backward = sum(
        jnp.vdot(a, b) for a, b in zip(gradient(name)(inputs, MASK), direction, strict=True)
    )
    # Both derivatives are sums of about 60 products, each with the rounding error of the operator.
    # The preconditioner of the iterative solve has rank 8 for 7 tokens, so it is exact, and so is
    # the solve.
    bound = 60 * ROUNDING * max(1.0, abs(float(value)))
    np.testing.assert_allclose(rate, backward, rtol=0, atol=bound)


@every_operator
@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_invalid_temperatures_raise(name, bad):
    with pytest.raises(BadInput, match="temperature must be a finite number above 0"):
        partial(OPERATORS[name], temperature=bad)(*draw())
