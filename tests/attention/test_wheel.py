"""The wheel `attnlens-native` is used if it fits the installed package and its files are intact."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention.native import build, compiler, libraries, wheel
from attnlens.attention.native.variants import (
    ffi_version,
    processor_features,
    source_hashes,
    variant_here,
    variants,
)
from attnlens.core.numerical_path import NativeOrigin, NativeStatus

NAME = "cholesky"
LIBRARY = b"a compiled library"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that installs a wheel with the given hashes of sources and the given version of
    the FFI, and returns the path of its library."""

    def install(
        sources: dict[str, str] | None = None, ffi: str | None = None, variant: str = "x86-64-v3"
    ) -> Path:
        manifest = {"sources": sources or source_hashes(NAME), "ffi": ffi or ffi_version()}
        files = {
            "attnlens_native/manifest.json": json.dumps(manifest).encode(),
            f"attnlens_native/lib/{NAME}-{variant}.so": LIBRARY,
            "attnlens_native-0.1.dist-info/METADATA": b"Name: attnlens-native\nVersion: 0.1\n",
        }
        record = []
        for name, content in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{name},sha256={code.decode()},{len(content)}")
        (tmp_path / "attnlens_native-0.1.dist-info" / "RECORD").write_text("\n".join(record))
        return tmp_path / f"attnlens_native/lib/{NAME}-{variant}.so"

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    wheel.find.cache_clear()
    yield install
    wheel.find.cache_clear()


def test_a_wheel_of_the_same_sources_is_used(installed):
    file = installed()
    digest = hashlib.sha256(LIBRARY).hexdigest()[:16]
    assert wheel.find(NAME, "x86-64-v3") == wheel.WheelLibrary(file, digest)


def test_the_wheel_comes_before_the_compiler(installed, monkeypatch: pytest.MonkeyPatch):
    variant = variant_here()
    if variant is None:
        pytest.skip("there is no native code for this processor")
    file = installed(variant=variant.name)
    library = build.status(NAME)
    assert (library.status, library.origin) == (NativeStatus.IN_USE, NativeOrigin.WHEEL)
    assert build.location(NAME) == file
    # This library cannot be loaded, so the compiler is tried next.
    monkeypatch.setattr(build, "_unloadable", {})
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    monkeypatch.setenv("ATTNLENS_CACHE", str(file.parent / "cache"))
    assert build.prepare(NAME, lambda _: None).status is NativeStatus.NO_COMPILER


@pytest.mark.parametrize("change", ["sources", "interface", "variant", "truncated", "no manifest"])
def test_another_wheel_is_not_used_and_the_reason_is_given(installed, change: str):
    if change == "sources":
        installed(sources={**source_hashes(NAME), f"{NAME}.cc": "0"})
    elif change == "interface":
        installed(ffi="99.0")
    elif change == "variant":
        installed(variant="armv8-a")
    elif change == "truncated":
        installed().write_bytes(LIBRARY[:5])
    else:
        installed().parents[1].joinpath("manifest.json").unlink()
    result = wheel.find(NAME, "x86-64-v3")
    assert result.file is None
    assert "attnlens-native" in result.reason


def test_every_variant_has_fused_multiply_add():
    """Every variant contracts multiplications and additions in the same way; NEON always has fused
    multiply-add."""
    for variant, needs in variants("x86_64"):
        assert "fma" in needs
        assert "-ffp-contract=fast" in variant.flags
    ((arm, _),) = variants("aarch64")
    assert "-ffp-contract=fast" in arm.flags


# The following tests need the real wheel, which `.ci/run` builds and installs.
HERE = variant_here()
REAL = [wheel.find(name, HERE.name) for name in libraries.LIBRARIES] if HERE else []
needs_wheel = pytest.mark.skipif(
    not REAL or any(library.file is None for library in REAL),
    reason="attnlens-native, built from these sources, is not installed",
)


@needs_wheel
def test_the_installed_wheel_is_in_use():
    path = libraries.load()
    assert {library.origin for library in path.libraries} == {NativeOrigin.WHEEL}


def calls() -> dict[str, tuple[str, tuple[np.ndarray, ...], tuple[tuple[int, ...], ...]]]:
    """For every native function: the name of its library, its arguments and the shapes of its
    results."""
    random = np.random.default_rng(0)

    def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
        return random.normal(size=shape).astype(dtype)

    query, key, value = normal(3, 97, 5), normal(3, 513, 5), normal(3, 513, 7)
    result: dict[str, tuple] = {
        "attnlens_long_softmax": ("long_softmax", (query, key, value), ((3, 97, 7), (3, 97, 1)))
    }
    for dtype in ("float32", "float64"):
        points = normal(4, 144, 144, dtype=dtype)
        matrix = points @ np.swapaxes(points, 1, 2) / 144 + np.eye(144, dtype=dtype)
        root = np.linalg.cholesky(matrix).swapaxes(1, 2).copy()
        right = normal(4, 144, 19, dtype=dtype)
        result[f"attnlens_factor_{dtype}"] = ("cholesky", (matrix,), (matrix.shape,))
        result[f"attnlens_solve_{dtype}"] = ("cholesky", (root, right), (right.shape,))
    for tokens in (4, 33):  # fewer and more tokens than a vector register has lanes
        parts = [normal(20, tokens, 5) for _ in range(3)]
        mask = random.random((20, tokens)) < 0.7
        shapes = ((20, tokens, 5), (20, tokens, tokens))
        weights = random.dirichlet(np.ones(tokens), (20, tokens)).astype("float32")
        cotangent = normal(20, tokens, 5)
        name = "attnlens_small_softmax"
        result[f"{name} {tokens}"] = ("small_softmax", (*parts, mask), shapes)
        result[f"{name}_gradient {tokens}"] = (
            "small_softmax",
            (*parts, weights, cotangent),
            (shapes[0],) * 3,
        )
    return result


@needs_wheel
@pytest.mark.parametrize("call", calls())
def test_all_variants_of_the_wheel_agree_to_the_last_bit(call: str):
    library, arguments, shapes = calls()[call]
    function, dtype, results = call.split()[0], arguments[0].dtype, {}
    usable = [v.name for v, needs in variants("x86_64") if needs <= processor_features()]
    if len(usable) < 2:
        pytest.skip("this processor has one variant only")
    for variant in usable:
        file = wheel.find(library, variant).file
        assert file is not None
        target = f"{function} {variant} test"
        capsule = jax.ffi.pycapsule(getattr(ctypes.CDLL(str(file)), function))
        jax.ffi.register_ffi_target(target, capsule, platform="cpu")
        kinds = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        results[variant] = jax.ffi.ffi_call(target, kinds)(*map(jnp.asarray, arguments))
    first, second = results.values()
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
