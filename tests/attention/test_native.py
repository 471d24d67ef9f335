"""Native code: loading, long softmax attention, and Cholesky factors of short matrices."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import cme, softmax
from attnlens.attention.native import (
    build,
    cholesky,
    compiler,
    libraries,
    long_softmax,
    small_softmax,
    wheel,
)
from attnlens.attention.native.variants import variant_here
from attnlens.core.numerical_path import NativeStatus

EPSILON = float(np.finfo("float32").eps)
NATIVE = (cholesky, long_softmax, small_softmax)
NAMES = ("cholesky", "long_softmax", "small_softmax")
needs_compiler = pytest.mark.skipif(
    variant_here() is None or shutil.which("c++") is None,
    reason="there is no C++ compiler here",
)
# (sets, queries, length, features, values). Among them are whole tiles, one key more than whole
# tiles, fewer queries than rows of a tile, values that fill no vector register, and values that
# fill several panels.
SIZES = [(1, 192, 512, 64, 64), (2, 97, 513, 3, 7), (3, 5, 4400, 16, 33), (1, 300, 257, 1, 150)]
attend = jax.jit(long_softmax.attend)


def draw(sets, queries, length, dim, value_dim, size=1.0):
    random = np.random.default_rng(length)
    shapes = ((queries, dim), (length, dim), (length, value_dim))
    query, key, value = (random.normal(size=(sets, *shape)).astype("float32") for shape in shapes)
    return size * query, key, value


def exact(query, key, value):
    """(outputs, log normalisers, terms) in float64; `terms` is the largest Σ|q||k|, the sum of the
    absolute terms of a score."""
    query, key, value = (np.asarray(part, float) for part in (query, key, value))
    scores = query @ np.swapaxes(key, -1, -2)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    terms = (np.abs(query) @ np.swapaxes(np.abs(key), -1, -2)).max()
    return weights @ value / total, top + np.log(total), terms


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """Load the native libraries: tests call native functions directly, not through the operators
    that load the libraries on use."""
    libraries.load()


@needs_compiler
@pytest.mark.parametrize("native", NATIVE, ids=lambda native: native.__name__.rpartition(".")[2])
def test_every_source_is_compiled_and_loaded(native):
    """With a compiler every native version must load: the fallback to XLA would hide a mistake."""
    assert native.load()


LOAD = """
from attnlens.attention.native import small_softmax
print(small_softmax.load())
"""


@pytest.mark.parametrize("reason", ["no compiler", "switched off", "no folder"])
def test_load_returns_false_where_native_code_is_impossible(reason: str, tmp_path: Path):
    changed = {
        "no compiler": {"PATH": str(tmp_path), "ATTNLENS_CACHE": str(tmp_path)},
        "switched off": {"ATTNLENS_KERNEL": "0"},
        "no folder": {"ATTNLENS_CACHE": "/dev/null/none"},
    }[reason]
    run = partial(subprocess.run, capture_output=True, text=True, check=True)
    process = run([sys.executable, "-c", LOAD], env={**os.environ, **changed})
    # Prebuilt libraries need neither a compiler nor a folder that the user can write.
    variant = variant_here()
    prebuilt = variant is not None and wheel.find("small_softmax", variant.name).file is not None
    possible = prebuilt and reason != "switched off"
    assert process.stdout.strip() == str(possible)


def test_the_report_gives_reasons_and_compiles_nothing(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ATTNLENS_CACHE", str(tmp_path))

    def statuses():
        return {library.status for library in libraries.current_path().libraries}

    assert [library.name for library in libraries.current_path().libraries] == list(NAMES)
    monkeypatch.setattr(wheel, "find", lambda name, variant: wheel.WheelLibrary())
    if variant_here():
        monkeypatch.setattr(compiler, "find_compiler", lambda: "/usr/bin/c++")
        assert statuses() == {NativeStatus.NOT_COMPILED}
        monkeypatch.setattr(compiler, "find_compiler", lambda: None)
        assert statuses() == {NativeStatus.NO_COMPILER}
    monkeypatch.setattr(build, "variant_here", lambda: None)
    assert statuses() == {NativeStatus.OTHER_PLATFORM}
    monkeypatch.setenv("ATTNLENS_KERNEL", "0")
    assert statuses() == {NativeStatus.SWITCHED_OFF}
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_loaded_libraries_are_in_use():
    path = libraries.load(["cholesky"])
    assert path == libraries.current_path(["cholesky"])
    variant = variant_here()
    assert variant
    assert path.key == f"cholesky=native-{variant.name}"
    assert len(path.libraries[0].digest) == 16


@needs_compiler
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_long_softmax_equals_the_formula(sizes, size):
    query, key, value = draw(*sizes, size=size)
    output, normaliser = attend(query, key, value)
    expected, log_total, terms = exact(query, key, value)
    # The error of a score is ε (d + 1) Σ|q||k|. The relative error of a weight is twice that,
    # because the largest score is subtracted, plus 4 ε of exp. A sum of L terms adds L ε.
    relative = EPSILON * (2 * (sizes[3] + 1) * terms + sizes[2] + 4)
    atol = 2 * relative * np.abs(value).max()
    np.testing.assert_allclose(output, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(normaliser, log_total, rtol=2 * EPSILON, atol=2 * relative)


@needs_compiler
def test_a_nan_query_affects_only_its_own_row():
    query, key, value = draw(*SIZES[1])
    query[1, 3, 2] = np.nan
    output = np.array(attend(query, key, value)[0])
    assert np.isnan(output[1, 3]).all()
    output[1, 3] = 0
    assert np.isfinite(output).all()


@needs_compiler
def test_the_output_of_a_query_does_not_depend_on_other_queries():
    """The output of a query is the same to the last bit without the other queries, and under
    vmap."""
    query, key, value = map(jnp.asarray, draw(*SIZES[1]))
    whole = attend(query, key, value)[0]
    np.testing.assert_array_equal(whole[1, 40:], attend(query[1, 40:], key[1], value[1])[0])
    np.testing.assert_array_equal(whole, jax.vmap(long_softmax.attend)(query, key, value)[0])


@needs_compiler
@pytest.mark.parametrize("method", ["auto", "blocks"])
def test_softmax_uses_long_softmax_and_keeps_its_derivatives(method):
    query, key, value = (jnp.asarray(part[0]) for part in draw(1, 192, 512, 4, 2))

    def attention(step, method):
        return softmax(query * step, key, value, method=method)

    assert "attnlens_long_softmax" in str(jax.make_jaxpr(lambda s: attention(s, method))(1.0))
    assert "attnlens_long_softmax" not in str(jax.make_jaxpr(lambda s: attention(s, "dense"))(1.0))
    masked = jax.make_jaxpr(lambda q: softmax(q, key, value, mask=jnp.arange(512) < 9))(query)
    assert "attnlens_long_softmax" not in str(masked)

    def derivatives(method):
        def loss(step):
            return jnp.sum(attention(step, method) ** 2)

        return jax.jit(lambda s: (loss(s), jax.grad(loss)(s), jax.grad(jax.grad(loss))(s)))(1.0)

    # The loss is a sum of 384 squares of order 1, each with an error of about 20 ε (scores are of
    # order 10). The first and the second derivative multiply it by scores once and twice.
    for actual, expected, factor in zip(
        derivatives(method), derivatives("dense"), (1, 10, 100), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=384 * 20 * EPSILON * factor)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("length", "columns"), [(32, 1), (37, 5), (144, 16), (300, 33)])
def test_cholesky_factors_and_solutions(length, columns, dtype):
    """Backward errors: RᵀR = A and A x = b hold up to c n ε times the sums of absolute terms
    (Higham, Accuracy and Stability of Numerical Algorithms, 2002, theorems 10.3 and 10.4)."""
    random = np.random.default_rng(length)
    points = random.normal(size=(3, length, length))
    matrix = points @ np.swapaxes(points, 1, 2) / length + np.eye(length)
    matrix = matrix.astype(dtype)
    right = random.normal(size=(3, length, columns)).astype(dtype)
    root = jax.jit(cholesky.factor)(matrix)
    solution = np.asarray(jax.jit(cholesky.solve)(root, right), float)
    root, matrix = np.asarray(root, float), np.asarray(matrix, float)
    assert (np.tril(root, -1) == 0).all()
    epsilon = float(np.finfo(dtype).eps)
    absolute = np.swapaxes(np.abs(root), 1, 2) @ np.abs(root)
    gap = np.abs(np.swapaxes(root, 1, 2) @ root - matrix)
    assert (gap <= (length + 2) * epsilon * absolute).all()
    residual = np.abs(matrix @ solution - right)
    assert (residual <= 4 * length * epsilon * (absolute @ np.abs(solution))).all()


@needs_compiler
def test_a_matrix_that_is_not_positive_definite_gives_nan():
    matrix = jnp.eye(64, dtype="float32").at[40, 40].set(-1)
    solution = cholesky.solve(cholesky.factor(matrix), jnp.ones((64, 1), "float32"))
    assert np.isnan(solution[40:]).all()


@needs_compiler
def test_cme_uses_native_cholesky_and_keeps_its_derivatives(monkeypatch):
    keys = jax.random.split(jax.random.key(0), 3)
    parts = tuple(jax.random.normal(k, (3, 40, 2), "float64") for k in keys)

    def derivatives():
        def loss(parts):  # defined in each call, so that JAX traces it again
            return jnp.sum(cme(*parts, ridge=0.1, variance=True).mean ** 2)

        def second(parts):
            return jax.jvp(jax.grad(loss), (parts,), (parts,))

        return str(jax.make_jaxpr(loss)(parts)), (loss(parts), jax.jit(second)(parts))

    program, native = derivatives()
    assert "attnlens_factor_float64" in program
    monkeypatch.setattr(cholesky, "fits", lambda length, dtype: False)
    program, lapack = derivatives()
    assert "attnlens_factor_float64" not in program
    # The relative error of a solve is about cond(A) n ε = 40/0.1 · 40 ε, and each derivative
    # multiplies by A⁻¹ ≤ 1/λ.
    for actual, expected in zip(jax.tree.leaves(native), jax.tree.leaves(lapack), strict=True):
        scale = 1 + np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=16000 * 1e2 * 2.2e-16 * scale)
