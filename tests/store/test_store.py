"""The store never loses a committed cell and does not change files of other programs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnlens.core.cells import Cell, Fault
from attnlens.core.checks import BadInput, DiskFull, ExplainedError
from attnlens.runs.store.errors import FILE, explained_errors
from attnlens.runs.store.maintenance import check
from attnlens.runs.store.schema import ADDED_COLUMNS, MIGRATIONS, SCHEMA_VERSION
from attnlens.runs.store.store import Store

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
    """A folder with one committed cell."""
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
            stored = result.values[name]
            assert (stored.dtype, stored.shape) == (value.dtype, value.shape)
            assert stored.tobytes() == value.tobytes()


def test_keeping_a_cell_twice_changes_nothing(folder: Path):
    with Store.writing(folder) as store:
        store.start_run({}, {})
        store.keep(CELL, {"float64": np.zeros(1)}, 9.0)
        result = store.result(CELL.key)
        assert result is not None
        assert result.seconds == 1.25


def test_a_failure_is_deleted_when_the_cell_succeeds(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        store.keep_failure(CELL, "no luck")
        assert [failure["reason"] for failure in store.failures()] == ["no luck"]
        store.keep(CELL, VALUES, 1.0)
        assert store.failures() == []


def test_a_second_writer_raises_and_a_reader_works(folder: Path):
    with Store.writing(folder):
        with pytest.raises(BadInput, match=rf"another run \(process {os.getpid()}\) is writing"):
            Store.writing(folder).__enter__()
        with Store.reading(folder) as reader:
            assert reader.keys() == {CELL.key}


def test_fresh_renames_old_results(folder: Path):
    with Store.writing(folder, fresh=True) as store:
        assert store.keys() == set()
    (old,) = folder.glob("results-before-*.sqlite")
    with sqlite3.connect(old) as connection:
        assert connection.execute("SELECT key FROM cells").fetchall() == [(CELL.key,)]


class Killed(BaseException):
    """Raised in place of a kill of the process."""


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("links", [True, False])
def test_fresh_loses_no_cell_wherever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, links: bool
):
    """The folder has a cell that is only in the write-ahead log, as after a SIGKILL of an earlier
    run."""
    folder = tmp_path / "killed"
    with Store.writing(tmp_path / "running") as store:
        store.start_run({}, {}, {})
        store.keep(CELL, VALUES, 0.0)
        shutil.copytree(tmp_path / "running", folder)
    assert (folder / f"{FILE}-wal").stat().st_size > 0
    done = []

    def counted(method):
        def step(path: Path, *arguments, **settings):
            if len(done) == steps:
                raise Killed
            done.append(path.name)
            return method(path, *arguments, **settings)

        return step

    def refuse(*_):
        raise OSError("no hard links here")

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(Path, "hardlink_to", counted(Path.hardlink_to if links else refuse))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        Store.writing(folder, fresh=True).__enter__()
    result = set()
    for file in folder.glob("results*.sqlite"):
        with closing(sqlite3.connect(file)) as connection:
            if connection.execute("SELECT name FROM sqlite_master").fetchall():
                result |= set(connection.execute("SELECT key FROM cells"))
    assert result == {(CELL.key,)}


def damaged(path: Path, damage: str) -> bytes:
    """Damage a results file and return its new content."""
    if damage == "text":
        path.write_text("these are my notes, not a database" * 200)
    elif damage == "foreign":
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (precious)")
        connection.close()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "newer":
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("text", "not an intact results file"),
        ("foreign", "not of attnlens"),
        ("truncated", "not an intact results file"),
        ("newer", "newer attnlens"),
    ],
)
@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_a_file_of_another_program_or_version_is_not_changed(
    folder: Path, damage: str, message: str, mode: str
):
    before = damaged(folder / FILE, damage)
    with pytest.raises(BadInput, match=message):
        getattr(Store, mode)(folder).__enter__()
    assert (folder / FILE).read_bytes() == before


def change(folder: Path, script: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        if values:
            connection.execute(script, values)
        else:
            connection.executescript(script)


@pytest.mark.parametrize(
    ("column", "value"),
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
def test_an_invalid_row_raises(folder: Path, column: str, value: object):
    change(folder, f"UPDATE arrays SET {column} = ?", value)
    with (
        Store.reading(folder) as store,
        pytest.raises(BadInput, match="not an intact results file"),
    ):
        store.result(CELL.key)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("DROP TABLE cells", "its table cells lacks"),
        ("ALTER TABLE arrays DROP COLUMN data", "its table arrays lacks data"),
        ("DROP TABLE faults", "its table faults lacks"),
        ("CREATE TRIGGER t AFTER INSERT ON cells BEGIN DELETE FROM cells; END", "holds triggers"),
        ("DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS id", "holds triggers, views"),
        ("PRAGMA user_version = 0", "schema version 0 does not exist"),
        ("PRAGMA user_version = -3", "schema version -3 does not exist"),
    ],
)
@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_a_file_that_does_not_fit_its_schema_version_raises(
    folder: Path, script: str, message: str, mode: str
):
    change(folder, script)
    with pytest.raises(BadInput, match=message):
        getattr(Store, mode)(folder).__enter__()


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("UPDATE documents SET content = '{'", "document"),
        ("UPDATE documents SET content = x'ff00'", "document"),
        ("UPDATE cells SET seconds = 'long'", "result"),
    ],
)
def test_invalid_documents_and_seconds_raise(folder: Path, script: str, read: str):
    with Store.writing(folder) as store:
        store.write_document("ledger", {})
    change(folder, script)
    with (
        Store.reading(folder) as store,
        pytest.raises(BadInput, match="not an intact results file"),
    ):
        getattr(store, read)("ledger" if read == "document" else CELL.key)


def test_targets_of_symbolic_links_are_not_changed(folder: Path, tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in (".lock", FILE, f"{FILE}-wal"):
        place = tmp_path / f"trap-{name.strip('.')}"
        place.mkdir()
        (place / name).symlink_to(precious)
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()
    assert precious.read_text() == "mine"


def test_a_pipe_in_place_of_the_file_raises(tmp_path: Path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(BadInput, match="not a results file"):
        Store.writing(tmp_path).__enter__()


# Schema version 1 exactly as it was released. It must never change.
SCHEMA_1 = """
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
def schema_1(tmp_path: Path) -> Path:
    """A folder with a file of schema version 1: a run, a cell with its array, a document."""
    folder = tmp_path / "old"
    folder.mkdir()
    content = (CELL.key, "A.x", "prediction", "module:measure", '{"length":4}', "[0,1]", "c0de")
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.executescript(SCHEMA_1)
        connection.execute("INSERT INTO runs VALUES (1, '2026-01-01', '{}', '{}')")
        connection.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, 1.25, 1)", content)
        row = (CELL.key, "x", "<f8", "[2]", np.array([1.0, 2.0]).tobytes())
        connection.execute("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO documents VALUES ('ledger', '{\"schema\":1}')")
    return folder


