"""`attnlens replicate`: disjoint seeds, one verdict per range of seeds, agreement, and resuming
after a kill."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlens as package
import toy_claims
from attnlens.claims.claim import PREDICTION, PROFILES
from attnlens.claims.registry import find
from attnlens.core.checks import BadInput
from attnlens.runs.pages import write_comparison
from attnlens.runs.paper import export_run
from attnlens.runs.planning import SEEDS_PER_RANGE, cells_of
from results_folders import bits, chosen_seed, kept, ledger
from running import attnlens, one_sentence, start, toy

TIMES = 3


def command(name: str, out: Path, *more: object) -> list[object]:
    return [
        "replicate",
        *("--times", TIMES, "--profile", "smoke"),
        *("--claim", f"toy_claims:{name}", "--out", out, *more),
    ]


def replication(out: Path) -> dict[str, Any]:
    return json.loads((out / "replication.json").read_text())


def comparable(out: Path) -> dict[str, Any]:
    """The document of a replication without seconds, machine and packages, so that two equal
    replications have equal documents."""
    content = replication(out)
    for name in ("seconds", "machine", "packages"):
        del content[name]
    for entry in content["claims"]:
        del entry["seconds"]
    return content


def without_time(page: str) -> str:
    """The page without the line that has the minute in which it was written."""
    lines = page.splitlines()
    kept_lines = [line for line in lines if "<dt>finished</dt>" not in line]
    assert len(kept_lines) == len(lines) - 1
    return "\n".join(kept_lines)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    done = attnlens(*command("CLAIM", out))
    assert done.returncode == 0, done.stderr
    assert "stable: 3 supported" in done.stdout
    return out


@pytest.mark.parametrize("claim", find(None), ids=lambda claim: claim.id)
def test_ranges_share_no_seed_with_each_other_or_with_a_pilot(claim: Any):
    """The seeds of all profiles are below the width of a range, so ranges of seeds cannot
    overlap."""
    for profile in PROFILES:
        works = list(claim.plan(profile))
        assert max(seed for work in works for seed in work.seeds) < SEEDS_PER_RANGE
    pilot = getattr(claim.plan, "pilot", range(0))
    assert pilot.stop <= SEEDS_PER_RANGE


def test_a_range_shifts_every_seed_and_nothing_else():
    own, other = (cells_of(toy_claims.CLAIM, "smoke", k) for k in (0, 2))
    for before, after in zip(own, other, strict=True):
        assert after.seeds == tuple(seed + 2 * SEEDS_PER_RANGE for seed in before.seeds)
        assert (before.arm, before.parameters) == (after.arm, after.parameters)
        assert before.key != after.key


@pytest.mark.slow
def test_a_range_is_judged_as_verify_judges_it(whole: Path, tmp_path: Path):
    (entry,) = replication(whole)["claims"]
    for k in range(TIMES):
        assert attnlens(*toy("CLAIM", tmp_path / str(k), "--seed-range", k)).returncode == 0
        written = ledger(tmp_path / str(k))
        assert written["seed_range"] == k
        (alone,) = written["claims"]
        assert entry["ranges"][k] == alone["parts"]
        assert entry["verdicts"][k] == alone["verdict"]
        assert entry["controls"][k] == alone["control"]


def test_pooled_numbers_are_those_of_all_cells(whole: Path):
    (entry,) = replication(whole)["claims"]
    values = [
        toy_claims.measure(PREDICTION, cell.parameters, cell.seeds)["x"]
        for k in range(TIMES)
        for cell in cells_of(toy_claims.CLAIM, "smoke", k)
        if cell.arm == PREDICTION
    ]
    per_range = np.array(values).reshape(TIMES, -1)
    (part,) = entry["parts"]
    assert part["pooled"]["estimate"] == pytest.approx(per_range.mean(), rel=1e-12)
    assert part["pooled"]["count"] == per_range.size
    assert part["estimates"] == pytest.approx(per_range.mean(1), rel=1e-12)
    assert part["standard_deviation"] == pytest.approx(per_range.mean(1).std(ddof=1), rel=1e-12)
    errors = per_range.std(1, ddof=1) / np.sqrt(per_range.shape[1])
    assert part["expected_deviation"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-10)
    assert (part["degrees"], len(part["contained"])) == (TIMES - 1, TIMES)
    assert part["verdicts"] == entry["verdicts"]  # the claim has one quantity, far from the edge
    summary = replication(whole)["summary"]
    assert summary["intervals_with_pooled_estimate"] == sum(part["contained"])
    assert (summary["stable"], summary["claims"]) == (1, 1)


@pytest.mark.slow
def test_a_folder_of_verify_is_range_0_and_its_page_is_kept(tmp_path: Path, whole: Path):
    assert attnlens(*toy("CLAIM", tmp_path)).returncode == 0
    before = kept(tmp_path)
    assert attnlens(*command("CLAIM", tmp_path)).returncode == 0
    assert kept(tmp_path) == TIMES * before
    assert replication(tmp_path)["claims"][0]["verdicts"] == ["supported"] * TIMES
    assert attnlens("report", tmp_path).returncode == 0
    assert {"report.html", "replication.html"} <= {path.name for path in tmp_path.iterdir()}


def test_the_page_is_written_again_from_the_results(whole: Path):
    page = (whole / "replication.html").read_text()
    (whole / "replication.html").unlink()
    done = attnlens("report", whole)
    assert (done.returncode, done.stdout.strip()) == (0, str(whole / "replication.html"))
    assert (whole / "replication.html").read_text() == page
    assert page.count('class="mark supported"') == TIMES


def test_an_interrupted_replication_goes_on(whole: Path, tmp_path: Path):
    class Stop(Exception):
        pass

    def stop(now: Any) -> None:
        if now.done == 40:
            raise Stop

    claims = ["toy_claims:SLOW"]  # the numbers of `whole`, with 0.05 s per cell
    with pytest.raises(Stop):
        package.replicate(TIMES, claims, "smoke", tmp_path, workers=1, progress=stop)
    assert 0 < kept(tmp_path) < 72
    package.replicate(TIMES, claims, "smoke", tmp_path, workers=1)
    (expected,), (got,) = (replication(out)["claims"] for out in (whole, tmp_path))
    assert got["parts"] == expected["parts"]
    assert got["ranges"] == expected["ranges"]


@pytest.mark.slow
def test_a_killed_replication_goes_on_bit_for_bit(whole: Path, tmp_path: Path):
    """A replication that is killed at five random moments and then finished equals one without
    kills."""
    clean = tmp_path / "clean"
    assert attnlens(*command("SLOW", clean)).returncode == 0
    draw, out = random.Random(chosen_seed()), tmp_path / "killed"
    for _ in range(5):
        before, more = kept(out), draw.randrange(1, 8)  # there are 72 cells
        process = start(*command("SLOW", out))
        while process.poll() is None and kept(out) < before + more:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert kept(out) > before or before == 72
    assert attnlens(*command("SLOW", out)).returncode == 0
    arrays = [row for row in bits(out) if row[1] != "process"]
    assert arrays == [row for row in bits(clean) if row[1] != "process"]
    assert comparable(out) == comparable(clean)
    pages = [(folder / "replication.html").read_text() for folder in (out, clean)]
    assert without_time(pages[0]) == without_time(pages[1])


def test_a_replication_is_not_a_run(whole: Path):
    with pytest.raises(BadInput, match="holds a replication and not a run"):
        write_comparison(whole, whole)


def test_a_replication_is_loaded_and_exported(whole: Path, tmp_path: Path):
    loaded = package.load(whole, frames="pyarrow")
    (entry,) = replication(whole)["claims"]
    (row,) = loaded.claims.to_pylist()
    assert [row[f"range_{k}"] for k in range(TIMES)] == entry["verdicts"]
    assert (row["pooled"], row["stability"][:6]) == (entry["pooled"]["outcome"], "stable")
    parts = loaded.parts.to_pylist()
    assert [part["seed_range"] for part in parts] == list(range(TIMES))
    assert [part["estimate"] for part in parts] == entry["parts"][0]["estimates"]
    formats = {"figures": ("svg",), "tables": ("latex", "csv", "markdown")}
    written = {path.name for path in export_run(whole, tmp_path, **formats)}
    tables = {f"{table}.{end}" for table in ("claims", "parts") for end in ("csv", "md")}
    assert written == {"references.bib", "tables.tex", "document.tex", "stability.svg", *tables}
    assert "stable: 3 supported" in (tmp_path / "claims.md").read_text()


def test_bad_input_is_one_sentence(tmp_path: Path):
    done = attnlens(*toy("CLAIM", tmp_path, "--seed-range", 10**6))
    assert done.returncode == 2
    assert "seed_range must be below 32768" in one_sentence(done.stderr)
    done = attnlens(*command("CLAIM", tmp_path, "--first", 32766))
    assert done.returncode == 2
    assert "must be below 32768" in one_sentence(done.stderr)


def test_a_claim_with_more_seeds_than_a_range_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("attnlens.runs.planning.SEEDS_PER_RANGE", 20)
    with pytest.raises(BadInput, match=r"seed ranges of T\.toy overlap"):
        cells_of(toy_claims.CLAIM, "smoke", 1)


def test_a_lost_cell_leaves_its_range_undecided(tmp_path: Path):
    done = attnlens(*command("RAISES", tmp_path))
    assert done.returncode == 1
    (entry,) = replication(tmp_path)["claims"]
    assert entry["verdicts"] == ["undecided", "supported", "supported"]
    assert entry["pooled"]["outcome"] == "undecided"
    assert entry["cells_without_result"] == 2
    assert "&lt;script&gt;" in (tmp_path / "replication.html").read_text()
