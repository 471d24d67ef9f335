"""Kernel, linear and sigmoid attention, and several heads."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention import references
from attention.references import EPSILON
from attnlens.attention import MultiHead, cme, kernel, linear, sigmoid, softmax
from attnlens.checks import BadInput
from attnlens.kernels import LOG_PROFILES


def draw(seed=0, batch=(), queries=4, length=9, dim=3, value_dim=2):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = ((queries, dim), (length, dim), (length, value_dim))
    return tuple(jax.random.normal(k, (*batch, *s)) for k, s in zip(keys, shapes, strict=True))


@pytest.mark.parametrize("name", sorted(LOG_PROFILES))
def test_kernel_attention_is_the_weighted_mean(name):
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
            # log (1 + u)² is off by 2·(error of u)/|1 + u|.
            wrong = 8 * EPSILON * np.max((1 + 20 / temperature) / np.abs(1 + u))
        else:
            squared = np.sum((query[:, None] - key[None]) ** 2, -1) / temperature
            logits = {
                "rbf": lambda u: -u / 2,
                "laplace": lambda u: -np.sqrt(u),
                "matern32": lambda u: np.log1p(np.sqrt(3 * u)) - np.sqrt(3 * u),
                "matern52": lambda u: np.log1p(np.sqrt(5 * u) + 5 * u / 3) - np.sqrt(5 * u),
            }[name](squared)
            # u is off by ε·(‖q‖² + ‖k‖²)/τ ≤ ε·100/τ; √u by the root of that where it is 0.
            wrong = 100 * EPSILON / temperature + 8 * EPSILON * np.max(np.abs(logits))
            if name == "laplace":
                wrong += np.sqrt(100 * EPSILON / temperature)
        wanted = references.normalised(logits, value, mask)
        got = ours(*map(jnp.asarray, (query, key, value, temperature, mask)))
        bound = (4 * wrong + 20 * EPSILON) * np.max(np.abs(value))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=bound)

    check()


def test_on_the_sphere_the_rbf_kernel_is_softmax():
    query, key, value = draw()
    query, key = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    # exp(−‖q − k‖²/2τ) = e^{−1/τ} e^{q·k/τ}: logits of size 1/τ = 10, right to a few ε each.
    np.testing.assert_allclose(
        kernel(query, key, value, temperature=0.1),
        softmax(query, key, value, temperature=0.1),
        rtol=0,
        atol=200 * EPSILON * float(jnp.max(jnp.abs(value))),
    )


def test_far_from_every_key_the_nearest_is_attended_to():
    key, value = jnp.array([[0.0], [1.0]]), jnp.array([[1.0], [3.0]])
    # κ itself is e^{−500,000}: zero. The weights' log-ratio is 1000 − ½.
    out = kernel(jnp.array([[1000.0]]), key, value, temperature=1.0)
    np.testing.assert_array_equal(out, [[3.0]])


def test_linear_attention_is_its_quadratic_form():
    query, key, value = map(np.asarray, draw())

    def phi(x):
        return np.where(x > 0, x + 1, np.exp(x))

    weights = phi(query) @ phi(key).T
    wanted = weights @ value / weights.sum(-1, keepdims=True)
    got = linear(*map(jnp.asarray, (query, key, value)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=100 * EPSILON)


def test_positive_features_approach_softmax():
    # Short vectors: the estimate's variance grows as exp(‖q + k‖²/τ).
    query, key, value = draw(dim=4)
    query, key = query / 2, key / 2
    exact = softmax(query, key, value)

    def error(count):
        """Root mean square over eight draws of the features."""
        draws = jnp.stack(
            [linear(query, key, value, features="positive", count=count, seed=s) for s in range(8)]
        )
        return float(jnp.sqrt(jnp.mean((draws - exact[None]) ** 2)))

    few, many = error(64), error(4096)
    # The error falls as 1/√count: by 8 here. The ratio of two root mean squares of 8 · 8 values
    # has a relative deviation of about √(2/64)·½·√2 = 0.13; half of 8 is four of those away.
    assert many < few / 4
    assert many < 0.05


def test_positive_features_neither_overflow_nor_vanish():
    query, key, value = draw()
    out = linear(100 * query, 100 * key, value, features="positive")
    assert np.all(np.isfinite(out))
    # A weighted mean stays within the values' range.
    assert np.all(out <= jnp.max(value, 0, keepdims=True) + 1e-12)
    assert np.all(out >= jnp.min(value, 0, keepdims=True) - 1e-12)


def test_linear_attention_takes_no_mask_by_query():
    with pytest.raises(BadInput, match="one mask for all queries"):
        linear(*draw(), mask=jnp.ones((4, 9), bool))
    with pytest.raises(BadInput, match="features must be one of elu, positive"):
        linear(*draw(), features="cosine")


def test_sigmoid_attention_is_its_formula():
    query, key, value = map(np.asarray, draw())
    mask = np.random.default_rng(0).random((4, 9)) < 0.6
    mask[2] = False
    logits = query @ key.T / 2.0 - np.log(np.maximum(mask.sum(-1), 1))[:, None]
    wanted = np.where(mask, 1 / (1 + np.exp(-logits)), 0) @ value
    arguments = [jnp.asarray(x) for x in (query, key, value)]
    for method in ("dense", "blocks"):
        got = sigmoid(*arguments, temperature=2.0, mask=jnp.asarray(mask), method=method)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=100 * EPSILON)


@pytest.mark.slow
def test_several_heads_are_the_sum_of_single_ones():
    layer = MultiHead(jax.random.key(0), dim=6, heads=3, key_dim=5, value_dim=4, output_dim=2)
    query, key, value = (
        jax.random.normal(jax.random.key(i), (2, n, d))
        for i, (n, d) in enumerate([(4, 6), (9, 5), (9, 4)])
    )
    mask = jax.random.bernoulli(jax.random.key(5), 0.7, (2, 4, 9))
    head = jax.jit(softmax)
    wanted = sum(
        head(query @ layer.query[h], key @ layer.key[h], value @ layer.value[h], mask=mask)
        @ layer.output[h]
        for h in range(3)
    )
    got = eqx.filter_jit(layer)(query, key, value, mask=mask)
    assert got.shape == (2, 4, 2)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=200 * EPSILON)


def test_heads_wrap_any_operator_and_train():
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


def test_heads_must_divide():
    with pytest.raises(BadInput, match="dim must be a multiple of heads"):
        MultiHead(jax.random.key(0), dim=5, heads=2)
