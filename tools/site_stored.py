"""Figures of stored runs, drawn when the site is built.

A page that says `<!-- figure: NAME -->` gets the picture of that name there. The numbers lie in
`docs/runs/`; no picture is kept beside them. `lens_page.py` and `pretrained_page.py` write the
numbers and the pages.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import lens_page
import pretrained_page

from attnlens.records import Surface, View

MARK = re.compile(r"<!-- figure: (\S+) -->")


@cache
def stored() -> dict[str, View]:
    """Everything that can be drawn, by name."""
    return {**lens_page.figures(), **pretrained_page.figures()}


def drawn(text: str, page: str, pictures: Path) -> str:
    """`text` with its pictures, which are written to the folder `pictures` beside the pages."""
    up = "../" * page.count("/")

    def shown(mark: re.Match[str]) -> str:
        if mark[1] not in stored():
            raise SystemExit(f"{page} asks for a figure {mark[1]}; no stored run has one.")
        view, file = stored()[mark[1]], f"{mark[1].replace('.', '-')}.svg"
        pictures.mkdir(parents=True, exist_ok=True)
        view.plot().savefig(pictures / file, metadata={"Date": None}, bbox_inches="tight")
        title = view.quantity if isinstance(view, Surface) else view.title
        return f"![{title}]({up}{pictures.name}/{file})"

    return MARK.sub(shown, text)
