"""Native softmax attention on small sets of tokens: comparison with the formula in float64, and the
conditions under which it is used."""

import shutil
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attention_references as references
from attnlens.attention import softmax
from attnlens.attention.native import small_softmax
from attnlens.networks import SelfAttention, fit

EPSILON = float(np.finfo("float32").eps)
SIZES = (1, 2, 4, 5, 8, 16, 19)  # few sizes, so that few programs are compiled

needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("c++") is None,
    reason="there is no C++ compiler here",
)


def draw(seed, sets, queries, length, dim, value_dim, size=1.0):
    random = np.random.default_rng(seed)
    shapes = ((queries, dim), (length, dim), (length, value_dim), (queries, value_dim))
    query, key, value, cotangent = (
        random.normal(size=(sets, *shape)).astype("float32") for shape in shapes
    )
    return size * query, key, value, cotangent


@jax.jit
def with_gradient(query, key, value, mask, cotangent):
    output, back = jax.vjp(lambda *parts: small_softmax.attend(*parts, mask), query, key, value)
    return output, *back(cotangent)


def plain(query, key, value, mask, cotangent):
    """Outputs and gradients by the formulas of small_softmax.cc, in float64, for one set."""
    query, key, value, cotangent = (
        np.asarray(part, float) for part in (query, key, value, cotangent)
    )
    logits = query @ key.T
    if mask.size:
        logits = np.where(mask, logits, -np.inf)
    top = np.max(logits, 1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1)
    pulled = cotangent @ value.T
    scores = weights * (pulled - (weights * pulled).sum(1, keepdims=True))
    return weights @ value, scores @ key, scores.T @ query, weights.T @ cotangent


@needs_compiler
@given(
    sizes=st.tuples(*[st.sampled_from(SIZES)] * 2, *[st.sampled_from((1, 3, 4, 8, 9))] * 2),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
    visible=st.sampled_from([None, 0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_small_softmax_equals_the_formula(sizes, size, visible, seed):
    query, key, value, cotangent = draw(seed, 2, *sizes, size=size)
    _, length, dim, _ = sizes
    mask = np.zeros((2, 0), bool)
    if visible is not None:
        mask = np.random.default_rng(seed).random((2, length)) < visible
    results = with_gradient(query, key, value, mask, cotangent)
    # The error of a logit is ε (d + 2) Σ|q||k|; the relative error of its weight is twice that,
    # plus 4 ε of exp and L ε of the sum. Sums of absolute values bound the effect on each result.
    for i in range(2):
        expectations = plain(query[i], key[i], value[i], mask[i], cotangent[i])
        largest = (np.abs(query[i]) @ np.abs(key[i]).T).max()
        relative = EPSILON * (2 * (dim + 2) * largest + 2 * length + sizes[0] + sizes[3] + 16)
        pulled = (np.abs(cotangent[i]) @ np.abs(value[i]).T).max()
        bounds = (
            np.abs(value[i]).max(),
            2 * pulled * np.abs(key[i]).max(),
            2 * pulled * np.abs(query[i]).sum(0).max(),
            np.abs(cotangent[i]).sum(0).max(),
        )
        for result, expected, bound in zip(results, expectations, bounds, strict=True):
            np.testing.assert_allclose(result[i], expected, rtol=0, atol=2 * relative * bound)


@needs_compiler
@pytest.mark.parametrize(("sets", "length", "dim", "seen"), [(5, 16, 8, 0), (37, 4, 5, 4)])
def test_the_result_of_a_set_does_not_depend_on_other_sets(sets, length, dim, seen):
    """The result of a set is the same to the last bit alone and together with other sets, also for
    sets of few tokens, which are computed 16 at a time."""
    query, key, value, cotangent = draw(0, sets, length, length, dim, dim)
    mask = np.random.default_rng(0).random((sets, seen)) < 0.6
    together = with_gradient(query, key, value, mask, cotangent)
    for i in range(sets):
        alone = with_gradient(*(part[i] for part in (query, key, value, mask, cotangent)))
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, many[i])


@needs_compiler
@pytest.mark.parametrize("length", [4, 16])
def test_a_nan_query_affects_only_its_own_row(length):
    query, key, value, cotangent = draw(0, 1, length, length, 8, 8)
    query[0, 3, 2] = np.nan
    output = with_gradient(query, key, value, np.zeros((1, 0), bool), cotangent)[0][0]
    assert np.isnan(output[3]).all()
    assert np.isfinite(np.delete(output, 3, 0)).all()


@needs_compiler
def test_softmax_uses_small_softmax_only_inside_first_order():
    query, key, value, _ = (jnp.asarray(part[0]) for part in draw(0, 1, 7, 7, 2, 1))
    mask = jnp.arange(7) < 5

    def inside(query):
        with small_softmax.first_order():
            return softmax(query, key, value, mask=mask)

    def outside(query):
        return softmax(query, key, value, mask=mask)

    assert "attnlens_small_softmax" in str(jax.make_jaxpr(inside)(query))
    assert "attnlens_small_softmax" not in str(jax.make_jaxpr(outside)(query))
    query64, key64, value64 = (np.asarray(part, float) for part in (query, key, value))
    shown = np.broadcast_to(mask, (7, 7))
    expected = references.softmax(query64, key64, value64, 2**0.5, shown, 0.0)
    np.testing.assert_allclose(inside(query), expected, atol=1e-6)
    assert np.isfinite(jax.hessian(lambda q: outside(q).sum())(query)).all()


@needs_compiler
@pytest.mark.slow
def test_training_with_native_code_agrees_with_xla(monkeypatch):
    """After 20 steps in single precision the parameters differ by rounding errors of about √steps ·
    ε · gradient."""
    random = np.random.default_rng(0)
    x = random.normal(size=(32, 3, 4)).astype("float32")
    y = random.normal(size=(32, 1)).astype("float32")
    runs = []
    for native in (True, False):
        make = partial(SelfAttention, tokens=4, token_dim=3, hidden=8)
        monkeypatch.setattr(small_softmax, "load", lambda native=native: native)
        jax.clear_caches()  # the steps must be traced again
        runs.append(fit(make, x, y, seeds=range(2), steps=20, every=20, dtype="float32"))
    jax.clear_caches()
    np.testing.assert_allclose(runs[0].vectors, runs[1].vectors, atol=1e-4)
    assert not np.array_equal(runs[0].vectors, runs[1].vectors)
