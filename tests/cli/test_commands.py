"""Commands as a user runs them: the result is a table and a page, JSON, or one sentence that names
the error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnlens as package
from running import attnlens, one_sentence

HERE = {"PYTHONPATH": str(Path(package.__file__).parents[1])}  # run the package under test
MODEL = """
import numpy as np

def make():
    return np.array([1.0, 2.0]), lambda w: ((w[0] - 1) ** 2 + 3 * (w[1] - 2) ** 2) + 1, None
"""


@pytest.mark.slow  # each command starts a Python process
def test_landscape_imports_from_the_current_folder_and_writes_a_page(tmp_path: Path):
    (tmp_path / "my_model.py").write_text(MODEL)
    done = attnlens(
        "landscape", "my_model:make", "--points", 5, "--out", "out", cwd=tmp_path, **HERE
    )
    assert done.returncode == 0, done.stderr
    assert "Loss landscape of my_model:make" in done.stdout
    assert "yes, to within" in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_transfer_prints_strict_json(tmp_path: Path):
    z = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "f.npz", z=z, p=z, y=z[:, 0])
    done = attnlens(
        "transfer", "f.npz", "--pretrain", "p", "--downstream", "y", "--json", cwd=tmp_path, **HERE
    )
    assert done.returncode == 0, done.stderr
    sheet = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))
    assert Path(tmp_path / sheet["page"]).exists()
    assert {"question", "answer", "evidence", "known", "readings"} <= set(sheet["answers"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("landscape", "nowhere:make"), "there is no module 'nowhere'"),
        (("advise", "nothing.csv", "--target", "y"), "cannot be read"),
    ],
    ids=["landscape", "advise"],
)
def test_a_refusal_is_one_sentence_and_writes_nothing(tmp_path: Path, arguments, message):
    done = attnlens(*arguments, cwd=tmp_path, **HERE)
    assert done.returncode == 2
    assert message in one_sentence(done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_advise_reads_a_file_and_writes_a_page(tmp_path: Path):
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 3))
    rows = np.column_stack([x, x[:, 0] > 0])
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    source = (
        "from sklearn.dummy import DummyClassifier\n\ndef guess():\n    return DummyClassifier()\n"
    )
    (tmp_path / "mine.py").write_text(source)
    options = ("--budget", "1s", "--model", "mine:guess", "--verbose")
    done = attnlens("advise", "t.csv", "--target", "y", *options, cwd=tmp_path, **HERE)
    assert done.returncode == 0, done.stderr
    assert "guess 0." in done.stdout  # the error of `guess`, in the evidence of the decision
    assert "round 1 of" in done.stderr
    assert "Which model needs the fewest labels?" in done.stdout
    assert (tmp_path / "attnlens-advice" / "report.html").exists()
