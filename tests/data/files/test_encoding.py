"""The column encoder, which is fitted on some rows and applied to others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attnlens.data import ColumnEncoder
from attnlens.data.files.columns import TypedColumn, texts, typed_column


def test_the_encoder_learns_only_from_the_rows_it_is_fitted_on():
    train = {
        "c": TypedColumn("category", texts(["a"] * 50 + ["b"] * 49 + ["z"])),
        "n": TypedColumn("number", np.array([1.0, 3.0] * 50)),
    }
    test = {
        "c": TypedColumn("category", texts(["a", "new", ""])),
        "n": TypedColumn("number", np.array([np.nan, 5.0, 1.0])),
    }
    encoder = ColumnEncoder.fit(train)
    assert encoder.names == ("c = a", "c = b", "c = (other)", "n")
    # An unknown or missing category counts as other; a missing number becomes the median, 2.
    expected = [[1, 0, 0, 2], [0, 0, 1, 5], [0, 0, 1, 1]]
    np.testing.assert_array_equal(encoder.apply(test), expected)


def test_two_categories_share_one_column_and_an_unknown_one_is_one_half():
    encoder = ColumnEncoder.fit({"c": TypedColumn("category", texts(["no", "yes"] * 5))})
    assert encoder.names == ("c = yes",)
    values = encoder.apply({"c": TypedColumn("category", texts(["yes", "no", "maybe"]))})
    assert values[:, 0].tolist() == [1, 0, 0.5]


CELLS = st.one_of(st.none(), st.sampled_from(["a", "b", "c d e f", "1", "2.5", "-3e4", "x" * 9]))


@given(fitted=st.lists(CELLS, min_size=1, max_size=60), other=st.lists(CELLS, min_size=1))
def test_a_fitted_encoder_applies_to_any_column_of_the_same_kind(fitted: list, other: list):
    column = typed_column("c", texts(fitted))
    if column.kind not in ("number", "category", "date"):
        return
    encoder = ColumnEncoder.fit({"c": column})
    values = texts(other) if column.kind == "category" else np.full(len(other), np.nan)
    encoded = encoder.apply({"c": TypedColumn(column.kind, values)})
    assert encoded.shape == (len(other), len(encoder.names))
    assert np.isfinite(encoded).all()
