"""Fuzzing of every reader and every command's options: each input gives an answer or one sentence.

The examples are the same in every run; `ATTNLENS_FUZZ_SEED` gives others, and the seed is printed.
Every example is limited to 20 s and 1 GB (`watchdog`).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from attnlens.cli.commands import app
from attnlens.core.checks import BadInput
from attnlens.core.sheets import Sheet
from attnlens.data import Loaded, read
from fuzzing import fuzzed
from in_process import run
from watchdog import watchdog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux"),
]


# -- readers ---------------------------------------------------------------------------------------

NAMES = ("a", "b", "label", "missing", "", "0", "1", "x", "x 0", "größe")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from(NAMES),
        "text": st.sampled_from(NAMES),
        "id": st.sampled_from(NAMES),
        "order": st.sampled_from(NAMES),
        "columns": st.lists(st.sampled_from(NAMES), max_size=3),
        "drop": st.lists(st.sampled_from(NAMES), max_size=3),
        "types": st.dictionaries(
            st.sampled_from(NAMES),
            st.sampled_from(["number", "category", "date", "text", "drop", "no"]),
            max_size=2,
        ),
        "missing": st.sampled_from(["fill", "drop", "no"]),
        "copies": st.sampled_from(["keep", "drop"]),
        "images": st.integers(1, 4),
        "rows": st.integers(1, 40),
        "length": st.integers(1, 9),
        "seed": st.integers(0, 2**32 - 1),
        "separator": st.sampled_from([",", ";", "tab", "|", "ab", "\0"]),
        "decimal": st.sampled_from([",", ".", "comma", ";"]),
        "memory_limit": st.sampled_from([1.0, 1e3, 1e5, 1e7, 1e9]),
    },
)


def is_data_or_one_sentence(source: Any, options: dict[str, Any]) -> None:
    with watchdog():
        try:
            loaded = read(source, **options)
        except BadInput as error:
            sentence = str(error)
            assert 0 < len(sentence) < 1000
            assert len(sentence.splitlines()) == 1 or str(source) in sentence
            return
    assert isinstance(loaded, Loaded)
    if loaded.X is not None:
        assert np.isfinite(loaded.X).all()
    if loaded.y is not None:
        assert np.isfinite(loaded.y).all()
    str(loaded)


FIELDS = st.one_of(
    st.sampled_from(
        (
            "1|2.5|1,5|1.234|1.234,5||NA|x|y|8/1/2015 01:19:15|inf|2024-01-01|1e400|-0|0x1|1_000|١|"
            f'\ufeff|"|"a,b"|{"x" * 300}'
        ).split("|")
    ),
    st.text(max_size=6),
    st.floats().map(str),
    st.datetimes().map(str),
)
TABLES = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(FIELDS, min_size=width, max_size=width), min_size=1, max_size=30
    )
)


@fuzzed(600)
@given(TABLES, st.sampled_from([",", ";", "\t", "|", " "]), st.booleans(), OPTIONS)
def test_delimited_tables(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[str]],
    mark: str,
    header: bool,
    options: dict[str, Any],
):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    lines = [mark.join(NAMES[: len(rows[0])])] if header else []
    lines += [mark.join(row) for row in rows]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    is_data_or_one_sentence(path, options)


@fuzzed(600)
@given(
    st.binary(max_size=300), st.sampled_from([b"", b"PAR1", b"\x93NUMPY", b"PK\x03\x04"]), OPTIONS
)
def test_bytes_that_begin_like_a_format(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes, options: dict[str, Any]
):
    path = tmp_path_factory.getbasetemp() / "fuzz.bin"
    path.write_bytes(start + content)
    is_data_or_one_sentence(path, options)


DTYPES = st.one_of(
    arrays.scalar_dtypes(), arrays.unicode_string_dtypes(), arrays.byte_string_dtypes()
)
SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9)


@fuzzed(300)
@given(st.data(), OPTIONS)
def test_arrays(tmp_path_factory: pytest.TempPathFactory, data: Any, options: dict[str, Any]):
    values = data.draw(
        st.dictionaries(
            st.sampled_from(["x", "label", "a", "../b"]),
            arrays.arrays(DTYPES, SHAPES),
            min_size=1,
            max_size=3,
        )
    )
    path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    if len(values) == 1 and data.draw(st.booleans()):
        np.save(path.with_suffix(".npy"), next(iter(values.values())))
        is_data_or_one_sentence(path.with_suffix(".npy"), options)
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, array in values.items():
            content = io.BytesIO()
            np.save(content, array)
            packed.writestr(f"{name}.npy", content.getvalue())
    is_data_or_one_sentence(path, options)


@fuzzed(250)
@given(
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 20), min_size=0, max_size=4),
    st.integers(0, 255),
    st.binary(max_size=500),
    st.booleans(),
    OPTIONS,
)
def test_image_folders(
    tmp_path_factory: pytest.TempPathFactory,
    shape: list[int],
    kind: int,
    content: bytes,
    packed: bool,
    options: dict[str, Any],
):
    folder = tmp_path_factory.getbasetemp() / "fuzz-images"
    folder.mkdir(exist_ok=True)
    images = struct.pack(f">4B{len(shape)}I", 0, 0, kind, len(shape), *shape) + content
    labels = struct.pack(">4BI", 0, 0, 8, 1, 9) + bytes(range(9))
    for name, text in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"train-{name}-ubyte"
        path.write_bytes(gzip.compress(text) if packed else text)
    is_data_or_one_sentence(folder, options)


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.floats(), st.text(max_size=5)
)
COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**62), 2**62), min_size=6, max_size=6),
    st.lists(st.none() | st.floats(), min_size=6, max_size=6),
    st.lists(st.none() | st.text(max_size=5), min_size=6, max_size=6),
    st.lists(st.none() | st.datetimes(), min_size=6, max_size=6),
    st.lists(st.lists(st.floats(), max_size=4), min_size=6, max_size=6),
    st.lists(st.lists(st.text(max_size=3), max_size=4), min_size=6, max_size=6),
    st.lists(st.binary(max_size=4), min_size=6, max_size=6),
)
FRAMES = st.dictionaries(st.sampled_from(NAMES), COLUMNS, min_size=1, max_size=4)


@fuzzed(250)
@given(FRAMES, st.integers(0, 400), st.integers(0, 255), st.booleans(), OPTIONS)
def test_parquet_intact_and_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    columns: dict[str, list],
    place: int,
    byte: int,
    damaged: bool,
    options: dict[str, Any],
):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.getbasetemp() / "fuzz.parquet"
    with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate cannot be written
        pq.write_table(pa.table(columns), path)
        content = bytearray(path.read_bytes())
        if damaged:
            content[-1 - place % len(content)] = byte
            path.write_bytes(bytes(content))
        is_data_or_one_sentence(path, options)


@fuzzed(200)
@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.lists(CELLS, min_size=6, max_size=6) | COLUMNS, max_size=4
    ),
    OPTIONS,
)
def test_frames(columns: dict[str, list], options: dict[str, Any]):
    pandas = pytest.importorskip("pandas")
    is_data_or_one_sentence(pandas.DataFrame(columns), options)


# -- commands --------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.sampled_from(
        ["", "a", "label", "nan", "inf", "-1", "0", "1e400", "10", "9" * 30, "x=number"]
    )
    | st.text(max_size=8).filter(lambda text: "\0" not in text)
)


def commands(group: Any = None, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command of the command line, as a tuple of words, with its Click parameters."""
    group = typer.main.get_command(app) if group is None else group
    members = getattr(group, "commands", None)
    if members is None:
        return {words: group.params}
    every = {}
    for name, member in members.items():
        every |= commands(member, (*words, name))
    return every


