"""Inputs of `attnlens inspect` that are too large, or that name what is not there."""

from __future__ import annotations

import gc
import struct
import zlib
from pathlib import Path

import pytest

from attnlens.cli.inspect import MOST_TEXT
from attnlens.core.checks import BadInput
from attnlens.integrations.transformers import image_model
from in_process import run
from running import one_sentence


def refused(*arguments: object) -> str:
    """Run a command that must end with exit status 2, and return the sentence that it prints."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    return one_sentence(done.stderr)


def test_texts_beyond_the_limit_are_not_read(tmp_path: Path):
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        file.truncate(MOST_TEXT + 1)  # a hole: it takes no disk
    assert f"at most {MOST_TEXT:,} bytes" in refused("inspect", "m:f", "--text", path)


@pytest.mark.parametrize("option", ["--column", "--label"])
def test_a_wrong_column_is_named_by_its_option(option: str, tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("text,kind\n" + "a word,x\nother words,y\n" * 20)
    sentence = refused("inspect", "m:f", "--text", path, option, "wrong")
    assert f"{option} must name a column; got 'wrong'" in sentence


def test_the_search_for_images_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder and its three entries are allowed; with one more the search is refused."""
    monkeypatch.setattr(image_model, "MOST_ENTRIES", 4)
    (tmp_path / "cats").mkdir()
    for name in ("b.png", "a.PNG", "notes.md"):
        (tmp_path / "cats" / name).touch()
    assert [file.name for file in image_model.image_files(tmp_path)] == ["a.PNG", "b.png"]
    (tmp_path / "more").touch()
    sentence = refused("inspect", "m:f", "--images", tmp_path)
    assert "at most 4 files and subfolders" in sentence
    assert "name one of its subfolders" in sentence


def test_an_image_that_unpacks_to_too_many_pixels_is_refused(tmp_path: Path):
    """90 bytes that declare 40,000 × 40,000 pixels, 4.8 GB when they are unpacked."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0))]
    chunks += [(b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
            for kind, content in chunks
        )
    )
    with pytest.raises(BadInput, match=r"bomb\.png cannot be read.*1600000000 pixels"):
        list(image_model.opened_images([path]))
    gc.collect()  # a file left open would be a warning, which is an error here
