"""DataFrames as tables.

A pandas frame is read with its own methods, so that pandas is never imported here. Frames of
polars, pyarrow, modin and other libraries are read through narwhals.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.core.labels import is_missing

from .columns import Table, check_column, clean_names, name_list, texts
from .facts import Fact, Remark
from .sampling import Request, most_rows, sample_rows


def is_frame(value: Any) -> bool:
    """Whether this is a DataFrame, of pandas or of another library that narwhals knows."""
    if isinstance(value, str | os.PathLike):
        return False
    return _is_pandas(value) or _is_other_frame(value)


def _is_pandas(value: Any) -> bool:
    return hasattr(value, "iloc") and hasattr(value, "columns")


def _is_other_frame(value: Any) -> bool:
    from narwhals.dependencies import is_into_dataframe

    return is_into_dataframe(value)


def read_frame(frame: Any, request: Request) -> Table:
    """The table in a DataFrame, or a sample of its rows, without its index."""
    if not _is_pandas(frame):
        import narwhals

        frame = narwhals.from_native(frame, eager_only=True)
    names = clean_names(frame.columns, "the DataFrame")
    total = len(frame)
    if not total or not names:
        raise checks.BadInput(
            f"a DataFrame must have at least one row and one column; got {total} rows and "
            f"{len(names)} columns."
        )
    ids = None
    if request.id is not None:
        id_column = _column(frame, names.index(check_column("id", request.id, names)))
        ids = [str(value) for value in id_column.to_list()]
    rows, fact = sample_rows(total, ids, most_rows(request, len(names), "the DataFrame"), request)
    sample = frame.iloc[rows] if _is_pandas(frame) else frame[rows]
    values = _pandas_values if _is_pandas(frame) else _other_values
    columns = {
        name: values(_column(sample, i), name in request.as_text) for i, name in enumerate(names)
    }
    read = {name: column for name, column in columns.items() if column is not None}
    facts: list[Fact] = [fact]
    if unread := tuple(name for name in columns if name not in read):
        words = f"{name_list(unread)}: structures, durations or bytes are not read"
        facts.append(Remark("left out", words))
    return Table(read, rows, total, tuple(facts), unread)


def _column(frame: Any, number: int) -> Any:
    return frame.iloc[:, number] if _is_pandas(frame) else frame[frame.columns[number]]


def _pandas_values(column: Any, as_text: bool) -> np.ndarray:
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf" and not (as_text and kind in "iu"):
        return column.to_numpy(dtype=float, na_value=np.nan)
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        exact = column.to_numpy()
        return exact if exact.dtype.kind == "M" else column.to_numpy(dtype="datetime64[us]")
    return _object_values(column.to_list())


def _other_values(column: Any, as_text: bool) -> np.ndarray | None:
    """The values of a narwhals series; None if its type cannot be read."""
    import narwhals

    kind = column.dtype
    if kind.is_integer() and as_text:
        return texts(column.to_list())
    if kind.is_numeric() or kind == narwhals.Boolean:
        return np.array(column.cast(narwhals.Float64).to_numpy(), float)
    if kind == narwhals.Datetime or kind == narwhals.Date:
        exact = np.asarray(column.to_numpy())
        return texts(exact.astype(str).tolist()) if as_text else exact
    strings = (narwhals.String, narwhals.Categorical, narwhals.Enum, narwhals.Object)
    if (kind.is_nested() and kind != narwhals.Struct) or any(kind == string for string in strings):
        return _object_values(column.to_list())
    return texts(column.to_list()) if kind == narwhals.Unknown else None


def _object_values(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        sequences = np.empty(len(values), object)
        sequences[:] = [_sequence(value) for value in values]
        return sequences
    return texts(None if is_missing(value) else value for value in values)


def _sequence(value: Any) -> np.ndarray:
    if not isinstance(value, list | tuple | np.ndarray) or not len(value):
        return np.empty(0)
    if all(isinstance(token, str) for token in value):
        # Not a NumPy string array, in which one long token would widen every entry.
        return np.array([*value], object)
    try:
        tokens = np.asarray(value)
    except ValueError as error:
        raise checks.BadInput(
            "every token of a sequence must have the same number of entries; got tokens of "
            "different sizes; give lists of one length."
        ) from error
    if tokens.dtype.kind in "biuf" and tokens.ndim in (1, 2):
        tokens = tokens.astype(float)
        return tokens[np.isfinite(tokens.reshape(len(tokens), -1)).all(1)]
    raise checks.BadInput(
        f"a sequence must hold numbers, strings or vectors; got {tokens.dtype} of shape "
        f"{tokens.shape}."
    )
