"""Unusual environments: locale C, narrow terminal, python -O, no temporary folder, a clock that
jumps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import toy_claims
from attnlens.runs.engines import local
from attnlens.runs.planning import cells_of
from results_folders import comparable, kept, ledger
from running import ATTNLENS, ENVIRONMENT, attnlens, toy

pytestmark = pytest.mark.slow  # a run of the command line takes five to ten seconds


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in the usual environment, with which other runs are compared."""
    out = tmp_path_factory.mktemp("usual")
    assert attnlens(*toy("CLAIM", out)).returncode == 0
    return out


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"COLUMNS": "20"}], ids=str)
def test_a_run_is_the_same(environment: dict[str, str], tmp_path: Path, usual: Path):
    done = attnlens(*toy("CLAIM", tmp_path), cwd=None, **environment)
    assert done.returncode == 0, done.stderr
    assert comparable(tmp_path) == comparable(usual)
    assert (tmp_path / "report.html").read_text("utf-8").count("<!doctype html>") == 1
    assert ledger(tmp_path)["claims"][0]["id"] in "".join(done.stdout.split())


def test_a_run_with_python_o_is_the_same(tmp_path: Path, usual: Path):
    command = [sys.executable, "-O", *ATTNLENS[1:], *map(str, toy("CLAIM", tmp_path))]
    done = subprocess.run(command, env={**ENVIRONMENT, "PYTHONOPTIMIZE": "1"}, timeout=300)
    assert done.returncode == 0
    assert comparable(tmp_path) == comparable(usual)


def test_workers_run_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch):
    def nowhere(*_, **__):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", nowhere)
    outcomes = list(local.run(cells_of(toy_claims.CLAIM, "smoke")[:2], workers=1))
    assert [outcome.failure for outcome in outcomes] == [None, None]


def test_a_run_does_not_need_the_folder_in_tmpdir(tmp_path: Path, usual: Path):
    done = attnlens(*toy("CLAIM", tmp_path), TMPDIR="/proc/none")
    assert done.returncode == 0, done.stderr
    assert comparable(tmp_path) == comparable(usual)


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_changes_nothing(jump: float, tmp_path: Path, usual: Path, monkeypatch):
    """Every second reading of the wall clock is off by a day; monotonic clocks are not changed."""
    from attnlens import verify

    clock, readings = time.time, iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: clock() + jump * (next(readings) % 2))
    verify("smoke", ["toy_claims:CLAIM"], tmp_path, workers=1)
    assert comparable(tmp_path) == comparable(usual)


def test_sigterm_ends_a_background_job_of_a_script(tmp_path: Path):
    """A shell without job control starts `command &` with SIGINT ignored, so SIGTERM must end
    it."""
    command = [*ATTNLENS, *map(str, toy("SLOW", tmp_path))]
    process = subprocess.Popen(
        ["sh", "-c", '"$@" & echo $!; wait $!; echo $?', "sh", *command],
        env={**ENVIRONMENT, "TOY_PAUSE": "0.3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    number = int(process.stdout.readline())
    deadline = time.monotonic() + 120
    while not (tmp_path / "results.sqlite").exists() or kept(tmp_path) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ignored = int(Path(f"/proc/{number}/status").read_text().split("SigIgn:\t")[1][:16], 16)
    assert ignored & 1 << signal.SIGINT - 1
    os.kill(number, signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert output.split()[-1] == "130"
    assert "interrupted; finished cells are kept" in errors
    assert kept(tmp_path) > 0
