"""The page of `attnlens inspect` in a real browser: clicks on heads, and pointing at tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlens.core import Inspection, Measure, Reading
from attnlens.core.inspections import TokenView
from attnlens.report import render_inspection, write_inspection
from browser import artefact, chromium, needs_browser, visit
from toy_claims import HOSTILE_TEXT

LIMIT = 6_000_000  # most bytes of a page with 12 layers of 12 heads
SPIKE = 200  # attention to the previous token, on the scale of the page (0 to 255)


def inspection(word: str, layers: int = 2, heads: int = 2, tokens: int = 4) -> Inspection:
    """An inspection in which head h of layer l has the value l.h and attends to the previous token;
    `word` is the text of the first token."""
    numbers = tuple(range(1, layers + 1))
    by_head = tuple(
        tuple(Reading(layer + head / 100, 0.001, 9) for head in range(1, heads + 1))
        for layer in numbers
    )
    means = tuple(Reading(float(layer), 0.1, 9) for layer in numbers)
    row = bytearray(tokens * tokens)
    for place in range(1, tokens):
        row[place * tokens + place - 1] = SPIKE
    view = TokenView(
        (word, *(f"t{i}" for i in range(1, tokens))), numbers, ((bytes(row),) * heads,) * layers
    )
    return Inspection(
        f"What {word} does",
        (f"{word} is small.",) * 5,
        ((f"model {word}", word),),
        (
            Measure(f"first {word}", f"meaning {word}", numbers, means, by_head),
            Measure("second", "other meaning", numbers[1:], means[1:], by_head[1:], (0.0, 10.0)),
            Measure("layers only", "a line", (0, *numbers), (means[0], *means)),
        ),
        ((f"pairs {word}", f"because {word}"),),
        (view, view),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@needs_browser
def test_heads_are_chosen_tokens_shown_and_hostile_text_stays_text(browser: Any, tmp_path: Path):
    path = write_inspection(inspection(HOSTILE_TEXT), tmp_path)
    page, console, requests = visit(browser, path, viewport={"width": 390, "height": 800})
    cells = page.locator("#heads button")
    assert cells.all_text_contents() == ["1.01", "1.02", "2.01", "2.02"]
    cells.nth(3).click()
    assert "Layer 2, head 2" in page.inner_text("#chosen")
    assert f"first {HOSTILE_TEXT} 2.02" in page.locator("#chosen").text_content()
    tokens = page.locator("[data-view='1'] [data-place]")
    assert tokens.nth(0).text_content() == HOSTILE_TEXT
    tokens.nth(1).hover()
    shares = [tokens.nth(i).evaluate("e => e.style.getPropertyValue('--share')") for i in range(3)]
    assert [round(float(share[:-1]), 1) for share in shares] == [78.4, 0, 0]  # 200/255
    page.locator("#measure").select_option("1")
    assert cells.all_text_contents() == ["–", "–", "2.01", "2.02"]
    assert page.evaluate("window.hit") is None
    assert console == []
    assert requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=artefact("inspection-390.png", tmp_path), full_page=True)


def test_the_page_of_twelve_layers_of_twelve_heads_is_small():
    assert len(render_inspection(inspection("x", 12, 12, 48)).encode()) < LIMIT


def test_rounding_of_zero_is_drawn_as_zero():
    readings = (Reading(1e-12, 1e-13, 9), Reading(0.5, 0.1, 9))
    figure = Measure("pairs", "0 to rounding.", (0, 1), readings, rounding=1e-6).figure()
    assert [point.y for point in figure.series[0].points] == [0.0, 0.5]


def test_an_inspection_without_heads_has_no_table():
    plain = Inspection("Mine", ("One.",), (), ())
    assert "<table" not in render_inspection(plain)
