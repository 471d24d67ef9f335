"""`attnlens samples`."""

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


@with_file_options(rows=10_000)
def samples(
    file: File,
    *,
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
    reading: FileOptions,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-samples"),
) -> None:
    """How many labels does an error cost on your data, by which model?"""
    check_out(out)
    use_compilation_cache()
    from attnlens.advice import samples as ask

    loaded = reading.read(file, target=target)
    names = [name.strip() for name in models.split(",")] if models is not None else None
    sheet = ask(
        loaded,
        error=error,
        models=names,
        more=more,
        rows=reading.rows,
        seed=reading.seed,
        progress=lambda line: typer.echo(line, err=True),
    )
    show_sheet(sheet, out, as_json, verbose)
