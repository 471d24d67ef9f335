"""`samples` and `exchangeability` on files: data with known answers, and one sentence for bad
input."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

import attnlens as package
from attnlens.advice import order_matters, samples
from attnlens.cli import commands
from attnlens.cli import exchangeability as exchangeability_command
from attnlens.cli import samples as samples_command
from attnlens.core import AnswerOutcome, BadInput
from attnlens.data import read as read_file
from hostile_files import CASES, LONG, TABLE, arguments, make, parquet_cases
from running import attnlens, one_sentence

read: Any = read_file
RANDOM = np.random.default_rng(0)


def write(path: Path, header: str, rows) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """A CSV table with y = 2a − b + noise, where the noise has a tenth of the variance of the
    signal."""
    x = RANDOM.normal(size=(400, 2))
    y = x @ [2.0, -1.0] + np.sqrt(0.5) * RANDOM.normal(size=400)
    return write(tmp_path / "line.csv", "a,b,y", np.column_stack([x, y]))


# -- samples ---------------------------------------------------------------------------------------

MODELS = {"line": LinearRegression(), "mean": DummyRegressor()}


def test_samples_names_the_model_that_reaches_an_error(line: Path):
    sheet = samples(read(line, target="y"), error=0.3, models=MODELS)
    # The variance of y is 5 + 0.5: the relative squared error of least squares ends near 0.5 / 5.5
    # = 0.09, and that of predicting the mean is 1.
    needed = sheet.labels_needed["line"]
    assert needed.question == "How many labels does line need for relative squared error 0.3?"
    assert needed.known
    assert 3 < needed.readings["labels"].value < 40
    assert needed.readings["error with most labels"].value == pytest.approx(0.09, abs=0.03)
    never = sheet.labels_needed["mean"]
    assert not never.known
    assert never.outcome is AnswerOutcome.UNKNOWN
    assert never.answer.startswith("not enough data to say")
    assert sheet.fewest_labels.answer.startswith("line")
    gain = sheet.gain_of_labels
    assert "line: " in gain.answer
    assert "forecast" in gain.evidence
    assert sheet.figures
    assert json.dumps(sheet.plain(), allow_nan=False)


def test_samples_says_where_it_forecasts(line: Path):
    loaded = read(line, target="y")
    sheet = samples(loaded, error=0.3, models={"line": LinearRegression()}, sizes=(6, 8, 10, 12))
    assert len(sheet.answers) == 2
    from attnlens import learning_curve

    curves = learning_curve(
        loaded.X,
        loaded.y,
        models={"line": LinearRegression()},
        sizes=(6, 8, 10, 12),
        task="regression",
        target_error=0.05,
    )
    below = samples(loaded, error=0.05, models={"line": LinearRegression()}, sizes=(6, 8, 10, 12))
    estimate, answer = curves.samples()["line"], below.labels_needed["line"]
    assert ("forecast" in answer.answer) == (estimate.status == "extrapolated")
    assert answer.known == np.isfinite(estimate.value)


def test_samples_draws_rows_from_a_larger_table(line: Path):
    sheet = samples(read(line, target="y"), models=MODELS, rows=100, sizes=(8, 40))
    assert dict(sheet.facts)["learning curves"].startswith("100 at random of 400 rows, 8 folds")


def test_samples_needs_labels_and_a_positive_error(line: Path):
    with pytest.raises(BadInput, match="none was named"):
        samples(read(line))
    for error in (0, -1, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="error must be a finite number above 0"):
            samples(read(line, target="y"), error=error)


@pytest.mark.slow
def test_samples_on_texts(tmp_path: Path):
    good, bad = ("good fine great lovely".split(), "bad poor dull awful".split())  # noqa: SIM905 (shorter than a list of quoted words)
    rows = []
    for i in range(240):
        kind = (good, bad)[i % 2]
        rows.append(
            [f"film {i} was {kind[i % 4]} and {kind[i // 2 % 4]} as films are", "gb"[i % 2]]
        )
    path = write(tmp_path / "t.csv", "text,label", rows)
    sheet = samples(read(path, target="label", text="text"), error=0.2, models=["baseline"])
    assert sheet.answers[0].known
    assert "used for nothing else" in dict(sheet.facts)["words"]


# -- order -----------------------------------------------------------------------------------------


def walks(count: int, length: int) -> np.ndarray:
    return RANDOM.normal(size=(count, length)).cumsum(1)


def long_rows(table: np.ndarray):
    return [(i, t, v) for i, row in enumerate(table) for t, v in enumerate(row)]


def test_order_matters_in_walks_and_not_in_noise(tmp_path: Path):
    options = {"id": "who", "order": "t"}
    walk = write(tmp_path / "w.csv", "who,t,v", long_rows(walks(12, 20)))
    sheet = order_matters(read(walk, **options))
    assert sheet.order.outcome is AnswerOutcome.YES
    assert sheet.order.readings["p_value"].value == 0.001
    assert sheet.neighbours.outcome is AnswerOutcome.YES
    assert len(sheet.figures) == 2
    noise = write(tmp_path / "n.csv", "who,t,v", long_rows(RANDOM.normal(size=(12, 20))))
    sheet = order_matters(read(noise, **options))
    # The test has level 0.05; the seed is fixed, and p is far from 0.05.
    assert sheet.order.outcome is AnswerOutcome.NO_SIGN


def test_effects_have_a_direction(tmp_path: Path):
    t = np.arange(40)
    zigzag = np.where(t % 2, 1.0, -1.0) * np.linspace(3, 1, 40) - 0.05 * t
    noise = 0.1 * RANDOM.normal(size=(10, 40))
    path = write(tmp_path / "z.csv", "who,t,v", long_rows(zigzag + noise))
    sheet = order_matters(read(path, id="who", order="t"), permutations=99)
    assert sheet.neighbours.outcome is AnswerOutcome.NO
    assert sheet.neighbours.answer == "no, they differ more than by chance"
    assert sheet.drift.answer == "yes, downwards"
    assert sheet.spread.answer == "yes, it shrinks"


def test_rows_columns_categories_and_words_are_tokens(tmp_path: Path):
    table = walks(300, 6)
    path = write(tmp_path / "t.csv", "a,b,c,d,e,f", table)
    rows = order_matters(read(path), permutations=99)
    assert "300 rows, in the order of the file" in dict(rows.facts)["tokens tested"]
    columns = order_matters(read(path), along="columns", permutations=99)
    assert columns.order.readings["p_value"].value == 0.01
    assert "6 columns of each row" in dict(columns.facts)["tokens tested"]
    states = ["on"] * 60 + ["off"] * 60
    one = write(tmp_path / "s.csv", "state", [[state] for state in states])
    sheet = order_matters(read(one), permutations=99)
    assert "1 sequence of categories" in sheet.order.evidence
    assert sheet.order.outcome is AnswerOutcome.YES
    text = write(tmp_path / "x.csv", "text", [["a b c d e f g h"]] * 30)
    words = order_matters(read(text, text="text"), permutations=99)
    assert "words of 30 texts" in dict(words.facts)["tokens tested"]


def test_three_tokens_are_too_few_to_say(tmp_path: Path):
    path = write(tmp_path / "t.csv", "a", [[1.5], [2.5], [3.7]])
    assert not order_matters(read(path)).order.known


def test_many_tokens_are_cut_and_the_facts_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from attnlens.advice import token_order

    monkeypatch.setattr(token_order, "MOST_TOKENS", 50)
    path = write(tmp_path / "t.csv", "who,t,v", long_rows(walks(12, 20)))
    several = order_matters(read(path, id="who"), permutations=9)
    assert "all but 2 of 12 sequences" in dict(several.facts)["left out of the test"]
    alone = order_matters(read(path, columns=["v"]), permutations=9)
    assert "the first 50 of 240" in dict(alone.facts)["left out of the test"]


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A function that runs the command line in this process and returns (exit status, output,
    errors)."""
    for module in (samples_command, exchangeability_command):
        monkeypatch.setattr(module, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attnlens", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err  # type: ignore[return-value] (exit codes are numbers here)

    return run


def command_line(case, path: Path, out: Path) -> list[object]:
    name, *options = arguments(case.options)
    return [name, path, *options, "--out", out]


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_a_command_with_one_sentence(name: str, command, tmp_path: Path):
    case = CASES[name]
    path, out = make(case, tmp_path), tmp_path / "out"
    status, output, errors = command(*command_line(case, path, out))
    assert (status, output) == (2, "")
    assert case.says in one_sentence(errors) or not case.says.isprintable()
    assert not out.exists()


def test_bad_parquet_ends_a_command_with_one_sentence(command, tmp_path: Path):
    pytest.importorskip("pyarrow")
    for number, (name, case) in enumerate(parquet_cases().items()):
        path, out = make(case._replace(name=str(number)), tmp_path), tmp_path / "out"
        status, output, errors = command(*command_line(case, path, out))
        assert (status, output, out.exists()) == (2, "", False), name
        assert case.says in one_sentence(errors)


REQUESTS = {
    "no target": (["samples", "FILE"], "none was named"),
    "an error of zero": (["samples", "FILE", "--target=label", "--error=0"], "above 0"),
    "an error that is not a number": (
        ["samples", "FILE", "--target=label", "--error=nan"],
        "above 0",
    ),
    "an unknown model": (["samples", "FILE", "--target=label", "--models=forest"], "each model"),
    "no model": (["samples", "FILE", "--target=label", "--models="], "each model"),
    "known attention": (
        ["samples", "FILE", "--target=label", "--models=known-attention"],
        "needs attention",
    ),
    "a type without a kind": (["samples", "FILE", "--target=label", "--type=age"], "COLUMN=KIND"),
    "few rows": (["samples", "FEW", "--target=label"], "at least 20 rows"),
    "few texts": (["samples", "FEW", "--target=label", "--text=colour"], "give at least 32"),
    "a file for a folder": (["samples", "FILE", "--target=label", "--out=FILE"], "is a file"),
    "an unknown direction": (["exchangeability", "FILE", "--along=sides"], "along must be one of"),
    "one column along columns": (
        ["exchangeability", "FILE", "--column=age", "--along=columns"],
        "two columns and more",
    ),
    "single tokens": (["exchangeability", "ONE", "--id=age"], "more than one"),
    "one row": (["exchangeability", "ROW"], "no column is left"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_that_cannot_be_met_get_one_sentence(name: str, command, tmp_path: Path):
    words, message = REQUESTS[name]
    lines = TABLE.splitlines(keepends=True)
    contents = {
        "FILE": TABLE,
        "FEW": "".join(lines[:13]),
        "ROW": "".join(lines[:2]),
        "ONE": "".join(lines[:9]),
    }
    for label, content in contents.items():
        (tmp_path / label).write_text(content)
    for label in contents:
        words = [word.replace(label, str(tmp_path / label)) for word in words]
    out = [] if "--out" in words[-1] else ["--out", tmp_path / "out"]
    status, output, errors = command(*words, *out)
    assert (status, output) == (2, "")
    assert message in one_sentence(errors)
    assert not (tmp_path / "out").exists()


def test_exchangeability_prints_a_table_writes_a_page_and_gives_json(command, tmp_path: Path):
    path, out = tmp_path / "long.csv", tmp_path / "out"
    path.write_text(LONG)
    arguments = ["exchangeability", path, "--id=who", "--order=when", "--drop=label", "--out", out]
    status, output, errors = command(*arguments)
    assert (status, errors) == (0, "")
    assert "Does the order of tokens" in output
    assert (out / "report.html").exists()
    status, output, _ = command(*arguments, "--json")
    sheet = json.loads(output)
    assert status == 0
    assert sheet["answers"][0]["question"] == "Does the order of tokens matter?"


def test_hostile_names_are_shown_and_never_executed(command, tmp_path: Path):
    name, path, out = "<script>alert(1)</script>\x1b[31m", tmp_path / "h.csv", tmp_path / "out"
    rows = "".join(
        f"{i % 7},{'<img src=x onerror=alert(2)>' if i % 2 else 'b'}\n" for i in range(40)
    )
    path.write_text(f"{name},../../etc/passwd\n{rows}")
    status, output, _ = command("exchangeability", path, "--permutations=9", "--out", out)
    assert status == 0
    assert "\x1b[31m" not in output
    page = (out / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.csv", "out"]


@pytest.mark.slow
def test_samples_as_a_process(tmp_path: Path):
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    names = ",".join([*(f"c{i}" for i in range(13)), "cultivar"])
    path = write(tmp_path / "wine.csv", names, np.column_stack([x, y]))
    here = str(Path(package.__file__).parents[1])  # the package under test
    done = attnlens(
        "samples",
        path,
        "--target",
        "cultivar",
        "--error",
        "0.1",
        "--models",
        "baseline",
        "--json",
        "--out",
        tmp_path / "out",
        PYTHONPATH=here,
    )
    assert done.returncode == 0, done.stderr
    sheet = json.loads(done.stdout)
    assert sheet["title"] == "Labels for error rate 0.1 on wine"
    assert Path(sheet["page"]).exists()
    bad = attnlens("samples", path, "--target=cultivr", "--out", tmp_path / "bad", PYTHONPATH=here)
    assert bad.returncode == 2
    assert "did you mean 'cultivar'" in one_sentence(bad.stderr)
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no such file", "a pipe", "garbage", "NPZ bomb", "a huge line"])
def test_bad_input_as_a_process(name: str, tmp_path: Path):
    case = CASES[name]
    arguments = command_line(case, make(case, tmp_path), tmp_path / "out")
    done = attnlens(*arguments, PYTHONPATH=str(Path(package.__file__).parents[1]))
    assert (done.returncode, done.stdout) == (2, "")
    assert case.says in one_sentence(done.stderr)
    assert not (tmp_path / "out").exists()
