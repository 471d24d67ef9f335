"""`transfer` on features whose κ is known, from arrays and from files."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import condition_number, transfer
from attnlens.advice.questions.transfer import error_today
from attnlens.core import AnswerOutcome, BadInput
from attnlens.core.readings import Reading

ROWS = 300
STRENGTHS, HEAD = np.array([1.0, 1.0, 0.2]), np.array([0.0, 0.6, 0.8])
# κ² = k Σ c²/s² with c = HEAD and s = STRENGTHS: there are k = 3 targets, and target i is feature i
# times s_i.
KAPPA = math.sqrt(3 * float(((HEAD / STRENGTHS) ** 2).sum()))
FEW: dict[str, Any] = {"resamples": 50}


def features_and_targets() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    z = np.random.default_rng(0).normal(size=(ROWS, 3))
    return z, z * STRENGTHS, z @ HEAD


def write_csv(path: Path, **columns: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def write_table(folder: Path, **more: np.ndarray) -> Path:
    z, pretraining, task = features_and_targets()
    columns = {f"z{i}": z[:, i] for i in range(3)} | {f"p{i}": pretraining[:, i] for i in range(3)}
    return write_csv(folder / "features.csv", **columns, y=task, **more)


def kappa(sheet) -> tuple[float, float]:
    kappa = sheet.condition.readings["kappa"]
    return kappa.low, kappa.high


def test_kappa_and_other_scores_from_arrays():
    sheet = transfer(*features_and_targets(), **FEW)
    low, high = kappa(sheet)
    assert low * (1 - 1e-9) <= KAPPA <= high * (1 + 1e-9)
    assert sheet.condition.outcome is AnswerOutcome.WEAKLY
    assert sheet.condition.answer.startswith("weakly: the task's excess error")
    assert "explains 100 %" in sheet.features.answer
    assert sheet.error_today.readings["transfer_error"].value < 1e-6
    assert "LogME" in sheet.scores.answer
    assert "LEEP not defined" in sheet.scores.answer
    json.dumps(sheet.plain(), allow_nan=False)


def test_columns_of_one_file_and_separate_files_agree(tmp_path: Path):
    table = write_table(tmp_path)
    z, pretraining, task = features_and_targets()
    features = write_csv(tmp_path / "z.csv", **{f"z{i}": z[:, i] for i in range(3)})
    targets = write_csv(tmp_path / "p.csv", **{f"p{i}": pretraining[:, i] for i in range(3)})
    label = tmp_path / "y.npy"
    np.save(label, task)
    packed = tmp_path / "all.npz"
    np.savez(packed, z=z, p=pretraining, y=task)
    sheets = [
        transfer(table, "p0,p1,p2", "y", **FEW),
        transfer(table, ["p0", "p1", "p2"], "y", **FEW),
        transfer(features, str(targets), str(label), **FEW),
        transfer(packed, "p", "y", **FEW),
    ]
    assert len({kappa(sheet) for sheet in sheets}) == 1
    assert dict(sheets[0].facts)["features"] == "3 columns"


def test_a_task_outside_the_pretraining_targets_makes_kappa_infinite():
    z, pretraining, task = features_and_targets()
    sheet = transfer(z, pretraining[:, :2], task, **FEW)
    assert sheet.condition.outcome is AnswerOutcome.NO
    assert sheet.condition.answer == "no: κ is infinite"
    json.dumps(sheet.plain(), allow_nan=False)


def test_text_becomes_classes_and_incomplete_rows_are_left_out(tmp_path: Path):
    z, _, task = features_and_targets()
    word = np.where(task > 0, "good", "bad").astype(object)
    word[0] = ""
    sheet = transfer(write_table(tmp_path, word=word), "p0,p1,p2", "word", **FEW)
    facts = dict(sheet.facts)
    assert facts["downstream"] == "2 classes"
    assert facts["missing"].startswith("1 row")
    assert facts["features"].startswith("4 columns")  # y is one of them, because no option names it
    assert "H-score" in sheet.scores.readings
    assert "error rate" in sheet.error_today.answer
    assert len(z) == ROWS


@pytest.mark.parametrize(
    ("pretrain", "downstream", "message"),
    [
        ("p0,nothing", "y", "'nothing' is neither"),
        ("p0", "nowhere.csv", "'nowhere.csv' is neither"),
        ("p0,word", "y", "one of them holds text"),
        ("short.csv", "y", "pretrain 5"),
        ("p0", "constant", "'constant' is neither"),
    ],
    ids=["column", "file", "text", "rows", "constant"],
)
def test_bad_targets_raise_one_sentence(tmp_path, monkeypatch, pretrain, downstream, message):
    monkeypatch.chdir(tmp_path)
    _, _, task = features_and_targets()
    word = np.where(task > 0, "good", "bad")
    table = write_table(tmp_path, word=word, constant=np.ones(ROWS))
    write_csv(tmp_path / "short.csv", p=np.arange(5.0))
    with pytest.raises(BadInput) as caught:
        transfer(table, pretrain, downstream, **FEW)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_samples_and_missing_features_raise_one_sentence(tmp_path: Path):
    z, pretraining, task = features_and_targets()
    with pytest.raises(BadInput, match="at least 24 samples"):
        transfer(z[:10], pretraining[:10], task[:10])
    table = write_csv(tmp_path / "only.csv", p=pretraining[:, 0], y=task)
    with pytest.raises(BadInput, match="must have a column of numbers that vary"):
        transfer(table, "p", "y")


def test_no_error_rate_is_above_one():
    z = np.random.default_rng(0).normal(size=(24, 2))
    result = condition_number(z, z, z[:, 0] > 0, resamples=24)
    wide = dataclasses.replace(result, error=Reading(0.95, 0.05, 24))
    assert wide.error.interval()[1] > 1
    assert error_today(wide, classes=True).answer.endswith(" to 1)")
