"""`attnlens samples` and `attnlens exchangeability`: a file of yours under two instruments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnlens.checks import BadInput

from .compiling import compile_once
from .telling import AsJson, Out, tell

File = Annotated[Path, typer.Argument(help="CSV, Parquet, NPZ or NPY, or a folder of IDX files.")]
Text = Annotated[str | None, typer.Option(help="The column that holds text.")]
Id = Annotated[str | None, typer.Option(help="Of a long table: which rows are one sequence.")]
Order = Annotated[str | None, typer.Option(help="Of a long table: the order of its rows.")]
Column = Annotated[list[str] | None, typer.Option(help="Use this column only (may be repeated).")]
Drop = Annotated[list[str] | None, typer.Option(help="Leave this column out (may be repeated).")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", help="COLUMN=number, category, date, text or drop, where it looks otherwise."
    ),
]
Missing = Annotated[str, typer.Option(help="fill missing values, or drop the rows.")]
Images = Annotated[int | None, typer.Option(min=1, help="Cut images into patches of this size.")]
Rows = Annotated[int, typer.Option(min=1, help="Sample larger files.")]
Seed = Annotated[int, typer.Option(min=0, help="Of every random choice.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(samples)
    app.command()(exchangeability)


def samples(
    file: File,
    target: Annotated[str | None, typer.Option(help="The column that holds the labels.")] = None,
    error: Annotated[
        float | None, typer.Option(help="Count labels for this error; chosen if left out.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Such as baseline,self-attention,multi-layer.")
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
    as_json: AsJson = False,
    out: Out = Path("attnlens-samples"),
) -> None:
    """How many labels does an error cost on your data, by which model?"""
    writable(out)
    compile_once()
    from attnlens.data import read
    from attnlens.practice import samples as ask

    loaded = read(
        file, target=target, text=text, id=id, order=order, columns=column or None,
        drop=drop or (), types=kinds_given(types), missing=missing, images=images, rows=rows,
        seed=seed,
    )  # fmt: skip
    names = [name.strip() for name in models.split(",")] if models is not None else None
    sheet = ask(
        loaded, error=error, models=names, more=more, rows=rows, seed=seed,
        progress=lambda line: typer.echo(line, err=True),
    )  # fmt: skip
    tell(sheet, out, as_json)


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
        str, typer.Option(help="Tokens of a plain table: its rows, or the columns of each row.")
    ] = "rows",
    permutations: Annotated[int, typer.Option(min=1, help="Of tokens, for the p-value.")] = 999,
    rows: Rows = 50_000,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Out = Path("attnlens-exchangeability"),
) -> None:
    """Does the order of tokens matter in your data? An exact p-value, effects, and a bet on it."""
    writable(out)
    compile_once()
    from attnlens.data import read
    from attnlens.practice import order_matters

    loaded = read(
        file, text=text, id=id, order=order, columns=column or None, drop=drop or (),
        types=kinds_given(types), missing=missing, images=images, rows=rows, seed=seed,
    )  # fmt: skip
    sheet = order_matters(loaded, along=along, permutations=permutations, seed=seed)
    tell(sheet, out, as_json)


def kinds_given(given: list[str] | None) -> dict[str, Any]:
    found = {}
    for each in given or ():
        name, equals, kind = each.rpartition("=")
        if not equals or not name:
            raise BadInput(f"--type must be COLUMN=KIND, such as age=number, but {each!r} came.")
        found[name] = kind
    return found


def writable(out: Path) -> None:
    """A folder that cannot be is told before anything is computed."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out must name a folder, but {out} is a file; name another.")
