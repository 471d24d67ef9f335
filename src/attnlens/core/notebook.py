"""Progress of long calls in a notebook: one line below the cell, updated in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. Nothing is imported to find out."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookLine:
    """A line of text, with a bar if `share` is given; every call replaces it."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, text: str, share: float | None = None) -> None:
        content = {"text/html": line_html(text, share), "text/plain": text}
        if self._handle is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports] (an optional package)

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def line_html(text: str, share: float | None = None) -> str:
    """The line as HTML.

    >>> line_html("3 of 4 cells <A.heads>", 0.75)
    '<progress max="1" value="0.75"></progress> 3 of 4 cells &lt;A.heads&gt;'
    """
    bar = "" if share is None else f'<progress max="1" value="{share:.4g}"></progress> '
    return bar + escape(text)


def notebook_bar(what: str) -> Callable[[float, float], None]:
    """A function of (done, total) that draws a bar in a notebook, and does nothing elsewhere."""
    if not in_notebook():
        return lambda done, total: None
    line = NotebookLine()
    return lambda done, total: line(f"{done:g} of {total:g} {what}", done / max(total, 1))


def notebook_line(progress: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Return `progress`; if it is None and this is a notebook, return a `NotebookLine`."""
    return NotebookLine() if progress is None and in_notebook() else progress