def is_intact(store: Store) -> bool:
    """Whether the store holds the cell and the document of the fixture `schema_1`."""
    result = store.result(CELL.key)
    assert result is not None
    return result.values["x"].tolist() == [1.0, 2.0] and store.document("ledger") == {"schema": 1}


def test_reading_schema_version_1_does_not_change_it(schema_1: Path):
    before = (schema_1 / FILE).read_bytes()
    with Store.reading(schema_1) as store:
        assert is_intact(store)
        assert (store.failures(), store.faults()) == ([], [])
    assert (schema_1 / FILE).read_bytes() == before


def test_writing_migrates_schema_version_1(schema_1: Path):
    with Store.writing(schema_1) as store:
        assert is_intact(store)
        assert store.faults() == []  # a run without a recorded end is not a fault in version 1
        store.start_run({}, {})
        store.keep_fault(CELL, Fault("died", "signal 9"))
        store.end_run()
    with Store.reading(schema_1) as store:
        assert is_intact(store)
        assert [fault["kind"] for fault in store.faults()] == ["died"]
    columns = {}
    with Store.writing(schema_1.parent / "new"):
        pass
    for folder in (schema_1, schema_1.parent / "new"):
        with closing(sqlite3.connect(folder / FILE)) as connection:
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
                )
            ]
            columns[folder] = {
                table: connection.execute(f"PRAGMA table_info({table})").fetchall()
                for table in tables
            }
    old, new = columns.values()
    assert old == new  # a migrated file has the columns of a new file


