"""Facts are typed for code and rendered to words in one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnlens.data import read
from attnlens.data.files.facts import (
    CopiesOfRows,
    DropReason,
    Remark,
    RowsDropped,
    RowsRead,
    rendered,
    rows_read,
)
from table_files import write_columns


@pytest.mark.parametrize(
    ("fact", "pair"),
    [
        (Remark("words", "1,200 in vectors of 8"), ("words", "1,200 in vectors of 8")),
        (RowsRead(1200, 1200, seed=0), ("rows", "1,200, all read")),
        (
            RowsRead(50, 1200, seed=3),
            ("rows", "1,200 in the file, 50 of them read: rows at random, seed 3"),
        ),
        (
            RowsRead(50, 1200, seed=3, id="who"),
            ("rows", "1,200 in the file, 50 of them read: whole sequences (who) at random, seed 3"),
        ),
        (RowsDropped(DropReason.NO_LABEL, 4), ("rows without a label", "4, dropped")),
        (CopiesOfRows(4, kept=False), ("copies of other rows", "4, dropped")),
    ],
)
def test_each_fact_has_its_words(fact, pair: tuple[str, str]):
    assert rendered([fact]) == (pair,)


def test_the_rows_that_were_read_are_numbers(tmp_path: Path):
    path = write_columns(tmp_path, x=np.arange(60) % 7, y=np.arange(60) % 2)
    everything, some = read(path), read(path, rows=20, seed=5)
    assert everything.rows_read == RowsRead(60, 60, 0)
    assert everything.rows_read.complete
    assert some.rows_read == RowsRead(20, 60, 5)
    assert not some.rows_read.complete
    assert dict(some.facts) == dict(rendered(some.records))
    assert rows_read(some.records) is some.rows_read


@pytest.mark.parametrize("form", ["csv", "npz", "frame"])
def test_a_sample_of_whole_sequences_names_its_id(tmp_path: Path, form: str):
    who, value = np.arange(60) // 5, np.random.default_rng(0).normal(size=60)
    source = write_columns(tmp_path, who=who, value=value)
    if form == "npz":
        source = tmp_path / "t.npz"
        np.savez(source, who=who, value=value)
    elif form == "frame":
        source = pytest.importorskip("pandas").read_csv(source)
    assert read(source, id="who", rows=4).rows_read == RowsRead(20, 60, 0, "who", (4, 12))


def test_the_columns_of_an_array_are_known_by_the_array(tmp_path: Path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", z=random.normal(size=(30, 2)), y=random.normal(size=30))
    assert read(tmp_path / "t.npz").arrays == {"z": ("z 0", "z 1"), "y": ("y",)}
    assert read(write_columns(tmp_path, z=range(9), y=range(9))).arrays == {}
