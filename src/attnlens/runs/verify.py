"""`attnlens verify`: claims -> cells -> store -> ledger and page.

    folder/results.sqlite   every finished cell
    folder/ledger.json      one entry per claim
    folder/report.html      the page

The judge reads cells from the store, in the order of the plan, so an interrupted and resumed run
ends with the same ledger as a run without interruption.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

from attnlens.claims.claim import Claim, Profile
from attnlens.claims.registry import find
from attnlens.core.cells import Cell, Fault
from attnlens.core.checks import one_of
from attnlens.core.files import replace_file
from attnlens.report.live import serving
from attnlens.report.page import render_documents

from .compute import (
    Engine,
    Runner,
    RunProgress,
    ShowProgress,
    compute,
    runner_of,
    shown_in_notebook,
)
from .judge import judge_all
from .pages import write_report
from .planning import cells_of, check_seed_range, runnable, selection
from .provenance import (
    RunRecord,
    claim_versions,
    environment,
    judge_version,
    lens_records,
    machine,
    numerics,
    packages,
    prepared_path,
    reused_cells,
)
from .store.store import Store


def verify(
    profile: Profile = "default",
    claims: Sequence[str] | None = None,
    out: str | os.PathLike[str] = "attnlens-run",
    *,
    workers: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    fresh: bool = False,
    progress: ShowProgress | None = None,
    live: Callable[[str], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    notice: Callable[[str], None] = lambda _: None,
    seed_range: int = 0,
) -> dict[str, Any]:
    """Run claims as judged experiments and return the ledger; everything is stored in `out`.

    Cells that `out` already holds are not computed again, unless `fresh` renames the old results.
    A claim that needs a package which is not installed is left out: see `skipped` in the ledger.
    `engine` "ray" computes on the Ray cluster at `address`; without an address, on the cluster that
    runs on this machine, or on a new one. A cell is stopped after `time_limit` seconds, or when its
    worker needs more than `memory_limit` bytes. With `live`, the page is served on loopback during
    the run; `live` is called with its address. `settings` changes settings of the one claim that is
    named: a variation, with an id of its own, that never changes the verdict of the claim itself.
    `progress` is called after every cell; without it, a notebook shows a bar.
    `seed_range` k > 0 judges the same claims on other seeds, which no other range shares.
    Native code that the claims can reach is compiled first, once on a machine; `notice` is called
    with one sentence before. Two runs of one profile whose ledgers have the same `hash` have equal
    ledgers.

    >>> import tempfile
    >>> ledger = verify("smoke", ["A.weights-are-posterior"], tempfile.mkdtemp(), workers=1)
    >>> [(entry["verdict"], entry["control"]) for entry in ledger["exact_checks"]]
    [('supported', 'refuted')]
    """
    one_of("profile", profile, get_args(Profile))
    check_seed_range("seed_range", seed_range)
    run = runner_of(engine, address, workers, time_limit, memory_limit)
    show = shown_in_notebook(progress)
    chosen, folder, started = selection(claims, settings), Path(out), time.perf_counter()
    selected, skipped = runnable(chosen)
    names = command_names(claims, chosen)
    with Store.writing(folder, fresh) as store:
        # The numerical path must be known before the keys of cells, which contain it.
        path = prepared_path([claim.measure.__module__ for claim in selected], notice)
        versions = claim_versions(chosen, selected)
        lenses = {claim.lens for claim in selected}
        record = RunRecord(
            versions, judge_version(), path, environment(lenses), seed_ranges=(seed_range,)
        )
        cells = [cell for claim in selected for cell in cells_of(claim, profile, seed_range)]
        judged = partial(_judged, selected, names, profile, seed_range)
        with _live_page(judged, folder, show, live, lenses) as report:
            compute_missing(store, cells, run, record, report, notice)
        ledger, page = judged(store)
        store.end_run()
        ledger["skipped"] = skipped
        add_provenance(ledger, lenses)
        record = with_reused_cells(record, store, cells)
        ledger["hash"], ledger["record"] = record.hash, record.plain()
        ledger["seconds"] = round(time.perf_counter() - started, 3)
        store.write_document("ledger", ledger)
        store.write_document("page", page)
        store.write_document("cells", [cell.key for cell in cells])
        replace_file(
            folder / "ledger.json", json.dumps(ledger, indent=2, ensure_ascii=False) + "\n"
        )
        write_report(folder, store)
    return ledger


def command_names(names: Sequence[str] | None, chosen: Sequence[Claim]) -> dict[str, str]:
    """For the id of every chosen claim, the name by which `--claim` finds it.

    `chosen` is `selection(names, …)`: a claim of the user's own is found as module:NAME only, and
    a variation under the name of the claim that it varies.
    """
    own = {find([name])[0].id: name for name in names or () if ":" in name}
    originals = (claim.id for claim in find(names))
    return {
        claim.id: own.get(original, original)
        for claim, original in zip(chosen, originals, strict=True)
    }


def _judged(
    claims: Sequence[Claim],
    names: Mapping[str, str],
    profile: Profile,
    seed_range: int,
    store: Store,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger and the content of the page, which names every claim as `--claim` finds it."""
    ledger, page = judge_all(claims, profile, store, seed_range)
    for section in page["claims"]:
        section["name"] = names[section["id"]]
    return ledger, page


