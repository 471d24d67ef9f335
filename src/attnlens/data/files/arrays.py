"""NPY and NPZ files: arrays of numbers, dates or strings. Nothing is unpickled.

A header is not trusted: before an array is allocated, the shape that the header declares is
compared with the number of bytes that follow the header. An NPY file is memory-mapped and not read
as a whole. An NPZ file is unpacked if its content fits into half of the memory limit.
"""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from attnlens.core import checks

from .columns import Table, clean_names, texts
from .sampling import MOST_COLUMNS, Request, sample_rows

BYTES_PER_NUMBER = 16  # 8 for a number as float64, and 8 for its copy in the inputs
# Exceptions that a damaged archive can raise in zipfile and its decompressors.
UNPACKING_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)
LONGEST_HEADER = 10_000  # bytes; NumPy's own limit for headers that are not trusted


def read_npy(path: Path, request: Request) -> Table:
    """The table in an NPY file (n, p): p columns; of a structured array, one column per field."""
    return _table({"values": open_npy(path)}, path, request)


def open_npy(path: Path) -> Any:
    """The array of an NPY file, on disk, if the file has the size that its header declares."""
    with path.open("rb") as file:
        shape, order, dtype = _header(file, path, path.stat().st_size)
        offset = file.tell()
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape, "F" if order else "C")


