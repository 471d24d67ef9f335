"""Files of one's own: what formats, kinds of columns and kinds of inputs become, in words too."""

from __future__ import annotations

import csv
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens import data
from attnlens.checks import BadInput
from attnlens.data import Encoder, Loaded
from attnlens.data.columns import Typed, texts, typed
from attnlens.data.sampling import choose_ids, reservoir

read: Any = data.read  # what it returns has X, y and sequences here
embedded: Any = data.embedded
RANDOM = np.random.default_rng(0)
AGE = RANDOM.normal(40, 10, 60).round(3)
COLOUR = [("red", "green", "blue")[i % 3] for i in range(60)]
LABEL = [("yes", "no")[i % 2] for i in range(60)]


def write(path: Path, rows, separator: str = ",", encoding: str = "utf-8") -> Path:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator).writerows(rows)
    path.write_bytes(buffer.getvalue().encode(encoding))
    return path


def table(place: Path, **columns) -> Path:
    return write(place / "t.csv", [list(columns), *zip(*columns.values(), strict=True)])


def fact(loaded: Loaded, name: str) -> str:
    return dict(loaded.facts)[name]


# -- formats ---------------------------------------------------------------------------------------


def test_a_table_is_the_same_in_every_format(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"age": AGE, "colour": COLOUR, "label": LABEL}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", age=AGE, colour=np.array(COLOUR), label=np.array(LABEL))
    kinds = [("age", "f8"), ("colour", "U5"), ("label", "U3")]
    np.save(tmp_path / "t.npy", np.array(list(zip(AGE, COLOUR, LABEL, strict=True)), kinds))
    first = read(table(tmp_path, **columns), target="label")
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
def test_separators_marks_and_line_ends(separator: str, encoding: str, tmp_path: Path):
    rows = [["größe", "note"], ["1.5", 'a "b"\nc'], ["2.5", f"x{separator}y"], ["3.5", "z"]]
    loaded = read(write(tmp_path / "t", rows, separator, encoding), columns=["größe"])
    np.testing.assert_array_equal(loaded.X, [[1.5], [2.5], [3.5]])
    assert loaded.names == ("größe",)


def test_decimal_commas_where_they_do_not_separate(tmp_path: Path):
    loaded = read(write(tmp_path / "t", [["a", "b"], ["1,5", "x,y"], ["2,25", "z,w"]], ";"))
    np.testing.assert_array_equal(loaded.X[:, 0], [1.5, 2.25])
    assert fact(loaded, "decimal commas") == "read as points in a"


def test_a_first_line_of_numbers_is_a_row_unless_it_counts(tmp_path: Path):
    plain = read(write(tmp_path / "a", [[5, 7], [6, 9], [1, 8]]))
    assert plain.X.shape == (3, 2)
    assert plain.names == ("column 1", "column 2")
    assert "first line" in fact(plain, "header")
    counted = read(write(tmp_path / "b", [[0, 1], [5, 7], [6, 9]]))
    assert counted.names == ("0", "1")
    assert counted.X.shape == (2, 2)


def test_arrays_of_rows_tokens_and_images(tmp_path: Path):
    np.save(tmp_path / "rows.npy", RANDOM.normal(size=(30, 4)))
    rows = read(tmp_path / "rows.npy", target="3")
    assert (rows.X.shape, rows.names, rows.task) == ((30, 3), ("0", "1", "2"), "regression")
    x = RANDOM.normal(size=(30, 5, 4))
    np.savez(tmp_path / "tokens.npz", x=x, y=np.arange(30) % 3)
    tokens = read(tmp_path / "tokens.npz", target="y")
    np.testing.assert_array_equal(tokens.X, x)
    assert [each.shape for each in tokens.sequences] == [(5, 4)] * 30
    np.savez(tmp_path / "images.npz", x=RANDOM.integers(0, 256, (30, 8, 8)), y=np.arange(30) % 3)
    images = read(tmp_path / "images.npz", target="y", images=4)
    assert images.X.shape == (30, 4, 16)
    assert 0 <= images.X.min() < images.X.max() <= 1
    assert "4 patches of 4 × 4" in fact(images, "images")


