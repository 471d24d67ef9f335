"""The sheet of a command, its answers about a user's data or model, as one self-contained page."""

from __future__ import annotations

import os
from pathlib import Path

from attnlens import __version__
from attnlens.core.checks import BadInput
from attnlens.core.files import replace_file
from attnlens.core.sheets import Sheet

from .templating import render_template
from .views import views

FILE = "report.html"


def write_sheet(sheet: Sheet, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` into the folder, which is created if needed, and return its path.

    >>> import tempfile
    >>> write_sheet(Sheet("Mine", (), ()), tempfile.mkdtemp()).name
    'report.html'
    """
    return write_page(render_sheet(sheet), folder)


def write_page(text: str, folder: str | os.PathLike[str]) -> Path:
    """Write the text of a page to `report.html` in the folder, and return its path."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / FILE, text)
    except OSError as error:
        raise BadInput(
            f"the page cannot be written to {folder}: {error.strerror}; name another folder."
        ) from error
    return folder / FILE


def render_sheet(sheet: Sheet) -> str:
    """The page as text.

    >>> "Mine" in render_sheet(Sheet("Mine", (("rows", "3"),), ()))
    True
    """
    drawn = views(sheet.figures)
    return render_template(
        "sheet.html", drawn=bool(drawn), sheet=sheet, views=drawn, version=__version__
    )