def test_a_migration_that_fails_leaves_the_old_schema(
    schema_1: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(MIGRATIONS, 1, MIGRATIONS[1] + "INSERT INTO nowhere VALUES (1);")
    with pytest.raises(BadInput, match="nowhere"):
        Store.writing(schema_1).__enter__()
    monkeypatch.undo()
    with Store.writing(schema_1) as store:
        assert is_intact(store)


# From schema version 1 to version 2 exactly as it was released. It must never change.
FROM_1_TO_2 = """
ALTER TABLE runs ADD COLUMN ended TEXT;
UPDATE runs SET ended = started;
CREATE TABLE faults (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, key TEXT NOT NULL,
    claim TEXT NOT NULL, kind TEXT NOT NULL, words TEXT NOT NULL
);
PRAGMA user_version = 2;
"""


def test_schema_version_2_is_read_and_migrated(schema_1: Path):
    change(schema_1, FROM_1_TO_2)
    for mode in (Store.reading, Store.writing, Store.reading):
        with mode(schema_1) as store:
            assert is_intact(store)
            assert list(store.origins()) == [(CELL.key, "", {}, None)]
        assert check(schema_1).wrong == ()


# From schema version 2 to version 3 exactly as it was released. It must never change.
FROM_2_TO_3 = """
ALTER TABLE runs ADD COLUMN numerics TEXT;
ALTER TABLE cells ADD COLUMN path TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 3;
"""


def test_schema_version_3_is_read_and_migrated(schema_1: Path):
    change(schema_1, FROM_1_TO_2 + FROM_2_TO_3)
    for mode in (Store.reading, Store.writing, Store.reading):
        with mode(schema_1) as store:
            assert is_intact(store)
            assert store.damage(store.keys()) == {}
        # Arrays of an older version have no checksum, so `check` cannot confirm them.
        assert check(schema_1) == (1, 1, 0, (), 1)


def test_the_record_of_a_run_and_the_path_of_a_cell_are_stored(tmp_path: Path):
    cell = replace(CELL, path="cholesky=native")
    assert cell.key != CELL.key
    with Store.writing(tmp_path) as store:
        store.start_run({}, {"jax": "1"}, {"environment": {}, "native": []})
        store.keep(cell, VALUES, 1.0)
        recorded = {"environment": {}, "native": []}
        assert list(store.origins()) == [(cell.key, "cholesky=native", {"jax": "1"}, recorded)]
    assert check(tmp_path) == (1, len(VALUES), 0, (), 0)


def test_every_schema_version_has_a_migration():
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA_VERSION))
    assert sorted(ADDED_COLUMNS) == list(range(2, SCHEMA_VERSION + 1))


def test_cells_inside_one_commit_appear_at_once(folder: Path):
    others = [Cell("A.x", "prediction", "module:measure", {}, (seed,), "") for seed in range(3)]
    with Store.writing(folder) as store, Store.reading(folder) as reader:
        store.start_run({}, {})
        with store.one_commit():
            for cell in others:
                store.keep(cell, VALUES, 1.0)
            assert reader.keys() == {CELL.key}
        assert reader.keys() == {CELL.key, *(cell.key for cell in others)}


def test_an_empty_file_is_a_new_one(tmp_path: Path):
    # A kill between the creation of the file and its first write leaves an empty file.
    (tmp_path / FILE).touch()
    with Store.writing(tmp_path) as store:
        assert store.keys() == set()


def test_a_full_disk_loses_no_committed_cell(small_disk: Path):
    committed = []

    def fill(store: Store) -> None:
        for seed in range(1000):
            cell = Cell("A.x", "prediction", "module:measure", {}, (seed,), "c0de")
            store.keep(cell, {"x": np.random.default_rng(seed).normal(size=2000)}, 1.0)
            committed.append(cell.key)

    with Store.writing(small_disk / "run") as store:
        store.start_run({}, {})
        with pytest.raises(DiskFull, match="is full or failing"):
            fill(store)
    assert committed
    with Store.reading(small_disk / "run") as store:
        assert set(committed) <= store.keys()
        assert all(store.result(key) is not None for key in committed)


def test_a_full_database_loses_no_committed_cell(folder: Path):
    with Store.writing(folder) as store:
        store.start_run({}, {})
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        other = Cell("A.x", "prediction", "module:measure", {}, (9,), "c0de")
        with pytest.raises(DiskFull, match="is full or failing"):
            store.keep(other, {"x": np.zeros(100_000)}, 1.0)
        assert store.keys() == {CELL.key}


def test_a_read_only_folder_can_be_read_and_not_written(small_disk: Path):
    with Store.writing(small_disk / "run") as store:
        store.start_run({}, {})
        store.keep(CELL, VALUES, 1.0)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Store.reading(small_disk / "run") as store:
        assert store.keys() == {CELL.key}
    for place in (small_disk / "run", small_disk / "new"):
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()


def test_impossible_folders_raise_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(BadInput, match="choose another --out"):
            Store.writing(place).__enter__()
    with pytest.raises(BadInput, match="no results"):
        Store.reading(tmp_path).__enter__()


def test_arrays_of_text_raise(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        with pytest.raises(BadInput, match="must hold floats"):
            store.keep(CELL, {"x": np.array(["text"])}, 1.0)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (sqlite3.SQLITE_FULL, DiskFull, "is full or failing"),
        (sqlite3.SQLITE_IOERR_WRITE, DiskFull, "is full or failing"),
        (sqlite3.SQLITE_READONLY, BadInput, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, BadInput, "cannot be written"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, BadInput, "in use by another program"),
        (sqlite3.SQLITE_CORRUPT, BadInput, "not an intact results file"),
        (None, BadInput, "not an intact results file"),
    ],
)
def test_errors_of_sqlite_are_recognised_by_code(
    tmp_path: Path, code: int | None, kind: type[ExplainedError], message: str
):
    error = sqlite3.DatabaseError("disk is full, readonly and locked")  # its text decides nothing
    if code is not None:
        error.sqlite_errorcode = code
    with pytest.raises(kind, match=message), explained_errors(tmp_path):
        raise error
