"""Atomic replacement of files, by one process and by several at once."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from attnlens.core.files import DRAFT_SECONDS, replace_file


def test_simultaneous_writers_do_not_disturb_each_other(tmp_path: Path):
    """Several threads replace one file at the same time, as two runs of `attnlens report DIR`
    would."""
    page, errors = tmp_path / "report.html", []
    texts = [letter * 1_000_000 for letter in "abcd"]

    def write(text: str) -> None:
        try:
            for _ in range(25):
                replace_file(page, text)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not page.exists() or page.read_text() in texts
    assert errors == []
    assert list(tmp_path.iterdir()) == [page]


def test_drafts_of_killed_processes_are_removed_later(tmp_path: Path):
    old, new = tmp_path / ".page.1.draft", tmp_path / ".page.2.draft"
    for draft in (old, new):
        draft.write_text("half")
    long_ago = time.time() - 2 * DRAFT_SECONDS
    os.utime(old, (long_ago, long_ago))
    replace_file(tmp_path / "page", "text")
    assert sorted(tmp_path.iterdir()) == [new, tmp_path / "page"]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("secrets.token_hex", lambda size: "known")
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / ".page.known.draft").symlink_to(target)
    with pytest.raises(Exception, match="cannot be used"):
        replace_file(tmp_path / "page", "text")
    assert target.read_text() == "untouched"