def test_pixels_in_columns_are_patches(tmp_path: Path):
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    names = [f"p{i}" for i in range(64)]
    path = write(tmp_path / "d.csv", [[*names, "digit"], *np.column_stack([pixels, digit])[:50]])
    loaded = read(path, target="digit", images=2)
    assert loaded.X.shape == (50, 16, 4)
    np.testing.assert_allclose(loaded.X[0, 0], pixels[0].reshape(8, 8)[:2, :2].ravel() / 16)


def test_a_folder_of_idx_files(tmp_path: Path):
    images = RANDOM.integers(0, 256, (20, 8, 8)).astype(np.uint8)
    head = struct.pack(">4B3I", 0, 0, 8, 3, 20, 8, 8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(head + images.tobytes())
    labels = struct.pack(">4B1I", 0, 0, 8, 1, 20) + bytes(i % 10 for i in range(20))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    loaded = read(tmp_path, rows=15)
    assert loaded.X.shape == (15, 16, 4)
    assert fact(loaded, "rows").startswith("20 in the file, 15 of them read")


# -- columns ---------------------------------------------------------------------------------------


def test_kinds_are_inferred_shown_and_overridden(tmp_path: Path):
    n = range(60)
    path = table(
        tmp_path, index=n, number=[100 + 7 * i for i in n], age=AGE, colour=COLOUR,
        when=[f"2024-01-{i % 28 + 1:02}" for i in n], name=[f"n{i}" for i in n],
        note=[f"some words about {i}" for i in n], same=["x"] * 60, code=[i % 4 for i in n],
        label=LABEL,
    )  # fmt: skip
    loaded = read(path, target="label")
    assert fact(loaded, "numbers") == "age, code"
    assert fact(loaded, "dates").startswith("when")
    assert fact(loaded, "categories").startswith("colour")
    for name, why in {"index": "number of the row", "name": "identifier", "note": "texts"}.items():
        assert f"{name} (" in fact(loaded, "left out")
        assert why in fact(loaded, "left out")
    types = {"code": "category", "index": "number", "when": "drop", "label": "category"}
    again = read(path, target="label", types=types)
    assert "code = 3" in again.names
    assert "index" in again.names
    assert "when" not in again.names
    assert "as given" in fact(again, "label")


def test_dates_become_days(tmp_path: Path):
    for number, when in enumerate((["1970-01-03", "1970-01-01T12:00", "1971-01-01 00:00+00:00"],
                                   ["03.01.1970", "01.01.1970", "01.01.1971"])):  # fmt: skip
        loaded = read(table(tmp_path, when=when, b=[1, 1, 2]))
        assert loaded.X[:, 0].tolist() == [2, 0.5 if number == 0 else 0, 365]


def test_missing_values_are_filled_and_flagged_or_dropped(tmp_path: Path):
    path = table(tmp_path, a=[1, "", 3, "inf", 8], b=["x", "y", "NA", "x", "y"])
    loaded = read(path)
    # A gap in one row of five is too rare for a category of its own.
    assert loaded.names == ("a", "a is missing", "b = x", "b = y", "b = (other)")
    np.testing.assert_array_equal(loaded.X[:, 0], [1, 3, 3, 3, 8])  # the median of 1, 3, 8
    np.testing.assert_array_equal(loaded.X[:, 1], [0, 1, 0, 1, 0])
    assert "a 2, b 1" in fact(loaded, "missing values")
    assert "1 infinite values taken as missing" in fact(loaded, "numbers")
    dropped = read(path, missing="drop")
    assert dropped.X[:, 0].tolist() == [1, 8]
    assert fact(dropped, "rows with a missing value") == "3, dropped"


def test_copies_are_dropped_unless_the_data_are_like_that(tmp_path: Path):
    rows = [[*row, "y" if row[0] > 40 else "n"] for row in zip(AGE, COLOUR, strict=True)]
    path = write(tmp_path / "a", [["age", "colour", "label"], *rows, *rows[:7]])
    loaded = read(path, target="label")
    assert len(loaded.y) == 60
    assert fact(loaded, "copies of other rows") == "7, dropped"
    assert len(read(path).X) == 67  # without labels there is no test to leak into
    often = write(tmp_path / "b", [["age", "colour", "label"], *rows, *rows, *rows])
    assert len(read(often, target="label").y) == 60
    few = table(tmp_path, a=[i % 2 for i in range(60)], label=[i // 2 % 2 for i in range(60)])
    kept = read(few, target="label")
    assert len(kept.y) == 60
    assert "kept" in fact(kept, "copies of other rows")


def test_copies_are_rows_that_agree_in_every_column(tmp_path: Path):
    """Two people with the same numbers and different names are two."""
    n = range(30)
    path = table(tmp_path, a=[i % 20 for i in n], name=[f"n{i}" for i in n], label=["x", "y"] * 15)
    assert len(read(path, target="label").y) == 30
    assert len(read(path, target="label", drop=["name"]).y) == 20


def test_labels_of_every_kind(tmp_path: Path):
    n = range(30)
    path = table(
        tmp_path, a=RANDOM.normal(size=30), number=[i / 7 for i in n], few=[i % 3 for i in n],
        word=["x", "y", ""] * 10, rare=["x", "y"] * 14 + ["z", "x"], many=list(n),
        when=[f"2024-01-{i + 1:02}" for i in n],
    )  # fmt: skip
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


# -- the encoder -----------------------------------------------------------------------------------


def test_the_encoder_learns_from_the_rows_it_is_given():
    train = {"c": Typed("category", texts(["a"] * 50 + ["b"] * 49 + ["z"])),
             "n": Typed("number", np.array([1.0, 3.0] * 50))}  # fmt: skip
    test = {"c": Typed("category", texts(["a", "new", ""])),
            "n": Typed("number", np.array([np.nan, 5.0, 1.0]))}  # fmt: skip
    encoder = Encoder.fit(train)
    assert encoder.names == ("c = a", "c = b", "c = (other)", "n")
    # Unknown is other, and so is a gap that was never seen; a missing number is the median.
    expected = [[1, 0, 0, 2], [0, 0, 1, 5], [0, 0, 1, 1]]
    np.testing.assert_array_equal(encoder.apply(test), expected)


def test_two_categories_are_one_column_and_unknown_is_between():
    encoder = Encoder.fit({"c": Typed("category", texts(["no", "yes"] * 5))})
    assert encoder.names == ("c = yes",)
    values = encoder.apply({"c": Typed("category", texts(["yes", "no", "maybe"]))})
    assert values[:, 0].tolist() == [1, 0, 0.5]


CELLS = st.one_of(st.none(), st.sampled_from(["a", "b", "c d e f", "1", "2.5", "-3e4", "x" * 9]))


@given(fitted=st.lists(CELLS, min_size=1, max_size=60), other=st.lists(CELLS, min_size=1))
def test_whatever_was_fitted_applies_to_anything_of_its_kind(fitted: list, other: list):
    column = typed("c", texts(fitted))
    if column.kind not in ("number", "category", "date"):
        return
    encoder = Encoder.fit({"c": column})
    values = texts(other) if column.kind == "category" else np.full(len(other), np.nan)
    found = encoder.apply({"c": Typed(column.kind, values)})
    assert found.shape == (len(other), len(encoder.names))
    assert np.isfinite(found).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30))
def test_numbers_come_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
):
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    write(path, [["a", "b"], *([repr(x), i % 2] for i, x in enumerate(numbers))])
    loaded = read(path, types={"a": "number"})
    if "a" in loaded.names:  # not where it is constant
        np.testing.assert_array_equal(loaded.X[:, loaded.names.index("a")], numbers)