def read_npz(path: Path, request: Request) -> Table:
    """The table in an NPZ file: one column per array (n,), p columns per array (n, p)."""
    try:
        with zipfile.ZipFile(path) as packed:
            return _table(_unpacked(packed, path, request.memory // 2), path, request)
    except checks.BadInput:
        raise
    except UNPACKING_ERRORS as error:
        raise checks.BadInput(
            f"{path} must be a complete NPZ file, but it cannot be unpacked ({_first_line(error)});"
            f" save it again."
        ) from error


def _unpacked(packed: zipfile.ZipFile, path: Path, most: int) -> dict[str, np.ndarray]:
    members = packed.infolist()
    if any(member.filename == "[Content_Types].xml" for member in members):
        raise checks.BadInput(
            f"{path} must be an NPZ file; got a document or workbook; save the table as CSV."
        )
    if not members or not all(member.filename.endswith(".npy") for member in members):
        raise checks.BadInput(
            f"{path} must be an NPZ file, which holds arrays only, but it contains no array or "
            f"other files; write it with numpy.savez."
        )
    _check_count(len(members), path)
    if (size := sum(member.file_size for member in members)) > most:
        raise checks.BadInput(
            f"{path} must unpack to at most {most:,} bytes; got {size:,}; save a part of it, save "
            f"it as Parquet, which is sampled, or give a larger memory limit."
        )
    names = clean_names((member.filename.removesuffix(".npy") for member in members), path)
    arrays = {}
    for name, member in zip(names, members, strict=True):
        with packed.open(member) as file:
            where = f"{path}, array {name!r},"
            shape, order, dtype = _header(file, where, member.file_size)
            # One more byte than declared shows that the archive declares too small a size.
            content = file.read(member.file_size + 1)
        if len(content) != math.prod(shape) * dtype.itemsize:
            raise checks.BadInput(
                f"{where} must hold {math.prod(shape) * dtype.itemsize:,} bytes of numbers; got "
                f"{len(content):,}; save it again."
            )
        array = np.frombuffer(content, dtype)
        arrays[name] = array.reshape(shape, order="F" if order else "C")
    return arrays


def _header(file: IO[bytes], where: object, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape, whether the order is Fortran's, and the dtype that an NPY header declares.

    `size` is the number of bytes of the file. If the number of bytes after the header differs from
    the number that it declares, `BadInput` is raised.
    """
    start = file.read(LONGEST_HEADER + 12)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        head = io.BytesIO(start)
        version = np.lib.format.read_magic(head)
        if version not in readers:
            raise checks.BadInput(
                f"{where} must have an NPY header of version 1 or 2; got version {version}; save "
                f"it again with numpy.save."
            )
        shape, order, dtype = readers[version](head, LONGEST_HEADER)
    except checks.BadInput:
        raise
    except Exception as error:  # NumPy's parser can raise anything on a damaged header
        raise checks.BadInput(
            f"{where} must begin with an NPY header, but it is damaged; save it again."
        ) from error
    if dtype.hasobject:
        raise checks.BadInput(
            f"{where} must hold numbers or strings; got Python objects, which are not read because "
            f"unpickling them could run any code; save numbers or strings."
        )
    if not dtype.itemsize:
        raise checks.BadInput(
            f"{where} must have entries of at least one byte; got entries of 0 bytes; save it "
            f"again."
        )
    shape = tuple(int(n) for n in shape)  # a header may also hold True
    declared = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or declared != size - head.tell():
        raise checks.BadInput(
            f"{where} declares {declared:,} bytes of numbers, but {size - head.tell():,} follow "
            f"its header; save it again."
        )
    if not file.seekable():
        raise checks.BadInput(f"{where} cannot be read; save it again.")
    file.seek(head.tell())
    return shape, order, dtype


# -- arrays as columns -----------------------------------------------------------------------------


def _table(arrays: dict[str, Any], path: Path, request: Request) -> Table:
    counts = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    if None in counts.values() or len(set(counts.values())) != 1:
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in [*arrays][:6])
        raise checks.BadInput(
            f"every array of {path} must have one entry per row; got the shapes {shapes}; leave "
            f"out arrays that are not columns."
        )
    total = next(iter(counts.values())) or 0
    if not total or not all(array.size for array in arrays.values()):
        raise checks.BadInput(
            f"{path} must have at least one row and one column; got no row or no column; save one "
            f"entry per row."
        )
    width = sum(
        len(array.dtype.names or " ") * math.prod(array.shape[1:]) for array in arrays.values()
    )
    _check_width(arrays, path)
    bytes_per_row = sum(_row_size(array) for array in arrays.values())
    most = request.memory // 2 // bytes_per_row
    if not most:
        raise checks.BadInput(
            f"a row of {path} must fit into memory, {request.memory // 2:,} bytes; got "
            f"{width:,} numbers per row, {bytes_per_row:,} bytes; give a larger memory limit, or "
            f"save one entry per row."
        )
    ids = _ids(arrays, request.id)
    most = most if ids is not None else min(most, request.rows)
    rows, fact = sample_rows(total, ids, most, request)
    columns: dict[str, np.ndarray] = {}
    columns_of: dict[str, tuple[str, ...]] = {}
    for name, array in arrays.items():
        new = _columns(name, array, rows, alone=len(arrays) == 1)
        if not columns.keys().isdisjoint(new):
            clean_names([*columns, *new], path)  # raises, because a name occurs twice
        columns.update(new)
        columns_of[name] = tuple(new)
    values = {
        name: _values(name, array, path, name in request.as_text) for name, array in columns.items()
    }
    return Table(values, rows, total, (fact,), arrays=columns_of)


def _check_width(arrays: dict[str, Any], path: Path) -> None:
    """Raise `BadInput` where there are too many columns, before any of them is made."""
    count = sum(
        len(array.dtype.names or " ") * (array.shape[1] if array.ndim == 2 else 1)
        for array in arrays.values()
    )
    _check_count(count, path)


def _check_count(count: int, path: Path) -> None:
    if count > MOST_COLUMNS:
        raise checks.BadInput(
            f"{path} must have at most {MOST_COLUMNS:,} columns; got {count:,}; keep those that "
            f"matter."
        )


def _row_size(array: Any) -> int:
    """Bytes of memory for one row: its numbers as float64, or its strings as Python strings."""
    entries = math.prod(array.shape[1:]) * len(array.dtype.names or " ")
    return max(1, entries * max(BYTES_PER_NUMBER, 2 * array.dtype.itemsize))


def _columns(name: str, array: Any, rows: np.ndarray, alone: bool) -> dict[str, np.ndarray]:
    if array.dtype.names:
        names = clean_names(array.dtype.names, name)
        return {
            clean: np.asarray(array[field][rows])
            for clean, field in zip(names, array.dtype.names, strict=True)
        }
    values = np.asarray(array[rows])
    if values.ndim == 1:
        return {name: values}
    if values.ndim == 2:
        start = "" if alone else f"{name} "
        return {f"{start}{i}": values[:, i] for i in range(values.shape[1])}
    return {name: values}


def _ids(arrays: dict[str, Any], name: str | None) -> list[str] | None:
    """All values of the id column `name` as strings; None if there is no such column."""
    if name is None:
        return None
    for array_name, array in arrays.items():
        columns = _columns(array_name, array, np.arange(len(array)), alone=len(arrays) == 1)
        if name in columns:
            return [str(value) for value in columns[name].tolist()]
    return None


def _values(name: str, array: np.ndarray, path: Path, as_text: bool) -> np.ndarray:
    kind = array.dtype.kind
    if as_text and kind in "iuM" and array.ndim == 1:
        # Integers become strings directly: float64 would round those with many digits.
        return texts(array.astype(str).tolist())
    if kind in "biuf":
        return array.astype(float)
    if kind == "M" and array.ndim == 1:
        return array
    if kind in "US" and array.ndim == 1:
        if kind == "S":
            return texts(value.decode("utf-8", "replace") for value in array.tolist())
        return texts(_valid_strings(array, name, path))
    raise checks.BadInput(
        f"the column {name} of {path} must hold numbers, dates or strings; got {array.dtype} of "
        f"shape {array.shape}; convert or drop it."
    )


def _valid_strings(array: np.ndarray, name: str, path: Path) -> list[str]:
    """The strings of an array; `BadInput` if one has an invalid character.

    NumPy stores a character as any four bytes, also such as are not a valid code point.
    """
    try:
        return [value.encode("utf-8", "replace").decode() for value in array.tolist()]
    except (ValueError, SystemError) as error:  # which of them depends on the number
        raise checks.BadInput(
            f"the column {name} of {path} must hold text; got invalid characters; save it again."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
