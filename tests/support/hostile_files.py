"""Files and requests that cannot be used, and words that the message of each must contain.

The cases are used twice: as arguments of `attnlens.data.read`, and as options of the command line.
"""

from __future__ import annotations

import io
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TABLE = "age,colour,label\n" + "".join(
    f"{20 + i * 1.5},{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(40)
)
LONG = "who,when,value,label\n" + "".join(
    f"{i // 5},{i % 5},{i * 0.7 % 3:.3f},{i // 5 % 2}\n" for i in range(100)
)


class Case(NamedTuple):
    """A file (its content, or a function that writes it), options of `read`, and words that the
    message must contain."""

    content: bytes | str | Callable[[Path], None]
    options: dict[str, Any]
    says: str
    name: str = "file"


def npy(array: np.ndarray, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    padded = text.encode() + b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(padded)) + padded


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] (the stub types arguments that are not given here)
    return buffer.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def bomb() -> bytes:
    """A ZIP member whose header announces three gigabytes."""
    whole = bytearray(zipped({"x.npy": npy(np.zeros(1000))}))
    directory = whole.rindex(b"PK\x01\x02")
    whole[directory + 24 : directory + 28] = struct.pack("<I", 3 * 2**30)
    return bytes(whole)


def damaged(content: bytes) -> bytes:
    """`content` with the byte in the middle changed."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def objects() -> np.ndarray:
    return np.array([{"a": 1}, None], object)


def folder(path: Path, **files: bytes) -> None:
    path.mkdir()
    for name, content in files.items():
        (path / name.replace("_", "-")).write_bytes(content)


GARBAGE = random.Random(0).randbytes(4096)
WIDE = ",".join(f"c{i}" for i in range(10_001)) + "\n" + ",".join("1" * 10_001) + "\n"
PLAIN = b"a,b,label\n" + b"".join(b"%d,%d,%d\n" % (i * i, i % 7, i % 2) for i in range(30))
T = {"target": "label"}

CASES: dict[str, Case] = {
    # -- no file to read
    "no such file": Case(lambda path: None, T, "there is no such file"),
    "an empty folder": Case(folder, {}, "must hold the file train-images-idx3-ubyte"),
    "a dangling link": Case(lambda p: p.symlink_to("nowhere"), T, "there is no such file"),
    "a pipe": Case(lambda p: os.mkfifo(p), T, "not a regular file"),
    "a name that is too long": Case(lambda p: None, T, "cannot be read", "x" * 300),
    # -- not a table at all
    "empty": Case(b"", T, "got an empty file"),
    "blank lines": Case(b"\n\n  \n", T, "got an empty file"),
    "a header only": Case(b"a,b,label\n", T, "a header without rows"),
    "a header only, of a long table": Case(b"who,v\n", {"id": "who"}, "a header without rows"),
    "garbage": Case(GARBAGE, T, "must be"),
    "zero bytes": Case(b"a,b\n1,\0\n", T, "zero byte"),
    "UTF-16 without a mark": Case(TABLE.encode("utf-16-le"), T, "zero byte"),
    "Latin-1": Case("name,label\nJosé,1\n".encode("latin-1"), T, "0xe9"),
    "half a UTF-16 character": Case(b"\xff\xfea\0,\0b\0\n\0\x00\xd8", T, "UTF-8"),
    "gzip": Case(b"\x1f\x8b\x08\0" + GARBAGE[:50], T, "gzip"),
    "PDF": Case(b"%PDF-1.7\n", T, "a PDF"),
    "SQLite": Case(b"SQLite format 3\0", T, "a database"),
    "HDF5": Case(b"\x89HDF\r\n\x1a\n", T, "HDF5"),
    "an old workbook": Case(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", T, "Excel"),
    "a workbook": Case(zipped({"[Content_Types].xml": b"<x/>"}), T, "workbook"),
    "a pickle": Case(b"\x80\x04\x95\x05\0\0\0\0\0\0\0K\x01.", T, "pickle"),
    # -- CSV
    "a short line": Case(b"a,b,label\n1,2,0\n3,4\n", T, "line 3 has 2"),
    "a long line": Case(b"a,b,label\n1,2,0\n3,4,1,9\n", T, "line 3 has 4"),
    "an open quotation mark": Case(b'a,label\n"' + b"x\n" * 600_000, T, "quotation mark"),
    "a huge field": Case(b"a,label\n" + b"x" * 1_000_001 + b",1\n", T, "must be CSV"),
    "a huge line": Case(b"a,label\n" + b"x," * 5_000_001 + b"\n", T, "at most 10,000,000"),
    "two million columns": Case(b"1," * 2_000_000 + b"1\n", {}, "2,000,001 columns"),
    "too many columns": Case(WIDE, {"target": "c0"}, "10,001 columns"),
    "a name twice": Case(b"a,a,label\n1,2,0\n", T, "two are called 'a'"),
    "a name twice to the eye": Case(b"a\x07,a\x1b,label\n1,2,0\n", T, "two are called"),
    # -- options
    "a target near another": Case(TABLE, {"target": "lable"}, "did you mean 'label'"),
    "a target in capitals": Case(TABLE, {"target": "AGE"}, "did you mean 'age'"),
    "a target unlike any": Case(TABLE, {"target": "zzz"}, "columns are age, colour, label"),
    "a hostile target": Case(TABLE, {"target": "<b>../../etc\x1b[31m"}, "got '<b>../../etc"),
    "no such text": Case(TABLE, {**T, "text": "colr"}, "did you mean 'colour'"),
    "no such id": Case(TABLE, {"id": "agge"}, "did you mean 'age'"),
    "no such order": Case(TABLE, {"order": "xyz"}, "order must name a column"),
    "no such column to drop": Case(TABLE, {**T, "drop": ["colors"]}, "drop must name"),
    "no such column to use": Case(TABLE, {**T, "columns": ["hue"]}, "columns must name"),
    "no such column to type": Case(TABLE, {**T, "types": {"hue": "text"}}, "types must name"),
    "no such kind": Case(TABLE, {**T, "types": {"age": "float"}}, "must be one of number"),
    "target is id": Case(TABLE, {**T, "id": "label"}, "named as target and as id"),
    "target is text": Case(TABLE, {**T, "text": "label"}, "named as target and as text"),
    "everything dropped": Case(TABLE, {**T, "drop": ["age", "colour"]}, "drop fewer"),
    "no such way with gaps": Case(TABLE, {**T, "missing": "guess"}, "missing must be one of"),
    # -- labels
    "one class": Case(b"a,label\n1,x\n2,x\n3,x\n", T, "every label is 'x'"),
    "one number": Case(b"a,label\n1,0.5\n2,0.5\n3,0.5\n", T, "every label is 0.5"),
    "no label": Case(b"a,label\n1,\n2,NA\n3,\n", T, "missing in every row"),
    "infinite labels": Case(b"a,label\n1,inf\n2,-inf\n3,inf\n", T, "missing in every row"),
    "two rows": Case(b"a,label\n1,x\n2,y\n", T, "two classes with two rows each"),
    "a thousand classes": Case(
        "a,label\n" + "".join(f"{i},word{i}\n" for i in range(1000)), T, "1,000 different values"
    ),
    "too many classes": Case(
        "a,label\n" + "".join(f"{i},c{i % 120}\n" for i in range(600)), T, "120 different values"
    ),
    "texts as labels": Case(TABLE, {**T, "types": {"label": "text"}}, "number, category or date"),
    # -- columns
    "constant columns": Case(b"a,b,label\n1,x,0\n1,x,1\n1,x,0\n", T, "no column is left"),
    "identifiers only": Case(
        "a,label\n" + "".join(f"n{i},{i % 2}\n" for i in range(50)), T, "identifier"
    ),
    "words as numbers": Case(TABLE, {**T, "types": {"colour": "number"}}, "such as 'blue'"),
    "words as dates": Case(TABLE, {**T, "types": {"colour": "date"}}, "dates in one format"),
    "numbers in an array as dates": Case(
        npy(np.eye(30)), {"target": "0", "types": {"1": "date"}}, "read as dates; got numbers"
    ),
    "gaps in every row": Case(b"a,b,label\n1,,0\n,2,1\n", {**T, "missing": "drop"}, "no row is"),
    "no text in any row": Case(b"a,label\n,0\n,1\n", {**T, "text": "a"}, "without a text"),
    # -- long tables
    "ties in the order": Case(
        LONG.replace("\n0,1,", "\n0,0,", 1), {"id": "who", "order": "when"}, "two rows at '0'"
    ),
    "gaps in the order": Case(
        LONG.replace("\n0,1,", "\n0,,", 1), {"id": "who", "order": "when"}, "missing in some"
    ),
    "words as the order": Case(
        LONG.replace("\n0,1,", "\n0,soon,", 1), {"id": "who", "order": "when"}, "numbers or dates"
    ),
    "gaps in the id": Case(LONG.replace("\n0,1,", "\n,1,", 1), {"id": "who"}, "which sequence"),
    "a label that changes": Case(
        LONG.replace("0.700,0", "0.700,1", 1), {**T, "id": "who"}, "the same in all rows of one"
    ),
    "no tokens": Case(LONG, {**T, "id": "who", "drop": ["when", "value"]}, "drop fewer"),
    "constant tokens": Case(
        b"who,value\n" + b"".join(b"%d,1\n" % (i // 3) for i in range(30)), {"id": "who"}, "varies"
    ),
    # -- images
    "pixels in no square": Case(PLAIN, {**T, "images": 1}, "must be square"),
    "a patch that does not fit": Case(
        npz(x=np.ones((9, 6, 6)), label=np.arange(9) % 2), {**T, "images": 4}, "must cover"
    ),
    "a missing pixel": Case(
        b"p,label\n,0\n1,1\n2,0\n3,1\n", {**T, "images": 1}, "every pixel must have a value"
    ),
    "a folder with another target": Case(folder, T | {"target": "age"}, "has its own labels"),
    "a folder that lies": Case(
        lambda p: folder(p, train_images_idx3_ubyte=b"\0\0\x08\x03" + b"\xff" * 12), {}, "damaged"
    ),
    # -- NPY
    "NPY cut off": Case(npy(np.eye(30))[:-8], {"target": "0"}, "declares 7,200 bytes"),
    "NPY that lies": Case(
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 9), }"),
        {"target": "0"},
        "but 0 follow",
    ),
    "NPY with a damaged header": Case(header("{'descr': '<f8', "), T, "damaged"),
    "NPY with a program for a header": Case(
        header("{'descr': __import__('os').system('true'), 'fortran_order': 0, 'shape': ()}"),
        T,
        "damaged",
    ),
    "NPY of the future": Case(header("{}", b"\x09\x00"), T, "version"),
    "NPY with a negative axis": Case(
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }") + bytes(8),
        T,
        "follow",
    ),
    "NPY of a trillion rows of nothing": Case(
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 0), }"),
        {},
        "no row or no column",
    ),
    "NPY of entries without bytes": Case(
        header("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }"),
        {},
        "entries of 0 bytes",
    ),
    "NPY of invalid strings": Case(
        npy(np.array(["ab", "cd"] * 9)).replace(b"a\0\0\0", b"a\xff\xff\xff"),
        {},
        "invalid characters",
    ),
    "NPY of objects": Case(npy(objects(), pickled=True), T, "Python objects"),
    "NPY without rows": Case(npy(np.zeros((0, 3))), {"target": "0"}, "no row"),
    "NPY of one number": Case(npy(np.array(1.0)), {}, "one entry per row"),
    "NPY of complex numbers": Case(npy(np.ones((9, 2), complex)), {}, "complex128"),
    "NPY with four axes": Case(npy(np.ones((9, 2, 2, 2))), {}, "reshape it"),
    "NPY of numbers as texts": Case(
        npy(np.random.default_rng(0).normal(size=(30, 2))), {"text": "0"}, "holds numbers"
    ),
    # -- NPZ
    "NPZ of objects": Case(
        zipped({"x.npy": npy(objects(), pickled=True)}), {"target": "x"}, "Python objects"
    ),
    "NPZ bomb": Case(bomb(), {"target": "x"}, "got 3,221,2"),
    "NPZ cut off": Case(npz(x=np.eye(30))[:-40], {"target": "x"}, "cannot be unpacked"),
    "NPZ damaged": Case(damaged(npz(x=np.eye(30))), {"target": "x"}, "cannot be unpacked"),
    "NPZ without arrays": Case(zipped({}), T, "contains no array or other files"),
    "NPZ of other files": Case(zipped({"run.sh": b"#!"}), T, "contains no array or other files"),
    "NPZ of two lengths": Case(npz(x=np.eye(3), label=np.arange(4)), T, "one entry per row"),
    "NPZ of tokens and more": Case(
        npz(x=np.ones((9, 2, 2)), z=np.arange(9), label=np.arange(9) % 2), T, "drop the others"
    ),
    "NPZ of missing tokens": Case(
        npz(x=np.full((9, 2, 2), np.nan), label=np.arange(9) % 2), T, "every one of them is missing"
    ),
    "NPZ with a wide label": Case(
        npz(x=np.arange(18).reshape(9, 2) ** 2, label=np.ones((9, 2, 2))), T, "one label per row"
    ),
}


def parquet_cases() -> dict[str, Case]:
    """The cases whose files are made with pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def written(**columns: Any) -> bytes:
        buffer = io.BytesIO()
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column)
            for column in columns.values()
        ]
        pq.write_table(pa.table(arrays, list(columns)), buffer)
        return buffer.getvalue()

    def twice() -> bytes:
        buffer = io.BytesIO()
        pq.write_table(pa.table([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"]), buffer)
        return buffer.getvalue()

    good = written(a=[float(i) for i in range(30)], label=[i % 2 for i in range(30)])
    structs = [{"b": 1}, {"b": 2}]
    empty = pa.array([[], []], pa.list_(pa.float64()))
    return {
        "Parquet cut off": Case(good[:-20], T, "cannot be read"),
        "Parquet without an end": Case(b"PAR1" + GARBAGE, T, "cannot be read"),
        "Parquet with a damaged end": Case(
            good[:-60] + GARBAGE[:52] + good[-8:], T, "complete Parquet file"
        ),
        "Parquet of structures": Case(written(a=structs), {}, "write it as a flat table"),
        "Parquet of bytes": Case(written(a=[b"x", b"y"]), {}, "write it as a flat table"),
        "Parquet with a structure for a label": Case(
            written(a=[1, 2], label=structs), T, "label, which holds structures"
        ),
        "Parquet without rows": Case(written(a=pa.array([], pa.float64())), {}, "at least one row"),
        "Parquet with two columns of lists": Case(
            written(a=[[1], [2]], b=[[1], [2]], label=[0, 1]), T, "drop all but one"
        ),
        "Parquet with lists for labels": Case(written(a=[1, 2], label=[[1], [2]]), T, "sequences"),
        "Parquet of empty lists": Case(written(a=empty, label=[0, 1]), T, "every one of them is"),
        "Parquet of ragged vectors": Case(
            written(a=[[[1.0], [1.0, 2.0]], [[1.0]]], label=[0, 1]), T, "same number of entries"
        ),
        "Parquet with a name twice": Case(twice(), {}, "two are called 'a'"),
    }


def make(case: Case, place: Path) -> Path:
    """Write the file of a case and return its path."""
    path = place / case.name
    if callable(case.content):
        case.content(path)
    else:
        content = case.content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def arguments(options: dict[str, Any]) -> list[str]:
    """The command-line arguments that correspond to options of `attnlens.data.read`."""
    words = ["samples"] if "target" in options else ["exchangeability"]
    for name, value in options.items():
        if name == "types":
            words += [f"--type={column}={kind}" for column, kind in value.items()]
        elif name == "columns":
            words += [f"--column={column}" for column in value]
        elif isinstance(value, list):
            words += [f"--{name}={item}" for item in value]
        else:
            words.append(f"--{name}={value}")
    return words
