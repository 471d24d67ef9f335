"""Every computation of attnlens beside its peers, on the same work, in the same run.

    python -m benchmarks [--quick] [--only TEXT] [--rounds 3] [--out DIR] [--peers DIR]
    python -m benchmarks table RESULTS.json   # write page and documentation from stored numbers
    python -m benchmarks regression [--write] # ratios to fixed references, for CI

The program prints a table of time ratios (above 1: attnlens is faster) with quartiles, compilation
time, memory and accuracy. It writes results.json after every row, and a page with bars. A stopped
run continues where it stopped; --fresh starts again. Peers are installed on first use into separate
environments (--peers). The machine must be otherwise idle.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import regression, rendering, results
from benchmarks.contest import ROOT, Growth, Work, apart, compete
from benchmarks.environments import FOLDER, Environments, extras

MODULES = (
    "networks",
    "searches",
    "learning",
    "attention",
    "kernels",
    "curvature",
    "surface",
    "exchangeability",
    "posterior",
    "amortised_tasks",
    "pretrained",
)
PAGE, TABLE, DOCS = "benchmarks.html", "results.json", ROOT / "docs" / "benchmarks.md"


def works() -> Iterator[Work]:
    for name in MODULES:
        yield from importlib.import_module(f"benchmarks.{name}").WORKS


def growths() -> Iterator[Growth]:
    for name in MODULES:
        yield from getattr(importlib.import_module(f"benchmarks.{name}"), "GROWTH", [])


def limits(quick: bool) -> dict[str, float]:
    """The largest number of operations or bytes per second of this machine, by name."""
    from benchmarks.limits import LIMITS

    repeats = 2 if quick else 5
    return {
        name: apart(limit.make, limit.setting, sys.executable, limit.threads, repeats)["accuracy"][
            "rate"
        ]
        for name, limit in LIMITS.items()
    }


def run(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    environments = Environments(options.peers, install=not options.no_install)
    chosen = [
        work
        for work in works()
        if options.only.lower() in f"{work.group} {work.name}".lower()
        and not (options.quick and work.quick is None)
    ]
    growing = [
        growth for growth in growths() if options.only.lower() in f"growth {growth.name}".lower()
    ]
    if not chosen and not growing:
        names = ", ".join(sorted({work.group for work in works()}))
        print(f"No work is called {options.only!r}; the groups are: {names}.", file=sys.stderr)
        return 2
    record = results.empty(options.quick, options.rounds)
    record["load before"] = os.getloadavg()[0]
    if record["load before"] > 0.5:
        print("The machine is busy: ratios will be noisy.", file=sys.stderr)
    if not options.fresh and (before := results.earlier(options.out / TABLE, record)):
        record = before
        print(
            f"{options.out / TABLE} has some rows already; --fresh measures all.", file=sys.stderr
        )
    measured = {row["name"] for row in (*record["works"], *record["growth"])}
    chosen = [work for work in chosen if work.name not in measured]
    growing = [growth for growth in growing if growth.name not in measured]
    began, steps = time.perf_counter(), len(chosen) + len(growing) + 1

    def show_progress(done: int, what: str) -> None:
        spent = time.perf_counter() - began
        left = f", about {spent / done * (steps - done) / 60:.0f} min left" if done else ""
        print(f"[{done}/{steps}{left}] {what}", file=sys.stderr, flush=True)

    def save() -> None:
        """Write all rows, in the order of the modules, and the names of those still missing."""
        for kind, rows in (("works", works()), ("growth", growths())):
            order = [row.name for row in rows]
            record[kind].sort(key=lambda row, order=order: order.index(row["name"]))
            measured = {row["name"] for row in record[kind]}
            record["not measured"][kind] = [name for name in order if name not in measured]
        results.write(options.out / TABLE, record)

    if not record["limits"]:
        show_progress(0, "limits of the machine")
        record["limits"] = limits(options.quick)
    for done, work in enumerate(chosen, 1):
        show_progress(done, f"{work.group}: {work.name}")
        load = os.getloadavg()[0]
        entries = [*compete(work, environments.python, options.rounds, options.quick)]
        record["works"].append(results.record(work, entries, load))
        save()
    for done, growth in enumerate(growing, 1 + len(chosen)):
        show_progress(done, f"growth of {growth.name}")
        try:
            record["growth"].append(grow(growth, options.quick))
        except RuntimeError as error:  # the row is listed as not measured
            print(f"  {growth.name}: {error}", file=sys.stderr)
        save()
    record["not installed"] = {name: environments.failures(name) for name in extras()}
    save()
    (options.out / PAGE).write_text(rendering.page(record))
    print(rendering.text(record))
    print(f"Page: {options.out / PAGE}   Numbers: {options.out / TABLE}")
    return 0


def grow(growth: Growth, quick: bool) -> dict[str, Any]:
    sizes = [*growth.sizes][: 4 if quick else None]
    repeats = 1 if quick else growth.repeats
    measured = [
        apart(
            growth.make,
            {**growth.setting, growth.argument: size},
            sys.executable,
            growth.threads,
            repeats,
        )
        for size in sizes
    ]
    return results.grown(growth, sizes, measured)


def table(path: Path) -> int:
    try:
        record = json.loads(path.read_text())
        assert record["schema"] == results.SCHEMA
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        print(f"{path} is not a result of this program ({error!r}).", file=sys.stderr)
        return 2
    DOCS.write_text(rendering.markdown(record))
    path.with_name(PAGE).write_text(rendering.page(record))
    print(rendering.text(record))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one round")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this in the name")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every contender")
    parser.add_argument("--fresh", action="store_true", help="do not continue an earlier run")
    parser.add_argument("--out", type=Path, default=Path("benchmark-run"))
    parser.add_argument("--peers", type=Path, default=FOLDER)
    parser.add_argument("--no-install", action="store_true", help="use only installed peers")
    commands = parser.add_subparsers(dest="command")
    again = commands.add_parser("table", help="page and documentation from stored numbers")
    again.add_argument("results", type=Path)
    check = commands.add_parser("regression", help="fail where a ratio fell by a third")
    check.add_argument("--write", action="store_true", help="store today's ratios as the reference")
    options = parser.parse_args()
    if options.command == "table":
        return table(options.results)
    if options.command == "regression":
        return regression.main(options.write)
    if options.quick:
        options.rounds = 1
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("BENCH_SCRATCH", scratch)
        return run(options)


if __name__ == "__main__":
    sys.exit(main())
