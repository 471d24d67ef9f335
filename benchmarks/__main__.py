"""Every kernel of attnlens beside its peers, on the same work, in the same run.

    python -m benchmarks [--quick] [--only TEXT] [--rounds 3] [--out DIR] [--peers DIR]
    python -m benchmarks table RESULTS.json   # the page and the documentation's table again
    python -m benchmarks regression [--write] # ratios to references in this process, for CI

Prints a table of ratios (above 1: attnlens is faster) with quartiles, compilation apart, memory and
accuracy; writes results.json after every row, and a page with bars. A run that was stopped goes on
where it was, and --fresh begins anew. Peers are installed on first use into environments of their
own (--peers). Wants a machine with nothing else to do.
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

from benchmarks import regression, results, telling
from benchmarks.contest import ROOT, Growth, Work, apart, compete
from benchmarks.environments import Environments, extras

MODULES = (
    "networks", "searches", "learning", "attention", "kernels", "curvature", "surface",
    "exchangeability", "posterior", "amortised",
)  # fmt: skip
PAGE, TABLE, DOCS = "benchmarks.html", "results.json", ROOT / "docs" / "benchmarks.md"


def works() -> Iterator[Work]:
    for name in MODULES:
        yield from importlib.import_module(f"benchmarks.{name}").WORKS


def growths() -> Iterator[Growth]:
    for name in MODULES:
        yield from getattr(importlib.import_module(f"benchmarks.{name}"), "GROWTH", [])


def limits(quick: bool) -> dict[str, float]:
    """Operations or bytes a second that this machine can do at most."""
    from benchmarks.limits import LIMITS

    repeats = 2 if quick else 5
    return {
        name: apart(each.make, each.setting, sys.executable, each.threads, repeats)["accuracy"][
            "rate"
        ]
        for name, each in LIMITS.items()
    }


def run(given: argparse.Namespace) -> int:
    given.out.mkdir(parents=True, exist_ok=True)
    environments = Environments(given.peers, install=not given.no_install)
    chosen = [
        work
        for work in works()
        if given.only.lower() in f"{work.group} {work.name}".lower()
        and not (given.quick and work.quick is None)
    ]
    growing = [each for each in growths() if given.only.lower() in f"growth {each.name}".lower()]
    if not chosen and not growing:
        names = ", ".join(sorted({work.group for work in works()}))
        print(f"No work is called {given.only!r}; there are: {names}.", file=sys.stderr)
        return 2
    found = results.empty(given.quick, given.rounds)
    found["load before"] = os.getloadavg()[0]
    if found["load before"] > 0.5:
        print("The machine is busy: ratios will be noisy.", file=sys.stderr)
    if not given.fresh and (before := results.earlier(given.out / TABLE, found)):
        found = before
        print(f"{given.out / TABLE} has some rows already; --fresh measures all.", file=sys.stderr)
    there = {each["name"] for each in (*found["works"], *found["growth"])}
    chosen = [work for work in chosen if work.name not in there]
    growing = [growth for growth in growing if growth.name not in there]
    began, steps = time.perf_counter(), len(chosen) + len(growing) + 1

    def tell(done: int, what: str) -> None:
        spent = time.perf_counter() - began
        left = f", about {spent / done * (steps - done) / 60:.0f} min left" if done else ""
        print(f"[{done}/{steps}{left}] {what}", file=sys.stderr, flush=True)

    def keep() -> None:
        """After every row, in the order of the modules, with what is still missing."""
        for kind, every in (("works", works()), ("growth", growths())):
            order = [each.name for each in every]
            found[kind].sort(key=lambda each, order=order: order.index(each["name"]))
            there = {each["name"] for each in found[kind]}
            found["not measured"][kind] = [name for name in order if name not in there]
        results.write(given.out / TABLE, found)

    if not found["limits"]:
        tell(0, "limits of the machine")
        found["limits"] = limits(given.quick)
    for done, work in enumerate(chosen, 1):
        tell(done, f"{work.group}: {work.name}")
        load = os.getloadavg()[0]
        entries = [*compete(work, environments.python, given.rounds, given.quick)]
        found["works"].append(results.record(work, entries, load))
        keep()
    for done, growth in enumerate(growing, 1 + len(chosen)):
        tell(done, f"growth of {growth.name}")
        try:
            found["growth"].append(grow(growth, given.quick))
        except RuntimeError as error:  # said, and listed as not measured
            print(f"  {growth.name}: {error}", file=sys.stderr)
        keep()
    found["not installed"] = {name: environments.failures(name) for name in extras()}
    keep()
    (given.out / PAGE).write_text(telling.page(found))
    print(telling.text(found))
    print(f"Page: {given.out / PAGE}   Numbers: {given.out / TABLE}")
    return 0


def grow(growth: Growth, quick: bool) -> dict[str, Any]:
    sizes = [*growth.sizes][: 4 if quick else None]
    repeats = 1 if quick else growth.repeats
    measured = [
        apart(growth.make, {**growth.setting, growth.argument: size}, sys.executable,
              growth.threads, repeats)
        for size in sizes
    ]  # fmt: skip
    return results.grown(growth, sizes, measured)


def table(path: Path) -> int:
    try:
        found = json.loads(path.read_text())
        assert found["schema"] == results.SCHEMA
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        print(f"{path} is not a result of this program ({error!r}).", file=sys.stderr)
        return 2
    DOCS.write_text(telling.markdown(found))
    path.with_name(PAGE).write_text(telling.page(found))
    print(telling.text(found))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one round")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every contender")
    parser.add_argument("--fresh", action="store_true", help="do not go on from an earlier run")
    parser.add_argument("--out", type=Path, default=Path("benchmark-run"))
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers")
    parser.add_argument("--no-install", action="store_true", help="only peers that are there")
    commands = parser.add_subparsers(dest="command")
    again = commands.add_parser("table", help="page and documentation from stored numbers")
    again.add_argument("results", type=Path)
    check = commands.add_parser("regression", help="fail where a ratio fell by a third")
    check.add_argument("--write", action="store_true", help="keep today's ratios as the bar")
    given = parser.parse_args()
    if given.command == "table":
        return table(given.results)
    if given.command == "regression":
        return regression.main(given.write)
    if given.quick:
        given.rounds = 1
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("BENCH_SCRATCH", scratch)
        return run(given)


if __name__ == "__main__":
    sys.exit(main())
