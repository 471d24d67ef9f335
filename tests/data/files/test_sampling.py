"""Samples of large files: uniform, repeatable, and with sequences as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.data.files.sampling import choose_ids, reservoir
from table_files import fact, write

read: Any = data.read  # typed as Any: X and sequences are not None in these tests


def test_the_reservoir_is_uniform():
    """5 of 20 items are drawn 4,000 times. Each item is drawn with probability 1/4, so its count
    has mean 1,000 and standard deviation √750. The probability that any of the twenty counts is
    more than five standard deviations off is 1/90,000."""
    counts = np.zeros(20)
    for seed in range(4000):
        items, positions, length = reservoir(iter(range(20)), 5, seed)
        assert (items, length) == (positions, 20)
        counts[positions] += 1
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(750)
    assert reservoir(iter("abc"), 5, 0) == (["a", "b", "c"], [0, 1, 2], 3)


def test_all_rows_of_the_chosen_ids_fit():
    counts = {str(i): i % 4 + 1 for i in range(40)}
    chosen = choose_ids(counts, 40, 30, seed=0)
    assert 24 <= sum(counts[sequence_id] for sequence_id in chosen) <= 30
    assert choose_ids(counts, 40, 30, seed=1) != chosen
    with pytest.raises(BadInput, match=r"at most 3 rows, .*; got 100 for 'a'"):
        choose_ids({"a": 100, "b": 1}, 40, 3, 0)
    assert len(choose_ids(counts, 5, 10**6, seed=0)) == 5


def test_large_files_are_sampled_and_a_fact_says_so(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    a = np.arange(3000.0) + 0.5
    write(tmp_path / "t.csv", [["a", "b"], *((x, i % 2) for i, x in enumerate(a))])
    pq.write_table(
        pa.table({"a": a, "b": np.arange(3000) % 2}), tmp_path / "t.parquet", row_group_size=500
    )
    np.savez(tmp_path / "t.npz", a=a, b=np.arange(3000) % 2)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "t.npz"):
        loaded = read(path, rows=100, seed=1)
        sample = loaded.X[:, 0]
        assert (np.diff(sample) > 0).all()  # rows stay in the order of the file
        assert np.isin(sample, a).all()
        assert sample.std() > 500  # 866 if uniform over the whole file
        expected = "3,000 in the file, 100 of them read: rows at random, seed 1"
        assert fact(loaded, "rows") == expected
        assert not np.array_equal(sample, read(path, rows=100, seed=2).X[:, 0])
        np.testing.assert_array_equal(sample, read(path, rows=100, seed=1).X[:, 0])


def test_sequences_are_sampled_as_a_whole(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    who, value = np.repeat(np.arange(100), 7), np.arange(700.0) % 11
    write(tmp_path / "t.csv", [["who", "v"], *zip(who, value, strict=True)])
    pq.write_table(pa.table({"who": who, "v": value}), tmp_path / "t.parquet", row_group_size=64)
    np.savez(tmp_path / "t.npz", who=who, v=value)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "t.npz"):
        loaded = read(path, id="who", rows=7)
        assert [len(sequence) for sequence in loaded.sequences] == [7] * 7
