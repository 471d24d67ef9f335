"""Convert the numbers and labels that users give to plain NumPy arrays.

`np.asarray` drops the mask of a masked array and the imaginary part of a complex number, reads
dates as counts of nanoseconds, and keeps None and NaN among labels as if they were values. The
functions here raise `BadInput` instead of changing an entry.

>>> numbers("X", [[1, 2], [3, 4]])
array([[1., 2.],
       [3., 4.]])
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from .checks import BadInput
from .labels import is_missing

LARGEST = 1e100
EXACT_INTEGERS = 2**53  # float64 represents all integers up to this size
NUMBERS = "biuf"  # kinds of NumPy types that are real numbers


def plain(name: str, values: Any) -> np.ndarray:
    """`values` as a NumPy array without a mask; also from pandas, polars and pyarrow.

    >>> plain("X", np.ma.masked_array([1.0, 2.0], [False, False]))
    array([1., 2.])
    """
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.getmaskarray(values).any():
            raise BadInput(
                f"{name} must have no masked entries; got {np.ma.count_masked(values)} of "
                f"{values.size}; drop these rows or fill them."
            )
        return values.data
    try:
        if hasattr(values, "to_numpy"):  # pandas, polars, pyarrow
            values = _to_numpy(values)
        array = np.asarray(values)
    # torch raises RuntimeError for tensors that require gradients.
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(
            f"{name} must be an array, or rows of equal length; got a {type(values).__name__} that "
            f"cannot be converted to one; pad or cut ragged rows."
        ) from error
    if array.dtype == object and array.ndim == 0 and not np.isscalar(values):
        raise BadInput(
            f"{name} must be an array; got a {type(values).__name__}; give a dense NumPy array."
        )
    return array


def _to_numpy(values: Any) -> np.ndarray:
    try:
        return values.to_numpy()
    except ValueError:  # an array of pyarrow with missing entries or text, which must be copied
        return values.to_numpy(zero_copy_only=False)


def numbers(name: str, values: Any) -> np.ndarray:
    """`values` as float64; NaN and infinities stay, anything that is not a real number raises."""
    array = plain(name, values)
    if array.dtype.kind in NUMBERS:
        with np.errstate(over="ignore"):  # float128 may overflow to infinity; callers check that
            # Always C order: a sum over another memory order is rounded differently.
            return array.astype(np.float64, order="C")
    if array.dtype == object:
        return _numbers_of_objects(name, array)
    raise BadInput(
        f"{name} must be real numbers; got {_kind(array)}; convert it to floating point first."
    )


def real_numbers(name: str, values: Any) -> np.ndarray:
    """`values` as an array of real numbers that keeps its type.

    An array of objects becomes an array of integers or booleans if its entries allow that, and of
    float64 otherwise.

    >>> [real_numbers("y", np.array(y, object)).dtype.kind for y in ([1, 2], [True], [1, 0.5])]
    ['i', 'b', 'f']
    """
    array = plain(name, values)
    if array.dtype.kind in NUMBERS:
        return array
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    as_float64 = numbers(name, array)
    try:
        typed = np.array(array.tolist())
    except ValueError:  # NumPy takes some of the objects for sequences
        return as_float64
    return typed if typed.dtype.kind in "biu" and typed.shape == array.shape else as_float64


def finite_numbers(name: str, values: Any) -> np.ndarray:
    """`values` as float64; NaN and infinities raise `BadInput`."""
    array = numbers(name, values)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise BadInput(
            f"{name} must be finite; got {array[where]} at index {where}; drop or impute it."
        )
    return array


def moderate(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` if squares of its numbers, and of the range of each column, fit into float64.

    Otherwise raise `BadInput`. The last axis holds columns; a vector is one column. Without this
    check a variance could be infinite or zero, and a division by it would give wrong numbers.

    >>> moderate("y", np.array([1e-90, 2e-90])).tolist()
    [1e-90, 2e-90]
    """
    if not array.size:
        return array
    columns = array.reshape(-1, 1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])
    largest = float(np.abs(columns).max(initial=0))
    spread = np.ptp(columns, axis=0)
    smallest = float(spread[spread > 0].min(initial=np.inf))
    if largest > LARGEST or smallest < 1 / LARGEST:
        values = (
            f"{largest:.3g}" if largest > LARGEST else f"a column that varies by {smallest:.3g}"
        )
        raise BadInput(
            f"{name} must be numbers between 1e-100 and 1e100 in size, so that variances fit into "
            f"float64; got {values}; change its unit."
        )
    return array


