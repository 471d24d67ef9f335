"""`attnlens verify` as a user runs it: files, verdicts, exit statuses, kills, interrupts."""

from __future__ import annotations

import html
import json
import os
import random
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

import attnlens as package
from attnlens.claims.registry import find
from attnlens.runs.planning import selection
from attnlens.runs.verify import command_names
from results_folders import chosen_seed, comparable, kept, ledger, query
from running import ATTNLENS, ENVIRONMENT, attnlens, one_sentence, start, toy


def processes(out: Path) -> set[int]:
    """The process ids of the workers that computed the finished cells."""
    rows = query(out, "SELECT data FROM arrays WHERE name = 'process'")
    return {int.from_bytes(data, "little") for (data,) in rows}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert attnlens(*toy("SLOW", out)).returncode == 0
    return out


def test_a_run_writes_ledger_results_and_page(tmp_path: Path):
    done = attnlens(*toy("CLAIM", tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "run" / "report.html") in done.stdout
    _, row, quantity, *_ = done.stdout.splitlines()
    assert row.split()[:2] == ["T.toy", "supported"]
    assert quantity == "  mean"
    (entry,) = ledger(tmp_path / "run")["claims"]
    assert (entry["id"], entry["lens"], entry["verdict"]) == ("T.toy", "T", "supported")
    assert entry["control"] == "refuted"
    low, high = entry["interval"]
    assert low < entry["estimate"] < high
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        ".lock",
        "ledger.json",
        "report.html",
        "results.sqlite",
    ]


def test_a_second_run_computes_nothing_and_agrees(tmp_path: Path):
    """The second run is the one that the page gives for this claim alone."""
    attnlens(*toy("CLAIM", tmp_path, "--seed-range", 2))
    first, workers = comparable(tmp_path), processes(tmp_path)
    page = (tmp_path / "report.html").read_text()
    (command,) = re.findall(r"To run only this claim:\s*<code>(.*?)</code>", page)
    program, *words = shlex.split(html.unescape(command))
    assert program == "attnlens"
    assert "toy_claims:CLAIM" in words
    assert attnlens(*words, "--out", tmp_path).returncode == 0
    assert comparable(tmp_path) == first
    assert processes(tmp_path) == workers  # no cell was computed again
    assert query(tmp_path, "SELECT COUNT(*) FROM runs") == [(1,)]


def test_a_larger_profile_reuses_the_smaller_one(tmp_path: Path):
    attnlens(*toy("CLAIM", tmp_path))
    planned = attnlens("verify", "--claim", "toy_claims:CLAIM", "--out", tmp_path, "--dry-run")
    assert planned.stdout.startswith("80 cells, 24 of them done, 56 to compute.")
    assert "worker" in planned.stdout
    assert kept(tmp_path) == 24


@pytest.mark.slow
def test_killed_at_any_moment_and_resumed_the_ledger_is_the_same(
    uninterrupted: Path, tmp_path: Path
):
    seed = chosen_seed()
    print(f"kill points from seed {seed}")
    moments = random.Random(seed)
    for attempt in range(4):
        out = tmp_path / str(attempt)
        before = -1
        for _ in range(2):
            process = start(*toy("SLOW", out))
            # The moments range from before the file exists to after the last cell: a run has 24
            # cells of 0.05 s on two workers.
            time.sleep(moments.uniform(0.2, 2.5))
            process.kill()
            process.communicate()
            assert kept(out) >= max(before, 0)
            before = kept(out)
        assert attnlens(*toy("SLOW", out)).returncode == 0
        assert kept(out) == 24
        assert comparable(out) == comparable(uninterrupted)


