"""`attnlens report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="A folder that `verify` or `replicate` wrote; several: compare."
        ),
    ],
) -> None:
    """Write the page of a results folder again from its results, or compare several folders."""
    from attnlens.runs.pages import write_comparison, write_report

    print(write_report(folders[0]) if len(folders) == 1 else write_comparison(*folders))
