"""Arrays that users give: every entry is read exactly, or one sentence says why it cannot be
read."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core import arrays
from attnlens.core.checks import BadInput

VALUES = [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2, 3],
        np.arange(4, dtype=np.int8),
        np.arange(4, dtype=np.float16),
        np.arange(4, dtype=np.longdouble),
        np.arange(8.0)[::2] / 2,
        np.array([0, 1, 2, 3], object),
        np.array([0.0, np.float32(1), 2, np.int8(3)], object),
        np.ma.masked_array(VALUES, [False] * 4),
        np.ma.masked_array(VALUES),
    ],
)
def test_numbers_are_read_exactly(values):
    array = arrays.numbers("X", values)
    assert array.dtype == np.float64
    assert type(array) is np.ndarray
    assert array.tolist() == VALUES


@pytest.mark.parametrize("dtype", ["Int64", "Int8", "UInt16", "Float32", "Float64", "float64"])
def test_pandas_extension_arrays_are_read_exactly(dtype: str):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    column = pandas.Series([0, 1, 2, 3], dtype=dtype)
    assert arrays.numbers("X", column).tolist() == VALUES
    column[1] = pandas.NA
    assert np.isnan(arrays.numbers("X", column)[1])
    with pytest.raises(BadInput, match="finite"):
        arrays.finite_numbers("X", column)
    with pytest.raises(BadInput, match="without a label"):
        arrays.labels("y", column)


@pytest.mark.parametrize(
    "values",
    [
        np.ma.masked_array(VALUES, [True, False, False, False]),
        np.array([1 + 1j, 2]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1], "timedelta64[s]"),
        ["1", "2"],
        np.array(["1", 2], object),
        np.array([1j, 2], object),
        np.array([10**400], object),
        [[1.0, 2.0], [3.0]],
        np.array([[1.0, 2.0], [3.0]], object),
        {1.0, 2.0},
    ],
)
def test_what_is_not_a_real_number_raises(values):
    with pytest.raises(BadInput):
        arrays.numbers("X", values)


def test_sparse_matrices_raise():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(BadInput, match="dense"):
        arrays.numbers("X", sparse.eye_array(3).tocsr())


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan")])
def test_a_missing_label_is_no_class(missing: object):
    with pytest.raises(BadInput, match="in row 2; drop"):
        arrays.labels("y", np.array(["a", "b", missing, "a"], object))
    with pytest.raises(BadInput, match="without a label"):
        arrays.labels("y", np.array([1, 2, missing, 1], object))


@pytest.mark.parametrize("values", [["a", float("nan")], ("a", 1), [b"a", np.nan]], ids=str)
def test_what_is_not_text_in_a_list_of_text_is_no_class(values: object):
    """`numpy.asarray` writes all entries of such a list as text."""
    with pytest.raises(BadInput):
        arrays.labels("y", values)


@pytest.mark.parametrize("other", [0.5, -1])
def test_large_integers_among_other_numbers_do_not_become_one_class(other: float):
    labels = [2**63, 2**63 + 1, other]
    for form in (list, tuple, lambda values: np.array(values, object)):
        with pytest.raises(BadInput, match="would round"):
            arrays.labels("y", form(labels))
    assert arrays.labels("y", [2**60, 2**60 + 1, -1]).tolist() == [2**60, 2**60 + 1, -1]


def test_arrays_of_pyarrow_are_read_with_their_missing_entries():
    pyarrow = pytest.importorskip("pyarrow")
    np.testing.assert_array_equal(
        arrays.numbers("X", pyarrow.array([1, None, 3])), [1.0, np.nan, 3.0]
    )
    assert arrays.labels("y", pyarrow.array(["a", "b"])).tolist() == ["a", "b"]
    with pytest.raises(BadInput, match="in row 1"):
        arrays.labels("y", pyarrow.array(["a", None]))


def test_labels_keep_their_kind():
    assert arrays.labels("y", np.array([True, False], object)).dtype == bool
    assert arrays.labels("y", np.array([1, 2], object)).dtype.kind == "i"
    assert arrays.labels("y", np.array(["a", "b"], object)).tolist() == ["a", "b"]
    with pytest.raises(BadInput, match="all text or all numbers"):
        arrays.labels("y", np.array([1, "1"], object))
