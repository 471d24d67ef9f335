"""The record of a numerical path: its JSON and back, its key, and its description."""

from __future__ import annotations

import json

import pytest

from attnlens.core.numerical_path import (
    NativeLibrary,
    NativeStatus,
    NumericalPath,
    library_names,
)

PATH = NumericalPath(
    tuple(
        NativeLibrary(f"library{number}", status, reason="x" * number, digest=f"{number}")
        for number, status in enumerate(NativeStatus)
    )
)


def test_a_path_comes_back_from_json():
    assert NumericalPath.restore(json.loads(json.dumps(PATH.plain()))) == PATH


def test_the_key_says_native_or_xla_for_every_library_and_nothing_else():
    sources = ["native", "native", "XLA", "XLA", "XLA", "XLA", "XLA"]
    assert PATH.key == " ".join(f"library{i}={source}" for i, source in enumerate(sources))
    assert library_names(PATH.key) == tuple(library.name for library in PATH.libraries)
    assert NumericalPath().key == ""


def test_the_words_name_the_reason():
    failed = NativeLibrary("a", NativeStatus.FAILED, "disk full")
    used = NativeLibrary("b", NativeStatus.IN_USE)
    assert str(NumericalPath((failed, used))) == "native b; XLA for a (failed: disk full)"


@pytest.mark.parametrize("plain", [[{}], [{"name": "a", "status": "lost"}], [7], 7])
def test_other_data_raises(plain):
    with pytest.raises((LookupError, TypeError, ValueError)):
        NumericalPath.restore(plain)
