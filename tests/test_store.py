"""Nothing is lost and nothing of others is harmed: the store alone."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.records import Cell
from attnlens.store import FILE, Store

CELL = Cell("A.x", "prediction", "module:measure", {"length": 4}, (0, 1), "c0de")
VALUES = {
    "float64": np.array([[1.5, np.nan], [np.inf, -0.0]]),
    "float32": np.array([1.5], "f4"),
    "integer": np.array(7),
    "boolean": np.array([True, False]),
    "empty": np.zeros((0, 3)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one kept cell."""
    with Store.writing(tmp_path / "run") as store:
        store.start_run({"system": "test"}, {"attnlens": "0"})
        store.keep(CELL, VALUES, 1.25)
    return tmp_path / "run"


def test_arrays_come_back_bit_for_bit(folder: Path):
    with Store.reading(folder) as store:
        result = store.result(CELL.key)
        assert result is not None
        assert result.seconds == 1.25
        assert store.keys() == {CELL.key}
        for name, value in VALUES.items():
            kept = result.values[name]
            assert (kept.dtype, kept.shape) == (value.dtype, value.shape)
            assert kept.tobytes() == value.tobytes()


def test_keeping_twice_changes_nothing(folder: Path):
    with Store.writing(folder) as store:
        store.start_run({}, {})
        store.keep(CELL, {"float64": np.zeros(1)}, 9.0)
        result = store.result(CELL.key)
        assert result is not None
        assert result.seconds == 1.25


def test_a_failure_is_forgotten_when_the_cell_succeeds(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        store.keep_failure(CELL, "no luck")
        assert [failure["reason"] for failure in store.failures()] == ["no luck"]
        store.keep(CELL, VALUES, 1.0)
        assert store.failures() == []


def test_a_second_writer_is_told(folder: Path):
    with Store.writing(folder):
        with pytest.raises(BadInput, match=rf"another run \(process {os.getpid()}\) is writing"):
            Store.writing(folder).__enter__()
        with Store.reading(folder) as reader:
            assert reader.keys() == {CELL.key}


def test_fresh_sets_old_results_aside(folder: Path):
    with Store.writing(folder, fresh=True) as store:
        assert store.keys() == set()
    (old,) = folder.glob("results-before-*.sqlite")
    with sqlite3.connect(old) as connection:
        assert connection.execute("SELECT key FROM cells").fetchall() == [(CELL.key,)]


def damaged(path: Path, how: str) -> bytes:
    """Damage a results file in the way named, and return what it then holds."""
    if how == "text":
        path.write_text("these are my notes, not a database" * 200)
    elif how == "foreign":
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (precious)")
        connection.close()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "newer":
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("text", "not a whole results file"),
        ("foreign", "not one of attnlens"),
        ("truncated", "not a whole results file"),
        ("newer", "newer attnlens"),
    ],
)
@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_a_file_that_is_not_ours_is_left_alone(folder: Path, how: str, says: str, mode: str):
    before = damaged(folder / FILE, how)
    with pytest.raises(BadInput, match=says):
        getattr(Store, mode)(folder).__enter__()
    assert (folder / FILE).read_bytes() == before


def test_a_lying_row_is_refused(folder: Path):
    for column, lie in (
        ("shape", "[1000000000]"),
        ("shape", '"x"'),
        ("dtype", "O"),
        ("data", "text"),
    ):
        with sqlite3.connect(folder / FILE) as connection:
            connection.execute(f"UPDATE arrays SET {column} = ?", (lie,))
        connection.close()
        with Store.reading(folder) as store, pytest.raises(sqlite3.DatabaseError):
            store.result(CELL.key)


def test_a_file_of_no_bytes_is_a_new_one(tmp_path: Path):
    # A kill between making the file and filling it leaves this.
    (tmp_path / FILE).touch()
    with Store.writing(tmp_path) as store:
        assert store.keys() == set()


def test_a_full_disk_keeps_what_was_kept(small_disk: Path):
    kept = []

    def fill(store: Store) -> None:
        for seed in range(1000):
            cell = Cell("A.x", "prediction", "module:measure", {}, (seed,), "c0de")
            store.keep(cell, {"x": np.random.default_rng(seed).normal(size=2000)}, 1.0)
            kept.append(cell.key)

    with Store.writing(small_disk / "run") as store:
        store.start_run({}, {})
        with pytest.raises(BadInput, match="is full or failing"):
            fill(store)
    assert kept
    with Store.reading(small_disk / "run") as store:
        assert set(kept) <= store.keys()
        assert all(store.result(key) is not None for key in kept)


def test_a_full_database_keeps_what_was_kept(folder: Path):
    with Store.writing(folder) as store:
        store.start_run({}, {})
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        other = Cell("A.x", "prediction", "module:measure", {}, (9,), "c0de")
        with pytest.raises(BadInput, match="is full or failing"):
            store.keep(other, {"x": np.zeros(100_000)}, 1.0)
        assert store.keys() == {CELL.key}


def test_a_read_only_folder(small_disk: Path):
    with Store.writing(small_disk / "run") as store:
        store.start_run({}, {})
        store.keep(CELL, VALUES, 1.0)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Store.reading(small_disk / "run") as store:
        assert store.keys() == {CELL.key}
    for place in (small_disk / "run", small_disk / "new"):
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()


def test_folders_that_cannot_be(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()
    with pytest.raises(BadInput, match="no results"):
        Store.reading(tmp_path).__enter__()


def test_arrays_of_objects_are_refused(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        with pytest.raises(BadInput, match="must hold floats"):
            store.keep(CELL, {"x": np.array(["text"])}, 1.0)
