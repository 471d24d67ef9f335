"""A cell's code version follows the sources it rests on, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlens.claims import code_version as subject

SOFTMAX = "attnlens.claims.lens_a.softmax_smoothed"
CME = "attnlens.claims.lens_a.cme_rate"


def test_it_reaches_what_a_claim_uses_and_nothing_else():
    reached = subject.reached(SOFTMAX)
    assert {"attnlens.attention.softmax", "attnlens.worlds.linear_regression"} <= reached
    assert not {"attnlens.attention.cme", "attnlens.worlds.gaussian_process"} & reached
    assert not {
        name for name in reached if "report" in name or "store" in name or "figures" in name
    }
    assert "attnlens.worlds.gaussian_process" in subject.reached(CME)


@pytest.mark.parametrize(
    ("changed", "moves"), [("attnlens.attention.cme", True), ("attnlens.attention.softmax", False)]
)
def test_a_change_moves_the_version_of_those_who_use_it(
    changed: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = subject.code_version.__wrapped__(CME)
    real = subject._file
    edited = tmp_path / "edited.py"
    edited.write_text(real(changed).read_text() + "\n# changed\n")
    monkeypatch.setattr(subject, "_file", lambda name: edited if name == changed else real(name))
    assert (subject.code_version.__wrapped__(CME) != before) is moves


def test_a_claim_of_ones_own_is_versioned_with_its_neighbours():
    reached = subject.reached("toy_claims")
    assert {"toy_claims", "attnlens.statistics"} <= reached
