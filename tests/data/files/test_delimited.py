"""Separators, decimal marks and dates of CSV files from different countries and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.data.files.decimals import NumberFormat, is_number, plain, with_points
from attnlens.data.files.facts import TextFormat
from attnlens.data.files.separators import NO_SEPARATOR, SEPARATORS, find_separator

read: Any = data.read  # typed as Any: X is not None in these tests


def written(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def text_format(loaded: Any) -> TextFormat:
    (fact,) = (fact for fact in loaded.records if isinstance(fact, TextFormat))
    return fact


def test_a_european_table_is_not_split_at_its_decimal_commas(tmp_path: Path):
    """Comma and semicolon both split every line into equally many fields; only the semicolon gives
    numbers."""
    path = written(tmp_path, "Preis, EUR;Menge, Stk\n10,38;9,60\n11,50;8,25\n7,00;3,10\n")
    loaded = read(path)
    assert loaded.names == ("Preis, EUR", "Menge, Stk")
    np.testing.assert_array_equal(loaded.X, [[10.38, 9.6], [11.5, 8.25], [7.0, 3.1]])
    fact = text_format(loaded)
    assert (fact.separator, fact.numbers.commas) == (";", ("Preis, EUR", "Menge, Stk"))


def test_a_european_table_without_a_header_keeps_its_first_row(tmp_path: Path):
    loaded = read(written(tmp_path, "10,38;9,60\n11,50;8,25\n7,00;3,10\n"))
    assert loaded.X.shape == (3, 2)
    assert loaded.X[0].tolist() == [10.38, 9.6]


def test_grouped_digits_follow_the_decimal_mark_of_the_file(tmp_path: Path):
    """1.234 is read as 1234 in a file with decimal commas, and as 1.234 in a file with decimal
    points."""
    german = read(written(tmp_path, "a;b\n1.234,5;1.234\n0,5;2.345\n7,25;9.876\n"))
    np.testing.assert_array_equal(german.X, [[1234.5, 1234], [0.5, 2345], [7.25, 9876]])
    assert text_format(german).numbers == NumberFormat(("a",), ("a", "b"))
    plain_points = read(written(tmp_path, "a;b\n1.5;1.234\n0.5;2.345\n7.25;9.876\n"))
    np.testing.assert_array_equal(plain_points.X[:, 1], [1.234, 2.345, 9.876])
    english = read(written(tmp_path, 'a,b\n"1,234.5","1,234"\n0.5,17\n2.5,"1,000,000"\n'))
    np.testing.assert_array_equal(english.X, [[1234.5, 1234], [0.5, 17], [2.5, 1e6]])


def test_numbers_that_can_be_read_in_two_ways_beside_both_marks_are_refused(tmp_path: Path):
    path = written(tmp_path, "a;b;c\n1,5;2.5;1.234\n2,5;3.5;2.345\n")
    with pytest.raises(BadInput, match=r"'1\.234' can be read in two"):
        read(path)
    assert read(path, types={"c": "category"}).names[:2] == ("a", "b")


def test_a_decimal_mark_that_nothing_decides_is_reported(tmp_path: Path):
    """1.234 in a German table may be 1234: the facts say which decimal mark was assumed."""
    path = written(tmp_path, "a;b\n1.234;1\n2.345;2\n3.456;0\n")
    loaded = read(path)
    assert text_format(loaded).numbers == NumberFormat(assumed=("a",), assumed_mark=".")
    assert "decimal point assumed (--decimal) in a" in dict(loaded.facts)["text format"]
    commas = text_format(read(written(tmp_path, "a\n1,500\n2,500\n3,250\n")))
    assert commas.numbers.assumed_mark == ","
    for sure in ("a;b\n1.234;1,5\n2.345;2\n", "a,b\n1.234,1\n2.345,2\n", "a;b\n1.2;1\n1.234;2\n"):
        assert text_format(read(written(tmp_path, sure))).numbers.assumed == ()
    assert text_format(read(path, decimal=".")).numbers.assumed == ()


@pytest.mark.parametrize("rows", ["Smith, J;1,5\nDoe, K;2,25\n", "Li, J;7\nDoe, K;9\n"])
def test_commas_in_the_texts_of_a_european_table_separate_nothing(rows: str, tmp_path: Path):
    """Every line has as many commas as semicolons, or more."""
    header = "Name, Vorname;Wert, EUR\n" if "," in rows.split(";")[1] else "Name, Vorname;Wert\n"
    loaded = read(written(tmp_path, header + 3 * rows))
    assert loaded.names[-1] == header.strip().split(";")[1]
    expected = [float(line.split(";")[1].replace(",", ".")) for line in rows.splitlines()]
    assert loaded.X[:2, -1].tolist() == expected


def test_the_user_is_asked_where_two_separators_fit_equally_badly(tmp_path: Path):
    path = written(tmp_path, "Last,First;Price,EUR\n" + 3 * "Smith,J;1,5\nDoe,K;2,5\n")
    with pytest.raises(BadInput, match=r", and ;, each equally often in every line"):
        read(path)
    np.testing.assert_array_equal(read(path, separator=";").X[:2, -1], [1.5, 2.5])


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;\r"])
def test_a_first_line_that_names_the_separator_is_no_row(first: str, tmp_path: Path):
    """Spreadsheets write "sep=;" as the first line."""
    path = written(tmp_path, f"{first}\na;b\n1,5;x, y\n2,5;z, y\n4,5;x, y\n0,5;z, y\n")
    for options in ({}, {"separator": ";"}):
        loaded = read(path, **options)
        assert loaded.names[0] == "a"
        assert loaded.X[:, 0].tolist() == [1.5, 2.5, 4.5, 0.5]


def test_separator_and_decimal_mark_can_be_given(tmp_path: Path):
    path = written(tmp_path, "a b,5\n1 2,5\n3 4,75\n")
    loaded = read(path, separator="space", decimal=",")
    np.testing.assert_array_equal(loaded.X, [[1, 2.5], [3, 4.75]])
    assert text_format(loaded).separator_given
    assert text_format(loaded).decimal_given == ","
    given_point = read(written(tmp_path, "a;b\n1.234;1\n2.345;0\n"), decimal="comma")
    assert given_point.X[:, 0].tolist() == [1234, 2345]
    for options in ({"separator": "ab"}, {"separator": '"'}, {"separator": "x"}, {"decimal": ";"}):
        with pytest.raises(BadInput):
            read(path, **options)
    np.save(tmp_path / "t.npy", np.eye(3))
    with pytest.raises(BadInput, match="belong to CSV files"):
        read(tmp_path / "t.npy", separator=";")


def test_a_column_of_given_type_keeps_its_decimal_commas(tmp_path: Path):
    path = written(tmp_path, "a;b\n1,5;1\n2,5;2\nbroken;0\n3,5;1\n4,5;2\n")
    loaded = read(path, types={"a": "number"})
    np.testing.assert_array_equal(loaded.X[:, 0], [1.5, 2.5, 3.0, 3.5, 4.5])  # 3.0: median


@pytest.mark.parametrize(
    ("lines", "separator"),
    [
        (["a,b", "1,2"], ","),
        (["a\tb", "1,5\t2"], "\t"),
        (["x", "1,5", "2,5"], NO_SEPARATOR),
        (["x", "1", "2"], NO_SEPARATOR),
        (["id,note", '1,"a; b"', '2,"c; d"'], ","),
        (['1,"a; b"', '2,"c; d"'], ","),
        (["name|when", "Smith, J|1.1.2020", "Doe, J|2.1.2020"], "|"),
        (['1,"a;b"', '2,"c;d"'], ","),
        (["Last,First\tPrice", "Smith,J\t1,5"], "\t"),
        (["a,b", "1,2,3"], ","),  # the reader reports the line with 3 fields
        ([], NO_SEPARATOR),
    ],
)
def test_separators(lines: list[str], separator: str):
    assert find_separator(f"{line}\n" for line in lines) == separator


fields = st.one_of(
    st.text("abcxyz ", max_size=8),
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-1000, 1000, places=2).map(lambda x: str(x).replace(".", ",")),
)


@given(
    st.sampled_from(";\t|"),
    st.integers(2, 5).flatmap(
        lambda width: st.lists(st.lists(fields, min_size=width, max_size=width), min_size=2)
    ),
)
def test_the_separator_of_a_european_table_is_recognised(separator: str, rows: list[list[str]]):
    width = len(rows[0])
    header = separator.join(f"column {i}" for i in range(width))
    lines = [header, *(separator.join(row) for row in rows)]
    assert find_separator(line + "\n" for line in lines) == separator


@given(st.decimals(-(10**9), 10**9, places=2), st.sampled_from(".,"))
def test_numbers_are_read_as_they_were_written(number: Any, mark: str):
    grouped = f"{number:,.2f}".translate(
        str.maketrans({",": {".": ",", ",": "."}[mark], ".": mark})
    )
    assert float(plain(grouped, mark) or "nan") == float(number)
    assert is_number(grouped)
    assert not any(separator in "; \t|" and is_number(separator) for separator in SEPARATORS)


def test_columns_without_numbers_are_left_alone():
    columns = {"a": np.array(["x.y", None, "1,5"], object)}
    result, how = with_points(columns, None, ";")
    assert result["a"].tolist() == ["x.y", None, "1,5"]
    assert how == NumberFormat()


@pytest.mark.parametrize(
    ("when", "days"),
    [
        (["8/1/2015 01:19:15", "8/13/2015 00:00:00"], [16648 + 4755 / 86400, 16660]),
        (["8/1/2015 1:19", "8/13/2015 0:00"], [16648 + 79 / 1440, 16660]),
        (["8/1/2015 1:19:15 PM", "8/13/2015 12:00:00 AM"], [16648 + 47955 / 86400, 16660]),
        (["13.08.2015 06:00", "01.08.2015 12:00"], [16660.25, 16648.5]),
        (["13-08-2015", "01-08-2015"], [16660, 16648]),
    ],
)
def test_dates_with_times_are_dates_and_no_identifiers(when: list, days: list, tmp_path: Path):
    path = written(tmp_path, "when,b\n" + "".join(f"{w},{i}\n" for i, w in enumerate(when * 2)))
    for types in ({}, {"when": "date"}):
        np.testing.assert_allclose(read(path, types=types).X[:2, 0], days, rtol=1e-15)


def test_dates_that_fit_two_formats_are_said_to(tmp_path: Path):
    path = written(tmp_path, "when,b\n1/2/2015,1\n3/4/2015,0\n")
    assert "although day/month/year fits too" in dict(read(path).facts)["dates"]


def test_dates_of_any_year_are_right_in_every_format(tmp_path: Path):
    """Includes dates beyond the range of microseconds in 64 bits, which ends 292,000 years from
    1970."""
    seconds = np.array([9_000_000 * 86_400 * 365, 0, -(10**15)])
    np.savez(tmp_path / "t.npz", when=seconds.astype("datetime64[s]"), b=[1, 2, 1])
    assert read(tmp_path / "t.npz").X[:, 0].tolist() == (seconds / 86_400).tolist()
    np.savez(tmp_path / "y.npz", when=np.array([398_030, 0], "datetime64[Y]"), b=[1, 2])
    assert read(tmp_path / "y.npz").X[0, 0] == (398_030 // 400) * 146_097 + 30 * 365 + 7
    # 400 Gregorian years have 146,097 days; 1970 to 2000 has 7 leap days.
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"when": seconds.astype("datetime64[s]"), "b": [1, 2, 1]})
    assert read(frame).X[:, 0].tolist() == (seconds / 86_400).tolist()
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {
        "when": pa.array(seconds, pa.timestamp("s")),
        "day": pa.array([2**31 - 1, 0, 5], pa.date32()),
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    loaded = read(tmp_path / "t.parquet")
    assert loaded.X[:, 1].tolist() == [2**31 - 1, 0, 5]
    assert loaded.X[:, 0].tolist() == (seconds / 86_400).tolist()
