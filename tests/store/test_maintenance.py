"""The commands check, compact, export and merge on results folders, including damaged and forged
ones."""

from __future__ import annotations

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import in_process
from attnlens import verify
from attnlens.core.checks import BadInput
from attnlens.runs.pages import write_comparison, write_report
from attnlens.runs.store.errors import FILE
from attnlens.runs.store.maintenance import check, compact, export, merge
from attnlens.runs.store.schema import checksum
from attnlens.runs.store.store import Store
from running import attnlens, one_sentence


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    verify("smoke", ["toy_claims:CLAIM"], out, workers=1)
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def change(folder: Path, statement: str, *values: object) -> None:
    """Change a results file by SQL, without the store."""
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute(statement, values)


def test_an_intact_folder_has_no_problems(run: Path):
    assert check(run) == (24, 48, 0, (), 0)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE cells SET seeds = '[9]' WHERE rowid = 1", "key is not the hash of its content"),
        ("UPDATE cells SET parameters = '{' WHERE rowid = 1", "row cannot be read"),
        ("UPDATE cells SET seeds = '7' WHERE rowid = 1", "row cannot be read"),
        ("UPDATE arrays SET shape = '[1000000000]' WHERE name = 'x'", "does not fit its shape"),
        ("UPDATE arrays SET shape = '[-4, -1]' WHERE name = 'x'", "unknown type or shape"),
        ("UPDATE arrays SET dtype = '|O8'", "unknown type or shape"),
        ("UPDATE arrays SET data = 'text' WHERE name = 'x'", "unknown type or shape"),
        ("UPDATE arrays SET shape = '{' WHERE name = 'x'", "cannot be read"),
        ("UPDATE cells SET seconds = 'long' WHERE rowid = 1", "seconds must be a number"),
        ("UPDATE cells SET seconds = -1.0 WHERE rowid = 1", "seconds must be a number"),
        ("UPDATE cells SET parameters = x'00ff' WHERE rowid = 1", "row cannot be read"),
        ("UPDATE cells SET key = 7 WHERE rowid = 1", "key is not the hash of its content"),
        ("DELETE FROM cells WHERE rowid = 1", "the cell itself is missing"),
        ("DELETE FROM arrays", "a cell has no arrays"),
        ("DELETE FROM arrays WHERE name = 'x'", "do not fit its checksum"),
        ("UPDATE arrays SET name = 'z' WHERE name = 'x'", "do not fit its checksum"),
        ("UPDATE arrays SET shape = '[2, 2]' WHERE name = 'x'", "do not fit its checksum"),
        ("UPDATE arrays SET dtype = '<i8' WHERE name = 'x'", "do not fit its checksum"),
        ("UPDATE cells SET checksum = 'abc' WHERE rowid = 1", "do not fit its checksum"),
    ],
)
def test_a_damaged_row_is_reported_and_never_merged(
    copy: Path, tmp_path: Path, statement: str, message: str
):
    change(copy, statement)
    wrong = check(copy).wrong
    assert wrong
    assert message in wrong[0]
    with pytest.raises(BadInput, match="nothing was merged"):
        merge(tmp_path / "target", [copy])


def test_compacting_frees_space_and_keeps_every_row(copy: Path):
    change(copy, "INSERT INTO documents VALUES ('large', ?)", "x" * 3_000_000)
    change(copy, "DELETE FROM documents WHERE name = 'large'")
    before, after = compact(copy)
    assert after < before - 2_000_000
    assert check(copy) == (24, 48, 0, (), 0)


def test_an_export_holds_every_number(run: Path, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (extra `data`)")
    path = tmp_path / "cells.parquet"
    assert export(run, path) == 48
    rows = [row for row in parquet.read_table(path).to_pylist() if row["array"] == "x"]
    with Store.reading(run) as store:
        for row in rows:
            result = store.result(row["key"])
            assert result is not None
            assert result.values["x"].tolist() == row["values"]
            assert row["shape"] == [4]
            assert len(json.loads(row["seeds"])) == 4
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_of_damaged_rows_names_the_file_and_leaves_nothing(copy: Path, tmp_path: Path):
    pytest.importorskip("pyarrow", reason="needs pyarrow (extra `data`)")
    change(copy, "UPDATE arrays SET shape = '[1000000000]'")
    with pytest.raises(BadInput, match=rf"^{copy / FILE} is not an intact results file"):
        export(copy, tmp_path / "cells.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_exports_to_one_file_at_the_same_time_write_it_whole(run: Path, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (extra `data`)")
    path = tmp_path / "cells.parquet"
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: export(run, path), range(24)))
    assert counts == [48] * 24
    assert parquet.read_table(path).num_rows == 48
    assert list(tmp_path.iterdir()) == [path]


