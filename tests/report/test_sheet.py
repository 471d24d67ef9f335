"""The page of a command in a real browser: it has the look and the rules of the page of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlens.core.checks import BadInput
from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer, Sheet
from attnlens.core.status import Status
from attnlens.report import render_sheet, write_sheet
from browser import SCREENS, artefact, chromium, needs_browser, visit
from toy_claims import HOSTILE_TEXT

# Markup that plotly would interpret: a link and a line break.
LINK = '<a href="https://example.org/?stolen">free</a><br><b>bold</b>'


def sheet(word: str) -> Sheet:
    """A sheet with every kind of view, in which every name contains `word`."""
    axis = tuple(-1 + i / 10 for i in range(21))
    rows = tuple(tuple(0.01 + x * x + 4 * y * y for x in axis) for y in axis)
    points = tuple(Point(2.0**k, 2.0 ** (-k / 2), 0.1 * 2.0 ** (-k / 2)) for k in range(4, 11))
    figures = (
        Figure(
            f"Error over labels {word}",
            f"labels {word}",
            f"error {word}",
            (
                Series(f"attention {word}", points, -0.5, -0.5),
                Series(f"baseline {word}", points[:3], control=True),
            ),
        ),
        Figure(
            f"By name {word}",
            "",
            "value",
            (Series(word, (Point(1, 2.0), Point(2, 3.0))),),
            False,
            False,
            names=(f"first {word}", f"second {word}"),
        ),
        Surface(f"loss {word}", word, word, axis, axis, rows, ((-0.8, -0.8), (0.0, 0.0))),
        Map(
            f"Weights {word}",
            word,
            word,
            ((f"head {word}", ((0.9, 0.1), (0.4, 0.6))),),
            (word, "b"),
            (word, "b"),
        ),
    )
    answers = (
        Answer(
            f"Does attention pay? {word}",
            f"Yes: {word}",
            f"8 folds {word}",
            True,
            {
                f"log ratio {word}": Reading(-0.41, 0.05, 8),
                "lost": Reading(math.nan, math.nan, 0, Status.OTHER, remark=word),
            },
        ),
        Answer("Does order matter?", "Not known.", "12 sequences are too few", known=False),
    )
    return Sheet(f"reviews {word}", ((f"rows {word}", f"1,000 {word}"),), answers, figures)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@needs_browser
@pytest.mark.parametrize(
    "word",
    [
        pytest.param(HOSTILE_TEXT, id="script"),
        pytest.param(LINK, id="link", marks=pytest.mark.slow),
    ],
)
def test_hostile_names_stay_text_and_nothing_is_requested(word: str, browser: Any, tmp_path: Path):
    path = write_sheet(sheet(word), tmp_path)
    page, console, requests = visit(browser, path)
    assert page.evaluate("window.hit") is None
    assert console == []
    assert requests == [path.as_uri()]
    assert page.locator("img").count() == 0
    links = page.evaluate(
        "() => [...document.querySelectorAll('a')].map(a => String(a.href?.baseVal ?? a.href))"
    )
    assert all(link.startswith("data:text/csv") for link in links if link)
    # Readers see the text unchanged: in headings, in legends and on axes.
    assert page.inner_text("h1") == " ".join(f"reviews {word}".split())
    assert page.locator(".figure .legendtext").first.text_content() == f"attention {word}"
    assert page.locator(".figure .xtitle").first.text_content() == f"labels {word}"
    assert f"first {word}" in page.locator(".figure .xtick text").all_text_contents()


@needs_browser
@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_the_page_fits_the_screen(browser: Any, width: int, scheme: str, tmp_path: Path):
    path = write_sheet(sheet("of reviews.csv"), tmp_path)
    page, console, _ = visit(
        browser, path, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert console == []
    page.screenshot(path=artefact(f"sheet-{scheme}-{width}.png", tmp_path), full_page=True)
    known, unknown = (
        page.locator(".answer").nth(i).evaluate("e => getComputedStyle(e).color") for i in (0, 1)
    )
    assert known != unknown


@needs_browser
def test_the_page_is_readable_without_scripts_and_prints(browser: Any, tmp_path: Path):
    path = write_sheet(sheet("here"), tmp_path)
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    text = page.inner_text("body")
    for part in ("Yes: here", "Not known.", "attention here: from 0.25 at 16", "lowest 0.01"):
        assert part in text
    assert page.pdf().startswith(b"%PDF")


def test_every_figure_has_a_text_alternative_and_its_numbers():
    source = render_sheet(sheet("x"))
    assert source.count('role="img" aria-label="') == 5  # two of the surface: contours and 3D
    assert source.count("The numbers as CSV") == 2
    assert "data-last" in source


def test_a_sheet_without_figures_carries_no_script():
    plain = Sheet("Plain", (), (Answer("Is it?", "Yes.", "by hand"),))
    source = render_sheet(plain)
    assert "<script" not in source
    assert "script-src" not in source
    assert len(source) < 20_000


def test_equal_sheets_give_equal_pages_and_the_nonce_depends_on_the_text():
    one, other = (render_sheet(sheet(word)) for word in ("a", "b"))
    assert one == render_sheet(sheet("a"))
    nonces = {source.split("'nonce-")[1][:64] for source in (one, other)}
    assert len(nonces) == 2


def test_a_folder_that_cannot_be_written_raises_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written to"):
        write_sheet(sheet("x"), tmp_path / "file" / "below")
