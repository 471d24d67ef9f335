"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

    0, 0, type, axes                        four bytes
    length of each axis                     four bytes each, most significant first
    the numbers, last axis fastest

A header is not believed: what it announces is checked against the size of the file (for gzip,
against the bytes that come out, one more than announced at most) before any array is made.
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

from attnlens import checks

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_BYTES = 2**31  # MNIST has 2^26; a file that asks for more than this is a mistake or an attack


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file; gzip is recognised by its first bytes, not by the name.

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
                return _read(path, file, path.stat().st_size)
        with gzip.open(path) as unpacked:
            return _read(path, unpacked, None)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise checks.BadInput(
            f"{path} must be a whole gzip file, but it cannot be unpacked ({error}); get it again."
        ) from error
    except OSError as error:
        raise checks.BadInput(f"{path} cannot be read: {error.strerror or error}.") from error


def _read(path: Path, file: BinaryIO | gzip.GzipFile, size: int | None) -> np.ndarray:
    file.seek(0)
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= 4:
        raise checks.BadInput(
            f"{path} must be an IDX file (two zero bytes, a number type, one to four axes), but it "
            f"starts with {start.hex(' ') or 'nothing'}."
        )
    axes = file.read(4 * start[3])
    if len(axes) < 4 * start[3]:
        raise checks.BadInput(f"{path} ends inside its header; get the file again.")
    shape, dtype = struct.unpack(f">{start[3]}I", axes), np.dtype(TYPES[start[2]])
    announced = math.prod(shape) * dtype.itemsize
    if announced > MOST_BYTES:
        raise checks.BadInput(
            f"{path} announces {announced} bytes of numbers, more than the {MOST_BYTES} that are "
            f"read; is its header damaged?"
        )
    if size is not None and (found := size - 4 - len(axes)) != announced:
        raise checks.BadInput(
            f"{path} announces {announced} bytes of numbers, but {found} follow its header; get "
            f"the file again."
        )
    content = _at_most(file, announced + 1)
    if len(content) != announced:
        more = "more" if len(content) > announced else f"{len(content)}"
        raise checks.BadInput(
            f"{path} announces {announced} bytes of numbers, but {more} follow its header; get the "
            f"file again."
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _at_most(file: BinaryIO | gzip.GzipFile, count: int) -> bytearray:
    """Up to `count` bytes, a megabyte at a time: memory grows with what is there, not with what
    was announced."""
    content = bytearray()
    while len(content) < count and (more := file.read(min(2**20, count - len(content)))):
        content += more
    return content
