"""Sequences of tokens, from long tables and from columns of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.data.files.sequences import group_rows, order_ranks
from table_files import fact, write

read: Any = data.read  # typed as Any: X, y and sequences are not None in these tests


def test_a_long_table_gives_sequences_of_different_lengths(tmp_path: Path):
    rows = [
        (who, t, 10 * who + t, "up" if who < 0 else "down")
        for who in (-3, 7, 12)
        for t in range(2 if who == 7 else 11)
    ]
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    path = write(tmp_path / "l", [["who", "t", "v", "way"], *shuffled])
    loaded = read(path, id="who", order="t", drop=["way"])
    # Tokens are sorted by t as numbers, not as strings: t = 10 comes after t = 9.
    sequences = sorted(map(tuple, loaded.sequences))
    assert sequences == sorted(
        tuple(10.0 * w + t for t in range(2 if w == 7 else 11)) for w in (-3, 7, 12)
    )
    assert loaded.X.shape == (3, 11, 2)
    assert sorted(loaded.X[:, :, 1].sum(1)) == [2, 11, 11]
    assert "padded with zeros" in fact(loaded, "sequences")
    cut = read(path, id="who", order="t", drop=["way"], length=2)
    assert cut.X.shape == (3, 2, 1)
    assert sorted(map(tuple, cut.X[:, :, 0])) == [(-21, -20), (70, 71), (129, 130)]


def test_tokens_with_a_missing_value_are_filled_or_dropped(tmp_path: Path):
    rows = [(i // 4, "" if i % 4 == 1 else i) for i in range(12)]
    path = write(tmp_path / "l", [["who", "v"], *rows])
    assert [len(sequence) for sequence in read(path, id="who").sequences] == [4, 4, 4]
    dropped = read(path, id="who", missing="drop")
    lists = [sequence.tolist() for sequence in dropped.sequences]
    assert lists == [[0, 2, 3], [4, 6, 7], [8, 10, 11]]
    assert fact(dropped, "rows with a missing value") == "3, dropped"


def test_ids_and_orders_are_exact_beyond_the_precision_of_a_float(tmp_path: Path):
    big = 2**53
    rows = [(big + i % 2, big + i, i) for i in range(10)]
    path = write(tmp_path / "l", [["who", "t", "v"], *reversed(rows)])
    loaded = read(path, id="who", order="t")
    assert sorted(map(tuple, loaded.sequences)) == [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)]


def test_sequences_have_one_label_and_categories_become_tokens(tmp_path: Path):
    rows = [(i, "abc"[(i + t) % 3], i % 2) for i in range(12) for t in range(4)]
    loaded = read(
        write(tmp_path / "l", [["who", "word", "label"], *rows]), id="who", target="label"
    )
    assert loaded.y.tolist() == [0, 1] * 6
    assert loaded.X.shape == (12, 4, 3)
    assert loaded.sequences[0].dtype.kind == "i"
    assert loaded.sequences[0].tolist() == [0, 1, 2, 0]


def test_columns_of_lists_of_numbers_vectors_and_words(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def loaded(lists, **options) -> Any:
        columns = {"list": lists, "label": [i % 2 for i in range(len(lists))]}
        pq.write_table(pa.table(columns), tmp_path / "l.parquet")
        return read(tmp_path / "l.parquet", target="label", **options)

    fixed = loaded([[float(i), 2.0, 3.0] for i in range(8)])
    assert fixed.X.shape == (8, 3, 1)
    ragged = loaded([[0.5] * (i + 1) for i in range(7)] + [None])
    assert [len(sequence) for sequence in ragged.sequences] == [1, 2, 3, 4, 5, 6, 7]
    assert fact(ragged, "rows with an empty sequence") == "1, dropped"
    vectors = loaded([[[1.0, float(i)], [0.0, 1.0]] for i in range(8)])
    assert vectors.X.shape == (8, 2, 2)
    words = loaded([["a", "b", "a"], ["b", "c", "a"]] * 4)
    assert words.sequences[0].tolist() == [0, 1, 0]
    assert words.X.shape[2] == 3
    codes = loaded([[1, 2, 1], [2, 3, 1]] * 4, types={"list": "category"})
    assert codes.sequences[1].dtype.kind == "i"


@pytest.mark.parametrize(
    ("order", "ranks"),
    [
        (np.array([1.7, 1.2, 2.0]), [1, 0, 2]),  # whole parts alone would make two of them equal
        (np.array(["2", "10"], object), [0, 1]),
        (np.array(["2020-01-02", "2020-01-01"], "M8[s]"), [1, 0]),
    ],
    ids=["floats", "strings", "dates"],
)
def test_ranks_of_an_order(order: np.ndarray, ranks: list[int]):
    assert order_ranks(order, "t").tolist() == ranks


@pytest.mark.parametrize(
    "order",
    [np.array([1.0, np.nan]), np.array(["2020-01-01", "NaT"], "M8[s]")],
    ids=["floats", "dates"],
)
def test_an_order_with_missing_values_is_refused(order: np.ndarray):
    with pytest.raises(BadInput, match="the order t must have a value in every row"):
        order_ranks(order, "t")


@pytest.mark.parametrize("role", ["id", "order"])
def test_a_column_of_lists_is_neither_id_nor_order(role: str):
    lists = np.empty(2, object)
    lists[:] = [np.zeros(0), np.ones(1)]
    check = order_ranks if role == "order" else lambda ids, name: group_rows(ids, name, None, None)
    with pytest.raises(BadInput, match=f"the {role} a must have one value per row; got a list"):
        check(lists, "a")
