"""`attnlens.load`: every number in the data frames equals that in the ledger and in the store."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import attnlens
from attnlens.core.checks import BadInput
from attnlens.core.drawing import Figure
from attnlens.runs.citations import bibtex
from attnlens.runs.loading import LoadedRun
from attnlens.runs.store.store import Store
from results_folders import ledger

CLAIM = "A.weights-are-posterior"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    attnlens.verify("smoke", [CLAIM], out, workers=1)
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> LoadedRun:
    return attnlens.load(folder, frames="pyarrow")


def same(frame: float | None, document: float | None) -> bool:
    missing = frame is None or math.isnan(frame)
    return missing if document is None else frame == document


def test_claims_are_the_entries_of_the_ledger(folder: Path, run: LoadedRun):
    content = ledger(folder)
    (row,), (entry,) = run.claims.to_pylist(), content["exact_checks"]
    assert content["claims"] == []
    assert row["exact_check"]
    for name in ("id", "lens", "verdict", "quantity", "region", "control", "reason", "seconds"):
        assert row[name] == entry[name]
    assert [row["estimate"], row["low"], row["high"]] == [entry["estimate"], *entry["interval"]]
    assert (run.hash, run.profile) == (content["hash"], "smoke")


def test_a_notebook_shows_the_claims(run: LoadedRun):
    assert f"<td>{CLAIM}</td>" in run._repr_html_()


def test_parts_are_those_of_the_page_document(folder: Path, run: LoadedRun):
    with Store.reading(folder) as store:
        (section,) = store.document("page")["claims"]
    arms = [("prediction", section["verdict"]), *((c["arm"], c) for c in section["controls"])]
    expected = [(arm, verdict, part) for arm, verdict in arms for part in verdict["parts"]]
    rows = run.parts.to_pylist()
    assert len(rows) == len(expected) > 2
    for row, (arm, verdict, part) in zip(rows, expected, strict=True):
        assert (row["claim"], row["arm"], row["outcome"]) == (CLAIM, arm, verdict["outcome"])
        assert (row["quantity"], row["region"]) == (part["quantity"], part["region"])
        assert row["replicates"] == part["count"]
        ends = [row["region_low"], row["region_high"]]
        numbers = [row["estimate"], row["low"], row["high"], *ends]
        stored = [part["estimate"], part["low"], part["high"], *part["edges"]]
        assert all(map(same, numbers, stored))


def test_cells_and_replicates_are_those_of_the_store(folder: Path, run: LoadedRun):
    numbers, left_out = {}, {}
    with Store.reading(folder) as store:
        keys = store.keys()
        for cell in store.finished_cells():
            result = store.result(cell.key)
            assert result is not None
            for name, values in result.values.items():
                if values.shape == (len(cell.seeds),):
                    for seed, value in zip(cell.seeds, values, strict=True):
                        numbers[cell.key, name, seed] = value
                else:
                    left_out[cell.arm, name] = list(values.shape)
    cells, rows = run.cells.to_pylist(), run.replicates.to_pylist()
    assert {row["key"] for row in cells} == keys
    assert all(row["judged"] and row["seconds"] >= 0 for row in cells)
    assert all(len(json.loads(row["seeds"])) == row["seed_count"] for row in cells)
    assert {(row["key"], row["array"], row["seed"]): row["value"] for row in rows} == numbers
    assert len(rows) == len(numbers) > 10
    unused = {
        (row["arm"], row["array"]): json.loads(row["shape"]) for row in run.left_out.to_pylist()
    }
    assert unused == left_out != {}


def test_parameters_of_one_claim_are_columns(run: LoadedRun):
    rows, parameters = run.replicates_of(CLAIM).to_pylist(), run.replicates.to_pylist()
    for row, other in zip(rows, parameters, strict=True):
        settings = json.loads(other["parameters"])
        assert row["length"] == settings["length"]
        assert json.loads(row["prior"]) == settings["prior"]
        assert (row["seed"], row["value"]) == (other["seed"], other["value"])
    with pytest.raises(BadInput, match="claim must be one of"):
        run.replicates_of("A.unknown")


def test_pandas_and_pyarrow_hold_the_same_numbers(folder: Path, run: LoadedRun):
    pytest.importorskip("pandas")
    frames = attnlens.load(folder, frames="pandas")
    for name in ("claims", "parts", "cells", "replicates"):
        one, two = getattr(frames, name), getattr(run, name)
        assert list(one.columns) == two.column_names
        for column in two.column_names:
            if two[column].type == "double":
                assert all(map(same, one[column].tolist(), two[column].to_pylist()))


def test_a_frame_of_polars(folder: Path):
    pytest.importorskip("polars")
    assert attnlens.load(folder, frames="polars").claims["id"].to_list() == [CLAIM]


def test_cells_of_another_profile_or_code_are_not_judged(folder: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with closing(sqlite3.connect(copy / "results.sqlite")) as connection, connection:
        columns = "claim, arm, measure, parameters, seeds"
        connection.execute(
            f"INSERT INTO cells (key, {columns}, code, seconds, run, path) "
            f"SELECT 'other', {columns}, 'older', seconds, run, path FROM cells LIMIT 1"
        )
    for _ in ("with the list of cells", "without it, as in older folders"):
        run = attnlens.load(copy, frames="pyarrow")
        judged = {row["key"]: row["judged"] for row in run.cells.to_pylist()}
        assert not judged.pop("other")
        assert all(judged.values())
        assert "other" not in run.replicates["key"].to_pylist()
        with closing(sqlite3.connect(copy / "results.sqlite")) as connection, connection:
            connection.execute("DELETE FROM documents WHERE name = 'cells'")


def test_figures_are_drawing_records(run: LoadedRun):
    assert isinstance(run.figures[CLAIM], Figure)
    assert run.figures[CLAIM].plot().axes


def test_bibtex_names_the_papers_the_tool_and_the_run(folder: Path, run: LoadedRun):
    text, content = run.bibtex(), ledger(folder)
    assert text.count("@") == 4
    assert "2212.14852" in text
    assert "8KhxoxKP3iL" in text
    assert f"attnlens-run-{content['hash']}" in text
    assert content["machine"]["finished"][:10] in text
    assert text.count("{") == text.count("}")


def test_bibtex_of_a_forged_ledger_holds_no_commands():
    text = bibtex({"hash": "}\\input{x", "profile": "$", "machine": {"finished": "\\bye 12345"}})
    assert "\\input" not in text
    assert "\\bye" not in text
    assert "@misc{attnlens-run-inputx," in text


@pytest.mark.parametrize("name", ["frames", "pandas "])
def test_an_unknown_library_of_frames(folder: Path, name: str):
    with pytest.raises(BadInput, match="frames must be one of"):
        attnlens.load(folder, frames=name)  # pyright: ignore[reportArgumentType] (an invalid value on purpose)


def test_a_folder_without_a_run(tmp_path: Path):
    with pytest.raises(BadInput, match="there are no results"):
        attnlens.load(tmp_path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version = 99", "newer attnlens"),
        ("DELETE FROM documents WHERE name = 'page'", "unfinished run"),
        ("UPDATE documents SET content = '{}' WHERE name = 'page'", "not one that attnlens wrote"),
        (
            "UPDATE documents SET content = json_set(content, '$.schema', 99) "
            "WHERE name = 'ledger'",
            "newer attnlens",
        ),
        ("UPDATE cells SET seeds = '{}'", "not an intact results file"),
    ],
)
def test_a_store_of_another_form(folder: Path, tmp_path: Path, statement: str, message: str):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with closing(sqlite3.connect(copy / "results.sqlite")) as connection, connection:
        connection.execute(statement)
    with pytest.raises(BadInput, match=message):
        attnlens.load(copy)
