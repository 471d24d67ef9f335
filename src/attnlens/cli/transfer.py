"""`attnlens transfer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, PageFolder, Seed, Verbose, check_out, use_compilation_cache
from .output import show_sheet


def transfer(
    features: Annotated[
        Path, typer.Argument(help="Features of a pretrained model: CSV, Parquet, NPZ or NPY.")
    ],
    pretrain: Annotated[
        str, typer.Option(help="What the model was trained to predict: columns (a,b,c) or a file.")
    ],
    downstream: Annotated[str, typer.Option(help="What it is to predict now: a column or a file.")],
    seed: Seed = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-transfer"),
) -> None:
    """Will a pretrained representation transfer? κ beside LogME, H-score, LEEP and the error."""
    check_out(out)
    use_compilation_cache()
    from attnlens.advice import transfer as ask

    show_sheet(ask(features, pretrain, downstream, seed=seed), out, as_json, verbose)
