"""The memory for reading is bounded by the limit, however large the content of a small file is
after unpacking."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput

read: Any = data.read


def peak(path: Path, **options: Any) -> int:
    """The largest number of bytes that are allocated while the file is read or refused."""
    tracemalloc.start()
    with contextlib.suppress(BadInput):
        read(path, **options)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def zeros(shape: str, kind: str, count: int) -> bytes:
    """An NPZ file with one array of zeros, compressed to a thousandth of the size of the array."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.npy", content + bytes(count))
    return buffer.getvalue()


def test_one_long_note_takes_no_memory_in_the_other_rows(tmp_path: Path):
    """An array of fixed-width strings would take 4 × 10,000 bytes in each of 20,000 rows."""
    rows = [f"{i % 13},n{i % 3000},{i % 2}" for i in range(20_000)]
    rows[7] = f"7,{'x' * 10_000},1"
    (tmp_path / "t.csv").write_text("a,note,label\n" + "\n".join(rows) + "\n")
    assert peak(tmp_path / "t.csv", target="label") < 10**8
    labels = [f"{i % 5},{'xy'[i % 2]}" for i in range(2_000)]
    labels[3:5] = [f"3,{'z' * 400_000}"] * 2
    (tmp_path / "t.csv").write_text("a,label\n" + "\n".join(labels) + "\n")
    assert peak(tmp_path / "t.csv", target="label") < 5 * 10**7


@pytest.mark.parametrize(
    "content",
    [zeros("(1, 20000000)", "|u1", 2 * 10**7), zeros("(1, 20000000, 1)", "|u1", 2 * 10**7)],
    ids=["wide", "long"],
)
def test_arrays_that_unpack_to_more_than_the_limit(content: bytes, tmp_path: Path):
    (tmp_path / "t.npz").write_bytes(content)
    assert len(content) < 10**5
    assert peak(tmp_path / "t.npz", memory_limit=10**8) < 10**8


def test_image_folders_that_unpack_to_more_than_the_limit(tmp_path: Path):
    images = struct.pack(">4B3I", 0, 0, 8, 3, 40, 1000, 1000) + bytes(4 * 10**7)
    labels = struct.pack(">4BI", 0, 0, 8, 1, 40) + bytes(40)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    assert peak(tmp_path, memory_limit=5 * 10**7) < 5 * 10**7


def test_text_beyond_the_limit_is_refused(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b\n" + f"1,{'x' * 9_000}\n" * 1_000)
    with pytest.raises(BadInput, match="must fit into 1,000,000 bytes of memory"):
        read(tmp_path / "t.csv", memory_limit=10**6)
    with pytest.raises(BadInput, match="memory_limit must be a finite number above 0"):
        read(tmp_path / "t.csv", memory_limit=np.nan)


def test_a_string_that_a_parquet_file_repeats_is_held_once(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = ["x" * 10**5, "y"] * 10_000
    table = pa.table({"word": pa.array(words).dictionary_encode(), "b": np.arange(20_000) % 7})
    pq.write_table(table, tmp_path / "t.parquet")
    del table, words
    assert (tmp_path / "t.parquet").stat().st_size < 10**6
    before = pa.total_allocated_bytes()
    assert peak(tmp_path / "t.parquet") < 10**8
    assert pa.total_allocated_bytes() - before < 10**8
