"""IDX files: every number type, gzip, folders, and headers with wrong sizes."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens.core.checks import BadInput
from attnlens.data import idx_folder, read_idx
from attnlens.data.files.idx import TYPES


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    header = struct.pack(f">4B{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(TYPES[code]).tobytes()


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_every_number_type_is_read(code: int, pack, tmp_path: Path):
    array = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(pack(idx(array, code)))
    read = read_idx(tmp_path / "file")
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)
    read[0, 0, 0] = 7  # the array is writable


HOSTILE = {
    "empty": (b"", "starts with nothing"),
    "text": (b"<html>not found", "starts with 3c 68 74 6d"),
    "unknown type": (b"\0\0\x07\x01\0\0\0\0", "must be an IDX file"),
    "no axis": (b"\0\0\x08\0", "must be an IDX file"),
    "many axes": (b"\0\0\x08\xff", "must be an IDX file"),
    "short header": (b"\0\0\x08\x02\0\0\0\x01", "ends inside its header"),
    "huge": (b"\0\0\x0e\x04" + b"\xff" * 16, "is its header damaged"),
    "an empty axis": (b"\0\0\x08\x02\0\0\0\x09\0\0\0\0", "at least one number; got the shape"),
    "too few": (idx(np.zeros((4, 4)))[:-1], "declares 16 bytes of numbers, but 15"),
    "too many": (idx(np.zeros((4, 4))) + b"x", "declares 16 bytes of numbers, but"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_hostile_files_raise_one_sentence(name: str, pack, tmp_path: Path):
    content, message = HOSTILE[name]
    (tmp_path / "file").write_bytes(pack(content))
    with pytest.raises(BadInput, match=message):
        read_idx(tmp_path / "file")


def test_memory_is_not_allocated_by_what_a_header_declares(tmp_path: Path):
    """One file declares 268 MB and holds a kilobyte; another one is small and unpacks to 64 MB."""
    header = struct.pack(">4B1I", 0, 0, 8, 1, 2**28)
    bomb = struct.pack(">4B1I", 0, 0, 8, 1, 10) + bytes(2**26)
    for number, content in enumerate((header + bytes(1000), bomb)):
        (tmp_path / str(number)).write_bytes(gzip.compress(content, 1))
        tracemalloc.start()
        with pytest.raises(BadInput, match="follow its header"):
            read_idx(tmp_path / str(number))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**23


def test_damaged_gzip_and_missing_files_raise_one_sentence(tmp_path: Path):
    packed = gzip.compress(idx(np.zeros((40, 40))))
    for number, content in enumerate((packed[:-9], packed[:20] + b"!!" + packed[22:], b"\x1f\x8b")):
        (tmp_path / str(number)).write_bytes(content)
        with pytest.raises(BadInput, match="cannot be unpacked"):
            read_idx(tmp_path / str(number))
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_idx(tmp_path)


STARTS = [b"", b"\0\0\x08\x01", b"\x1f\x8b\x08"]


@given(content=st.binary(max_size=40), start=st.sampled_from(STARTS))
def test_any_bytes_are_an_array_or_bad_input(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes
):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(start + content)
    with contextlib.suppress(BadInput):
        assert isinstance(read_idx(path), np.ndarray)


def write_folder(folder: Path, pack, dot: str, suffix: str) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 5))
    images[4] = images[1]  # equal images with different labels: both are dropped
    images[5] = images[2]
    labels = np.array([0, 1, 2, 3, 4, 2])
    for part in ("train", "t10k"):
        (folder / f"{part}-images{dot}idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
        (folder / f"{part}-labels{dot}idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))
    return images


@pytest.mark.parametrize(
    ("pack", "dot", "suffix"), [(bytes, "-", ""), (gzip.compress, "-", ".gz"), (bytes, ".", "")]
)
def test_a_folder_of_the_four_files_is_read_without_duplicates(
    pack, dot: str, suffix: str, tmp_path: Path
):
    images = write_folder(tmp_path, pack, dot, suffix)
    for part in ("train", "test"):
        data = idx_folder(tmp_path, part, "fashion-mnist")
        np.testing.assert_array_equal(data.array, images[[0, 2, 3]] / 255)
        assert data.labels.tolist() == [0, 2, 3]
        assert data.classes[9] == "boot"
        assert data.history == ("3 duplicates dropped",)


def test_incomplete_or_inconsistent_folders_raise_one_sentence(tmp_path: Path):
    with pytest.raises(BadInput, match="must hold the file train-images-idx3-ubyte"):
        idx_folder(tmp_path)
    write_folder(tmp_path, bytes, "-", "")
    with pytest.raises(BadInput, match="part must be one of train, test"):
        idx_folder(tmp_path, "validation")
    labels = tmp_path / "train-labels-idx1-ubyte"
    for content, message in (
        (idx(np.zeros(5)), "one label for each of the 6 inputs"),
        (idx(np.full(6, 11)), "labels must be 0 to 9; got 11"),
        (idx(np.zeros((6, 1))), "byte labels with one"),
    ):
        labels.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            idx_folder(tmp_path)