def test_control_characters_of_a_forged_file_do_not_reach_the_terminal(copy: Path):
    change(copy, "UPDATE cells SET key = ? WHERE rowid = 1", "\x1b[2J\x07mine")
    done = in_process.run("store", "check", copy)
    assert done.returncode == 1
    assert "mine" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


def test_a_report_of_forged_documents_raises_one_sentence(copy: Path):
    for content in ("7", "{}", '{"claims": [1]}', "[" * 100_000):
        change(copy, "UPDATE documents SET content = ? WHERE name = 'ledger'", content)
        with pytest.raises(BadInput, match=str(copy)):
            write_report(copy)
        with pytest.raises(BadInput, match=str(copy)):
            write_comparison(copy, copy)
    assert str(copy) in one_sentence(attnlens("report", copy).stderr)


def test_an_export_without_pyarrow_names_what_to_install(run: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install 'attnlens\[data\]'"):
        export(run, tmp_path / "cells.parquet")


def test_merging_two_halves_gives_the_whole(run: Path, copy: Path, tmp_path: Path):
    other = Path(shutil.copytree(run, tmp_path / "other"))
    for folder, arm in ((copy, "control"), (other, "prediction")):
        change(
            folder, "DELETE FROM arrays WHERE cell IN (SELECT key FROM cells WHERE arm = ?)", arm
        )
        change(folder, "DELETE FROM cells WHERE arm = ?", arm)
    assert merge(copy, [other, run]) == (12, 24, (), ())
    assert check(copy) == (24, 48, 0, (), 0)
    with Store.reading(copy) as merged, Store.reading(run) as whole:
        assert merged.keys() == whole.keys()
        for key in whole.keys():  # noqa: SIM118 (a store is not iterable)
            ours, theirs = merged.result(key), whole.result(key)
            assert ours is not None
            assert theirs is not None
            assert all((ours.values[n] == theirs.values[n]).all() for n in theirs.values)
        assert merged.connection.execute("SELECT COUNT(*) FROM runs").fetchone() == (1,)


def test_faults_and_stopped_runs_are_merged_once(run: Path, copy: Path, tmp_path: Path):
    target = Path(shutil.copytree(run, tmp_path / "target"))
    change(copy, "UPDATE runs SET started = 'earlier', ended = NULL")
    change(
        copy,
        "INSERT INTO faults (run, key, claim, kind, words) "
        "SELECT id, 'k', 'T.c', 'died', 'it died' FROM runs",
    )
    for _ in range(2):
        merge(target, [copy])
        with Store.reading(target) as store:
            assert [fault["kind"] for fault in store.faults()] == ["stopped", "died"]


def stored_array(folder: Path) -> tuple[str, bytes]:
    """The key of a cell and the bytes of its array `x`."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute("SELECT cell, data FROM arrays WHERE name = 'x'").fetchone()


def flip(folder: Path, byte: int = 3) -> str:
    """Flip one bit of an array; return the key of its cell."""
    key, data = stored_array(folder)
    flipped = data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]
    change(folder, "UPDATE arrays SET data = ? WHERE cell = ? AND name = 'x'", flipped, key)
    return key


def rewrite(folder: Path, key: str, data: bytes) -> None:
    """Replace an array and store the checksum that fits the new value."""
    change(folder, "UPDATE arrays SET data = ? WHERE cell = ? AND name = 'x'", data, key)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        query = "SELECT name, dtype, shape, data FROM arrays WHERE cell = ?"
        rows = connection.execute(query, (key,)).fetchall()
    change(folder, "UPDATE cells SET checksum = ? WHERE key = ?", checksum(rows), key)


def test_one_flipped_bit_is_reported_and_never_exported(copy: Path, tmp_path: Path):
    key = flip(copy)
    (sentence,) = check(copy).wrong
    assert sentence == f"cell {key[:12]}: the arrays of a cell do not fit its checksum"
    with Store.reading(copy) as store:
        assert [*store.damage(store.keys())] == [key]
        with pytest.raises(BadInput, match="do not fit its checksum"):
            store.result(key)
    with pytest.raises(BadInput, match="not an intact results file"):
        export(copy, tmp_path / "cells.parquet")
    assert not (tmp_path / "cells.parquet").exists()


@pytest.mark.parametrize("damage", ["bit", "arrays", "seconds"])
def test_verify_computes_damaged_cells_again(run: Path, copy: Path, damage: str):
    key = flip(copy)
    if damage == "arrays":
        change(copy, "DELETE FROM arrays WHERE cell = ?", key)
    elif damage == "seconds":
        change(copy, "UPDATE cells SET seconds = 'long' WHERE key = ?", key)
    notices: list[str] = []
    verify("smoke", ["toy_claims:CLAIM"], copy, workers=1, notice=notices.append)
    assert any("1 stored cells" in sentence for sentence in notices)
    assert check(copy) == (24, 48, 0, (), 0)
    with Store.reading(copy) as mended, Store.reading(run) as whole:
        ours, theirs = mended.result(key), whole.result(key)
        assert ours is not None
        assert theirs is not None
        assert (ours.values["x"] == theirs.values["x"]).all()
        assert [(fault["kind"], fault["key"]) for fault in mended.faults()] == [("damaged", key)]


def test_cells_without_a_checksum_are_counted(copy: Path):
    change(copy, "UPDATE cells SET checksum = NULL")
    assert check(copy) == (24, 48, 0, (), 24)
    change(copy, "DELETE FROM arrays WHERE cell = (SELECT MIN(key) FROM cells)")
    assert [sentence.endswith("has no arrays") for sentence in check(copy).wrong] == [True]


def test_a_conflict_is_reported_and_the_folder_keeps_its_value(run: Path, copy: Path):
    key, data = stored_array(run)
    rewrite(copy, key, bytes(len(data)))
    assert merge(copy, [run]) == (0, 23, (key,), ())
    with Store.reading(copy) as store:
        result = store.result(key)
        assert result is not None
        assert (result.values["x"] == 0).all()


def test_a_merge_mends_damaged_cells(run: Path, copy: Path):
    flip(copy)
    assert merge(copy, [run]) == (1, 23, (), ())
    assert check(copy) == (24, 48, 0, (), 0)


def test_a_merge_says_what_differs_between_the_records(run: Path, copy: Path, tmp_path: Path):
    (text,) = sqlite3.connect(run / FILE).execute("SELECT numerics FROM runs").fetchone()
    numerics = json.loads(text)
    for folder, status in ((run, "in use"), (copy, "no C++ compiler")):
        library = {"name": "cholesky", "status": status, "reason": "", "digest": ""}
        target = Path(shutil.copytree(folder, tmp_path / status.replace(" ", "-")))
        change(target, "UPDATE runs SET numerics = ?", json.dumps(numerics | {"native": [library]}))
    native, by_xla = tmp_path / "in-use", tmp_path / "no-C++-compiler"
    change(by_xla, "UPDATE runs SET packages = json_set(packages, '$.optax', '0.1')")
    (sentence,) = merge(native, [by_xla]).differences
    assert sentence.startswith(f"the records of {by_xla} and {native} differ in optax (")
    assert sentence.endswith(" here, 0.1 there), cholesky (native here, XLA there)")
    done = attnlens("store", "merge", copy, by_xla)
    assert done.returncode == 0, done.stderr
    assert f"Note: the records of {by_xla} and {copy} differ in optax (" in done.stdout


@pytest.mark.parametrize("record", ["NULL", "'{'", "'7'", '\'{"environment": [], "native": 1}\''])
def test_a_folder_without_a_record_is_merged_and_named(run: Path, copy: Path, record: str):
    change(copy, f"UPDATE runs SET numerics = {record}")
    if record == "'{'":
        with pytest.raises(BadInput, match="not an intact results file"):
            merge(run, [copy])
        return
    (sentence,) = merge(run, [copy]).differences
    assert sentence.endswith(f"differ in the numerical path (not recorded in {copy})")


def test_store_commands(run: Path, copy: Path, tmp_path: Path):
    done = attnlens("store", "check", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "24 cells" in done.stdout
    key, data = stored_array(copy)
    rewrite(copy, key, bytes(len(data)))
    done = attnlens("store", "merge", copy, run)
    assert done.returncode == 1
    assert "1 cells disagree" in done.stderr
    change(copy, "UPDATE arrays SET dtype = '|O8'")
    done = attnlens("store", "check", copy)
    assert done.returncode == 1
    assert "unknown type or shape" in done.stdout
    assert "no results in" in one_sentence(attnlens("store", "compact", tmp_path / "no").stderr)
    assert "itself" in one_sentence(attnlens("store", "merge", run, run).stderr)
