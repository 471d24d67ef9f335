"""The page in a real browser: figures draw, hostile text stays text, nothing leaves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlens import verify
from attnlens.report.templating import minus, number
from toy_claims import CLAIM, HOSTILE_TEXT

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install -y chromium"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("pages")
    for name in ("CLAIM", "HOSTILE"):
        verify("smoke", [f"toy_claims:{name}"], out / name, workers=2)
    return {name: out / name / "report.html" for name in ("CLAIM", "HOSTILE")}


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def until(page: Any, condition: str, arg: Any = None) -> None:
    """Wait until a function in the page is true. Playwright's own wait asks by `eval` inside the
    page, which its content policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition, arg):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def visit(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str], list[str]]:
    """The page with every figure drawn, what the console said, and what was requested."""
    page = browser.new_page(**options)
    console: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    for place in page.query_selector_all("[data-figure]"):
        place.scroll_into_view_if_needed()
        until(page, "place => place.dataset.drawn === 'done'", place)
    return page, console, requests


@needs_browser
def test_figures_draw_and_nothing_leaves(pages: dict[str, Path], browser: Any):
    page, console, requests = visit(browser, pages["CLAIM"])
    assert console == []
    assert requests == [pages["CLAIM"].as_uri()]
    assert page.locator(".figure .scatterlayer .point").count() == 24
    assert page.locator(".modebar-btn[data-title*='Cloud'], .modebar-btn--logo").count() == 0
    assert page.locator("#ledger tbody tr").count() == 1
    assert page.locator(".formula math").count() == 1


@needs_browser
def test_the_ledger_is_readable_without_scripts(pages: dict[str, Path], browser: Any):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(pages["CLAIM"].as_uri())
    text = page.inner_text("body")
    assert "supported" in text
    assert "Standard normal draws have a mean near zero." in text
    assert "prediction: from" in text  # the figure's text alternative


@needs_browser
def test_hostile_text_stays_text(pages: dict[str, Path], browser: Any):
    page, console, requests = visit(browser, pages["HOSTILE"])
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
    assert console == []
    assert requests == [pages["HOSTILE"].as_uri()]
    assert HOSTILE_TEXT in page.inner_text("section h2")


def test_hostile_text_is_escaped_in_the_source(pages: dict[str, Path]):
    source = pages["HOSTILE"].read_text()
    assert "window.hit = 1</script>" not in source
    assert "<img" not in source
    assert "&lt;/script&gt;" in source


@needs_browser
@pytest.mark.parametrize("width", [1100, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(
    pages: dict[str, Path], browser: Any, width: int, scheme: str, tmp_path: Path
):
    page, _, _ = visit(
        browser, pages["CLAIM"], viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)


@needs_browser
def test_the_filter_hides_claims_and_brings_them_back(pages: dict[str, Path], browser: Any):
    page = browser.new_page()
    page.goto(pages["CLAIM"].as_uri())
    section = page.locator("main section")
    for change, shown in (
        (lambda: page.fill("#filter [type=search]", "nothing of the kind"), False),
        (lambda: page.fill("#filter [type=search]", "TOY"), True),
        (lambda: page.uncheck("#filter [value=supported]"), False),
        (lambda: page.check("#filter [value=supported]"), True),
    ):
        change()
        assert section.is_visible() == shown


@needs_browser
def test_the_picture_and_the_findings_need_no_script(pages: dict[str, Path], browser: Any):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(pages["CLAIM"].as_uri())
    assert page.locator("#picture circle").count() == 1
    assert page.locator("#picture .control").count() == 1
    assert "Toy: supported." in page.inner_text(".findings")
    assert page.locator("#filter").is_hidden()


@needs_browser
def test_the_numbers_can_be_downloaded(pages: dict[str, Path], browser: Any):
    page = browser.new_page()
    page.goto(pages["CLAIM"].as_uri())
    page.evaluate("document.querySelector('details').open = true")
    with page.expect_download() as download:
        page.click("a[download]")
    assert download.value.suggested_filename == "T-toy.csv"
    assert Path(download.value.path()).read_text().startswith("kind,name,x,value")


@needs_browser
def test_figures_follow_the_colour_scheme(pages: dict[str, Path], browser: Any):
    page, console, _ = visit(browser, pages["CLAIM"], color_scheme="dark")
    paper = "document.querySelector('.figure')._fullLayout.paper_bgcolor"
    assert page.evaluate(paper) == "#0d1117"
    page.emulate_media(color_scheme="light")
    until(page, f"() => {paper} === '#ffffff'")
    assert console == []


def test_two_runs_side_by_side(pages: dict[str, Path]):
    from attnlens.report import write_comparison

    page = write_comparison(pages["CLAIM"].parent, pages["HOSTILE"].parent)
    source = page.read_text()
    assert page == pages["HOSTILE"].parent / "comparison.html"
    assert "only in the second run" in source
    assert "<script" not in source


@needs_browser
def test_it_prints(pages: dict[str, Path], browser: Any):
    page, _, _ = visit(browser, pages["CLAIM"])
    assert page.pdf().startswith(b"%PDF")


def test_the_page_is_small_and_names_its_licence(pages: dict[str, Path]):
    assert pages["CLAIM"].stat().st_size < 4_000_000
    assert "Licensed under the MIT license" in pages["CLAIM"].read_text()[:6000]


def test_numbers_read_well():
    assert [number(x) for x in (None, 0.25, -0.5, 1e-13)] == ["–", "0.25", "−0.5", "1e−13"]
    assert minus("is -0.5, -0.6 to -.4; A.cme-is-posterior 3-4") == (
        "is −0.5, −0.6 to −.4; A.cme-is-posterior 3-4"
    )


def test_a_formula_that_is_none_is_shown_as_it_stands():
    from attnlens.report.page import _formula

    assert "<math" in _formula(CLAIM.formula)
    assert "<b>" not in _formula(r"\frac{<b>")
