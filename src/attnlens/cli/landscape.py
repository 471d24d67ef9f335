"""`attnlens landscape`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, PageFolder, Seed, Verbose, check_out, use_compilation_cache
from .output import show_sheet


def landscape(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function that returns (params, loss, data); its module is here or installed.",
        ),
    ],
    points: Annotated[
        int, typer.Option(min=2, max=500, help="Grid points per side of the surface.")
    ] = 25,
    eigenpairs: Annotated[int, typer.Option(min=1, max=100, help="Eigenvalues at each end.")] = 3,
    seed: Seed = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-landscape"),
) -> None:
    """Is this minimum flat? Eigenvalues, trace, density and surface of your own model's loss."""
    check_out(out)
    use_compilation_cache()
    sys.path.insert(0, str(Path.cwd()))  # import modules of this folder, as `python -m` does
    from attnlens.advice import landscape as ask

    show_sheet(ask(model, points=points, eigenpairs=eigenpairs, seed=seed), out, as_json, verbose)
