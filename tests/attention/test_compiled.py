"""Long softmax attention by the compiled kernel: the formula in float64, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import blocks, compiled, softmax

EPSILON = float(np.finfo("float32").eps)
needs_kernel = pytest.mark.skipif(
    not compiled.registered("blocks", blocks.NAMES), reason="there is no C++ compiler here"
)
# (sets, queries, length, features, values): whole blocks, one key more than whole blocks, fewer
# queries than rows of a block, values that fill no vector, one that fills several panels.
SIZES = [(1, 192, 512, 64, 64), (2, 97, 513, 3, 7), (3, 5, 4400, 16, 33), (1, 300, 257, 1, 150)]
attend = jax.jit(blocks.attend)


def draw(sets, queries, length, dim, value_dim, size=1.0):
    random = np.random.default_rng(length)
    shapes = ((queries, dim), (length, dim), (length, value_dim))
    query, key, value = (random.normal(size=(sets, *shape)).astype("float32") for shape in shapes)
    return size * query, key, value


def exact(query, key, value):
    """(o, c) in float64, and what bounds the sizes of the terms of a score."""
    query, key, value = (np.asarray(part, float) for part in (query, key, value))
    scores = query @ np.swapaxes(key, -1, -2)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    terms = (np.abs(query) @ np.swapaxes(np.abs(key), -1, -2)).max()
    return weights @ value / total, top + np.log(total), terms


@needs_kernel
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_equal_to_the_formula(sizes, size):
    query, key, value = draw(*sizes, size=size)
    output, normaliser = attend(query, key, value)
    wanted, log_total, terms = exact(query, key, value)
    # A score is right to ε (d + 1) Σ|q||k|, so a weight to twice that (the largest is subtracted)
    # and 4 ε of exp, and sums of L terms to L ε.
    relative = EPSILON * (2 * (sizes[3] + 1) * terms + sizes[2] + 4)
    atol = 2 * relative * np.abs(value).max()
    np.testing.assert_allclose(output, wanted, rtol=0, atol=atol)
    np.testing.assert_allclose(normaliser, log_total, rtol=2 * EPSILON, atol=2 * relative)


@needs_kernel
def test_what_is_not_finite_stays_in_its_row():
    query, key, value = draw(*SIZES[1])
    query[1, 3, 2] = np.nan
    output = np.asarray(attend(query, key, value)[0])
    assert np.isnan(output[1, 3]).all()
    output[1, 3] = 0
    assert np.isfinite(output).all()


@needs_kernel
def test_a_query_depends_on_nothing_but_itself():
    """Alone or among others, mapped or not, the same to the last bit."""
    query, key, value = draw(*SIZES[1])
    whole = attend(query, key, value)[0]
    np.testing.assert_array_equal(whole[1, 40:], attend(query[1, 40:], key[1], value[1])[0])
    np.testing.assert_array_equal(whole, jax.vmap(blocks.attend)(query, key, value)[0])


@needs_kernel
@pytest.mark.parametrize("method", ["auto", "blocks"])
def test_softmax_takes_it_and_keeps_its_derivatives(method):
    query, key, value = (jnp.asarray(part[0]) for part in draw(1, 192, 512, 4, 2))

    def attention(step, method):
        return softmax(query * step, key, value, method=method)

    assert "attnlens_blocks" in str(jax.make_jaxpr(lambda s: attention(s, method))(1.0))
    assert "attnlens_blocks" not in str(jax.make_jaxpr(lambda s: attention(s, "dense"))(1.0))
    masked = jax.make_jaxpr(lambda q: softmax(q, key, value, mask=jnp.arange(512) < 9))(query)
    assert "attnlens_blocks" not in str(masked)

    def derivatives(method):
        def loss(step):
            return jnp.sum(attention(step, method) ** 2)

        return jax.jit(lambda s: (loss(s), jax.grad(loss)(s), jax.grad(jax.grad(loss))(s)))(1.0)

    # Sums of 384 squares of order 1, each right to about 20 ε (scores of order 10), and as much
    # times the scores, once or twice, for the derivatives.
    for got, wanted, factor in zip(
        derivatives(method), derivatives("dense"), (1, 10, 100), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=384 * 20 * EPSILON * factor)
