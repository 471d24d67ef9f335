"""Stored replications: both files agree, the wheel has the shipped one, pages and `attnlens claims`
show what is stored, and everything works where a claim, or a file, is missing."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlens.claims import find, stability
from attnlens.cli import claims as command

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # the tools are scripts
lens_stability = importlib.import_module("lens_stability")
lens_page = importlib.import_module("lens_page")
SUPPORTED, OTHER = "A.softmax-smoothed", "A.minimal"


def folder(path: Path, verdicts: dict[str, list[str]], profile: str = "default") -> Path:
    """A folder with the `replication.json` of a replication with these verdicts per claim."""
    times = len(next(iter(verdicts.values())))
    machine = {"finished": "2026-01-02 03:04:05+00:00", "processor": "P"}
    part = {"quantity": "q", "estimates": [1 / 3] * times, "standard_deviation": 1.0}
    part |= {"expected_deviation": 1.0, "cochran_q": 2.0, "degrees": times - 1, "p": 0.25}
    part |= {"contained": [True] * (times - 1) + [False], "expected_share": 0.96, "pooled": {}}
    claims = [
        {"id": name, "exact_check": False, "verdicts": outcomes, "controls": ["refuted"] * times}
        | {"pooled": {"outcome": outcomes[0]}, "pooled_control": "refuted", "parts": [part]}
        | {"cells_without_result": 0, "seconds": 1.0}
        for name, outcomes in verdicts.items()
    ]
    run = {"attnlens": "1", "hash": "ab", "machine": machine, "packages": {}, "profile": profile}
    run |= {"seed_ranges": list(range(times)), "seconds": 2.0, "claims": claims}
    path.mkdir()
    (path / "replication.json").write_text(json.dumps(run))
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The two files of a claim with three ranges, and of one with two in another profile."""
    kept = (tmp_path / "replication.json", tmp_path / "stability.json")
    three = folder(tmp_path / "three", {SUPPORTED: ["supported", "undecided", "supported"]})
    lens_stability.keep([three], *kept)
    two = folder(tmp_path / "two", {OTHER: ["supported", "supported"]}, "smoke")
    lens_stability.keep([two], *kept, add=True)
    return kept


def claims_of(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())["claims"] if file.is_file() else {}


def test_the_shipped_file_is_what_the_stored_replications_say():
    stored = claims_of(lens_stability.STORED)
    shipped = claims_of(lens_stability.SHIPPED)
    assert shipped == {name: lens_stability.shipped_part(claim) for name, claim in stored.items()}
    assert stored.keys() <= {claim.id for claim in find()}
    assert stability.FILE == lens_stability.SHIPPED
    for claim in stored.values():
        assert len(claim["verdicts"]) == len(claim["controls"]) == len(claim["seed_ranges"])


def test_every_claim_keeps_its_own_ranges(files: tuple[Path, Path]):
    stored, shipped = map(claims_of, files)
    assert shipped == {name: lens_stability.shipped_part(claim) for name, claim in stored.items()}
    assert [stored[name]["seed_ranges"] for name in (SUPPORTED, OTHER)] == [[0, 1, 2], [0, 1]]
    read = stability.stored_stability(files[1])
    assert read[OTHER] == stability.Stability(
        "smoke", (0, 1), ("supported",) * 2, ("refuted",) * 2, "supported"
    )


def test_a_page_shows_each_claim_with_its_ranges(files: tuple[Path, Path]):
    names = [claim.id for claim in find() if claim.lens == "A"]
    text = "\n".join(lens_stability.section("A", names, files[0]))
    assert f"| `{SUPPORTED}` | 3 | moved: 2 supported, 1 undecided | supported | 0.25 |" in text
    assert f"| `{OTHER}` | 2 (smoke) | stable: 2 supported |" in text
    (missing,) = [line for line in text.splitlines() if line.startswith("Not replicated yet: ")]
    assert missing.count("`A.") == len(names) - 2
    assert "1 of 2 have the same verdict" in text
    assert "3 of 5 intervals contain the pooled estimate" in text
    assert "attnlens 1, 2026-01-02, P" in text
    assert text in lens_page.page("A", replication=files[0])


def test_a_page_without_stored_replications_has_no_section(files: tuple[Path, Path]):
    assert lens_stability.section("B", ["B.none"], files[0]) == []
    without = lens_page.page("A", replication=files[0].with_name("none.json"))
    assert "## Other seeds" not in without


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        (["refuted", "undecided"], "In 1 of 2 pairs of claim and range all"),
        (["refuted", "undecided"], "undecided at least once: `A.x`"),
        (["supported", "refuted"], "failed: `A.x`"),
    ],
    ids=["count", "undecided", "failed"],
)
def test_controls_that_did_not_behave_are_named(controls: list[str], words: str):
    assert words in lens_stability.controls({"A.x": {"controls": controls}})


def test_flips_and_lost_cells_are_named():
    flipped = {"A.x": {"verdicts": ["supported", "refuted"], "cells_without_result": 2}}
    assert "in another: `A.x`." in lens_stability.flips(flipped)
    assert "`A.x`" in "".join(lens_stability.lost(flipped))
    calm = {"A.x": {"verdicts": ["supported", "undecided"], "cells_without_result": 0}}
    assert "no claim" in lens_stability.flips(calm)
    assert lens_stability.lost(calm) == []


@pytest.mark.parametrize("present", [True, False], ids=["stored", "no file"])
def test_the_command_lists_the_stability(
    files: tuple[Path, Path],
    present: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    read = stability.stored_stability(files[1]) if present else {}
    monkeypatch.setattr(stability, "stored_stability", lambda: read)
    monkeypatch.setenv("COLUMNS", "120")
    capsys.readouterr()
    command.claims(None, None)
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.strip()}
    if present:
        assert rows[SUPPORTED] == "moved: 2 supported, 1 undecided 3 default supported 3 of 3"
        assert rows["B.softplus"] == "–"
    else:
        assert "stability" not in rows
    command.claims(OTHER, None, as_json=True)
    (record,) = json.loads(capsys.readouterr().out)
    expected = ["supported"] * 2 if present else None
    assert (record["stability"] and record["stability"]["verdicts"]) == expected


def test_the_wheel_has_the_file(tmp_path: Path):
    """The files that hatchling selects, with the rules of this project, from a small copy."""
    wheel = pytest.importorskip("hatchling.builders.wheel")  # of the build environment
    shipped = lens_stability.SHIPPED.relative_to(ROOT)
    for name in ("pyproject.toml", ".gitignore", "README.md", "src/attnlens/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / shipped).parent.mkdir()
    (tmp_path / shipped).write_text("{}")
    selected = wheel.WheelBuilder(str(tmp_path)).recurse_included_files()
    assert "attnlens/claims/stability.json" in {file.distribution_path for file in selected}
