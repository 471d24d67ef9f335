"""NPY and NPZ files: arrays of numbers, dates or strings. Nothing is unpickled.

A header is not believed: the shape it announces is checked against the bytes that are there before
any array is made. An NPY file is looked into without being read whole; an NPZ file is unpacked, up
to MOST_UNPACKED.
"""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any

import numpy as np

from attnlens import checks

from .columns import Table, clean_names, texts
from .sampling import MOST_COLUMNS, Request, choose_ids, said

MOST_UNPACKED = 2**30  # bytes of an NPZ file, all of which must be unpacked to reach any
MOST_NUMBERS = 2**26  # held as float64: half a gigabyte
UNPACKING = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError,
    OSError, ValueError,
)  # fmt: skip
LONGEST_HEADER = 10_000  # bytes; NumPy's own limit for headers it does not trust


def read_npy(path: Path, request: Request) -> Table:
    """The table in an NPY file: a column each for the second axis, or for each field."""
    with path.open("rb") as file:
        shape, order, dtype = _header(file, path, path.stat().st_size)
        offset = file.tell()
    if math.prod(shape):
        array: Any = np.memmap(path, dtype, "r", offset, shape, "F" if order else "C")
    else:
        array = np.empty(shape, dtype)
    return _table({"values": array}, path, request)


def read_npz(path: Path, request: Request) -> Table:
    """The table in an NPZ file: a column for each array (n,), several for each (n, p)."""
    try:
        with zipfile.ZipFile(path) as packed:
            return _table(_unpacked(packed, path), path, request)
    except checks.BadInput:
        raise
    except UNPACKING as error:
        raise checks.BadInput(
            f"{path} must be a whole NPZ file, but it cannot be unpacked ({_first(error)}); save "
            f"it again."
        ) from error


def _unpacked(packed: zipfile.ZipFile, path: Path) -> dict[str, np.ndarray]:
    members = packed.infolist()
    if any(each.filename == "[Content_Types].xml" for each in members):
        raise checks.BadInput(f"{path} is a document or workbook; save the table as CSV.")
    if not members or not all(each.filename.endswith(".npy") for each in members):
        raise checks.BadInput(
            f"{path} must be an NPZ file, which holds arrays only, but other files are in it; "
            f"write it with numpy.savez."
        )
    if (size := sum(each.file_size for each in members)) > MOST_UNPACKED:
        raise checks.BadInput(
            f"{path} unpacks to {size:,} bytes, more than the {MOST_UNPACKED:,} that are read; "
            f"store a part of it, or Parquet, which is sampled."
        )
    names = clean_names((each.filename.removesuffix(".npy") for each in members), path)
    found = {}
    for name, member in zip(names, members, strict=True):
        with packed.open(member) as file:
            where = f"{path}, array {name!r},"
            shape, order, dtype = _header(file, where, member.file_size)
            content = file.read()
        if len(content) != math.prod(shape) * dtype.itemsize:
            raise checks.BadInput(f"{where} ends before all its numbers have come; save it again.")
        array = np.frombuffer(content, dtype)
        found[name] = array.reshape(shape, order="F" if order else "C")
    return found