def compute_missing(
    store: Store,
    cells: Sequence[Cell],
    run: Runner,
    record: RunRecord,
    progress: ShowProgress,
    notice: Callable[[str], None],
) -> None:
    """Compute those of `cells` that are missing or damaged in the store."""
    finished = store.keys()
    damaged = store.damage({cell.key for cell in cells} & finished)
    if damaged:
        notice(
            f"{len(damaged)} stored cells of {store.folder} are damaged and are computed again: "
            f"{next(iter(damaged.values()))}."
        )
        store.discard(damaged)
    finished -= damaged.keys()
    missing = [cell for cell in cells if cell.key not in finished]
    recorded = numerics(record.path, record.environment)
    versions = dict(record.environment.packages)
    start = partial(store.start_run, machine(), versions, recorded)

    def begin() -> None:
        start()
        for cell in cells:
            if cell.key in damaged:
                store.keep_fault(cell, Fault("damaged", damaged[cell.key]))

    compute(store, missing, len(cells), run, begin, progress)


def with_reused_cells(record: RunRecord, store: Store, cells: Sequence[Cell]) -> RunRecord:
    """A copy of `record` that lists the cells which were computed in another environment."""
    keys = {cell.key for cell in cells}
    return replace(record, reused=reused_cells(store, keys, record.path, record.environment))


@contextmanager
def _live_page(
    judged: Callable[[Store], tuple[dict[str, Any], dict[str, Any]]],
    folder: Path,
    progress: ShowProgress,
    live: Callable[[str], None] | None,
    lenses: Iterable[str],
) -> Iterator[ShowProgress]:
    """Yield `progress` or, if `live` is given, serve the page and yield a function that also
    updates it."""
    if live is None:
        yield progress
        return
    latest = RunProgress(0, 0, None, None)
    rendered: tuple[int, str] = (-1, "")

    def report(now: RunProgress) -> None:
        nonlocal latest
        latest = now
        progress(now)

    def status() -> str:
        left = "" if latest.seconds_left is None else f", about {latest.seconds_left:.0f} s left"
        return f"Running: {latest.done} of {latest.total} cells{left}. Verdicts are provisional."

    def page() -> str:
        nonlocal rendered
        if rendered[0] != latest.done:
            done = latest.done
            with Store.reading(folder) as store:
                ledger, content = judged(store)
                add_provenance(ledger, lenses)
                # This run has no recorded end yet, so the store lists it as stopped; it is not.
                faults = [fault for fault in store.faults() if fault["kind"] != "stopped"]
                text = render_documents(ledger, content, store.failures(), status(), faults)
            rendered = done, text
        return rendered[1]

    def state() -> dict[str, Any]:
        return {"words": status(), "done": latest.done, "total": latest.total}

    with serving(page, state) as address:
        live(address)
        yield report


def add_provenance(ledger: dict[str, Any], lenses: Iterable[str]) -> None:
    """Add to the ledger its date, machine, package versions and a description of its lenses."""
    ledger["machine"] = {**machine(), "finished": datetime.now(UTC).isoformat(" ", "seconds")}
    ledger["packages"] = packages(lenses)
    ledger["lenses"] = lens_records(lenses)
