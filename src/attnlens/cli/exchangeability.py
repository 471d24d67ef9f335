"""`attnlens exchangeability`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AsJson,
    File,
    FileOptions,
    PageFolder,
    Verbose,
    check_out,
    use_compilation_cache,
    with_file_options,
)
from .output import show_sheet


@with_file_options(leave_out=["copies"])
def exchangeability(
    file: File,
    *,
    reading: FileOptions,
    along: Annotated[
        str, typer.Option(help="The tokens of a plain table: its rows, or the columns of each row.")
    ] = "rows",
    permutations: Annotated[
        int, typer.Option(min=1, max=100_000, help="Random orders, for the p-value.")
    ] = 999,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-exchangeability"),
) -> None:
    """Does the order of tokens matter in your data? Exact p-value, effects, test martingale."""
    check_out(out)
    use_compilation_cache()
    from attnlens.advice import order_matters

    loaded = reading.read(file)
    sheet = order_matters(loaded, along=along, permutations=permutations, seed=reading.seed)
    show_sheet(sheet, out, as_json, verbose)
