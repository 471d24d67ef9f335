"""A picture of a results folder's page, for the README.

python tools/screenshot.py attnlens-run docs/report.png
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main(folder: str, picture: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 1100})
        page.goto((Path(folder) / "report.html").resolve().as_uri())
        for place in page.query_selector_all("[data-figure]"):
            place.scroll_into_view_if_needed()
            page.wait_for_function("place => place.dataset.drawn === 'done'", arg=place)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
