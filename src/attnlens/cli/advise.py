"""`attnlens advise`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    INTERRUPTED,
    Address,
    AsJson,
    EngineName,
    File,
    FileOptions,
    PageFolder,
    Verbose,
    check_out,
    use_compilation_cache,
    with_file_options,
)
from .output import show_sheet


@with_file_options()
def advise(
    file: File,
    *,
    target: Annotated[str | None, typer.Option(help="The column that holds the labels.")] = None,
    error: Annotated[
        float | None, typer.Option(help="Count labels for this error; by default it is chosen.")
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to compute: 30s, 10m, 2h.")] = "2m",
    reading: FileOptions,
    engine: Annotated[
        EngineName, typer.Option(help="Where networks are trained: this machine, or a Ray cluster.")
    ] = EngineName.local,
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Use at most so many CPUs of the Ray cluster.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function that returns a scikit-learn estimator, or a mapping from names to "
            "them: further contenders. Can be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-advice"),
) -> None:
    """Does attention help on your data? Would more labels, more tokens or more structure help?

    Answers are printed as they come and refined while the budget lasts; Ctrl-C keeps those so far.
    """
    check_out(out)
    use_compilation_cache()
    from attnlens.core.durations import parse_duration
    from attnlens.runs.compute import map_of

    limit, mapping = parse_duration(budget), map_of(engine.value, address, workers)
    try:
        models = _own_models(model or [])
        loaded = reading.read(file, target=target)
        # A Ray cluster on this machine must start before JAX, which does not support forking. Ray
        # prints messages about lost nodes to standard output, which is reserved for the answers.
        with redirect_stdout(sys.stderr), mapping as map:
            from attnlens.advice import advise as ask

            sheet = ask(
                loaded,
                error=error,
                budget=limit,
                seed=reading.seed,
                progress=_say,
                map=map,
                models=models,
            )
    except KeyboardInterrupt:
        print("attnlens: interrupted before the first answer.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    show_sheet(sheet, out, as_json, verbose)


def _own_models(paths: list[str]) -> dict[str, Any]:
    """The user's estimators by name, from functions given as MODULE:FUNCTION.

    A function returns one estimator, which gets the name of the function, or a mapping from names
    to estimators.
    """
    if not paths:
        return {}
    sys.path.insert(0, str(Path.cwd()))  # import modules of this folder, as `python -m` does
    from attnlens.advice.loss_surface import from_name

    models: dict[str, Any] = {}
    for path in paths:
        made = from_name(path)
        models |= made if isinstance(made, Mapping) else {path.partition(":")[2]: made}
    return models


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
