"""Any file gives data or one sentence: no traceback, no hang, and no memory allocated for sizes
that a file merely declares."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens.core.checks import BadInput
from attnlens.data import Loaded, read
from hostile_files import CASES, LONG, TABLE, Case, bomb, header, make, npy, npz, parquet_cases


def error_message(path: Path, **options: object) -> str:
    """The message of the error that `read` raises: one printable sentence."""
    with pytest.raises(BadInput) as caught:
        read(path, **options)  # type: ignore[arg-type] (the stub types arguments that are not given here)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 600
    assert sentence[-1] in ".?"
    return sentence


def test_there_are_many_cases():
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_bad_input_raises_one_sentence(name: str, tmp_path: Path):
    case = CASES[name]
    assert case.says in error_message(make(case, tmp_path), **case.options)


def test_bad_parquet_raises_one_sentence(tmp_path: Path):
    pytest.importorskip("pyarrow")
    for number, (name, case) in enumerate(parquet_cases().items()):
        path = make(case._replace(name=str(number)), tmp_path)
        assert case.says in error_message(path, **case.options), name


def test_an_archive_of_many_arrays_is_refused_before_they_are_read(tmp_path: Path):
    arrays = {f"c{i}": np.zeros(1) for i in range(10_001)}
    assert "10,001" in error_message(make(Case(npz(**arrays), {}, ""), tmp_path))


def test_headers_and_characters_that_numpy_does_not_write(tmp_path: Path):
    """`True` in a shape, and four bytes that are no character: NumPy itself raises TypeError and
    SystemError."""
    for text, content in (
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 1), }", bytes(8)),
        ("{'descr': '<U1', 'fortran_order': False, 'shape': (3,), }", b"\xff" * 12),
    ):
        path = make(Case(header(text) + content, {}, ""), tmp_path)
        error_message(path)


@pytest.mark.parametrize(
    "options", [{"rows": 0}, {"seed": -1}, {"length": 0}, {"images": 0}], ids=str
)
def test_numbers_out_of_range_raise_one_sentence(options: dict, tmp_path: Path):
    (tmp_path / "t.csv").write_text(TABLE)
    assert "must be a whole number of at least" in error_message(tmp_path / "t.csv", **options)


def test_memory_is_not_allocated_by_what_a_file_declares(tmp_path: Path):
    """A header that declares terabytes, an archive that declares gigabytes, a very long line."""
    shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 9), }"
    cases = {"lie": header(shape), "bomb": bomb(), "line": b"a,b\n" + b"x" * 2**25}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        tracemalloc.start()
        error_message(tmp_path / name)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Up to 10^7 characters of a line are read at once, and decoding needs as much again.
        assert peak < (2**26 if name == "line" else 2**20), name


def parquet() -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = [[float(j) for j in range(i % 5)] for i in range(40)]
    buffer = io.BytesIO()
    columns = {"number": np.arange(40.0), "word": ["a", None] * 20, "list": lists}
    pq.write_table(pa.table(columns), buffer, row_group_size=16)
    return buffer.getvalue()


VALID_FILES = {
    "csv": lambda: TABLE.encode(),
    "long csv": lambda: LONG.encode(),
    "npy": lambda: npy(np.arange(60.0).reshape(20, 3)),
    "npy of words": lambda: npy(np.array(["red", "blue"] * 10)),
    "npz": lambda: npz(x=np.arange(60.0).reshape(20, 3), label=np.arange(20) % 2),
    "parquet": parquet,
}
OPTIONS = (
    {},
    {"target": "label"},
    {"id": "who", "order": "when"},
    {"text": "colour"},
    {"target": "0"},
)


def mutated(content: bytes, generator: random.Random) -> bytes:
    """`content` with a few bytes changed, deleted, repeated or inserted, or cut off."""
    changed = bytearray(content)
    for _ in range(generator.randint(1, 4)):
        position = generator.randrange(len(changed) or 1)
        mutation = generator.randrange(5)
        if mutation == 0 and changed:
            changed[position % len(changed)] = generator.randrange(256)
        elif mutation == 1:
            del changed[position : position + generator.randint(1, 20)]
        elif mutation == 2:
            changed[position:position] = changed[position : position + generator.randint(1, 20)]
        elif mutation == 3:
            changed[position:position] = generator.randbytes(generator.randint(1, 8))
        else:
            changed = changed[:position]
    return bytes(changed)


def fuzz(kind: str, count: int, folder: Path) -> int:
    """Read `count` damaged files and return how many of them still gave data."""
    generator, content, readable = random.Random(kind), VALID_FILES[kind](), 0
    for number in range(count):
        path = folder / "fuzz"
        path.write_bytes(mutated(content, generator))
        with contextlib.suppress(BadInput):
            loaded = read(path, **OPTIONS[number % len(OPTIONS)])  # type: ignore[arg-type] (the stub types arguments that are not given here)
            assert isinstance(loaded, Loaded)
            assert loaded.X is None or np.isfinite(loaded.X).all()
            readable += 1
    return readable


@pytest.mark.parametrize("kind", VALID_FILES)
def test_damaged_files_are_data_or_bad_input(kind: str, tmp_path: Path):
    assert fuzz(kind, 100, tmp_path) < 100


def test_damaged_idx_files_are_data_or_bad_input(tmp_path: Path):
    generator = random.Random(0)
    images = struct.pack(">4B3I", 0, 0, 8, 3, 12, 4, 4) + generator.randbytes(192)
    labels = struct.pack(">4B1I", 0, 0, 8, 1, 12) + bytes(i % 3 for i in range(12))
    names = {"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}
    for number in range(100):
        for index, (name, content) in enumerate(names.items()):
            (tmp_path / name).write_bytes(
                mutated(content, generator) if number % 2 == index else content
            )
        with contextlib.suppress(BadInput):
            assert isinstance(read(tmp_path), Loaded)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALID_FILES)
def test_thousands_of_damaged_files_are_data_or_bad_input(kind: str, tmp_path: Path):
    assert fuzz(kind, 3000, tmp_path) < 3000


@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"a,b\n", b"PK\3\4", b"PAR1"]))
def test_any_bytes_are_data_or_bad_input(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes
):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(start + content)
    with contextlib.suppress(BadInput):
        assert isinstance(read(path), Loaded)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    names=st.lists(NAMES, min_size=2, max_size=4), cells=st.lists(NAMES, min_size=4, max_size=40)
)
def test_any_words_in_a_table_are_data_or_bad_input(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], cells: list[str]
):
    import csv

    path = tmp_path_factory.getbasetemp() / "words.csv"
    width = len(names)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *zip(*[iter(cells)] * width, strict=False)])
    with contextlib.suppress(BadInput):
        loaded = read(path, target=names[0].strip() or "column 1")
        assert all(name.isprintable() for name in loaded.names)
        assert all(description.isprintable() for _, description in loaded.facts)
