"""`attnlens advise`, `attnlens transfer` and `attnlens landscape`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from .compiling import compile_once
from .engines import Address, EngineName
from .files import (
    Column,
    Drop,
    File,
    Id,
    Images,
    Missing,
    Order,
    Rows,
    Seed,
    Text,
    Types,
    kinds_given,
    writable,
)  # fmt: skip
from .telling import AsJson, Out, tell

INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(advise)
    app.command()(transfer)
    app.command()(landscape)


def advise(
    file: File,
    target: Annotated[str | None, typer.Option(help="The column that holds the labels.")] = None,
    error: Annotated[
        float | None, typer.Option(help="Count labels for this error; chosen if left out.")
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to look: 30s, 10m, 2h.")] = "2m",
    text: Text = None,
    id: Id = None,
    order: Order = None,
    column: Column = None,
    drop: Drop = None,
    types: Types = None,
    missing: Missing = "fill",
    images: Images = None,
    rows: Rows = 50_000,
    seed: Seed = 0,
    engine: Annotated[
        EngineName, typer.Option(help="Where networks are trained: here, or on a Ray cluster.")
    ] = EngineName.local,
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="At most so many CPUs of the Ray cluster.")
    ] = None,
    as_json: AsJson = False,
    out: Out = Path("attnlens-advice"),
) -> None:
    """Does attention pay on your data, and what would more labels, tokens or structure buy?

    Answers are printed as they come and refined while the budget lasts; Ctrl-C keeps what there is.
    """
    writable(out)
    compile_once()
    from attnlens.computing import map_of
    from attnlens.data import read
    from attnlens.durations import seconds

    limit, mapping = seconds(budget), map_of(engine.value, address, workers)
    try:
        loaded = read(
            file, target=target, text=text, id=id, order=order, columns=column or None,
            drop=drop or (), types=kinds_given(types), missing=missing, images=images, rows=rows,
            seed=seed,
        )  # fmt: skip
        # A cluster of our own starts before JAX, which minds being forked. Ray tells of lost nodes
        # on standard output, which is for the answers.
        with redirect_stdout(sys.stderr), mapping as map:
            from attnlens.practice import advise as ask

            sheet = ask(loaded, error=error, budget=limit, seed=seed, progress=_say, map=map)
    except KeyboardInterrupt:
        print("attnlens: interrupted before the first answer.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    tell(sheet, out, as_json)


def transfer(
    features: Annotated[
        Path, typer.Argument(help="Features of a pretrained model: CSV, Parquet, NPZ or NPY.")
    ],
    pretrain: Annotated[
        str, typer.Option(help="What it was trained to predict: columns (a,b,c) or a file.")
    ],
    downstream: Annotated[str, typer.Option(help="What it shall predict: a column or a file.")],
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Out = Path("attnlens-transfer"),
) -> None:
    """Will a pretrained representation transfer? κ beside LogME, H-score, LEEP and the error."""
    writable(out)
    compile_once()
    from attnlens.practice import transfer as ask

    tell(ask(features, pretrain, downstream, seed=seed), out, as_json)


def landscape(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function, here or installed, that returns (params, loss, data).",
        ),
    ],
    points: Annotated[int, typer.Option(min=2, help="Along each side of the picture.")] = 25,
    eigenpairs: Annotated[int, typer.Option(min=1, help="Eigenvalues at each end.")] = 3,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Out = Path("attnlens-landscape"),
) -> None:
    """Is this minimum flat? Eigenvalues, trace, density and surface of your own model's loss."""
    writable(out)
    compile_once()
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    from attnlens.practice import landscape as ask

    tell(ask(model, points=points, eigenpairs=eigenpairs, seed=seed), out, as_json)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
