"""DataFrames with every kind of column."""

from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput

read: Any = data.read  # typed as Any: X and sequences are not None in these tests


def test_frames_with_every_kind_of_column():
    pandas = pytest.importorskip("pandas")
    n = range(40)
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([None if i == 3 else i * i % 7 for i in n], dtype="Int64"),
            "plain": [i * i % 11 for i in n],
            "flag": [i % 3 == 0 for i in n],
            "when": pandas.to_datetime([f"1970-01-{i % 20 + 1:02}" for i in n], utc=True),
            "kind": pandas.Categorical(["a" if i % 2 else "b" for i in n]),
            "label": [i * 0.5 % 3 for i in n],
        },
        index=[f"row {i}" for i in n],
    )
    loaded = read(frame, target="label")
    assert loaded.names == ("whole", "whole is missing", "plain", "flag", "when", "kind = b")
    assert loaded.X[4].tolist() == [2, 0, 5, 0, 4, 1]
    assert loaded.X[3, 1] == 1
    lists = pandas.DataFrame({"list": [[1, 2], [3.5], None] * 4, "label": [0, 1, 1] * 4})
    assert [len(sequence) for sequence in read(lists).sequences] == [2, 1] * 4
    with pytest.raises(BadInput, match="got 0 rows and 0 columns"):
        read(pandas.DataFrame())
    with pytest.raises(BadInput, match="two are called 'a'"):
        read(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


class Frames:
    """The same columns as a frame of every library that is installed."""

    columns: ClassVar = {
        "number": [1.5, None, 3.5, 4.5] * 5,
        "whole": [1, 2, None, 4] * 5,
        "flag": [True, False, True, True] * 5,
        "word": ["a", None, "b", "a"] * 5,
        "list": [[1.0, 2.0], [3.0], [4.0], [5.0]] * 5,
        "label": [0, 1] * 10,
    }

    @staticmethod
    def pyarrow() -> Any:
        return pytest.importorskip("pyarrow").table(Frames.columns)

    @staticmethod
    def polars() -> Any:
        return pytest.importorskip("polars").DataFrame(Frames.columns)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_frames_of_other_libraries_are_read_as_those_of_pandas(library: str):
    pandas = pytest.importorskip("pandas")
    frame = getattr(Frames, library)()
    for options in ({"drop": ["list"], "target": "label"}, {"columns": ["list"]}):
        other, expected = read(frame, **options), read(pandas.DataFrame(Frames.columns), **options)
        assert other.names == expected.names
        np.testing.assert_array_equal(other.X, expected.X)
    sampled = read(frame, drop=["list"], target="label", rows=8, seed=3)
    assert sampled.rows_read.read == 8
    lazy = getattr(frame, "lazy", None)
    if lazy is not None:
        with pytest.raises(BadInput, match="collect a lazy frame"):
            read(lazy())


def test_dates_and_unread_types_of_other_libraries():
    pa = pytest.importorskip("pyarrow")
    when = pa.array([0, 86_400, 3 * 86_400], pa.timestamp("s", "UTC"))
    table = pa.table({"when": when, "b": [1.0, 2.0, 5.0], "bytes": [b"x", b"y", b"z"]})
    loaded = read(table)
    assert loaded.names == ("when", "b")
    assert loaded.X[:, 0].tolist() == [0, 1, 3]
    assert "bytes" in dict(loaded.facts)["left out"]


def test_labels_that_are_missing_are_no_class():
    pandas = pytest.importorskip("pandas")
    labels = ["x", "y", None, float("nan"), pandas.NA] * 8
    frame = pandas.DataFrame({"a": range(0, 80, 2), "label": pandas.Series(labels, dtype=object)})
    loaded = read(frame, target="label", types={"a": "number"})
    assert loaded.classes == ("x", "y")
    assert len(loaded.y) == 16


def test_one_long_token_needs_no_memory_for_the_others():
    """An array of fixed-width strings would take 4 bytes × 10^6 characters × 400 tokens."""
    pandas = pytest.importorskip("pandas")
    rows = [["a", "b", "c"] * 10 for _ in range(40)]
    rows[3] = ["x" * 10**6, *rows[3]]
    frame = pandas.DataFrame({"list": rows, "label": [0, 1] * 20})
    tracemalloc.start()
    loaded = read(frame, target="label")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    assert loaded.X.shape[0] == 40
