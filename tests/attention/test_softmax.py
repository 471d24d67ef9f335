"""Softmax attention against NumPy and against JAX's own function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attention_references as references
from attention_references import EPSILON
from attnlens.attention import softmax
from attnlens.attention.inputs import check_shapes, prepare
from attnlens.core.checks import BadInput

SHAPES = ((1, 1, 1, 1), (3, 6, 2, 2), (4, 9, 3, 1))
ARRANGEMENTS = ("random", "duplicate", "collinear", "zero")


def points(random, arrangement, count, dim):
    if arrangement == "duplicate":
        return np.repeat(random.normal(size=(1, dim)), count, 0)
    if arrangement == "collinear":
        return random.normal(size=(count, 1)) * random.normal(size=(1, dim))
    return random.normal(size=(count, dim)) * (arrangement != "zero")


@jax.jit
def masked_softmax(query, key, value, temperature, mask, bias):
    return softmax(query, key, value, temperature=temperature, mask=mask, bias=bias)


@jax.jit
def tiled_softmax(query, key, value, temperature, mask, bias):
    return softmax(
        query, key, value, temperature=temperature, mask=mask, bias=bias, method="blocks"
    )


@given(
    shape=st.sampled_from(SHAPES),
    arrangement=st.sampled_from(ARRANGEMENTS),
    log_temperature=st.floats(-3, 3),
    visible=st.floats(0, 1),
    bias_size=st.sampled_from([0.0, 1.0, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_softmax_equals_the_formula(shape, arrangement, log_temperature, visible, bias_size, seed):
    queries, length, dim, value_dim = shape
    random = np.random.default_rng(seed)
    query, key = random.normal(size=(queries, dim)), points(random, arrangement, length, dim)
    value = random.normal(size=(length, value_dim))
    mask = random.random((queries, length)) < visible
    bias = bias_size * random.normal(size=(queries, length))
    temperature = 10.0**log_temperature
    expected = references.softmax(query, key, value, temperature, mask, bias)
    # The error of a logit is ε·(d + 2)·|logit|; weights and mean inherit it as a relative error.
    largest = np.max(np.abs(query) @ np.abs(key).T / temperature + np.abs(bias), initial=1.0)
    bound = 4 * EPSILON * ((dim + 2) * largest + length) * np.max(np.abs(value))
    arguments = [jnp.asarray(a) for a in (query, key, value, temperature, mask, bias)]
    for function in (masked_softmax, tiled_softmax):
        np.testing.assert_allclose(function(*arguments), expected, rtol=0, atol=bound)


@given(
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    place=st.sampled_from(["key", "value"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_bad_token_affects_only_queries_that_attend_to_it(bad, place, seed):
    random = np.random.default_rng(seed)
    query, key = random.normal(size=(4, 3)), random.normal(size=(9, 3))
    value = random.normal(size=(9, 1))
    mask = random.random((4, 9)) < 0.5
    bias = np.where(mask, 0.0, bad)  # masked entries may have any value
    token = random.integers(9)
    arguments = {"query": query, "key": key, "value": value}
    poisoned = {k: v.copy() for k, v in arguments.items()}
    poisoned[place][token, 0] = bad
    clean = ~mask[:, token]
    for function in (masked_softmax, tiled_softmax):

        def rows(parts, function=function):
            out = function(*parts, jnp.array(1.0), jnp.asarray(mask), jnp.asarray(bias))
            return jnp.sum(jnp.where(clean[:, None], out, 0)), out

        compute = jax.value_and_grad(rows, has_aux=True)
        (_, expected), _ = compute(tuple(map(jnp.asarray, arguments.values())))
        (_, actual), gradient = compute(tuple(map(jnp.asarray, poisoned.values())))
        # Queries that do not attend to the bad token change by rounding only, because the key of
        # the token is set to zero.
        np.testing.assert_allclose(actual[clean], expected[clean], rtol=0, atol=100 * EPSILON)
        assert np.all(np.isnan(actual[~clean]))
        assert all(np.all(np.isfinite(part)) for part in gradient)


@pytest.mark.parametrize("method", ["dense", "blocks"])
@pytest.mark.parametrize("size", [1e4, 1e100, 1e300])
def test_huge_logits_select_the_largest(method, size):
    key = jnp.array([[1.0], [2.0], [3.0], [-3.0]])
    value = jnp.array([[1.0], [2.0], [3.0], [4.0]])
    out = softmax(jnp.array([[size], [-size]]), key, value, temperature=1.0, method=method)
    np.testing.assert_array_equal(out, [[3.0], [4.0]])


def test_a_bias_of_minus_infinity_masks():
    keys = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(k, (6, 3)) for k in keys)
    causal = jnp.tril(jnp.ones((6, 6), bool), -1)  # every token of the first row is masked
    bias = jnp.where(causal, 0.0, -jnp.inf)
    for method in ("dense", "blocks"):
        masked = softmax(query, key, value, mask=causal, method=method)
        biased = softmax(query, key, value, bias=bias, method=method)
        np.testing.assert_allclose(biased, masked, rtol=0, atol=10 * EPSILON)
        assert not np.any(biased[0])


def test_softmax_equals_jax_dot_product_attention_in_single_precision():
    keys = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(k, (2, 16, 4, 8), jnp.float32) for k in keys)
    with jax.numpy_dtype_promotion("standard"):
        expected = jax.nn.dot_product_attention(query, key, value)
    ours = softmax(*(jnp.swapaxes(x, 1, 2) for x in (query, key, value)))
    # Errors in float32: logits of size about 3 are sums of 8 products, and a mean has 16 weights.
    bound = 4 * float(jnp.finfo(jnp.float32).eps) * (10 * 3 + 16) * float(jnp.max(jnp.abs(value)))
    np.testing.assert_allclose(jnp.swapaxes(ours, 1, 2), expected, rtol=0, atol=bound)


def test_double_precision_is_kept():
    # The two logits differ by 1e−12; in float32 they would be equal.
    key = jnp.array([[1.0], [1.0 + 1e-12]])
    value = jnp.array([[0.0], [1.0]])
    out = softmax(jnp.ones((1, 1)), key, value, temperature=1.0)
    # The weight of the second token is ½ + 1e−12/4; the rounding error of the logits is ε.
    np.testing.assert_allclose(float(out[0, 0]) - 0.5, 2.5e-13, atol=2 * EPSILON)


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((5, 3), (7, 4), (7, 2)), "the same number of features"),
        (((5, 3), (7, 3), (6, 2)), "the same number of tokens"),
        (((2, 5, 3), (7, 3), (7, 2)), "same leading dimensions"),
        (((3,), (7, 3), (7, 2)), "at least two dimensions"),
    ],
)
def test_shapes_that_do_not_match_raise_one_sentence(shapes, sentence):
    with pytest.raises(BadInput, match=sentence):
        check_shapes(*shapes)


def test_bad_masks_biases_and_methods_raise_one_sentence():
    query, key, value = jnp.ones((5, 3)), jnp.ones((7, 3)), jnp.ones((7, 2))
    with pytest.raises(BadInput, match="mask must broadcast to"):
        prepare(query, key, value, jnp.ones((7, 5), bool))
    with pytest.raises(BadInput, match="bias must broadcast to"):
        softmax(query, key, value, bias=jnp.ones((2, 5, 7)))
    with pytest.raises(BadInput, match="method must be one of"):
        softmax(query, key, value, method="flash")
