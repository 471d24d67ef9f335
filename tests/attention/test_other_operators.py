"""Kernel, linear and sigmoid attention, and multi-head attention."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attention_references as references
from attention_references import EPSILON
from attnlens.attention import MultiHead, cme, kernel, linear, sigmoid, softmax
from attnlens.core.checks import BadInput
from attnlens.core.kernels import LOG_PROFILES


def draw(seed=0, batch=(), queries=4, length=9, dim=3, value_dim=2):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = ((queries, dim), (length, dim), (length, value_dim))
    return tuple(jax.random.normal(k, (*batch, *s)) for k, s in zip(keys, shapes, strict=True))


@pytest.mark.parametrize("name", sorted(LOG_PROFILES))
def test_kernel_attention_equals_the_weighted_mean(name):
    @jax.jit
    def ours(query, key, value, temperature, mask):
        return kernel(query, key, value, kernel=name, temperature=temperature, mask=mask)

    @given(
        log_temperature=st.floats(-3, 3),
        duplicate=st.booleans(),
        visible=st.floats(0, 1),
        seed=st.integers(0, 1000),
    )
    def check(log_temperature, duplicate, visible, seed):
        query, key, value = map(np.asarray, draw(seed))
        if duplicate:
            key = np.concatenate([key[:5], query])
        temperature = 10**log_temperature
        mask = np.random.default_rng(seed).random((4, 9)) < visible
        if name == "polynomial":
            u = query @ key.T / temperature
            with np.errstate(divide="ignore"):
                logits = 2 * np.log(np.abs(1 + u))
            # The error of log (1 + u)² is 2·(error of u)/|1 + u|.
            error = 8 * EPSILON * np.max((1 + 20 / temperature) / np.abs(1 + u))
        else:
            squared = np.sum((query[:, None] - key[None]) ** 2, -1) / temperature
            logits = {
                "rbf": lambda u: -u / 2,
                "laplace": lambda u: -np.sqrt(u),
                "matern32": lambda u: np.log1p(np.sqrt(3 * u)) - np.sqrt(3 * u),
                "matern52": lambda u: np.log1p(np.sqrt(5 * u) + 5 * u / 3) - np.sqrt(5 * u),
            }[name](squared)
            # The error of u is ε·(‖q‖² + ‖k‖²)/τ ≤ ε·100/τ; near 0, the error of √u is the square
            # root of this.
            error = 100 * EPSILON / temperature + 8 * EPSILON * np.max(np.abs(logits))
            if name == "laplace":
                error += np.sqrt(100 * EPSILON / temperature)
        expected = references.normalised(logits, value, mask)
        actual = ours(*map(jnp.asarray, (query, key, value, temperature, mask)))
        bound = (4 * error + 20 * EPSILON) * np.max(np.abs(value))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)

    check()


def test_on_the_sphere_rbf_attention_equals_softmax():
    query, key, value = draw()
    query, key = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    # exp(−‖q − k‖²/2τ) = e^{−1/τ} e^{q·k/τ} for unit vectors: logits of size 1/τ = 10, each with an
    # error of a few ε.
    np.testing.assert_allclose(
        kernel(query, key, value, temperature=0.1),
        softmax(query, key, value, temperature=0.1),
        rtol=0,
        atol=200 * EPSILON * float(jnp.max(jnp.abs(value))),
    )


def test_a_query_far_from_every_key_attends_to_the_nearest():
    key, value = jnp.array([[0.0], [1.0]]), jnp.array([[1.0], [3.0]])
    # κ itself is e^{−500,000} = 0 in float64. The log ratio of the weights is 1000 − ½.
    out = kernel(jnp.array([[1000.0]]), key, value, temperature=1.0)
    np.testing.assert_array_equal(out, [[3.0]])


@pytest.mark.parametrize("shift", [0, -10, -20, -60])
def test_linear_attention_equals_its_quadratic_form(shift):
    """Includes inputs far below zero, where eˣ − 1 + 1 is 0 and e²ˣ underflows in single
    precision."""
    query, key, value = map(np.asarray, draw())
    query, key = query + np.float32(shift), key + np.float32(shift)

    def phi(x):
        x = np.float64(x)
        return np.where(x > 0, x + 1, np.exp(x))

    weights = phi(query) @ phi(key).T
    expected = weights @ value / weights.sum(-1, keepdims=True)
    actual = linear(*map(jnp.asarray, (query, key, value)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=100 * EPSILON)


def test_positive_features_approach_softmax():
    # Vectors of small norm are used, because the variance of the estimate grows as exp(‖q + k‖²/τ).
    query, key, value = draw(dim=4)
    query, key = query / 2, key / 2
    exact = softmax(query, key, value)

    def error(count):
        """Root mean square error over eight draws of the features."""
        draws = jnp.stack(
            [linear(query, key, value, features="positive", count=count, seed=s) for s in range(8)]
        )
        return float(jnp.sqrt(jnp.mean((draws - exact[None]) ** 2)))

    few, many = error(64), error(4096)
    # The error falls as 1/√count: by a factor of 8 here. The ratio of two root mean squares of 8 ·
    # 8 values has a relative standard deviation of about √(2/64)·½·√2 = 0.13, so a factor of 4 is
    # four of these standard deviations below 8.
    assert many < few / 4
    assert many < 0.05


def test_positive_features_of_large_keys_stay_finite():
    query, key, value = draw()
    out = linear(100 * query, 100 * key, value, features="positive")
    assert np.all(np.isfinite(out))
    # A weighted mean stays within the values' range.
    assert np.all(out <= jnp.max(value, 0, keepdims=True) + 1e-12)
    assert np.all(out >= jnp.min(value, 0, keepdims=True) - 1e-12)


def test_linear_attention_refuses_a_mask_per_query():
    with pytest.raises(BadInput, match="one mask for all queries"):
        linear(*draw(), mask=jnp.ones((4, 9), bool))
    with pytest.raises(BadInput, match="features must be one of elu, positive"):
        linear(*draw(), features="cosine")


def test_sigmoid_attention_equals_its_formula():
    query, key, value = map(np.asarray, draw())
    mask = np.random.default_rng(0).random((4, 9)) < 0.6
    mask[2] = False
    logits = query @ key.T / 2.0 - np.log(np.maximum(mask.sum(-1), 1))[:, None]
    expected = np.where(mask, 1 / (1 + np.exp(-logits)), 0) @ value
    arguments = [jnp.asarray(x) for x in (query, key, value)]
    for method in ("dense", "blocks"):
        actual = sigmoid(*arguments, temperature=2.0, mask=jnp.asarray(mask), method=method)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=100 * EPSILON)


@pytest.mark.slow
def test_multihead_equals_the_sum_of_single_heads():
    layer = MultiHead(jax.random.key(0), dim=6, heads=3, key_dim=5, value_dim=4, output_dim=2)
    query, key, value = (
        jax.random.normal(jax.random.key(i), (2, n, d))
        for i, (n, d) in enumerate([(4, 6), (9, 5), (9, 4)])
    )
    mask = jax.random.bernoulli(jax.random.key(5), 0.7, (2, 4, 9))
    head = jax.jit(softmax)
    expected = sum(
        head(query @ layer.query[h], key @ layer.key[h], value @ layer.value[h], mask=mask)
        @ layer.output[h]
        for h in range(3)
    )
    actual = eqx.filter_jit(layer)(query, key, value, mask=mask)
    assert actual.shape == (2, 4, 2)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=200 * EPSILON)


def test_multihead_wraps_any_operator_and_has_gradients():
    layer = MultiHead(jax.random.key(0), dim=4, heads=2, operator=partial(cme, ridge=0.1))
    tokens = jax.random.normal(jax.random.key(1), (3, 5, 4))
    mask = jnp.arange(5) < 4

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(layer):
        return jnp.sum(layer(tokens, tokens, tokens, mask=mask) ** 2)

    for part in jax.tree.leaves(eqx.filter(gradient(layer), eqx.is_array)):
        assert np.all(np.isfinite(part))
        assert np.any(part)


def test_dim_must_be_a_multiple_of_heads():
    with pytest.raises(BadInput, match="dim must be a multiple of heads"):
        MultiHead(jax.random.key(0), dim=5, heads=2)
