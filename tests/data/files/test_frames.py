"""DataFrames with every kind of column."""

from __future__ import annotations

from typing import Any

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
