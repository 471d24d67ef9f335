"""`attnlens exchangeability`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AsJson,
    Column,
    Decimal,
    Drop,
    File,
    FileOptions,
    Id,
    Images,
    MemoryLimit,
    Missing,
    Order,
    PageFolder,
    Rows,
    Seed,
    Separator,
    Text,
    Types,
    Verbose,
    check_out,
    use_compilation_cache,
)
from .output import show_sheet


def exchangeability(
    file: File,
    id: Id = None,
    order: Order = None,
    text: Text = None,
    column: Column = None,
    drop: Drop = None,
    types: Types = None,
    missing: Missing = "fill",
    images: Images = None,
    along: Annotated[
        str, typer.Option(help="The tokens of a plain table: its rows, or the columns of each row.")
    ] = "rows",
    permutations: Annotated[
        int, typer.Option(min=1, max=100_000, help="Random orders, for the p-value.")
    ] = 999,
    rows: Rows = 50_000,
    seed: Seed = 0,
    separator: Separator = None,
    decimal: Decimal = None,
    memory_limit: MemoryLimit = 1.0,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-exchangeability"),
) -> None:
    """Does the order of tokens matter in your data? Exact p-value, effects, test martingale."""
    check_out(out)
    options = FileOptions(
        text,
        id,
        order,
        column,
        drop,
        types,
        missing,
        images,
        rows,
        seed,
        separator,
        decimal,
        "keep",
        memory_limit,
    )
    use_compilation_cache()
    from attnlens.advice import order_matters

    loaded = options.read(file)
    sheet = order_matters(loaded, along=along, permutations=permutations, seed=seed)
    show_sheet(sheet, out, as_json, verbose)