def labels(name: str, values: Any) -> np.ndarray:
    """`values` as an array of labels: numbers, booleans or text; a missing label raises `BadInput`.

    >>> labels("y", np.array(["a", "b"], object))
    array(['a', 'b'], dtype='<U1')
    """
    array = plain(name, values)
    if isinstance(values, list | tuple) and array.ndim == 1:
        # NumPy writes NaN and numbers among strings as text: "nan" would become a class. It rounds
        # large integers among other numbers: two classes would become one.
        large = array.dtype.kind == "f" and (np.abs(array) >= EXACT_INTEGERS).any()
        array = np.fromiter(values, object) if array.dtype.kind in "US" or large else array
    if array.dtype.kind in "fc":
        missing = ~np.isfinite(array)
    elif array.dtype.kind in "mM":
        missing = np.isnat(array)
    elif array.dtype == object:
        missing = np.array([is_missing(entry) for entry in array.flat], bool).reshape(array.shape)
    else:
        missing = np.zeros(array.shape, bool)
    if missing.any():
        where = tuple(int(i) for i in np.argwhere(missing)[0])
        if array.dtype.kind in "fc":
            raise BadInput(
                f"{name} must be finite; got NaN or infinity in row {where[0]}; drop rows without "
                f"a label."
            )
        raise BadInput(
            f"{name} must hold a label in every row; got {array[where]!r} in row {where[0]}; drop "
            f"rows without a label."
        )
    if array.dtype == object:
        return _labels_of_objects(name, array)
    if array.dtype.kind in "cV":
        raise BadInput(f"{name} must be numbers, booleans or text; got {_kind(array)}.")
    return array


def _numbers_of_objects(name: str, array: np.ndarray) -> np.ndarray:
    result = np.empty(array.shape, np.float64)
    for where, entry in np.ndenumerate(array):
        if is_missing(entry):
            result[where] = np.nan
            continue
        if isinstance(entry, (str, bytes, complex, np.complexfloating)):
            entry = None  # makes float() raise, which would read the text "1" as a number
        try:
            result[where] = float(entry)  # pyright: ignore[reportArgumentType] (None raises TypeError on purpose)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(
                f"{name} must be real numbers; got {array[where]!r:.40} at index {where}; encode "
                f"text as numbers, and give rows of equal length."
            ) from error
    return result


def _labels_of_objects(name: str, array: np.ndarray) -> np.ndarray:
    """An array of objects as text or as numbers; a mixture of both raises.

    Text and numbers together have no order and no common type.
    """
    kinds = {"text" if isinstance(entry, (str, bytes)) else "numbers" for entry in array.flat}
    if len(kinds) > 1:
        raise BadInput(
            f"{name} must be all text or all numbers; got both, such as {array.flat[0]!r:.40}; "
            f"convert all labels to text."
        )
    if kinds == {"numbers"}:
        typed = np.array(array.tolist())
        if typed.dtype == object or typed.shape != array.shape or typed.dtype.kind not in NUMBERS:
            raise BadInput(
                f"{name} must be numbers, booleans or text; got objects of type "
                f"{type(array.flat[0]).__name__}; convert them to text."
            )
        pairs = zip(array.flat, typed.ravel().tolist(), strict=True)
        if any(isinstance(entry, Integral) and int(entry) != number for entry, number in pairs):
            raise BadInput(
                f"{name} must be numbers of one type; got integers that {typed.dtype} would round; "
                f"convert all labels to text."
            )
        return labels(name, typed)
    return array.astype(str)


def _kind(array: np.ndarray) -> str:
    return {
        "c": "complex numbers",
        "M": "dates",
        "m": "durations",
        "U": "text",
        "S": "text",
    }.get(array.dtype.kind, f"the type {array.dtype}")
