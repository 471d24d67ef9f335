"""`attnlens verify`: claims -> cells -> store -> ledger and page.

    folder/results.sqlite   every finished cell
    folder/ledger.json      one entry a claim
    folder/report.html      the page

Judging reads back what the store holds, in the order of the plan, so that an interrupted and
resumed run ends with the same ledger as one that went through.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

from attnlens import __version__, statistics
from attnlens.checks import BadInput, one_of
from attnlens.claims.base import PREDICTION, Claim, Measured, Profile
from attnlens.claims.registry import find
from attnlens.computing import Engine, Plan, Progress, compute, runner_of
from attnlens.engine import local
from attnlens.layout import dump
from attnlens.records import Outcome, Part, Verdict, plain
from attnlens.report import write_report
from attnlens.report.live import serving
from attnlens.report.page import render_documents
from attnlens.store import Store, replace_file

PACKAGES = ("attnlens", "jax", "jaxlib", "numpy", "scipy", "equinox")


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
    progress: Callable[[Progress], None] = lambda _: None,
    live: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run claims as judged experiments and return the ledger; `out` keeps everything.

    Cells that `out` already holds are not computed again, unless `fresh` sets them aside. A claim
    whose data come with a package that is not installed is left out: see the ledger's `skipped`.
    `engine` "ray" computes on the Ray cluster at `address`, or on one found or made here. A cell
    may take `time_limit` seconds, and its worker `memory_limit` bytes, before it is stopped.
    With `live`, the page is served on loopback while the run lasts; `live` is called with its
    address.

    >>> import tempfile
    >>> ledger = verify("smoke", ["A.weights-are-posterior"], tempfile.mkdtemp(), workers=1)
    >>> [(entry["verdict"], entry["control"]) for entry in ledger["claims"]]
    [('supported', 'refuted')]
    """
    one_of("profile", profile, get_args(Profile))
    run = runner_of(engine, address, workers, time_limit, memory_limit)
    (chosen, skipped), folder, started = _runnable(find(claims)), Path(out), time.perf_counter()
    with Store.writing(folder, fresh) as store:
        cells = [cell for claim in chosen for cell in claim.cells(profile)]
        had = store.keys()
        missing = [cell for cell in cells if cell.key not in had]
        with _watched(chosen, profile, folder, progress, live) as told:
            begin = partial(store.start_run, machine(), packages())
            compute(store, missing, len(cells), run, begin, told)
        ledger, page = _judge_all(chosen, profile, store)
        store.end_run()
        ledger["skipped"] = skipped
        _sign(ledger)
        ledger["seconds"] = round(time.perf_counter() - started, 3)
        store.write_document("ledger", ledger)
        store.write_document("page", page)
        replace_file(
            folder / "ledger.json", json.dumps(ledger, indent=2, ensure_ascii=False) + "\n"
        )
        write_report(folder, store)
    return ledger


def plan(
    profile: Profile, claims: Sequence[str] | None = None, out: str | os.PathLike[str] | None = None
) -> Plan:
    """What `verify` would do: its cells, those that are missing, and an estimate of their seconds.

    A cell's seconds are the mean of measured ones with the same parameters where `out` has them,
    else the claim's own rough figure.
    """
    cells = [cell for claim in _runnable(find(claims))[0] for cell in claim.cells(profile)]
    had, measured = set(), {}
    if out is not None and (Path(out) / "results.sqlite").is_file():
        with Store.reading(Path(out)) as store:
            had, measured = store.keys(), store.mean_seconds()
    missing = [cell for cell in cells if cell.key not in had]
    known = [measured.get((c.claim, c.arm, dump(c.parameters))) for c in missing]
    seconds = [c.cost if k is None else k for c, k in zip(missing, known, strict=True)]
    counted = len(known) - known.count(None)
    return Plan(cells, missing, sum(seconds), max(seconds, default=0.0), counted)


def _runnable(claims: Sequence[Claim]) -> tuple[list[Claim], list[str]]:
    """The claims whose packages are installed, and a sentence for each of the others."""
    skipped = [said for claim in claims if (said := claim.needs)]
    if len(skipped) == len(claims):
        raise BadInput(skipped[0])
    return [claim for claim in claims if not claim.needs], skipped


@contextmanager
def _watched(
    claims: Sequence[Claim],
    profile: Profile,
    folder: Path,
    progress: Callable[[Progress], None],
    live: Callable[[str], None] | None,
) -> Iterator[Callable[[Progress], None]]:
    """`progress`, or one that also feeds the live page while the block lasts."""
    if live is None:
        yield progress
        return
    latest = Progress(0, 0, None, None)
    rendered: tuple[int, str] = (-1, "")

    def told(now: Progress) -> None:
        nonlocal latest
        latest = now
        progress(now)

    def words() -> str:
        left = "" if latest.seconds_left is None else f", about {latest.seconds_left:.0f} s left"
        return f"Running: {latest.done} of {latest.total} cells{left}. Verdicts are provisional."

    def page() -> str:
        nonlocal rendered
        if rendered[0] != latest.done:
            done = latest.done
            with Store.reading(folder) as store:
                ledger, content = _judge_all(claims, profile, store)
                _sign(ledger)
                # The run that is under way has no end yet: that is not a fault.
                faults = [fault for fault in store.faults() if fault["kind"] != "stopped"]
                text = render_documents(ledger, content, store.failures(), words(), faults)
            rendered = done, text
        return rendered[1]

    def state() -> dict[str, Any]:
        return {"words": words(), "done": latest.done, "total": latest.total}

    with serving(page, state) as address:
        live(address)
        yield told


