"""Check a built site: every internal link resolves, and nothing is fetched from other servers.

python tools/site_check.py FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# (tag, attribute) pairs whose address a browser fetches by itself, unlike the `href` of a link.
FETCHED = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("img", "srcset"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("object", "data"),
    ("embed", "src"),
}
NOT_FETCHED = {"canonical", "prev", "next", "edit", "alternate", "author", "license"}
OUTSIDE = re.compile(r"(?:https?:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """The anchors of a page, its links, and the addresses that a browser fetches for it."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes[n] for n in ("id", "name") if attributes.get(n)}
        fetches = attributes.get("rel", "") not in NOT_FETCHED
        for name, value in attributes.items():
            if (tag, name) in FETCHED and fetches:
                self.fetched.append(value)
            if name in ("href", "src"):
                self.links.append(value)
            if name == "style":
                self.fetched += urls(value)


def urls(css: str) -> list[str]:
    """The addresses that a style sheet fetches."""
    return re.findall(r"url\(\s*['\"]?([^'\")]+)", css) + re.findall(
        r"@import\s+['\"]([^'\"]+)", css
    )


def problems(site: Path) -> Iterator[str]:
    """One sentence for each broken link and for each address that would be fetched."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"there is no page in {site}"
    for path, page in pages.items():
        here = path.relative_to(site)
        for target in page.fetched:
            if OUTSIDE.match(target):
                yield f"{here} fetches {target}"
        for link in dict.fromkeys(page.links):
            if path.name != "404.html" and (reason := broken(link, path, pages)):
                yield f"{here} links to {link}: {reason}"
    for path in sorted(site.rglob("*.css")):
        for target in urls(path.read_text()):
            if OUTSIDE.match(target):
                yield f"{path.relative_to(site)} fetches {target}"


def broken(link: str, path: Path, pages: dict[Path, Page]) -> str | None:
    """Why a link does not resolve; None if it does, or if it leads to another site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "no such file"
    fragment = unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].anchors:
        return "no such place on that page"
    return None


def main(site: Path) -> None:
    sentences = list(problems(site.resolve()))
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if sentences:
        raise SystemExit(f"{len(sentences)} problems in {site}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
