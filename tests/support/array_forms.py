"""One table of numbers in every array type that a user may pass, and tables that do not hold
numbers.

The `EXACT` forms represent a table of small whole numbers exactly, so a function must return the
same as for float64. The `UNUSABLE` forms also hold something that is not a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Form = Callable[[np.ndarray], Any]


def read_only(table: np.ndarray) -> np.ndarray:
    table = table.copy()
    table.setflags(write=False)
    return table


def strided(table: np.ndarray) -> np.ndarray:
    """A view with negative strides on every second row and column of a larger table, equal to
    `table`."""
    wide = np.full((2 * table.shape[0], 2 * table.shape[1]), np.nan)
    wide[::2, ::2] = table[::-1, ::-1]
    return wide[::2, ::2][::-1, ::-1]


def frame(dtype: str) -> Form:
    def convert(table: np.ndarray) -> Any:
        import pandas

        return pandas.DataFrame(table, columns=[f"c{i}" for i in range(table.shape[1])]).astype(
            dtype
        )

    return convert


def with_entry(entry: Any, dtype: Any = object) -> Form:
    def convert(table: np.ndarray) -> np.ndarray:
        changed = table.astype(dtype)
        changed[1, 0] = entry
        return changed

    return convert


def frame_with_missing(table: np.ndarray) -> Any:
    import pandas

    missing = frame("Int64")(table)
    missing.iloc[1, 0] = pandas.NA
    return missing


def masked(table: np.ndarray) -> np.ma.MaskedArray:
    hidden = np.zeros(table.shape, bool)
    hidden[1, 0] = True
    return np.ma.masked_array(table, hidden)


FLOATS: dict[str, Form] = {
    "float32": lambda table: table.astype(np.float32),
    "float16": lambda table: table.astype(np.float16),
    "float128": lambda table: table.astype(np.longdouble),
    "big-endian": lambda table: table.astype(">f8"),
    "read-only": read_only,
    "strided": strided,
    "column-major": np.asfortranarray,
    "lists": np.ndarray.tolist,
    "nothing masked": lambda table: np.ma.masked_array(table, np.zeros(table.shape, bool)),
    "objects": lambda table: table.astype(object),
    "pandas float64": frame("float64"),
    "pandas Float32": frame("Float32"),
}
WHOLE: dict[str, Form] = {
    "int8": lambda table: table.astype(np.int8),
    "int16": lambda table: table.astype(np.int16),
    "int64": lambda table: table.astype(np.int64),
    "pandas Int16": frame("Int16"),
}
EXACT = FLOATS | WHOLE
# Forms of a table of zeros and ones.
BITS: dict[str, Form] = {
    "bool": lambda table: table.astype(bool),
    "uint8": lambda table: table.astype(np.uint8),
    "uint64": lambda table: table.astype(np.uint64),
    "pandas boolean": frame("boolean"),
    "pandas UInt8": frame("UInt8"),
    "Python bools": lambda table: table.astype(bool).tolist(),
}
UNUSABLE: dict[str, Form] = {
    "NaN": with_entry(np.nan, float),
    "infinity": with_entry(np.inf, float),
    "None": with_entry(None),
    "text": lambda table: table.astype(str),
    "one text": with_entry("1"),
    "complex": lambda table: table + 1j,
    "dates": lambda table: table.astype("datetime64[s]"),
    "masked": masked,
    "pandas NA": frame_with_missing,
    "no rows": lambda table: table[:0],
    "no columns": lambda table: table[:, :0],
    "ragged": lambda table: [row[: 1 + i % 2].tolist() for i, row in enumerate(table)],
}
