"""Everything that a paper needs from a run: figures, tables and references, as files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnlens.core.checks import BadInput, one_of
from attnlens.core.drawing import Surface, View
from attnlens.core.files import explained_os_errors, replace_file
from attnlens.report.draw.paper import COLUMN, FIGURE_FORMATS, paper_figure
from attnlens.report.paper import (
    CLAIM_COLUMNS,
    PART_COLUMNS,
    RANGE_PART_COLUMNS,
    STABILITY_COLUMNS,
    TABLE_FORMATS,
    csv_table,
    latex_document,
    latex_tables,
    markdown_table,
)

from .loaded_replication import RANGE_PARTS, LoadedReplication
from .loading import CLAIMS, PARTS, LoadedRun, load
from .pages import explained_documents

WIDEST = 20.0  # inches
LONGEST_NAME = 100  # characters of a file name
INCLUDED = ("pdf", "png")  # formats that pdfLaTeX includes, in the order of preference


def export_run(
    folder: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("pdf",),
    tables: Sequence[str] = ("latex",),
    width: float = COLUMN,
) -> list[Path]:
    """Write the figures, tables and references of a finished run to the folder `to`.

    `figures` are formats among pdf, svg and png, `tables` among latex, csv and markdown; figures
    are `width` inches wide. Files that `to` already holds stay, unless one of the same name is
    written. Returns the paths of the written files.

    >>> export_run("no-such-run", "paper")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    for name in figures:
        one_of("figures", name, FIGURE_FORMATS)
    for name in tables:
        one_of("tables", name, TABLE_FORMATS)
    if not (math.isfinite(width) and 1.0 <= width <= WIDEST):
        raise BadInput(f"width must be between 1 and {WIDEST:g} inches; got {width!r}.")
    run: LoadedRun | LoadedReplication = load(folder)
    to = Path(to)
    with explained_os_errors(to):
        to.mkdir(parents=True, exist_ok=True)
    names = file_names(run.figures)
    with explained_documents(Path(folder)):
        files = _tables(run, names, figures, tables, width)
        written = [_write(to / name, text) for name, text in files.items()]
        for name, record in run.figures.items():
            for file_format in dict.fromkeys(figures):
                path = to / f"{names[name]}.{file_format}"
                written.append(_write(path, paper_figure(record, file_format, width)))
    return written


def _tables(
    run: LoadedRun | LoadedReplication,
    names: dict[str, str],
    figures: Sequence[str],
    tables: Sequence[str],
    width: float,
) -> dict[str, str]:
    """The text files of a run, by name."""
    claims, parts = run.claim_rows(), run.part_rows()
    claim_names, part_names = list(CLAIMS), list(PARTS)
    claim_columns, part_columns = CLAIM_COLUMNS, PART_COLUMNS
    if isinstance(run, LoadedReplication):
        claim_names, part_names = list(run.claim_kinds), list(RANGE_PARTS)
        claim_columns, part_columns = STABILITY_COLUMNS, RANGE_PART_COLUMNS
    files = {"references.bib": run.bibtex()}
    if "csv" in tables:
        files["claims.csv"] = csv_table(claims, claim_names)
        files["parts.csv"] = csv_table(parts, part_names)
    if "markdown" in tables:
        files["claims.md"] = markdown_table(claims, claim_columns)
        files["parts.md"] = markdown_table(parts, part_columns)
    if "latex" in tables:
        included = next((name for name in INCLUDED if name in figures), None)
        shown = {
            f"{names[name]}.{included}": caption(name, record)
            for name, record in run.figures.items()
            if included is not None
        }
        title = f"Run {run.hash} of attnlens, profile {run.profile}"
        files["tables.tex"] = latex_tables(claims, parts, claim_columns, part_columns)
        files["document.tex"] = latex_document(title, shown, width)
    return files


def _write(path: Path, content: str | bytes) -> Path:
    replace_file(path, content)
    return path


def caption(name: str, record: View) -> str:
    """The name of a figure and its title."""
    title = record.quantity if isinstance(record, Surface) else record.title
    return f"{name}: {title}"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A file name for each name, all different: ASCII letters, digits and hyphens only.

    >>> file_names(["A.one", "A-one", "../x"])
    {'A.one': 'A-one', 'A-one': 'A-one-2', '../x': '---x'}
    """
    result: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        stem = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:LONGEST_NAME]
        number, free = 1, stem
        while free.lower() in used:  # file systems may ignore the case
            number += 1
            free = f"{stem}-{number}"
        used.add(free.lower())
        result[name] = free
    return result
