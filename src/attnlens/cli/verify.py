"""`attnlens verify`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlens.core.checks import BadInput
from attnlens.core.notices import print_notice
from attnlens.core.serialise import ledger_entries
from attnlens.core.verdicts import verdict_words

from .options import (
    FAILED,
    INTERRUPTED,
    Address,
    CellEngine,
    EngineName,
    TimeLimit,
    WorkerMemory,
    Workers,
)


class ProfileName(StrEnum):
    smoke = "smoke"
    default = "default"
    full = "full"


Out = Annotated[Path, typer.Option(help="Folder for results, ledger and page.")]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--claim", help="Only this claim (may be repeated); module:NAME is a claim of your own."
    ),
]


def verify(
    profile: Annotated[
        ProfileName,
        typer.Option(help="smoke: seconds per claim; default: minutes; full: tight intervals."),
    ] = ProfileName.default,
    claim: Ids = None,
    out: Out = Path("attnlens-run"),
    engine: CellEngine = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    memory_limit: WorkerMemory = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells and an estimate of time, and stop.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="With --dry-run: also estimate for so many nodes.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page on 127.0.0.1 while the run lasts.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh/--resume", help="Set old results aside, or continue from them."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another setting for the one claim that is named; a row of its own.",
        ),
    ] = None,
    seed_range: Annotated[
        int, typer.Option(min=0, help="Judge on other seeds: range 1, 2, …; ranges are disjoint.")
    ] = 0,
) -> None:
    """Run claims as judged experiments: ledger, results and a page."""
    add_current_folder(claim)
    from attnlens.runs.verify import verify as run_claims

    from .progress import reporter

    changes = parse_settings(settings or [])
    if dry_run:
        _print_plan(profile, claim, out, workers, fresh, nodes, changes, seed_range)
        return
    if nodes is not None:
        raise BadInput("--nodes is for estimates; give --dry-run too, or leave it out.")
    try:
        with reporter() as progress:
            ledger = run_claims(
                profile.value,
                claim,
                out,
                workers=workers,
                engine=engine.value,
                address=address,
                time_limit=time_limit,
                memory_limit=memory_limit and memory_limit * 1e9,
                fresh=fresh,
                progress=progress,
                live=_print_address if live else None,
                settings=changes,
                notice=print_notice,
                seed_range=seed_range,
            )
    except KeyboardInterrupt:
        raise interrupted() from None
    _print_ledger(ledger)
    for reason in ledger["skipped"]:
        print(f"Not run: {reason}")
    print(f"\nThe page: {out / 'report.html'}")
    _print_record(ledger)
    entries = ledger_entries(ledger)
    broken = [e["id"] for e in entries if e["control"] == "supported"]
    exit_status(broken, [e["id"] for e in entries if e["cells_without_result"]])


def exit_status(broken: list[str], incomplete: list[str]) -> None:
    """End with status 1 if a control of a claim came out supported, or a cell has no result."""
    for claims, problem in (
        (broken, "a control came out supported"),
        (incomplete, "cells have no result"),
    ):
        if claims:
            print(f"attnlens: {problem} in {', '.join(claims)}; see the page.", file=sys.stderr)
    if broken or incomplete:
        raise typer.Exit(FAILED)


def interrupted() -> typer.Exit:
    """Print that finished cells are kept; return the exception that ends the command."""
    message = "interrupted; finished cells are kept, the same command goes on from there."
    print(f"attnlens: {message}", file=sys.stderr)
    return typer.Exit(INTERRUPTED)


def parse_settings(items: list[str]) -> dict[str, Any]:
    """Settings from NAME=VALUE; a value that is not JSON is a string.

    >>> parse_settings(["noise_std=0.5", "world=regression"])
    {'noise_std': 0.5, 'world': 'regression'}
    """
    changes = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise BadInput(f"--set must be NAME=VALUE; got {item!r}.")
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    return changes


def _print_record(ledger: dict[str, Any]) -> None:
    """Print the numerical path and the hash of a run."""
    from attnlens.core.numerical_path import NumericalPath

    path = NumericalPath.restore(ledger["record"]["native"])
    if path.libraries:
        print(f"Numerical path: {path}")
    others = ledger["record"]["cells_of_other_environments"]
    if others:
        print(f"{others} cells were computed earlier in another environment (packages, processor).")
    print(f"Run hash: {ledger['hash']}")


def _print_address(address: str) -> None:
    print(f"attnlens: the page is at {address} while the run lasts.", file=sys.stderr, flush=True)


def add_current_folder(names: list[str] | None) -> None:
    """Make claims in modules of the current folder importable, as `python -m` does."""
    if names and any(":" in name for name in names):
        sys.path.insert(0, str(Path.cwd()))


def _print_plan(
    profile: ProfileName,
    claim: list[str] | None,
    out: Path,
    workers: int | None,
    fresh: bool,
    nodes: int | None,
    settings: dict[str, Any],
    seed_range: int,
) -> None:
    from attnlens.core.durations import format_duration
    from attnlens.runs.planning import plan
    from attnlens.runs.provenance import cores

    planned = plan(profile.value, claim, None if fresh else out, settings, (seed_range,))
    count, missing = workers or cores(), len(planned.missing)
    done = len(planned.cells) - missing
    print(f"{len(planned.cells)} cells, {done} of them done, {missing} to compute.")
    print(
        f"About {planned.seconds:.0f} s of work ({planned.seconds / 3600:.3g} CPU-hours), "
        f"{format_duration(planned.seconds / count)} on {count} worker{'s' * (count > 1)}, plus "
        f"{format_duration(planned.compiling / count)} of compilation the first time on a machine."
    )
    if missing:
        rest = "" if planned.measured == missing else "; the rest are the claims' own figures"
        print(f"Seconds of {planned.measured} of them are from measured cells{rest}.")
    if nodes and missing:
        least, most = (format_duration(seconds) for seconds in planned.spread(nodes * count))
        cluster = f"{nodes} node{'s' * (nodes > 1)} with {count} worker{'s' * (count > 1)} each"
        longest = format_duration(planned.longest)
        print(f"On {cluster}: {least} to {most}; the longest cell takes {longest}.")


def _print_ledger(ledger: dict[str, Any]) -> None:
    """One row per claim, and below it the quantity that was estimated.

    Rows are not fitted to the terminal: a log keeps them whole, and a narrow terminal wraps them.
    """
    from rich.console import Console
    from rich.text import Text

    colours = {"supported": "green", "refuted": "dark_orange3", "undecided": "bright_black"}
    console = Console(soft_wrap=True, highlight=False, markup=False)
    entries, checks = ledger_entries(ledger), ledger["exact_checks"]
    headings = ("claim", "verdict", "estimate", "95 % interval", "control", "seconds")
    rows = [headings, *(_row(entry, entry in checks) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        [cell.ljust(width) + "  " for cell, width in zip(row, widths, strict=True)] for row in rows
    ]
    console.print("".join(lines[0]).rstrip(), style="bold")
    for entry, (claim, verdict, *others) in zip(entries, lines[1:], strict=True):
        if checks and entry is checks[0]:
            console.print("exact checks, not evidence:", style="bold")
        words = Text(claim).append(verdict, style=colours[entry["verdict"]])
        words.append("".join(others).rstrip())
        console.print(words)
        if entry["quantity"]:
            console.print(f"  {entry['quantity']}", style="bright_black")


def _row(entry: dict[str, Any], check: bool) -> tuple[str, ...]:
    """The cells of the row of a claim."""
    interval = "–"
    if entry["exact"]:
        interval = "exact"
    elif entry["interval"] and None not in entry["interval"]:
        interval = " to ".join(f"{end:.3g}" for end in entry["interval"])
    weak = {"undecided": " (too weak)", "supported": " (must not be)"}.get(entry["control"], "")
    return (
        entry["id"],
        verdict_words(entry["verdict"], check) + ("" if entry["holm"] else " (not by Holm)"),
        "–" if entry["estimate"] is None else f"{entry['estimate']:.3g}",
        interval,
        entry["control"] + weak,
        f"{entry['seconds']:.1f}",
    )
