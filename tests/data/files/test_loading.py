"""The user's own files: formats, kinds of columns and labels, and the facts about them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.data.files.facts import CopiesOfRows
from table_files import fact, write, write_columns

read: Any = data.read  # typed as Any: X, y and sequences are not None in these tests
RANDOM = np.random.default_rng(0)
AGE = RANDOM.normal(40, 10, 60).round(3)
COLOUR = [("red", "green", "blue")[i % 3] for i in range(60)]
LABEL = [("yes", "no")[i % 2] for i in range(60)]


# -- formats ---------------------------------------------------------------------------------------


def test_a_table_is_the_same_in_every_format(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"age": AGE, "colour": COLOUR, "label": LABEL}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", age=AGE, colour=np.array(COLOUR), label=np.array(LABEL))
    kinds = [("age", "f8"), ("colour", "U5"), ("label", "U3")]
    np.save(tmp_path / "t.npy", np.array(list(zip(AGE, COLOUR, LABEL, strict=True)), kinds))
    first = read(write_columns(tmp_path, **columns), target="label")
    assert first.names == ("age", "colour = blue", "colour = green", "colour = red")
    assert (first.task, first.classes) == ("classification", ("no", "yes"))
    np.testing.assert_array_equal(first.y, [1 - i % 2 for i in range(60)])
    others: list[Any] = [tmp_path / "t.parquet", tmp_path / "t.npz", tmp_path / "t.npy"]
    if data.installed("pandas"):
        import pandas

        others.append(pandas.DataFrame(columns))
    for other in others:
        again = read(other, target="label")
        np.testing.assert_array_equal(again.X, first.X)
        np.testing.assert_array_equal(again.y, first.y)
        assert (again.names, again.classes) == (first.names, first.classes)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separators_encodings_and_quoted_fields(separator: str, encoding: str, tmp_path: Path):
    rows = [["größe", "note"], ["1.5", 'a "b"\nc'], ["2.5", f"x{separator}y"], ["3.5", "z"]]
    loaded = read(write(tmp_path / "t", rows, separator, encoding), columns=["größe"])
    np.testing.assert_array_equal(loaded.X, [[1.5], [2.5], [3.5]])
    assert loaded.names == ("größe",)


def test_decimal_commas_are_read_if_the_separator_is_another(tmp_path: Path):
    loaded = read(write(tmp_path / "t", [["a", "b"], ["1,5", "x,y"], ["2,25", "z,w"]], ";"))
    np.testing.assert_array_equal(loaded.X[:, 0], [1.5, 2.25])
    assert fact(loaded, "text format") == "separator ; (inferred); decimal commas in a"


def test_a_first_line_of_numbers_is_a_row_unless_it_numbers_the_columns(tmp_path: Path):
    without_header = read(write(tmp_path / "a", [[5, 7], [6, 9], [1, 8]]))
    assert without_header.X.shape == (3, 2)
    assert without_header.names == ("column 1", "column 2")
    assert "first line" in fact(without_header, "header")
    with_header = read(write(tmp_path / "b", [[0, 1], [5, 7], [6, 9]]))
    assert with_header.names == ("0", "1")
    assert with_header.X.shape == (2, 2)


def test_arrays_of_rows_tokens_and_images(tmp_path: Path):
    np.save(tmp_path / "rows.npy", RANDOM.normal(size=(30, 4)))
    rows = read(tmp_path / "rows.npy", target="3")
    assert (rows.X.shape, rows.names, rows.task) == ((30, 3), ("0", "1", "2"), "regression")
    x = RANDOM.normal(size=(30, 5, 4))
    np.savez(tmp_path / "tokens.npz", x=x, y=np.arange(30) % 3)
    tokens = read(tmp_path / "tokens.npz", target="y")
    np.testing.assert_array_equal(tokens.X, x)
    assert [sequence.shape for sequence in tokens.sequences] == [(5, 4)] * 30
    np.savez(tmp_path / "images.npz", x=RANDOM.integers(0, 256, (30, 8, 8)), y=np.arange(30) % 3)
    images = read(tmp_path / "images.npz", target="y", images=4)
    assert images.X.shape == (30, 4, 16)
    assert 0 <= images.X.min() < images.X.max() <= 1
    assert "4 patches of 4 × 4" in fact(images, "images")


def test_columns_of_pixels_are_cut_into_patches(tmp_path: Path):
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    names = [f"p{i}" for i in range(64)]
    path = write(tmp_path / "d.csv", [[*names, "digit"], *np.column_stack([pixels, digit])[:50]])
    loaded = read(path, target="digit", images=2)
    assert loaded.X.shape == (50, 16, 4)
    np.testing.assert_allclose(loaded.X[0, 0], pixels[0].reshape(8, 8)[:2, :2].ravel() / 16)


def test_a_folder_of_idx_files_is_cut_into_patches(tmp_path: Path):
    images = RANDOM.integers(0, 256, (20, 8, 8)).astype(np.uint8)
    head = struct.pack(">4B3I", 0, 0, 8, 3, 20, 8, 8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(head + images.tobytes())
    labels = struct.pack(">4B1I", 0, 0, 8, 1, 20) + bytes(i % 10 for i in range(20))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    loaded = read(tmp_path, rows=15)
    assert loaded.X.shape == (15, 16, 4)
    assert fact(loaded, "rows").startswith("20 in the file, 15 of them read")


@pytest.mark.parametrize(
    "value", [5, None, [[1, 2]], np.eye(3)], ids=["int", "none", "list", "array"]
)
def test_only_paths_and_frames_are_read(value: object):
    with pytest.raises(BadInput, match="must be a path or a DataFrame; got a"):
        read(value)


# -- columns ---------------------------------------------------------------------------------------


def test_kinds_of_columns_are_inferred_reported_and_overridden(tmp_path: Path):
    n = range(60)
    path = write_columns(
        tmp_path,
        index=n,
        number=[100 + 7 * i for i in n],
        age=AGE,
        colour=COLOUR,
        when=[f"2024-01-{i % 28 + 1:02}" for i in n],
        name=[f"n{i}" for i in n],
        note=[f"some words about {i}" for i in n],
        same=["x"] * 60,
        code=[i % 4 for i in n],
        label=LABEL,
    )
    loaded = read(path, target="label")
    assert fact(loaded, "numbers") == "age, code"
    assert fact(loaded, "dates").startswith("when")
    assert fact(loaded, "categories").startswith("colour")
    reasons = {"index": "number of the row", "name": "identifier", "note": "texts"}
    for name, reason in reasons.items():
        assert f"{name} (" in fact(loaded, "left out")
        assert reason in fact(loaded, "left out")
    types = {"code": "category", "index": "number", "when": "drop", "label": "category"}
    again = read(path, target="label", types=types)
    assert "code = 3" in again.names
    assert "index" in again.names
    assert "when" not in again.names
    assert "as given" in fact(again, "label")


def test_dates_become_days(tmp_path: Path):
    for number, when in enumerate(
        (
            ["1970-01-03", "1970-01-01T12:00", "1971-01-01 00:00+00:00"],
            ["03.01.1970", "01.01.1970", "01.01.1971"],
        )
    ):
        loaded = read(write_columns(tmp_path, when=when, b=[1, 1, 2]))
        assert loaded.X[:, 0].tolist() == [2, 0.5 if number == 0 else 0, 365]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30))
def test_numbers_are_read_exactly(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]):
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    write(path, [["a", "b"], *([repr(x), i % 2] for i, x in enumerate(numbers))])
    loaded = read(path, types={"a": "number"})
    if "a" in loaded.names:  # a constant column is dropped
        np.testing.assert_array_equal(loaded.X[:, loaded.names.index("a")], numbers)


@pytest.mark.parametrize("mark", ["<NA>", "#DIV/0!", "#VALUE!", "-nan", "1.#QNAN"])
def test_what_programs_write_for_a_missing_value_is_no_class_and_no_number(
    mark: str, tmp_path: Path
):
    path = write_columns(tmp_path, a=[1, mark, 3, 7, 8, 2], label=["x", "y", mark, mark, "x", "y"])
    loaded = read(path, target="label")
    assert loaded.classes == ("x", "y")
    # The gap is filled with the median of all rows, 1, 3, 7, 8 and 2.
    assert loaded.X[:, 0].tolist() == [1.0, 3.0, 8.0, 2.0]


def test_missing_values_are_filled_and_flagged_or_dropped(tmp_path: Path):
    path = write_columns(tmp_path, a=[1, "", 3, "inf", 8], b=["x", "y", "NA", "x", "y"])
    loaded = read(path)
    # A category needs at least two rows, so the one missing value in b is "(other)".
    assert loaded.names == ("a", "a is missing", "b = x", "b = y", "b = (other)")
    np.testing.assert_array_equal(loaded.X[:, 0], [1, 3, 3, 3, 8])  # 3 is the median of 1, 3, 8
    np.testing.assert_array_equal(loaded.X[:, 1], [0, 1, 0, 1, 0])
    assert "a 2, b 1" in fact(loaded, "missing values")
    assert "1 infinite values treated as missing" in fact(loaded, "numbers")
    dropped = read(path, missing="drop")
    assert dropped.X[:, 0].tolist() == [1, 8]
    assert fact(dropped, "rows with a missing value") == "3, dropped"


def test_copies_of_rows_are_kept_or_dropped(tmp_path: Path):
    rows = [[*row, "y" if row[0] > 40 else "n"] for row in zip(AGE, COLOUR, strict=True)]
    path = write(tmp_path / "a", [["age", "colour", "label"], *rows, *rows[:7]])
    loaded = read(path, target="label")
    assert len(loaded.y) == 67
    assert CopiesOfRows(7, kept=True) in loaded.records
    dropped = read(path, target="label", copies="drop")
    assert len(dropped.y) == 60
    assert CopiesOfRows(7, kept=False) in dropped.records
    with pytest.raises(BadInput, match="copies must be one of"):
        read(path, target="label", copies="no")


def test_copies_are_rows_that_agree_in_every_column(tmp_path: Path):
    """Rows with equal numbers but different names are not copies, although the column of names is
    not an input."""
    n, labels = range(30), ["x", "y"] * 15
    path = write_columns(tmp_path, a=[i % 20 for i in n], name=[f"n{i}" for i in n], label=labels)
    assert len(read(path, target="label", copies="drop").y) == 30
    assert len(read(path, target="label", drop=["name"], copies="drop").y) == 20


def test_tasks_and_classes_of_every_kind_of_label(tmp_path: Path):
    n = range(30)
    path = write_columns(
        tmp_path,
        a=RANDOM.normal(size=30),
        number=[i / 7 for i in n],
        few=[i % 3 for i in n],
        word=["x", "y", ""] * 10,
        rare=["x", "y"] * 14 + ["z", "x"],
        many=list(n),
        when=[f"2024-01-{i + 1:02}" for i in n],
    )
    only = {"columns": ["a"]}
    assert read(path, target="number", **only).task == "regression"
    assert read(path, target="few", **only).classes == ("0", "1", "2")
    assert read(path, target="few", types={"few": "number"}, **only).task == "regression"
    assert read(path, target="many", **only).task == "regression"
    words = read(path, target="word", **only)
    assert len(words.y) == 20
    assert fact(words, "rows without a label") == "10, dropped"
    rare = read(path, target="rare", **only)
    assert rare.classes == ("x", "y")
    assert fact(rare, "classes of one row") == "z: dropped"
    assert "days since 1970-01-01" in fact(read(path, target="when", **only), "label")
    assert read(path, **only).y is None
