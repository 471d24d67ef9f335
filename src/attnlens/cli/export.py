"""`attnlens export`: figures, tables and references of a run, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import ResultsFolder

FIGURES = ("pdf",)
TABLES = ("latex",)


def export(
    folder: ResultsFolder,
    to: Annotated[Path, typer.Option(help="The folder to write to; its other files stay.")],
    figures: Annotated[
        list[str] | None, typer.Option(help="pdf, svg or png (may be repeated).")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option(help="latex, csv or markdown (may be repeated).")
    ] = None,
    width: Annotated[float, typer.Option(help="The width of a figure in inches.")] = 3.4,
) -> None:
    """Write the figures, tables and references of a run for a paper, PDF and LaTeX by default."""
    from attnlens.runs.paper import export_run

    written = export_run(
        folder, to, figures=figures or FIGURES, tables=tables or TABLES, width=width
    )
    print(f"{len(written)} files in {to}.")
