"""Looking at pages in a real browser, without the network."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = shutil.which("chromium")
# SwiftShader draws three dimensions without a graphics card.
FLAGS = [
    "--no-sandbox", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]  # fmt: skip
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install -y chromium"
)

# Every screen is looked at with the slow tests, the hardest one always.
SCREENS = [
    pytest.param(scheme, width, marks=[] if (scheme, width) == ("dark", 390) else pytest.mark.slow)
    for scheme in ("light", "dark")
    for width in (1100, 390)
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of its own, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit(NamedTuple):
    """A page, the errors on its console, and what it requested."""

    page: Any
    console: list[str]
    requests: list[str]


def opened(browser: Any, where: Path | str, **options: Any) -> Visit:
    page = browser.new_page(**options)
    console: list[str] = []
    requests: list[str] = []
    # Warnings are Chromium's own, on how fast a canvas could be read.
    page.on("console", lambda said: console.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(where if isinstance(where, str) else where.as_uri())
    return Visit(page, console, requests)


def visit(browser: Any, path: Path, **options: Any) -> Visit:
    """The page with every figure drawn."""
    seen = opened(browser, path, **options)
    for place in seen.page.query_selector_all("[data-figure]"):
        place.scroll_into_view_if_needed()
        drawn(seen.page, place)
    return seen


def drawn(page: Any, place: Any) -> None:
    """Wait for a figure."""
    until(page, "place => place.dataset.drawn === 'done'", place)


def until(page: Any, condition: str, arg: Any = None) -> None:
    """Wait until a function in the page is true. Playwright's own wait asks by `eval` inside the
    page, which its content policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition, arg):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def artefact(name: str, otherwise: Path) -> Path:
    """Where to keep what people look at: in $ATTNLENS_ARTEFACTS, or with the test's own files."""
    folder = Path(os.environ.get("ATTNLENS_ARTEFACTS", otherwise))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