def test_an_interrupt_keeps_finished_cells_and_leaves_no_worker(
    uninterrupted: Path, tmp_path: Path
):
    # With half a second per cell, the run is far from its end when the signal arrives, even on a
    # busy machine.
    process = start(*toy("SLOW", tmp_path), TOY_PAUSE="0.5")
    deadline = time.monotonic() + 60
    while kept(tmp_path) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; finished cells are kept" in stderr
    assert "Traceback" not in stderr
    assert 4 <= kept(tmp_path) < 24
    for pid in processes(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert attnlens(*toy("SLOW", tmp_path)).returncode == 0
    assert comparable(tmp_path) == comparable(uninterrupted)


def test_workers_exit_when_the_driver_is_killed(tmp_path: Path):
    process = start(*toy("SLOW", tmp_path), TOY_PAUSE="0.5")
    deadline = time.monotonic() + 60
    while kept(tmp_path) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    pids = processes(tmp_path)
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path):
    first = start(*toy("SLOW", tmp_path))
    deadline = time.monotonic() + 60
    while kept(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # stays in the middle of its run
    second = attnlens(*toy("SLOW", tmp_path))
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=60)
    assert second.returncode == 2
    assert f"another run (process {first.pid}) is writing" in one_sentence(second.stderr)
    assert first.returncode == 0
    assert kept(tmp_path) == 24


def test_the_ledger_does_not_depend_on_the_number_of_workers(uninterrupted: Path, tmp_path: Path):
    assert attnlens(*toy("SLOW", tmp_path, "--workers", "1")).returncode == 0
    assert comparable(tmp_path) == comparable(uninterrupted)


def test_a_supported_control_fails_the_run(tmp_path: Path):
    done = attnlens(*toy("SUPPORTED_CONTROL", tmp_path))
    assert done.returncode == 1
    assert "a control came out supported in T.supported-control" in done.stderr
    assert ledger(tmp_path)["claims"][0]["control"] == "supported"


@pytest.mark.parametrize("name", ["RAISES", "DIES"])
def test_a_cell_without_result_fails_the_run_and_is_shown(tmp_path: Path, name: str):
    done = attnlens(*toy(name, tmp_path))
    assert done.returncode == 1
    assert "cells have no result" in done.stderr
    (entry,) = ledger(tmp_path)["claims"]
    assert entry["verdict"] == "undecided"
    assert entry["cells_without_result"] == 2
    page = (tmp_path / "report.html").read_text()
    assert "2 cells have no result" in page
    assert "<script>alert(1)" not in page


def test_a_claim_whose_package_is_missing_is_skipped_and_listed(tmp_path: Path):
    done = attnlens(*toy("CLAIM", tmp_path, "--claim", "toy_claims:NEEDS"))
    message = "T.needs needs the package no-such-data; get it with pip install no-such-data."
    assert done.returncode == 0, done.stderr
    assert f"Not run: {message}" in done.stdout
    content = ledger(tmp_path)
    assert ([entry["id"] for entry in content["claims"]], content["skipped"]) == (
        ["T.toy"],
        [message],
    )
    assert message in (tmp_path / "report.html").read_text()
    planned = attnlens(*toy("CLAIM", tmp_path, "--claim", "toy_claims:NEEDS", "--dry-run"))
    assert planned.stdout.startswith("24 cells, 24 of them done")


def test_a_missing_package_is_bad_input_if_no_other_claim_is_left(tmp_path: Path):
    done = attnlens(*toy("NEEDS", tmp_path / "run"))
    assert done.returncode == 2
    assert "get it with pip install no-such-data" in one_sentence(done.stderr)
    assert not (tmp_path / "run").exists()


def test_nan_makes_a_claim_undecided(tmp_path: Path):
    done = attnlens(*toy("NAN", tmp_path))
    assert done.returncode == 0, done.stderr
    (entry,) = ledger(tmp_path)["claims"]
    assert (entry["verdict"], entry["estimate"]) == ("undecided", None)


def test_a_full_disk_ends_the_run_with_one_sentence(small_disk: Path):
    # Only the page (2 MB) does not fit on the disk. Cells and ledger are kept, and no partial page
    # is left.
    done = attnlens(*toy("CLAIM", small_disk / "run"))
    assert done.returncode == 2
    assert "is full or failing" in one_sentence(done.stderr)
    assert kept(small_disk / "run") == 24
    assert not list((small_disk / "run").glob("*report*"))


