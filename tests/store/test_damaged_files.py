"""Commands killed at random moments, and changed bytes in results files and documents: nothing is
lost, no stored number changes, and what cannot be read is reported in one sentence."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens import load, verify
from attnlens.core.checks import ExplainedError
from attnlens.runs.pages import write_comparison, write_report
from attnlens.runs.store.errors import FILE
from attnlens.runs.store.maintenance import check
from attnlens.runs.store.store import Store
from fuzzing import fuzzed
from results_folders import chosen_seed, comparable
from running import ENVIRONMENT, SUPPORT
from watchdog import watchdog

pytestmark = pytest.mark.slow
CLAIM = ["toy_claims:CLAIM"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    verify("smoke", CLAIM, out, workers=1)
    return out


def test_killed_at_40_random_moments_the_maintenance_of_results_loses_nothing(
    run: Path, tmp_path: Path
):
    shutil.copytree(run, tmp_path / "first")
    verify("smoke", CLAIM, tmp_path / "second", workers=1, seed_range=1)
    done = subprocess.run(
        [sys.executable, SUPPORT / "killing_maintenance.py", tmp_path, str(chosen_seed()), "40"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10, "too few kills hit a command that was still at work"


@pytest.fixture(scope="module")
def unwritten(run: Path) -> Path:
    """A results folder whose cells are in the write-ahead log only, as after a kill."""
    out, copy = run.with_name("open"), run.with_name("copy")
    with Store.writing(out):
        pass
    with closing(sqlite3.connect(out / FILE)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM cells").fetchone()  # so the log cannot be emptied
        verify("smoke", CLAIM, out, workers=1)
        shutil.copytree(out, copy, ignore=shutil.ignore_patterns("*-shm"))
    assert contents(copy) == contents(out) != {}
    shutil.copy(out / "ledger.json", copy / "ledger.json")
    return copy


def contents(folder: Path) -> dict[str, dict[str, bytes]]:
    """The arrays of every cell that can be read, as bytes."""
    with Store.reading(folder) as store:
        cells = {key: store.result(key) for key in sorted(store.keys())}
    return {
        key: {name: array.tobytes() for name, array in cell.values.items()}
        for key, cell in cells.items()
        if cell is not None
    }


def test_a_damaged_write_ahead_log_changes_no_number(unwritten: Path, run: Path, tmp_path: Path):
    generator, expected, fewer = random.Random(chosen_seed()), contents(unwritten), []
    for number in range(30):
        folder = Path(shutil.copytree(unwritten, tmp_path / str(number)))
        log = folder / f"{FILE}-wal"
        content = bytearray(log.read_bytes())
        if number % 3 == 0:
            del content[generator.randrange(len(content)) :]
        else:
            for _ in range(1 + number % 3 * 8):
                content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        log.write_bytes(content)
        assert not check(folder).wrong
        left = contents(folder)
        assert left.items() <= expected.items()
        if left != expected:
            fewer.append(folder)
    assert fewer, "no damage reached the log"
    verify("smoke", CLAIM, fewer[0], workers=1)
    assert contents(fewer[0]).keys() == expected.keys()
    assert comparable(fewer[0]) == comparable(run)


def explanation(read: Callable[[], object]) -> str:
    """The sentence of the error that `read` raises, or an empty string if it raises none."""
    with watchdog():
        try:
            read()
        except ExplainedError as error:
            return str(error)
    return ""


@fuzzed(150)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1))
def test_changed_bytes_in_a_results_file_change_no_number(
    run: Path, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int]]
):
    folder = tmp_path_factory.getbasetemp() / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder)
    content = bytearray((folder / FILE).read_bytes())
    for place, byte in changes:
        content[int(place * len(content))] ^= byte
    (folder / FILE).write_bytes(content)
    expected = contents(run)

    def read() -> None:
        with Store.reading(folder) as store:
            for key in expected:
                with suppress(ExplainedError):
                    cell = store.result(key)
                    arrays = {} if cell is None else cell.values
                    read_arrays = {name: array.tobytes() for name, array in arrays.items()}
                    assert read_arrays in ({}, expected[key])

    assert "\n" not in explanation(read)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=9),
    st.just([]),
    st.just({}),
    st.sampled_from(["supported", "<script>alert(1)</script>", "1e400", 10**400]),
)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value of a JSON document."""
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    result = []
    for name, value in inner:
        result.append((*path, name))
        if isinstance(value, dict | list):
            result += places(value, (*path, name))
    return result


@fuzzed(150)
@given(st.data())
def test_changed_documents_of_a_run_are_read_or_refused_in_one_sentence(
    run: Path, tmp_path_factory: pytest.TempPathFactory, data: Any
):
    folder = tmp_path_factory.getbasetemp() / "documents"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder)
    name = data.draw(st.sampled_from(["ledger", "page"]))
    with closing(sqlite3.connect(folder / FILE)) as store, store:
        query = "SELECT content FROM documents WHERE name = ?"
        document = json.loads(store.execute(query, (name,)).fetchone()[0])
        for _ in range(data.draw(st.integers(1, 3))):
            *path, last = data.draw(st.sampled_from(places(document) or [("claims",)]))
            holder = document
            for step in path:
                holder = holder[step]
            if data.draw(st.booleans()):
                holder[last] = data.draw(VALUES)
            else:
                holder.pop(last, None) if isinstance(holder, dict) else holder.pop(last)
        text = json.dumps(document)
        store.execute("UPDATE documents SET content = ? WHERE name = ?", (text, name))
    for read in (write_report, load, lambda changed: write_comparison(run, changed)):
        assert "\n" not in explanation(partial(read, folder))
    for page in folder.glob("*.html"):
        assert "<script>alert(1)" not in page.read_text()


def test_table_names_that_are_not_text_are_one_sentence(run: Path, tmp_path: Path):
    """The message of SQLite quotes the damaged name, and Python cannot decode it."""
    folder = tmp_path / "damaged"
    shutil.copytree(run, folder)
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content.replace(b"tablefaults", b"table\xe6aults", 1))

    def read() -> None:
        with Store.reading(folder):
            pass

    assert "is not an intact results file" in explanation(read)
