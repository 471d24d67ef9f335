"""The compiled kernels for long softmax attention and for short Cholesky factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import blocks, cme, compiled, factors, softmax

EPSILON = float(np.finfo("float32").eps)
needs_kernel = pytest.mark.skipif(
    not compiled.registered("blocks", blocks.NAMES), reason="there is no C++ compiler here"
)
needs_factors = pytest.mark.skipif(
    not compiled.registered("factors", factors.NAMES), reason="there is no C++ compiler here"
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
    output = np.array(attend(query, key, value)[0])
    assert np.isnan(output[1, 3]).all()
    output[1, 3] = 0
    assert np.isfinite(output).all()


@needs_kernel
def test_a_query_depends_on_nothing_but_itself():
    """Alone or among others, mapped or not, the same to the last bit."""
    query, key, value = map(jnp.asarray, draw(*SIZES[1]))
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


@needs_factors
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("length", "columns"), [(32, 1), (37, 5), (144, 16), (300, 33)])
def test_factors_and_solutions(length, columns, dtype):
    """Backward errors: RᵀR = A and A x = b up to c n ε of the sizes of what is summed (Higham,
    Accuracy and Stability of Numerical Algorithms, 2002, theorems 10.3 and 10.4)."""
    random = np.random.default_rng(length)
    points = random.normal(size=(3, length, length))
    matrix = points @ np.swapaxes(points, 1, 2) / length + np.eye(length)
    matrix = matrix.astype(dtype)
    right = random.normal(size=(3, length, columns)).astype(dtype)
    root = jax.jit(factors.factor)(matrix)
    found = np.asarray(jax.jit(factors.solve)(root, right), float)
    root, matrix = np.asarray(root, float), np.asarray(matrix, float)
    assert (np.tril(root, -1) == 0).all()
    epsilon = float(np.finfo(dtype).eps)
    absolute = np.swapaxes(np.abs(root), 1, 2) @ np.abs(root)
    gap = np.abs(np.swapaxes(root, 1, 2) @ root - matrix)
    assert (gap <= (length + 2) * epsilon * absolute).all()
    left = np.abs(matrix @ found - right)
    assert (left <= 4 * length * epsilon * (absolute @ np.abs(found))).all()


@needs_factors
def test_no_factor_is_nan():
    matrix = jnp.eye(64, dtype="float32").at[40, 40].set(-1)
    found = factors.solve(factors.factor(matrix), jnp.ones((64, 1), "float32"))
    assert np.isnan(found[40:]).all()


@needs_factors
def test_cme_takes_them_and_keeps_its_derivatives(monkeypatch):
    keys = jax.random.split(jax.random.key(0), 3)
    parts = tuple(jax.random.normal(k, (3, 40, 2), "float64") for k in keys)

    def derivatives():
        def loss(parts):  # a new function each time, so that it is traced again
            return jnp.sum(cme(*parts, ridge=0.1, variance=True).mean ** 2)

        def second(parts):
            return jax.jvp(jax.grad(loss), (parts,), (parts,))

        return str(jax.make_jaxpr(loss)(parts)), (loss(parts), jax.jit(second)(parts))

    program, found = derivatives()
    assert "attnlens_factor_float64" in program
    monkeypatch.setattr(factors, "usable", lambda length, dtype: False)
    program, other = derivatives()
    assert "attnlens_factor_float64" not in program
    # A solve is right to about κ n ε = 40/0.1 · 40 ε, and each derivative multiplies by A⁻¹ ≤ 1/λ.
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True):
        scale = 1 + np.abs(wanted).max()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=16000 * 1e2 * 2.2e-16 * scale)
