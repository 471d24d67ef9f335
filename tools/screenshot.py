"""Save a screenshot of a page.

python tools/screenshot.py attnlens-run/report.html docs/report.png [--width 1100] [--dark] [--full]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]


def main(page: Path, picture: Path, width: int, height: int, dark: bool, full: bool) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        shown = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        shown.goto(page.resolve().as_uri())
        if full:
            draw_all(shown)
        shown.screenshot(path=picture, full_page=full)
        browser.close()


def draw_all(page: Any) -> None:
    """Scroll to every figure and wait until it is drawn.

    Playwright's `wait_for_function` cannot be used: the page's content security policy forbids it.
    """
    for place in page.query_selector_all("[data-figure]"):
        place.scroll_into_view_if_needed()
        while not page.evaluate("place => place.dataset.drawn === 'done'", place):
            page.wait_for_timeout(20)
    page.evaluate("scrollTo(0, 0)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--height", type=int, default=1100)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--full", action="store_true", help="the whole page, with all figures")
    main(**vars(parser.parse_args()))
