"""`attnlens native`: the status of each library with its reason and place, switching native code
off and on, and failed builds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnlens.attention.native import build, compiler, libraries, wheel
from attnlens.attention.native.variants import variant_here
from attnlens.cli import app

NAMES = ["cholesky", "long_softmax", "small_softmax"]
pytestmark = pytest.mark.skipif(variant_here() is None, reason="no native code for this processor")


@pytest.fixture(autouse=True)
def _no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty cache folder, no wheel and no compiler."""
    monkeypatch.setenv("ATTNLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wheel, "find", lambda name, variant: wheel.WheelLibrary())
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    monkeypatch.setattr(build, "_failures", {})


def statuses() -> list[str]:
    done = CliRunner().invoke(app, ["native", "status", "--json"])
    assert done.exit_code == 0
    content = json.loads(done.stdout)
    assert [entry["name"] for entry in content] == NAMES
    assert [entry["file"] for entry in content] == [None] * 3
    return sorted({entry["status"] for entry in content})


def test_status_says_why_native_code_is_not_used_and_writes_nothing(tmp_path: Path):
    assert statuses() == ["no C++ compiler"]
    assert list(tmp_path.iterdir()) == []
    words = CliRunner().invoke(app, ["native", "status"]).stdout
    assert all(f"{name}: no C++ compiler; XLA computes it" in words for name in NAMES)


def test_off_lasts_until_the_next_build():
    assert CliRunner().invoke(app, ["native", "off"]).exit_code == 0
    assert statuses() == ["switched off"]
    assert CliRunner().invoke(app, ["native", "build"]).exit_code == 1  # there is no compiler
    assert statuses() == ["no C++ compiler"]


def test_a_failed_build_has_exit_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failing = tmp_path / "c++"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(failing))
    assert CliRunner().invoke(app, ["native", "build"]).exit_code == 1
    assert statuses() == ["failed"]


def test_off_without_a_private_folder_is_refused(tmp_path: Path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    done = CliRunner().invoke(app, ["native", "off"])
    assert "ATTNLENS_KERNEL=0" in str(done.exception)
    assert statuses() == ["not trusted"]


@pytest.mark.parametrize("fault", ["a file", "below a file", "read-only"])
def test_a_cache_that_cannot_be_written_is_not_called_not_compiled_yet(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compiler, "find_compiler", lambda: "/usr/bin/c++")
    assert statuses() == ["not compiled yet"]
    cache = tmp_path / "cache"
    if fault == "read-only":
        cache.mkdir(mode=0o700)
        # The permissions of a folder do not stop root, as whom containers run their tests.
        monkeypatch.setattr(os, "access", lambda place, mode: False)
    else:
        cache.write_text("")
    if fault == "below a file":
        monkeypatch.setenv("ATTNLENS_CACHE", str(cache / "folder"))
    assert statuses() == ["failed"]
    words = CliRunner().invoke(app, ["native", "status"]).stdout
    assert words.count(f"{cache} ") == 3  # the reason, once per library
    # Cells would be computed by XLA, and their keys say so.
    assert all(not library.is_native for library in libraries.current_path().libraries)
