"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

    0, 0, type, number of axes              four bytes
    length of each axis                     four bytes per axis, big-endian
    the numbers                             in C order: the last axis varies fastest

A header is not trusted: before an array is allocated, the size that the header declares is compared
with the size of the file. For gzip, it is compared with the number of unpacked bytes, and unpacking
stops one byte after the declared size.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from attnlens.core import checks

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_BYTES = 2**28  # four times the size of MNIST; a file that declares more is implausible


def read_idx(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> np.ndarray:
    """The array in an IDX file; gzip is recognised by the first bytes, not by the file name.

    A file that declares more than `most_bytes` bytes of numbers raises `BadInput`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "three-idx1-ubyte"
    >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    >>> read_idx(path).tolist()
    [7, 8, 9]
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return _read(path, file, path.stat().st_size, most_bytes)
        with gzip.open(path) as unpacked:
            return _read(path, unpacked, None, most_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise checks.BadInput(
            f"{path} must be a complete gzip file, but it cannot be unpacked ({error}); get the "
            f"file again."
        ) from error
    except OSError as error:
        raise checks.BadInput(f"{path} cannot be read: {error.strerror or error}.") from error


def _read(
    path: Path, file: BinaryIO | gzip.GzipFile, size: int | None, most_bytes: int
) -> np.ndarray:
    file.seek(0)
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= 4:
        raise checks.BadInput(
            f"{path} must be an IDX file (two zero bytes, a number type, one to four axes); got a "
            f"file that starts with {start.hex(' ') or 'nothing'}."
        )
    axes = file.read(4 * start[3])
    if len(axes) < 4 * start[3]:
        raise checks.BadInput(f"{path} ends inside its header; get the file again.")
    shape, dtype = struct.unpack(f">{start[3]}I", axes), np.dtype(TYPES[start[2]])
    declared = math.prod(shape) * dtype.itemsize
    if not declared:
        raise checks.BadInput(
            f"{path} must hold at least one number; got the shape {shape}; get the file again."
        )
    if declared > most_bytes:
        raise checks.BadInput(
            f"{path} must declare at most {most_bytes:,} bytes of numbers; got {declared:,}; is "
            f"its header damaged, or does it need a larger memory limit?"
        )
    if size is not None and (actual := size - 4 - len(axes)) != declared:
        raise checks.BadInput(
            f"{path} declares {declared} bytes of numbers, but {actual} follow its header; get "
            f"the file again."
        )
    content = _read_at_most(file, declared + 1)
    if len(content) != declared:
        actual = "more" if len(content) > declared else f"{len(content)}"
        raise checks.BadInput(
            f"{path} declares {declared} bytes of numbers, but {actual} follow its header; get "
            f"the file again."
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_at_most(file: BinaryIO | gzip.GzipFile, count: int) -> bytearray:
    """Up to `count` bytes of a file.

    They are read one megabyte at a time: memory grows with the number of bytes in the file, even if
    its header declares more.
    """
    content = bytearray()
    while len(content) < count and (chunk := file.read(min(2**20, count - len(content)))):
        content += chunk
    return content
