"""Nothing is lost and nothing of others is harmed: the store alone."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.engine.base import Fault
from attnlens.layout import ADDED, MIGRATIONS, SCHEMA_VERSION
from attnlens.records import Cell
from attnlens.store import FILE, Store, replace_file

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


def change(folder: Path, script: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        if values:
            connection.execute(script, values)
        else:
            connection.executescript(script)


@pytest.mark.parametrize(
    ("column", "lie"),
    [
        ("shape", "[1000000000]"),
        ("shape", "[1" + "0" * 400 + "]"),
        ("shape", "[" * 100_000),
        ("shape", str([1] * 65)),
        ("shape", "[true]"),
        ("shape", '"x"'),
        ("shape", "{"),
        ("shape", 7.5),
        ("dtype", "O"),
        ("dtype", "<f16"),
        ("data", "text"),
        ("data", 5),
    ],
    ids=range(12),
)
def test_a_lying_row_is_refused(folder: Path, column: str, lie: object):
    change(folder, f"UPDATE arrays SET {column} = ?", lie)
    with Store.reading(folder) as store, pytest.raises(BadInput, match="not a whole results file"):
        store.result(CELL.key)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("DROP TABLE cells", "its table cells lacks"),
        ("ALTER TABLE arrays DROP COLUMN data", "its table arrays lacks data"),
        ("DROP TABLE faults", "its table faults lacks"),
        ("CREATE TRIGGER t AFTER INSERT ON cells BEGIN DELETE FROM cells; END", "holds triggers"),
        ("DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS id", "holds triggers, views"),
        ("PRAGMA user_version = 0", "layout 0 that never was"),
        ("PRAGMA user_version = -3", "layout -3 that never was"),
    ],
)
@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_a_file_that_is_not_what_it_says_is_refused(
    folder: Path, script: str, said: str, mode: str
):
    change(folder, script)
    with pytest.raises(BadInput, match=said):
        getattr(Store, mode)(folder).__enter__()


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("UPDATE documents SET content = '{'", "document"),
        ("UPDATE documents SET content = x'ff00'", "document"),
        ("UPDATE cells SET seconds = 'long'", "result"),
    ],
)
def test_texts_and_numbers_that_are_none(folder: Path, script: str, read: str):
    with Store.writing(folder) as store:
        store.write_document("ledger", {})
    change(folder, script)
    with Store.reading(folder) as store, pytest.raises(BadInput, match="not a whole results file"):
        getattr(store, read)("ledger" if read == "document" else CELL.key)


def test_links_are_not_written_through(folder: Path, tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in (".lock", FILE, f"{FILE}-wal"):
        place = tmp_path / f"trap-{name.strip('.')}"
        place.mkdir()
        (place / name).symlink_to(precious)
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()
    (folder / ".page.draft").symlink_to(precious)
    replace_file(folder / "page", "text")
    assert (folder / "page").read_text() == "text"
    assert precious.read_text() == "mine"


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(BadInput, match="not a file of results"):
        Store.writing(tmp_path).__enter__()


# The first layout that was released, word for word. It never changes again.
FIRST_LAYOUT = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, machine TEXT NOT NULL, packages TEXT NOT NULL
);
CREATE TABLE cells (
    key TEXT PRIMARY KEY, claim TEXT NOT NULL, arm TEXT NOT NULL, measure TEXT NOT NULL,
    parameters TEXT NOT NULL, seeds TEXT NOT NULL, code TEXT NOT NULL,
    seconds REAL NOT NULL, run INTEGER NOT NULL REFERENCES runs
);
CREATE TABLE arrays (
    cell TEXT NOT NULL REFERENCES cells, name TEXT NOT NULL,
    dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (cell, name)
) WITHOUT ROWID;
CREATE TABLE failures (
    key TEXT PRIMARY KEY, claim TEXT NOT NULL, arm TEXT NOT NULL, parameters TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE documents (name TEXT PRIMARY KEY, content TEXT NOT NULL);
PRAGMA application_id = 1096043598;
PRAGMA user_version = 1;
"""


@pytest.fixture
def first_layout(tmp_path: Path) -> Path:
    """A folder as the first version wrote it: a run, a cell with its array, a document."""
    folder = tmp_path / "old"
    folder.mkdir()
    content = (CELL.key, "A.x", "prediction", "module:measure", '{"length":4}', "[0,1]", "c0de")
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.executescript(FIRST_LAYOUT)
        connection.execute("INSERT INTO runs VALUES (1, '2026-01-01', '{}', '{}')")
        connection.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, 1.25, 1)", content)
        row = (CELL.key, "x", "<f8", "[2]", np.array([1.0, 2.0]).tobytes())
        connection.execute("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO documents VALUES ('ledger', '{\"schema\":1}')")
    return folder


def whole(store: Store) -> bool:
    result = store.result(CELL.key)
    assert result is not None
    return result.values["x"].tolist() == [1.0, 2.0] and store.document("ledger") == {"schema": 1}


def test_the_first_layout_is_read_as_it_is(first_layout: Path):
    before = (first_layout / FILE).read_bytes()
    with Store.reading(first_layout) as store:
        assert whole(store)
        assert (store.failures(), store.faults()) == ([], [])
    assert (first_layout / FILE).read_bytes() == before


def test_the_first_layout_is_brought_up_to_date_when_written_to(first_layout: Path):
    with Store.writing(first_layout) as store:
        assert whole(store)
        assert store.faults() == []  # that an old run did not note its end is no fault
        store.start_run({}, {})
        store.keep_fault(CELL, Fault("died", "signal 9"))
        store.end_run()
    with Store.reading(first_layout) as store:
        assert whole(store)
        assert [fault["kind"] for fault in store.faults()] == ["died"]
    made = {}
    with Store.writing(first_layout.parent / "new"):
        pass
    for folder in (first_layout, first_layout.parent / "new"):
        with closing(sqlite3.connect(folder / FILE)) as connection:
            tables = [name for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]  # fmt: skip
            made[folder] = {
                table: connection.execute(f"PRAGMA table_info({table})").fetchall()
                for table in tables
            }
    old, new = made.values()
    assert old == new  # migrated and new files do not differ


def test_a_migration_that_is_cut_short_leaves_the_old_layout(
    first_layout: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(MIGRATIONS, 1, MIGRATIONS[1] + "INSERT INTO nowhere VALUES (1);")
    with pytest.raises(BadInput, match="nowhere"):
        Store.writing(first_layout).__enter__()
    monkeypatch.undo()
    with Store.writing(first_layout) as store:
        assert whole(store)


def test_every_layout_has_a_way_to_the_present_one():
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA_VERSION))
    assert sorted(ADDED) == list(range(2, SCHEMA_VERSION + 1))


def test_what_is_kept_together_is_committed_together(folder: Path):
    others = [Cell("A.x", "prediction", "module:measure", {}, (seed,), "") for seed in range(3)]
    with Store.writing(folder) as store, Store.reading(folder) as reader:
        store.start_run({}, {})
        with store.together():
            for cell in others:
                store.keep(cell, VALUES, 1.0)
            assert reader.keys() == {CELL.key}
        assert reader.keys() == {CELL.key, *(cell.key for cell in others)}


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
