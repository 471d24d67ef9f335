"""Pages in a real browser (Chromium), without the network."""

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
# SwiftShader renders 3D figures without a graphics card.
FLAGS = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install -y chromium"
)

# Slow tests check every screen; the quick tests check only the most difficult one.
SCREENS = [
    pytest.param(scheme, width, marks=[] if (scheme, width) == ("dark", 390) else pytest.mark.slow)
    for scheme in ("light", "dark")
    for width in (1100, 390)
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser and close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit(NamedTuple):
    """A page, the errors on its console, and the URLs that it has requested."""

    page: Any
    console: list[str]
    requests: list[str]


def opened(browser: Any, where: Path | str, **options: Any) -> Visit:
    """Open a page in a new tab, without waiting for figures."""
    page = browser.new_page(**options)
    console: list[str] = []
    requests: list[str] = []
    # Warnings are not collected: Chromium warns about the speed of reading a canvas.
    page.on(
        "console",
        lambda message: console.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(where if isinstance(where, str) else where.as_uri())
    return Visit(page, console, requests)


def visit(browser: Any, path: Path, **options: Any) -> Visit:
    """Open a page and scroll until every figure is drawn."""
    result = opened(browser, path, **options)
    for place in result.page.query_selector_all("[data-figure]"):
        place.scroll_into_view_if_needed()
        drawn(result.page, place)
    return result


def drawn(page: Any, place: Any) -> None:
    """Wait until a figure is drawn."""
    until(page, "place => place.dataset.drawn === 'done'", place)


def until(page: Any, condition: str, arg: Any = None) -> None:
    """Wait until a JavaScript function returns true in the page.

    The waiting functions of Playwright use `eval` inside the page, which the content security
    policy of the page forbids.
    """
    deadline = time.monotonic() + 30
    while not page.evaluate(condition, arg):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def artefact(name: str, otherwise: Path) -> Path:
    """The path of a file that people may want to look at: in $ATTNLENS_ARTEFACTS, or else in the
    folder `otherwise`."""
    folder = Path(os.environ.get("ATTNLENS_ARTEFACTS", otherwise))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
