"""What every registered attention operator promises."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import OPERATORS
from attnlens.checks import BadInput

EPSILON = float(jnp.finfo(jnp.float64).eps)
BATCH, QUERIES, LENGTH, DIM, VALUE_DIM = 2, 5, 7, 3, 2
MASK = jnp.array([[[1, 1, 0, 1, 1, 1, 1]], [[1, 0, 1, 1, 1, 0, 1]]], bool)
# Condition number of what is solved: at most (L·max κ + λ)/λ, with κ(k, k) ≤ 10 for these keys
# in the linear kernel. The normalised operators are far below it.
CONDITION = (LENGTH * 10 + 0.1) / 0.1
# Rounding: a few operations a token, each amplified by the condition number.
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
    """A scalar that depends on every output, and not linearly; of (query, key, value, τ)."""
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
def test_shape_and_precision_are_kept(name, dtype):
    out = jax.eval_shape(OPERATORS[name], *draw(dtype=dtype))
    assert out.shape == (BATCH, QUERIES, VALUE_DIM)
    assert out.dtype == dtype


@every_operator
def test_members_of_a_batch_do_not_meet(name):
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
def test_masked_tokens_are_as_if_absent(name):
    query, key, value = (x[0] for x in draw())
    seen = np.flatnonzero(MASK[0, 0])
    masked = compiled(name)(draw(), MASK)[0]
    np.testing.assert_allclose(
        masked, jax.jit(OPERATORS[name])(query, key[seen], value[seen]), rtol=0, atol=ROUNDING
    )


@every_operator
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_behind_the_mask_is_read(name, bad):
    query, key, value = draw()
    hidden = jnp.swapaxes(~MASK, -1, -2)
    poisoned = query, jnp.where(hidden, bad, key), jnp.where(hidden, bad, value)
    # Bit for bit: the same program on inputs that differ only where it must not look.
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
def test_nothing_to_attend_to_gives_zeros(name):
    nothing = jnp.zeros_like(MASK)
    assert not np.any(compiled(name)(draw(), nothing))
    for part in gradient(name)(draw() + TEMPERATURE, nothing):
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

    # A central difference is off by step²·f‴/6, where f‴ is of order 1,000 times the terms of the
    # slope, and by rounding/step: 1.7e−8, and ROUNDING/1e−5 at the very most; 2e−9 is seen. The
    # slope is a sum of terms of both signs, so errors are judged against their absolute sum.
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
    total = loss(name)  # made here, not while tracing: its weights are cached
    value, rate = jax.jit(lambda x, d: jax.jvp(lambda x: total(x, MASK), (x,), (d,)))(
        inputs, direction
    )
    backward = sum(
        jnp.vdot(a, b) for a, b in zip(gradient(name)(inputs, MASK), direction, strict=True)
    )
    # Both are sums of about 60 products, each right to the operator's rounding. (The iterative
    # solve's preconditioner has rank 8 for 7 tokens: it is exact, and so is the solve.)
    bound = 60 * ROUNDING * max(1.0, abs(float(value)))
    np.testing.assert_allclose(rate, backward, rtol=0, atol=bound)


@every_operator
@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_impossible_temperatures_are_refused(name, bad):
    with pytest.raises(BadInput, match="temperature must be a finite number above 0"):
        partial(OPERATORS[name], temperature=bad)(*draw())
