"""Figures of stored runs, drawn when the site is built.

The comment `<!-- figure: NAME -->` on a page is replaced by the picture of that name. The numbers
are stored in `docs/runs/`; pictures are not. `lens_page.py` and `pretrained_page.py` write the
numbers and the pages, `inspect_figures.py` numbers only.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import inspect_figures
import lens_page
import pretrained_page

from attnlens.core.drawing import Surface, View

MARK = re.compile(r"<!-- figure: (\S+) -->")


@cache
def stored() -> dict[str, View]:
    """All stored figures, by name."""
    return {**lens_page.figures(), **pretrained_page.figures(), **inspect_figures.figures()}


def with_figures(text: str, page: str, pictures: Path) -> str:
    """`text` with links to its figures, which are drawn into the folder `pictures`."""
    up = "../" * page.count("/")

    def link(mark: re.Match[str]) -> str:
        if mark[1] not in stored():
            raise SystemExit(f"{page} asks for a figure {mark[1]}; no stored run has one.")
        view, file = stored()[mark[1]], f"{mark[1].replace('.', '-')}.svg"
        pictures.mkdir(parents=True, exist_ok=True)
        view.plot().savefig(pictures / file, metadata={"Date": None}, bbox_inches="tight")
        title = view.quantity if isinstance(view, Surface) else view.title
        return f"![{title}]({up}{pictures.name}/{file})"

    return MARK.sub(link, text)
