"""`attnlens store`: check, compact, export and merge results folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import FAILED, ResultsFolder
from .output import one_line

store = typer.Typer(help="Check, compact, export and merge results folders.", no_args_is_help=True)


@store.command("check")
def store_check(folder: ResultsFolder) -> None:
    """Read every result and print what is wrong; exit status 1 where something is."""
    from attnlens.runs.store.maintenance import check

    report = check(folder)
    print(
        f"{report.cells} cells with {report.arrays} arrays, {report.failures} cells without result."
    )
    if report.unverified:
        print(
            f"{report.unverified} cells were written by an older version, without a checksum: of "
            f"their arrays only types and shapes were checked."
        )
    for sentence in report.wrong:
        print(one_line(f"Wrong: {sentence}."))
    print("Something is wrong." if report.wrong else "Everything is correct.")
    if report.wrong:
        raise typer.Exit(FAILED)


@store.command("compact")
def store_compact(folder: ResultsFolder) -> None:
    """Return unused space in the results file to the disk."""
    from attnlens.runs.store.maintenance import compact

    before, after = compact(folder)
    print(f"{before:,} bytes before, {after:,} after.")


@store.command("export")
def store_export(
    folder: ResultsFolder, path: Annotated[Path, typer.Argument(help="The Parquet file to write.")]
) -> None:
    """Write every number of every cell to a Parquet file."""
    from attnlens.runs.store.maintenance import export

    print(f"{export(folder, path)} arrays in {path}.")


@store.command("merge")
def store_merge(
    folder: Annotated[Path, typer.Argument(help="The folder that receives the results.")],
    others: Annotated[list[Path], typer.Argument(help="The folders that the results come from.")],
) -> None:
    """Copy finished cells from other folders; a disagreement is reported, never resolved."""
    from attnlens.runs.store.maintenance import merge

    merged = merge(folder, others)
    print(f"{merged.added} cells added, {merged.known} were there already.")
    for sentence in merged.differences:
        print(one_line(f"Note: {sentence}."))
    if merged.conflicts:
        print(
            one_line(
                f"attnlens: {len(merged.conflicts)} cells disagree, and {folder} keeps its own "
                f"value: {', '.join(key[:12] for key in merged.conflicts[:5])}."
            ),
            file=sys.stderr,
        )
        raise typer.Exit(FAILED)
