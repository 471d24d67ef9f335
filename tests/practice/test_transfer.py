"""`transfer` on features whose κ is known, from arrays and from files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import transfer
from attnlens.checks import BadInput
from attnlens.practice import transferring

ROWS = 300
STRENGTHS, HEAD = np.array([1.0, 1.0, 0.2]), np.array([0.0, 0.6, 0.8])
# κ² = k Σ c²/s² for k = 3 targets, each one feature times its strength.
KAPPA = math.sqrt(3 * float(((HEAD / STRENGTHS) ** 2).sum()))
FEW: dict[str, Any] = {"resamples": 50}


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    z = np.random.default_rng(0).normal(size=(ROWS, 3))
    return z, z * STRENGTHS, z @ HEAD


def written(path: Path, **columns: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def a_table(folder: Path, **more: np.ndarray) -> Path:
    z, asked, wanted = drawn()
    columns = {f"z{i}": z[:, i] for i in range(3)} | {f"p{i}": asked[:, i] for i in range(3)}
    return written(folder / "features.csv", **columns, y=wanted, **more)


def kappa(sheet) -> tuple[float, float]:
    details = sheet[transferring.ASKED].readings["kappa"].details
    return details["low"], details["high"]


def test_kappa_and_its_rivals_from_arrays():
    sheet = transfer(*drawn(), **FEW)
    low, high = kappa(sheet)
    assert low * (1 - 1e-9) <= KAPPA <= high * (1 + 1e-9)
    assert sheet[transferring.ASKED].answer.startswith("hardly: the task's excess error")
    assert "explains 100 %" in sheet[transferring.HELD].answer
    assert sheet[transferring.ERROR].readings["transfer_error"].value < 1e-6
    assert "LogME" in sheet[transferring.SCORES].answer
    assert "LEEP not defined" in sheet[transferring.SCORES].answer
    json.dumps(sheet.plain(), allow_nan=False)


def test_columns_of_one_file_and_files_of_their_own_agree(tmp_path: Path):
    table = a_table(tmp_path)
    z, asked, wanted = drawn()
    features = written(tmp_path / "z.csv", **{f"z{i}": z[:, i] for i in range(3)})
    targets = written(tmp_path / "p.csv", **{f"p{i}": asked[:, i] for i in range(3)})
    label = tmp_path / "y.npy"
    np.save(label, wanted)
    packed = tmp_path / "all.npz"
    np.savez(packed, z=z, p=asked, y=wanted)
    sheets = [
        transfer(table, "p0,p1,p2", "y", **FEW),
        transfer(table, ["p0", "p1", "p2"], "y", **FEW),
        transfer(features, str(targets), str(label), **FEW),
        transfer(packed, "p", "y", **FEW),
    ]
    assert len({kappa(sheet) for sheet in sheets}) == 1
    assert dict(sheets[0].facts)["features"] == "3 columns"


def test_what_pretraining_does_not_ask_makes_kappa_infinite():
    z, asked, wanted = drawn()
    sheet = transfer(z, asked[:, :2], wanted, **FEW)
    assert sheet[transferring.ASKED].answer == "no: κ is infinite"
    json.dumps(sheet.plain(), allow_nan=False)


def test_text_is_classes_and_rows_with_gaps_are_left_out(tmp_path: Path):
    z, _, wanted = drawn()
    word = np.where(wanted > 0, "good", "bad").astype(object)
    word[0] = ""
    sheet = transfer(a_table(tmp_path, word=word), "p0,p1,p2", "word", **FEW)
    facts = dict(sheet.facts)
    assert facts["downstream"] == "2 classes"
    assert facts["missing"].startswith("1 row")
    assert facts["features"].startswith("4 columns")  # y is a number, and nobody named it
    assert "H-score" in sheet[transferring.SCORES].readings
    assert "error rate" in sheet[transferring.ERROR].answer
    assert len(z) == ROWS


@pytest.mark.parametrize(
    ("pretrain", "downstream", "says"),
    [
        ("p0,nothing", "y", "'nothing' is neither"),
        ("p0", "nowhere.csv", "'nowhere.csv' is neither"),
        ("p0,word", "y", "one of them holds text"),
        ("short.csv", "y", "pretrain 5"),
        ("p0", "constant", "'constant' is neither"),
    ],
    ids=["column", "file", "text", "rows", "constant"],
)
def test_bad_targets_get_one_sentence(tmp_path, monkeypatch, pretrain, downstream, says):
    monkeypatch.chdir(tmp_path)
    _, _, wanted = drawn()
    word = np.where(wanted > 0, "good", "bad")
    table = a_table(tmp_path, word=word, constant=np.ones(ROWS))
    written(tmp_path / "short.csv", p=np.arange(5.0))
    with pytest.raises(BadInput) as caught:
        transfer(table, pretrain, downstream, **FEW)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_samples_and_no_features_get_one_sentence(tmp_path: Path):
    z, asked, wanted = drawn()
    with pytest.raises(BadInput, match="at least 24 samples"):
        transfer(z[:10], asked[:10], wanted[:10])
    table = written(tmp_path / "only.csv", p=asked[:, 0], y=wanted)
    with pytest.raises(BadInput, match="must have a column of numbers that vary"):
        transfer(table, "p", "y")
