"""`attnlens advise`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

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
    as_json: AsJson = False,
    verbose: Verbose = False,
    out: PageFolder = Path("attnlens-advice"),
) -> None:
    """Does attention help on your data, and how much would more labels, tokens or structure?

    Answers are printed as they come and refined while the budget lasts; Ctrl-C keeps those so far.
    """
    check_out(out)
    use_compilation_cache()
    from attnlens.core.durations import parse_duration
    from attnlens.runs.compute import map_of

    limit, mapping = parse_duration(budget), map_of(engine.value, address, workers)
    try:
        loaded = reading.read(file, target=target)
        # A cluster of our own starts before JAX, which does not support being forked. Ray reports
        # lost nodes on standard output, which is for the answers.
        with redirect_stdout(sys.stderr), mapping as map:
            from attnlens.advice import advise as ask

            sheet = ask(
                loaded,
                error=error,
                budget=limit,
                seed=reading.seed,
                progress=_say,
                map=map,
            )
    except KeyboardInterrupt:
        print("attnlens: interrupted before the first answer.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    show_sheet(sheet, out, as_json, verbose)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
