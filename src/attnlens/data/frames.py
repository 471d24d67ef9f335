"""A DataFrame as a table; pandas is not imported, its frames are asked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from attnlens import checks

from .columns import Table, clean_names, known, texts
from .sampling import Request, choose_ids, most_rows, said


def is_frame(given: Any) -> bool:
    """Whether this is a DataFrame rather than a path."""
    return hasattr(given, "iloc") and hasattr(given, "columns")


def read_frame(frame: Any, request: Request) -> Table:
    """The table in a pandas DataFrame, or a sample of it; its index is left out."""
    names = clean_names(frame.columns, "the DataFrame")
    total = len(frame)
    if not total or not names:
        raise checks.BadInput("a DataFrame must have a row and a column, but this one has none.")
    most, rows = most_rows(request, len(names), "the DataFrame"), np.arange(total)
    if total > most and request.id is not None:
        own = frame.iloc[:, names.index(known("id", request.id, names))]
        ids = [str(each) for each in own.tolist()]
        chosen = choose_ids(Counter(ids), most, request.seed)
        rows = np.flatnonzero([each in chosen for each in ids])
    elif total > most:
        random = np.random.default_rng(request.seed)
        rows = np.sort(random.choice(total, most, replace=False, shuffle=False))
    taken = frame.iloc[rows]
    columns = {
        name: _values(taken.iloc[:, i], name in request.as_text) for i, name in enumerate(names)
    }
    return Table(columns, rows, total, (said(len(rows), total, request.seed),))


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
        found = np.empty(len(values), object)
        found[:] = [_sequence(value) for value in values]
        return found
    return texts(None if value is None or value != value else value for value in values)


def _sequence(value: Any) -> np.ndarray:
    if not isinstance(value, list | tuple | np.ndarray):
        return np.empty(0)
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise checks.BadInput(
            "every token of a sequence must have the same number of entries, but some differ."
        ) from error
    if found.dtype.kind in "biuf" and found.ndim in (1, 2):
        found = found.astype(float)
        return found[np.isfinite(found.reshape(len(found), -1)).all(1)]
    if found.dtype.kind == "U" and found.ndim == 1:
        return found
    raise checks.BadInput(
        f"a sequence must hold numbers, strings or vectors, but {found.dtype} of shape "
        f"{found.shape} came."
    )
