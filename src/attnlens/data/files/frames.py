"""A pandas DataFrame as a table; pandas is not imported, only the methods of the frame are used."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from attnlens.core import checks

from .columns import Table, check_column, clean_names, texts
from .facts import RowsRead
from .sampling import Request, choose_ids, most_rows


def is_frame(value: Any) -> bool:
    """Whether this is a DataFrame."""
    return hasattr(value, "iloc") and hasattr(value, "columns")


def read_frame(frame: Any, request: Request) -> Table:
    """The table in a pandas DataFrame, or a sample of its rows, without its index."""
    names = clean_names(frame.columns, "the DataFrame")
    total = len(frame)
    if not total or not names:
        raise checks.BadInput(
            f"a DataFrame must have at least one row and one column; got {total} rows and "
            f"{len(names)} columns."
        )
    most, rows = most_rows(request, len(names), "the DataFrame"), np.arange(total)
    if total > most and request.id is not None:
        id_column = frame.iloc[:, names.index(check_column("id", request.id, names))]
        ids = [str(value) for value in id_column.tolist()]
        chosen = choose_ids(Counter(ids), most, request.seed)
        rows = np.flatnonzero([row_id in chosen for row_id in ids])
    elif total > most:
        random = np.random.default_rng(request.seed)
        rows = np.sort(random.choice(total, most, replace=False, shuffle=False))
    sample = frame.iloc[rows]
    columns = {
        name: _values(sample.iloc[:, i], name in request.as_text) for i, name in enumerate(names)
    }
    return Table(columns, rows, total, (RowsRead(len(rows), total, request.seed, request.id),))


def _values(column: Any, as_text: bool) -> np.ndarray:
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf" and not (as_text and kind in "iu"):
        return column.to_numpy(dtype=float, na_value=np.nan)
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        return column.to_numpy(dtype="datetime64[us]")
    values = column.tolist()
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        sequences = np.empty(len(values), object)
        sequences[:] = [_sequence(value) for value in values]
        return sequences
    return texts(None if value is None or value != value else value for value in values)


def _sequence(value: Any) -> np.ndarray:
    if not isinstance(value, list | tuple | np.ndarray):
        return np.empty(0)
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
    if tokens.dtype.kind == "U" and tokens.ndim == 1:
        return tokens
    raise checks.BadInput(
        f"a sequence must hold numbers, strings or vectors; got {tokens.dtype} of shape "
        f"{tokens.shape}."
    )