# -- sequences -------------------------------------------------------------------------------------


def test_a_long_table_becomes_ragged_sequences(tmp_path: Path):
    rows = [(who, t, 10 * who + t, "up" if who < 0 else "down") for who in (-3, 7, 12)
            for t in range(2 if who == 7 else 11)]  # fmt: skip
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    path = write(tmp_path / "l", [["who", "t", "v", "way"], *shuffled])
    loaded = read(path, id="who", order="t", drop=["way"])
    # t = 10 comes after t = 9: by value, not by spelling.
    found = sorted(map(tuple, loaded.sequences))
    assert found == sorted(tuple(10.0 * w + t for t in range(2 if w == 7 else 11))
                           for w in (-3, 7, 12))  # fmt: skip
    assert loaded.X.shape == (3, 11, 2)
    assert sorted(loaded.X[:, :, 1].sum(1)) == [2, 11, 11]
    assert "filled up with zeros" in fact(loaded, "sequences")
    cut = read(path, id="who", order="t", drop=["way"], length=2)
    assert cut.X.shape == (3, 2, 1)
    assert sorted(map(tuple, cut.X[:, :, 0])) == [(-21, -20), (70, 71), (129, 130)]


def test_tokens_that_miss_a_value_are_filled_or_dropped(tmp_path: Path):
    rows = [(i // 4, "" if i % 4 == 1 else i) for i in range(12)]
    path = write(tmp_path / "l", [["who", "v"], *rows])
    assert [len(each) for each in read(path, id="who").sequences] == [4, 4, 4]
    dropped = read(path, id="who", missing="drop")
    assert [each.tolist() for each in dropped.sequences] == [[0, 2, 3], [4, 6, 7], [8, 10, 11]]
    assert fact(dropped, "rows with a missing value") == "3, dropped"


def test_ids_and_orders_that_a_float_could_not_tell_apart(tmp_path: Path):
    big = 2**53
    rows = [(big + i % 2, big + i, i) for i in range(10)]
    path = write(tmp_path / "l", [["who", "t", "v"], *reversed(rows)])
    loaded = read(path, id="who", order="t")
    assert sorted(map(tuple, loaded.sequences)) == [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)]


def test_labels_of_sequences_and_categories_as_tokens(tmp_path: Path):
    rows = [(i, "abc"[(i + t) % 3], i % 2) for i in range(12) for t in range(4)]
    loaded = read(
        write(tmp_path / "l", [["who", "word", "label"], *rows]), id="who", target="label"
    )
    assert loaded.y.tolist() == [0, 1] * 6
    assert loaded.X.shape == (12, 4, 3)
    assert loaded.sequences[0].dtype.kind == "i"
    assert loaded.sequences[0].tolist() == [0, 1, 2, 0]


def test_list_columns_fixed_ragged_vectors_and_words(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def loaded(lists, **asked) -> Any:
        columns = {"list": lists, "label": [i % 2 for i in range(len(lists))]}
        pq.write_table(pa.table(columns), tmp_path / "l.parquet")
        return read(tmp_path / "l.parquet", target="label", **asked)

    fixed = loaded([[float(i), 2.0, 3.0] for i in range(8)])
    assert fixed.X.shape == (8, 3, 1)
    ragged = loaded([[0.5] * (i + 1) for i in range(7)] + [None])
    assert [len(each) for each in ragged.sequences] == [1, 2, 3, 4, 5, 6, 7]
    assert fact(ragged, "rows with an empty sequence") == "1, dropped"
    vectors = loaded([[[1.0, float(i)], [0.0, 1.0]] for i in range(8)])
    assert vectors.X.shape == (8, 2, 2)
    words = loaded([["a", "b", "a"], ["b", "c", "a"]] * 4)
    assert words.sequences[0].tolist() == [0, 1, 0]
    assert words.X.shape[2] == 3
    codes = loaded([[1, 2, 1], [2, 3, 1]] * 4, types={"list": "category"})
    assert codes.sequences[1].dtype.kind == "i"


def test_texts_stay_texts_until_vectors_are_learned_on_others(tmp_path: Path):
    adjectives = ["good", "fine", "great", "bad", "poor", "dull"]
    texts = [f"the film {i} was {adjectives[i % 6]} and {adjectives[(i * i) % 6]} as a film can be"
             for i in range(200)]  # fmt: skip
    path = table(tmp_path, text=texts, stars=[i % 5 for i in range(200)], label=LABEL[:2] * 100)
    loaded = read(path, target="label", text="text")
    assert loaded.X is None
    assert loaded.dataset.kind == "texts"
    assert fact(loaded, "not used beside texts") == "stars"
    made = embedded(loaded, tokens=6)
    assert made.X.shape[:2] == (150, 6)
    assert len(made.y) == 150
    assert "50 of the texts" in fact(made, "words")
    assert embedded(made) is made
    with pytest.raises(BadInput, match="give at least 32"):
        embedded(read(table(tmp_path, text=texts[:20], label=LABEL[:20]), text="text"))


# -- sampling --------------------------------------------------------------------------------------


def test_the_reservoir_is_uniform():
    """5 of 20, 4,000 times: each is in with probability 1/4, so counts have mean 1,000 and standard
    deviation √750; twenty of them within five deviations is missed once in 90,000."""
    counts = np.zeros(20)
    for seed in range(4000):
        items, places, length = reservoir(iter(range(20)), 5, seed)
        assert (items, length) == (places, 20)
        counts[places] += 1
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(750)
    assert reservoir(iter("abc"), 5, 0) == (["a", "b", "c"], [0, 1, 2], 3)


def test_ids_are_drawn_whole():
    counts = {str(i): i % 4 + 1 for i in range(40)}
    chosen = choose_ids(counts, 30, seed=0)
    assert 24 <= sum(counts[each] for each in chosen) <= 30
    assert choose_ids(counts, 30, seed=1) != chosen
    with pytest.raises(BadInput, match="'a' has 100; ask for more rows"):
        choose_ids({"a": 100, "b": 1}, 3, 0)


def test_large_files_are_sampled_and_say_so(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    a = np.arange(3000.0) + 0.5
    write(tmp_path / "t.csv", [["a", "b"], *((x, i % 2) for i, x in enumerate(a))])
    pq.write_table(pa.table({"a": a, "b": np.arange(3000) % 2}), tmp_path / "t.parquet",
                   row_group_size=500)  # fmt: skip
    np.savez(tmp_path / "t.npz", a=a, b=np.arange(3000) % 2)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "t.npz"):
        loaded = read(path, rows=100, seed=1)
        kept = loaded.X[:, 0]
        assert (np.diff(kept) > 0).all()  # the order of the file
        assert np.isin(kept, a).all()
        assert kept.std() > 500  # spread over the file: 866 if uniform
        words = "3,000 in the file, 100 of them read: rows at random, seed 1"
        assert fact(loaded, "rows") == words
        assert not np.array_equal(kept, read(path, rows=100, seed=2).X[:, 0])
        np.testing.assert_array_equal(kept, read(path, rows=100, seed=1).X[:, 0])


def test_sequences_are_sampled_whole(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    who, value = np.repeat(np.arange(100), 7), np.arange(700.0) % 11
    write(tmp_path / "t.csv", [["who", "v"], *zip(who, value, strict=True)])
    pq.write_table(pa.table({"who": who, "v": value}), tmp_path / "t.parquet", row_group_size=64)
    np.savez(tmp_path / "t.npz", who=who, v=value)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "t.npz"):
        loaded = read(path, id="who", rows=50)
        assert [len(each) for each in loaded.sequences] == [7] * 7


# -- DataFrames ------------------------------------------------------------------------------------


def test_frames_of_every_kind_of_column():
    pandas = pytest.importorskip("pandas")
    n = range(40)
    frame = pandas.DataFrame({
        "whole": pandas.array([None if i == 3 else i * i % 7 for i in n], dtype="Int64"),
        "plain": [i * i % 11 for i in n],
        "flag": [i % 3 == 0 for i in n],
        "when": pandas.to_datetime([f"1970-01-{i % 20 + 1:02}" for i in n], utc=True),
        "kind": pandas.Categorical(["a" if i % 2 else "b" for i in n]),
        "label": [i * 0.5 % 3 for i in n],
    }, index=[f"row {i}" for i in n])  # fmt: skip
    loaded = read(frame, target="label")
    assert loaded.names == ("whole", "whole is missing", "plain", "flag", "when", "kind = b")
    assert loaded.X[4].tolist() == [2, 0, 5, 0, 4, 1]
    assert loaded.X[3, 1] == 1
    lists = pandas.DataFrame({"list": [[1, 2], [3.5], None] * 4, "label": [0, 1, 1] * 4})
    assert [len(each) for each in read(lists).sequences] == [2, 1] * 4
    with pytest.raises(BadInput, match="has none"):
        read(pandas.DataFrame())
    with pytest.raises(BadInput, match="two are called 'a'"):
        read(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    "given", [5, None, [[1, 2]], np.eye(3)], ids=["int", "none", "list", "array"]
)
def test_only_paths_and_frames_are_read(given: object):
    with pytest.raises(BadInput, match="a path or a DataFrame is read"):
        read(given)
