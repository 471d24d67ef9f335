"""`attnlens report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `verify` wrote.")],
    second: Annotated[
        Path | None, typer.Argument(help="A second one: what changed from the first to it?")
    ] = None,
) -> None:
    """Write the page of a results folder again from its results, or compare two folders."""
    from attnlens.runs.pages import write_comparison, write_report

    print(write_report(folder) if second is None else write_comparison(folder, second))