COMMANDS = commands()
# Functions that would train, compile or wait for minutes, and what they return at once instead.
SHEET = Sheet("Nothing", (), (), ())
REPLACED = {
    "attnlens.advice.samples": SHEET,
    "attnlens.advice.advise": SHEET,
    "attnlens.advice.landscape": SHEET,
    "attnlens.advice.order_matters": SHEET,
}
STOPPED = BadInput("nothing is computed in this test.")
UNTOUCHED = {("native", "build"), ("native", "off")}  # change the machine; tested elsewhere


@fuzzed(400)
@given(st.data())
def test_commands(tmp_path_factory: pytest.TempPathFactory, data: Any):
    """Commands with random options and values never end with a traceback; status 2 has a
    message."""
    folder = tmp_path_factory.getbasetemp() / "fuzz-commands"
    folder.mkdir(exist_ok=True)
    table = folder / "t.csv"
    table.write_text("a,label\n" + "".join(f"{i * i % 7},{i % 2}\n" for i in range(30)))
    command = data.draw(st.sampled_from(sorted(COMMANDS.keys() - UNTOUCHED)))
    words = list(command)
    arguments = [p for p in COMMANDS[command] if p.param_type_name == "argument"]
    options = [p for p in COMMANDS[command] if p.param_type_name == "option"]
    for _ in arguments:
        words.append(data.draw(st.sampled_from([str(table), str(folder), "nothing", ""]) | VALUES))
    for option in data.draw(st.lists(st.sampled_from(options), max_size=4)) if options else []:
        words.append(data.draw(st.sampled_from([*option.opts, *option.secondary_opts])))
        if not option.is_flag:
            words.append(data.draw(VALUES))
    if data.draw(st.integers(0, 19)) == 0:
        words.append("--no-such-option")
    if command == ("verify",):  # `verify` only prints its plan
        words.append("--dry-run")
    names = {name for option in options for name in option.opts}
    if "--out" in names:
        words += ["--out", str(folder / "out")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        # The first use of native code would compile it, for longer than the watchdog waits.
        stack.enter_context(mock.patch.dict("os.environ", {"ATTNLENS_KERNEL": "0"}))
        for target, answer in REPLACED.items():
            stack.enter_context(mock.patch(target, mock.Mock(return_value=answer)))
        no_cells = mock.Mock(side_effect=STOPPED)
        stack.enter_context(mock.patch("attnlens.runs.replicate.compute_missing", no_cells))
        stack.enter_context(watchdog())
        done = run(*words)
    assert done.returncode in (0, 1, 2, 130), words
    assert "Traceback" not in done.stderr, words
    if done.returncode == 2:
        assert done.stderr.strip(), words


def test_the_fuzzer_knows_every_command():
    assert {("verify",), ("store", "merge"), ("claims",), ("advise",)} <= COMMANDS.keys()
    assert sum(len(parameters) for parameters in COMMANDS.values()) > 80