def test_a_terminal_shows_a_bar_with_rate_and_time_left(tmp_path: Path):
    import pty

    parent_end, child_end = pty.openpty()
    process = subprocess.Popen(
        [*ATTNLENS, *map(str, toy("SLOW", tmp_path))],
        env={**ENVIRONMENT, "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=child_end,
    )
    os.close(child_end)
    shown = b""
    while True:
        try:
            shown += os.read(parent_end, 4096)
        except OSError:  # the process has closed its end
            break
    os.close(parent_end)
    assert process.wait(timeout=60) == 0
    assert b"cells/s" in shown
    assert b"left" in shown
    assert b"24/24" in shown


def test_fresh_starts_over_and_renames_the_old_file(tmp_path: Path):
    attnlens(*toy("CLAIM", tmp_path))
    assert attnlens(*toy("CLAIM", tmp_path, "--fresh")).returncode == 0
    assert len(list(tmp_path.glob("results-before-*.sqlite"))) == 1
    assert kept(tmp_path) == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--claim", "A.nothing"], "there is no claim 'A.nothing'"),
        (
            ["verify", "--claim", "no_such_module:CLAIM"],
            "the import of the claim 'no_such_module:CLAIM' failed",
        ),
        (["verify", "--claim", "toy_claims:plan"], "must be an attnlens Claim"),
        (
            ["verify", "--claim", "toy_claims:CLAIM", "--out", "/proc/nowhere"],
            "choose another --out",
        ),
        (["verify", "--claim", "toy_claims:CLAIM", "--out", "/dev/null"], "choose another --out"),
        (["report", "/nowhere"], "there are no results in /nowhere"),
    ],
)
def test_bad_input_gives_one_sentence(arguments: list[str], message: str, tmp_path: Path):
    done = attnlens(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in one_sentence(done.stderr)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "--profile", "huge"],
        ["verify", "--workers", "0"],
        ["nonsense"],
        ["report"],
        ["verify", "--workers", "many"],
        ["verify", "--engine", "abacus"],
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str], tmp_path: Path):
    done = attnlens(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_report_renders_an_old_folder_without_the_experiment_code(tmp_path: Path):
    attnlens(*toy("CLAIM", tmp_path))
    before = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").unlink()
    # Modules whose import fails stand for modules that are not installed.
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("jax", "equinox", "toy_claims", "scipy"):
        (blocked / f"{name}.py").write_text("raise ImportError('not installed')")
    paths = os.pathsep.join([str(blocked), ENVIRONMENT["PYTHONPATH"]])
    done = attnlens("report", tmp_path, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").read_text() == before


def test_report_of_an_unfinished_run_is_bad_input(tmp_path: Path):
    process = start(*toy("SLOW", tmp_path), TOY_PAUSE="0.5")
    deadline = time.monotonic() + 60
    while kept(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    done = attnlens("report", tmp_path)
    assert done.returncode == 2
    assert "unfinished run" in one_sentence(done.stderr)


def test_claims_and_version():
    listed = json.loads(attnlens("claims", "--json").stdout)
    assert [claim["id"] for claim in listed] == [claim.id for claim in find()]
    (smoothed,) = (claim for claim in listed if claim["id"] == "A.softmax-smoothed")
    assert smoothed["regions"]["slope"] == [-0.52, -0.48]
    assert "Control:" in attnlens("claims").stdout
    assert attnlens("version").stdout.strip() == package.__version__


def test_a_variation_is_run_under_the_name_of_its_claim():
    changed = selection(["A.efficiency"], {"noise_std": 1.5})
    assert command_names(["A.efficiency"], changed) == {changed[0].id: "A.efficiency"}
    own = ["toy_claims:CLAIM", "A.cme-rate"]
    assert command_names(own, selection(own)) == {
        "A.cme-rate": "A.cme-rate",
        "T.toy": "toy_claims:CLAIM",
    }


def test_verify_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reports = []
    result = package.verify(
        "smoke", ["toy_claims:CLAIM"], tmp_path, workers=1, progress=reports.append
    )
    assert result["claims"] == ledger(tmp_path)["claims"]
    assert [p.done for p in reports] == list(range(25))
    assert reports[-1].seconds_left == 0
    with pytest.raises(ValueError, match="profile must be one of smoke, default, full"):
        package.verify("huge", ["toy_claims:CLAIM"], tmp_path)  # type: ignore[arg-type] (an invalid value on purpose)
