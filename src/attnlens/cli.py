"""The command line: thin, and quick to answer. Everything heavy is imported inside a command."""

from __future__ import annotations

import json
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlens import __version__
from attnlens.checks import BadInput
from attnlens.commands import advising, files
from attnlens.commands.engines import Address, EngineName

app = typer.Typer(
    name="attnlens",
    help="What has an attention layer inferred, from how many samples, on what loss surface?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class ProfileName(StrEnum):
    smoke = "smoke"
    default = "default"
    full = "full"


Out = Annotated[Path, typer.Option(help="Folder for results, ledger and page.")]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--claim", help="Only this claim (may be repeated); or module:NAME, one of your own."
    ),
]


@app.command()
def verify(
    profile: Annotated[
        ProfileName,
        typer.Option(help="smoke: seconds a claim; default: minutes; full: tight intervals."),
    ] = ProfileName.default,
    claim: Ids = None,
    out: Out = Path("attnlens-run"),
    engine: Annotated[
        EngineName, typer.Option(help="Where cells run: this machine, or a Ray cluster.")
    ] = EngineName.local,
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one a core if not given.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that a cell may take before it is stopped.")
    ] = None,
    memory_limit: Annotated[
        float | None, typer.Option(help="GB of memory that a worker may take; more fails its cell.")
    ] = None,
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
        typer.Option("--fresh/--resume", help="Set old results aside, or go on from them."),
    ] = False,
) -> None:
    """Run claims as judged experiments: ledger, results and a page."""
    _find_own_modules(claim)
    from attnlens import verification
    from attnlens.progress import reporter

    if dry_run:
        _print_plan(profile, claim, out, workers, fresh, nodes)
        return
    if nodes is not None:
        raise BadInput("--nodes is for estimates; give --dry-run too, or leave it out.")
    try:
        with reporter() as progress:
            ledger = verification.verify(
                profile.value, claim, out, workers=workers, engine=engine.value, address=address,
                time_limit=time_limit, memory_limit=memory_limit and memory_limit * 1e9,
                fresh=fresh, progress=progress, live=_print_address if live else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        said = "interrupted; finished cells are kept, the same command goes on from there."
        print(f"attnlens: {said}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _print_ledger(ledger)
    for said in ledger["skipped"]:
        print(f"Not run: {said}")
    print(f"\nThe page: {out / 'report.html'}")
    broken = [e["id"] for e in ledger["claims"] if e["control"] == "supported"]
    lost = [e["id"] for e in ledger["claims"] if e["cells_without_result"]]
    for claims, what in ((broken, "a control came out supported"), (lost, "cells have no result")):
        if claims:
            print(f"attnlens: {what} in {', '.join(claims)}; see the page.", file=sys.stderr)
    if broken or lost:
        raise typer.Exit(FAILED)


@app.command()
def claims(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List every claim: what it says, the rule, and its controls."""
    from attnlens.claims import find

    found = find()
    if as_json:
        names = ("id", "seed", "title", "statement", "formula", "prediction", "meaning", "source")
        rows = [
            {
                **{name: getattr(c, name) for name in names},
                "controls": dict(c.controls),
                "needs": c.needs,
            }
            for c in found
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for c in found:
        print(f"{c.id}\n    {c.statement}\n    Rule: {c.prediction}")
        for words in c.controls.values():
            print(f"    Control: {words}")
        if c.needs:
            print(f"    Not run here: {c.needs}")
        print()


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `verify` wrote.")],
    second: Annotated[
        Path | None, typer.Argument(help="Another one: what changed from the first to this?")
    ] = None,
) -> None:
    """Write the page of a results folder again, from its results alone; or compare two."""
    from attnlens.report import write_comparison, write_report

    print(write_report(folder) if second is None else write_comparison(folder, second))


store = typer.Typer(help="Look after results folders.", no_args_is_help=True)
app.add_typer(store, name="store")
Folder = Annotated[Path, typer.Argument(help="A folder that `verify` wrote.")]


@store.command("check")
def store_check(folder: Folder) -> None:
    """Read every result once and say what is wrong; exit status 1 where something is."""
    from attnlens.upkeep import check

    found = check(folder)
    print(f"{found.cells} cells with {found.arrays} arrays, {found.failures} cells without result.")
    for sentence in found.wrong:
        print(f"Wrong: {sentence}.")
    print("Something is wrong." if found.wrong else "All of it is sound.")
    if found.wrong:
        raise typer.Exit(FAILED)


@store.command("compact")
def store_compact(folder: Folder) -> None:
    """Give unused room in the results file back to the disk."""
    from attnlens.upkeep import compact

    before, after = compact(folder)
    print(f"{before:,} bytes before, {after:,} after.")


@store.command("export")
def store_export(
    folder: Folder, path: Annotated[Path, typer.Argument(help="The Parquet file to write.")]
) -> None:
    """Write every number of every cell to a Parquet file."""
    from attnlens.upkeep import export

    print(f"{export(folder, path)} arrays in {path}.")


@store.command("merge")
def store_merge(
    folder: Annotated[Path, typer.Argument(help="The folder that takes results over.")],
    others: Annotated[list[Path], typer.Argument(help="The folders they come from.")],
) -> None:
    """Take finished cells over from other folders; a disagreement is told, never decided."""
    from attnlens.upkeep import merge

    merged = merge(folder, others)
    print(f"{merged.added} cells taken over, {merged.known} were there already.")
    if merged.conflicts:
        print(
            f"attnlens: {len(merged.conflicts)} cells disagree, and {folder} keeps its own value: "
            f"{', '.join(key[:12] for key in merged.conflicts[:5])}.",
            file=sys.stderr,
        )
        raise typer.Exit(FAILED)


advising.register(app)
files.register(app)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _print_address(address: str) -> None:
    print(f"attnlens: the page is at {address} while the run lasts.", file=sys.stderr, flush=True)


def _find_own_modules(names: list[str] | None) -> None:
    """A claim of the user's own is looked for in the current folder too, as `python -m` would."""
    if names and any(":" in name for name in names):
        sys.path.insert(0, str(Path.cwd()))


def _print_plan(
    profile: ProfileName,
    claim: list[str] | None,
    out: Path,
    workers: int | None,
    fresh: bool,
    nodes: int | None,
) -> None:
    from attnlens.durations import clock
    from attnlens.engine.local import cores
    from attnlens.verification import plan

    planned = plan(profile.value, claim, None if fresh else out)
    count, missing = workers or cores(), len(planned.missing)
    done = len(planned.cells) - missing
    print(f"{len(planned.cells)} cells, {done} of them done, {missing} to compute.")
    print(
        f"About {planned.seconds:.0f} s of work ({planned.seconds / 3600:.3g} CPU-hours), "
        f"{clock(planned.seconds / count)} on {count} worker{'s' * (count > 1)}, plus "
        f"{clock(planned.compiling / count)} of compilation the first time on a machine."
    )
    if missing:
        guessed = "" if planned.measured == missing else "; the rest are the claims' own figures"
        print(f"Seconds of {planned.measured} of them are from measured cells{guessed}.")
    if nodes and missing:
        least, most = (clock(seconds) for seconds in planned.spread(nodes * count))
        each = f"{nodes} node{'s' * (nodes > 1)} with {count} worker{'s' * (count > 1)} each"
        print(f"On {each}: {least} to {most}; the longest cell takes {clock(planned.longest)}.")


def _print_ledger(ledger: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"supported": "green", "refuted": "dark_orange3", "undecided": "bright_black"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "verdict", "estimate", "95 % interval", "control", "seconds"):
        table.add_column(name, no_wrap=name == "claim")
    for entry in ledger["claims"]:
        interval = "–"
        if entry["exact"]:
            interval = "exact"
        elif entry["interval"] and None not in entry["interval"]:
            interval = " to ".join(f"{end:.3g}" for end in entry["interval"])
        weak = {"undecided": " (too weak)", "supported": " (must not be)"}.get(entry["control"], "")
        estimate = "–" if entry["estimate"] is None else f"{entry['estimate']:.3g}"
        table.add_row(
            Text(entry["id"]),
            Text(entry["verdict"], style=colours[entry["verdict"]]),
            estimate,
            interval,
            entry["control"] + weak,
            f"{entry['seconds']:.1f}",
        )
    Console().print(table)


def main() -> None:
    """Run the command line; bad input becomes one sentence and exit status 2, never a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        app()
    except BadInput as error:
        # A file's name may hold anything: one line stays one line.
        told = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(error))
        print(f"attnlens: {told}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