def _header(file: IO[bytes], where: object, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type that a header announces, if as many bytes follow it."""
    start = file.read(LONGEST_HEADER + 12)
    readers = {(1, 0): np.lib.format.read_array_header_1_0,
               (2, 0): np.lib.format.read_array_header_2_0}  # fmt: skip
    try:
        head = io.BytesIO(start)
        version = np.lib.format.read_magic(head)
        if version not in readers:
            raise checks.BadInput(
                f"{where} has an NPY header of version {version}, but 1 and 2 are read; save it "
                f"again with numpy.save."
            )
        shape, order, dtype = readers[version](head, LONGEST_HEADER)
    except checks.BadInput:
        raise
    except Exception as error:  # whatever a damaged header makes of NumPy's parser
        raise checks.BadInput(
            f"{where} must begin with an NPY header, but it is damaged; save it again."
        ) from error
    if dtype.hasobject:
        raise checks.BadInput(
            f"{where} holds Python objects, which would be unpickled and could run anything; save "
            f"numbers or strings."
        )
    if not dtype.itemsize:
        raise checks.BadInput(f"{where} announces entries of no bytes, which hold nothing.")
    announced = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or announced != size - head.tell():
        raise checks.BadInput(
            f"{where} announces {announced:,} bytes of numbers, but {size - head.tell():,} follow "
            f"its header; save it again."
        )
    if not file.seekable():
        raise checks.BadInput(f"{where} cannot be read.")
    file.seek(head.tell())
    return shape, order, dtype


# -- arrays as columns -----------------------------------------------------------------------------


def _table(arrays: dict[str, Any], path: Path, request: Request) -> Table:
    counts = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    if None in counts.values() or len(set(counts.values())) != 1:
        told = ", ".join(f"{name} {arrays[name].shape}" for name in [*arrays][:6])
        raise checks.BadInput(
            f"every array of {path} must have one entry a row, but the shapes are {told}; leave "
            f"out what is no column."
        )
    total = next(iter(counts.values())) or 0
    if not total or not all(array.size for array in arrays.values()):
        raise checks.BadInput(f"{path} has no row or no column; give one entry a row.")
    wide = sum(
        len(array.dtype.names or " ") * math.prod(array.shape[1:]) for array in arrays.values()
    )
    kept, rows = max(1, min(request.rows, total, MOST_NUMBERS // max(wide, 1))), np.arange(total)
    if kept < total and (ids := _ids(arrays, request.id)) is not None:
        chosen = choose_ids(Counter(ids), kept, request.seed)
        rows = np.flatnonzero([each in chosen for each in ids])
    elif kept < total:
        random = np.random.default_rng(request.seed)
        rows = np.sort(random.choice(total, kept, replace=False, shuffle=False))
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        split = _columns(name, array, rows, alone=len(arrays) == 1)
        clean_names([*columns, *split], path)  # no name twice
        columns.update(split)
        if len(columns) > MOST_COLUMNS:
            raise checks.BadInput(
                f"{path} has more than the {MOST_COLUMNS:,} columns that are read; keep those "
                f"that matter."
            )
    values = {
        name: _values(name, array, path, name in request.as_text) for name, array in columns.items()
    }
    return Table(values, rows, total, (said(len(rows), total, request.seed),))


def _columns(name: str, array: Any, rows: np.ndarray, alone: bool) -> dict[str, np.ndarray]:
    if array.dtype.names:
        names = clean_names(array.dtype.names, name)
        return {each: np.asarray(array[own][rows])
                for each, own in zip(names, array.dtype.names, strict=True)}  # fmt: skip
    taken = np.asarray(array[rows])
    if taken.ndim == 1:
        return {name: taken}
    if taken.ndim == 2:
        start = "" if alone else f"{name} "
        return {f"{start}{i}": taken[:, i] for i in range(taken.shape[1])}
    return {name: taken}


def _ids(arrays: dict[str, Any], name: str | None) -> list[str] | None:
    """The column of ids, whole."""
    if name is None:
        return None
    for own, array in arrays.items():
        every = _columns(own, array, np.arange(len(array)), alone=len(arrays) == 1)
        if name in every:
            return [str(each) for each in every[name].tolist()]
    return None


def _values(name: str, array: np.ndarray, path: Path, as_text: bool) -> np.ndarray:
    kind = array.dtype.kind
    if as_text and kind in "iuM" and array.ndim == 1:
        return texts(array.astype(str).tolist())  # every digit of them
    if kind in "biuf":
        return array.astype(float)
    if kind == "M":
        return array.astype("datetime64[us]")
    if kind in "US" and array.ndim == 1:
        if kind == "S":
            array = np.char.decode(array, "utf-8", "replace")
        return texts(_valid(array, name, path))
    raise checks.BadInput(
        f"the column {name} of {path} must hold numbers, dates or strings, but its type is "
        f"{array.dtype} with the shape {array.shape}; convert or drop it."
    )


def _valid(array: np.ndarray, name: str, path: Path) -> list[str]:
    """Strings that are text: NumPy's may hold any four bytes as a character."""
    try:
        return [each.encode("utf-8", "replace").decode() for each in array.tolist()]
    except ValueError as error:
        raise checks.BadInput(
            f"the column {name} of {path} must hold text, but some of its characters are none; "
            f"save it again."
        ) from error


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