def _sign(ledger: dict[str, Any]) -> None:
    """When, where and with what the ledger was made."""
    ledger["machine"] = {**machine(), "finished": datetime.now(UTC).isoformat(" ", "seconds")}
    ledger["packages"] = packages()


# -- judging ---------------------------------------------------------------------------------------


def _judge_all(
    claims: Sequence[Claim], profile: Profile, store: Store
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger (one entry a claim) and the page's content (texts, parts, figures)."""
    failures = {failure["key"]: failure["reason"] for failure in store.failures()}
    arms = [_measured(claim, profile, store) for claim in claims]
    lost = [[failures[k] for k in keys if k in failures] for _, keys, _ in arms]
    whole_claims = [i for i in range(len(claims)) if not arms[i][1]]
    judged = {i: list(claims[i].judge(arms[i][0][PREDICTION])) for i in whole_claims}
    decided = dict(zip(judged, statistics.verdicts(list(judged.values())), strict=True))

    entries, sections = [], []
    for i, claim in enumerate(claims):
        measured, missing, seconds = arms[i]
        if i in decided:
            verdict = decided[i]
            controls = {
                arm: statistics.control_verdict(claim.judge(measured[arm]), len(claims))
                for arm in claim.controls
            }
            figure = asdict(claim.figure(measured))
            views = [plain(view) for view in claim.views(measured)]
        else:
            reason = (
                f"{len(missing)} of its cells have no result: {(lost[i] or ['not computed'])[0]}"
            )
            verdict = Verdict("undecided", (), 1.0, 1.0, False, reason)
            controls = {arm: replace(verdict) for arm in claim.controls}
            figure, views = None, []
        entries.append(_entry(claim, verdict, controls, len(missing), seconds))
        sections.append(_section(claim, verdict, controls, figure, views))
    ledger = {"schema": 1, "attnlens": __version__, "profile": profile, "claims": entries}
    return ledger, {"profile": profile, "claims": sections}


def _measured(
    claim: Claim, profile: Profile, store: Store
) -> tuple[dict[str, list[Measured]], list[str], float]:
    """A claim's finished cells by arm, the keys of those without a result, and their seconds."""
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    missing, seconds = [], 0.0
    for cell in claim.cells(profile):
        result = store.result(cell.key)
        if result is None:
            missing.append(cell.key)
        else:
            arms[cell.arm].append(Measured(cell.parameters, cell.seeds, result.values))
            seconds += result.seconds
    return arms, missing, seconds


def together(controls: Sequence[Verdict]) -> Outcome:
    """Several controls as one: supported if any is, refuted only if all are."""
    outcomes = {control.outcome for control in controls}
    if "supported" in outcomes:
        return "supported"
    return "refuted" if outcomes == {"refuted"} else "undecided"


def _entry(
    claim: Claim, verdict: Verdict, controls: dict[str, Verdict], missing: int, seconds: float
) -> dict[str, Any]:
    part = statistics.deciding(verdict.outcome, verdict.parts) if verdict.parts else None
    return {
        "id": claim.id,
        "seed": claim.seed,
        "verdict": verdict.outcome,
        "quantity": part.quantity if part else None,
        "estimate": _number(part.estimate) if part else None,
        "interval": [_number(part.low), _number(part.high)] if part else None,
        "region": str(part.region) if part else None,
        "exact": verdict.exact,
        "control": together(list(controls.values())),
        "controls": {arm: control.outcome for arm, control in controls.items()},
        "reason": verdict.reason,
        "cells_without_result": missing,
        "seconds": round(seconds, 3),
    }


def _section(
    claim: Claim,
    verdict: Verdict,
    controls: dict[str, Verdict],
    figure: dict[str, Any] | None,
    views: list[dict[str, Any]],
) -> dict[str, Any]:
    """A claim for the page: plain data only."""
    return {
        "id": claim.id,
        "title": claim.title,
        "statement": claim.statement,
        "formula": claim.formula,
        "prediction": claim.prediction,
        "assumptions": list(claim.assumptions),
        "meaning": claim.meaning,
        "source": claim.source,
        "verdict": _told(verdict),
        "controls": [
            {"arm": arm, "words": words, **_told(controls[arm])}
            for arm, words in claim.controls.items()
        ],
        "figure": figure,
        "views": views,
    }


def _told(verdict: Verdict) -> dict[str, Any]:
    parts = [_part(part) for part in verdict.parts]
    return {"outcome": verdict.outcome, "reason": verdict.reason, "parts": parts}


def _part(part: Part) -> dict[str, Any]:
    return {
        "quantity": part.quantity,
        "estimate": _number(part.estimate),
        "low": _number(part.low),
        "high": _number(part.high),
        "region": str(part.region),
        "edges": [_number(part.region.low), _number(part.region.high)],
        "count": part.count,
        "exact": part.exact,
    }


def _number(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else None


# -- where, with what ------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What this machine is, for the record; it is no part of any result."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": local.cores(),
        "python": platform.python_version(),
    }


def packages() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
