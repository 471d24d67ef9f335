"""`attnlens samples`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AsJson,
    Column,
    Copies,
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


def samples(
    file: File,
    target: Annotated[str | None, typer.Option(help="The column that holds the labels.")] = None,
    error: Annotated[
        float | None, typer.Option(help="Count labels for this error; by default it is chosen.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Compare these, such as baseline,self-attention,multi-layer.")
    ] = None,
    more: Annotated[
        int | None, typer.Option(min=1, help="What would so many more labels buy?")
    ] = None,
    text: Text = None,
    id: Id = None,
    order: Order = None,
    column: Column = None,
    drop: Drop = None,
    types: Types = None,
    missing: Missing = "fill",
    images: Images = None,
    rows: Rows = 10_000,
    seed: Seed = 0,
    separator: Separator = None,
    decimal: Decimal = None,
    copies: Copies = "keep",
    memory_limit: MemoryLimit = 1.0,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-samples"),
) -> None:
    """How many labels does an error cost on your data, by which model?"""
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
        copies,
        memory_limit,
    )
    use_compilation_cache()
    from attnlens.advice import samples as ask

    loaded = options.read(file, target=target)
    names = [name.strip() for name in models.split(",")] if models is not None else None
    sheet = ask(
        loaded,
        error=error,
        models=names,
        more=more,
        rows=rows,
        seed=seed,
        progress=lambda line: typer.echo(line, err=True),
    )
    show_sheet(sheet, out, as_json, verbose)
