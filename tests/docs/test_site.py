"""The documentation site in a real browser: nothing is fetched from other servers, formulas are
MathML, search works, no script fails, and no page scrolls sideways on a phone.

The site is in the folder $ATTNLENS_SITE. Otherwise it is built here without running its examples,
which needs the packages of the extra `docs`.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browser import Visit, artefact, chromium, needs_browser, opened, until

pytestmark = [pytest.mark.slow, needs_browser]

ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
# Only on these pages the test waits for late fetches of scripts, because all pages have the same
# scripts.
SETTLED = {"index.html", "lens-a.html", "gallery/index.html", "reference/attention.html"}
# Returns the formulas outside closed details, which must have a size, and the text of the page
# without code and formulas, in which LaTeX that was not converted would appear.
FORMULAS = """() => ({
  math: [...document.querySelectorAll("math")].filter(m => !m.closest("details:not([open])")),
  text: (() => {
    const page = document.querySelector("article").cloneNode(true);
    page.querySelectorAll("pre, code, math").forEach(part => part.remove());
    return page.textContent;
  })(),
})"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server without log messages."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Site(NamedTuple):
    """The folder of the site, and the address at which it is served."""

    folder: Path
    address: str

    def pages(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*.html"))


def serving(folder: Path) -> tuple[http.server.ThreadingHTTPServer, str]:
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = Path(os.environ.get("ATTNLENS_SITE", tmp_path_factory.mktemp("site") / "built"))
    if "ATTNLENS_SITE" not in os.environ:
        if importlib.util.find_spec("mkdocs") is None:
            pytest.skip('no mkdocs to build the site with: pip install -e ".[docs]"')
        command = [sys.executable, str(ROOT / "tools" / "site_build.py"), str(folder), "--quick"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    server, address = serving(folder)
    yield Site(folder, address)
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def problems(seen: Visit, address: str) -> list[str]:
    """The problems of a page: fetches from other servers, console messages, and sideways
    scrolling."""
    result = [f"fetches {url}" for url in seen.requests if not url.startswith((address, "data:"))]
    result += [f"console: {message}" for message in seen.console]
    shown, whole = seen.page.evaluate(
        "() => [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
    )
    return result + ([f"scrolls sideways: {whole} pixels of {shown}"] if whole > shown else [])


def test_no_page_fetches_fails_or_scrolls_sideways_on_a_phone(site: Site, browser: Any):
    pages_with_problems = {}
    assert len(site.pages()) > 40
    assert {*site.pages()} >= SETTLED
    for page in site.pages():
        seen = opened(browser, site.address + page, viewport=PHONE)
        if page in SETTLED:
            seen.page.wait_for_load_state("networkidle")
        if result := problems(seen, site.address):
            pages_with_problems[page] = result
        seen.page.close()
    assert pages_with_problems == {}


def test_fetches_and_sideways_scrolling_are_reported(tmp_path: Path, browser: Any):
    (tmp_path / "bad.html").write_text(
        '<img src="http://127.0.0.1:1/elsewhere.png"><div style="width: 2000px">wide</div>'
    )
    server, address = serving(tmp_path)
    seen = opened(browser, f"{address}bad.html", viewport=PHONE)
    result = problems(seen, address)
    seen.page.close()
    server.shutdown()
    server.server_close()
    assert any(sentence.startswith("fetches http://127.0.0.1:1/") for sentence in result), result
    assert any(sentence.startswith("scrolls sideways: 2") for sentence in result), result


@pytest.mark.parametrize("name", ["index", "lens-a", "statistics", "howto/labels"])
def test_a_page_can_be_opened_as_a_file(name: str, site: Site, browser: Any):
    seen = opened(browser, site.folder / f"{name}.html", viewport=DESK)
    seen.page.wait_for_load_state("load")
    assert [url for url in seen.requests if not url.startswith(("file://", "data:"))] == []
    assert seen.page.query_selector("article h1").is_visible()
    seen.page.close()


@pytest.mark.parametrize(("name", "least"), [("lens-a", 18), ("lens-b", 10), ("statistics", 30)])
def test_formulas_are_visible_mathml(name: str, least: int, site: Site, browser: Any):
    """`least` is the smallest expected number: one formula per claim, and those of the
    derivations."""
    seen = opened(browser, f"{site.address}{name}.html", viewport=DESK)
    sizes = seen.page.evaluate(
        f"() => ({FORMULAS})().math.map(m => m.getBoundingClientRect().width)"
    )
    assert len(sizes) >= least
    assert min(sizes) > 1
    text = seen.page.evaluate(f"() => ({FORMULAS})().text")
    assert "$$" not in text
    assert "\\frac" not in text
    seen.page.screenshot(path=artefact(f"site-{name}.png", site.folder.parent))
    seen.page.close()


def search(page: Any, words: str) -> None:
    """Type into the search box once it is ready: keys typed earlier can be lost, and setting its
    value does not start a search."""
    page.click("input.md-search__input")
    until(page, f"() => ({STATUS})().includes('Type to start')")
    page.keyboard.type(words)


FIRST = "document.querySelector('.md-search-result__item a.md-search-result__link')"
STATUS = "() => document.querySelector('.md-search-result__meta').innerText"


def test_search_finds_a_page_and_leads_to_it(site: Site, browser: Any):
    seen = opened(browser, f"{site.address}index.html", viewport=DESK)
    page = seen.page
    search(page, "condition number")
    # The page searches while the query is typed. Addresses of results for the whole query contain
    # the whole query.
    until(page, f"() => /h=condition.number/.test(decodeURIComponent({FIRST}?.href ?? ''))")
    page.click(".md-search-result__item a.md-search-result__link")
    page.wait_for_url(lambda url: "index.html" not in url)
    page.wait_for_load_state("networkidle")
    assert "ondition number" in page.inner_text("article")
    assert problems(seen, site.address) == []
    page.close()


def test_search_for_an_unknown_word_finds_nothing(site: Site, browser: Any):
    page = opened(browser, f"{site.address}index.html", viewport=DESK).page
    search(page, "zyzzyvaqx")
    until(page, f"() => ({STATUS})().includes('No matching')")
    assert page.query_selector_all(".md-search-result__item") == []
    page.close()
