"""`attnlens replicate`: the ledger on disjoint ranges of seeds.

    folder/results.sqlite     every finished cell, of all ranges
    folder/replication.json   verdicts per range, and how far they agree
    folder/replication.html   the page

All ranges share one store and one pass of the engine, so a stopped replication continues where it
stopped, and a folder of `verify` already has the cells of seed range 0. Each range is judged as a
separate ledger; the pooled verdict of a claim is computed from the cells of all ranges together.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from attnlens import __version__
from attnlens.claims.claim import Claim, Profile
from attnlens.core.checks import BadInput, one_of, whole
from attnlens.core.files import replace_file
from attnlens.core.heterogeneity import expected_share, heterogeneity
from attnlens.core.serialise import part_to_plain, to_plain, verdict_to_plain
from attnlens.core.shares import share_interval
from attnlens.core.statistics import implied_error, mean_reading
from attnlens.core.verdicts import Decision, Part

from .compute import Engine, ShowProgress, runner_of, shown_in_notebook
from .judge import Judged, MeasuredArms, judge_measured, measured_arms
from .ledger import combined_outcome
from .pages import write_replication
from .planning import cells_of, check_seed_range, runnable, selection
from .provenance import RunRecord, claim_versions, environment, judge_version, prepared_path
from .store.store import Store
from .verify import add_provenance, compute_missing, with_reused_cells

SCHEMA = 1
MOST_RANGES = 128  # a range of the whole ledger has thousands of cells


def replicate(
    times: int = 8,
    claims: Sequence[str] | None = None,
    profile: Profile = "default",
    out: str | os.PathLike[str] = "attnlens-replication",
    *,
    first: int = 0,
    workers: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    progress: ShowProgress | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Judge claims on `times` disjoint ranges of seeds, from range `first` on; report how far the
    ranges agree.

    Per claim: the verdict in every range, the verdict of the pooled cells, and whether all ranges
    agree. Per judged quantity: the estimates, their standard deviation over ranges beside the one
    that their intervals imply, Cochran's Q with its p-value, and how many of the intervals contain
    the pooled estimate. Everything is stored in `out`; finished cells are not computed again.

    >>> import tempfile
    >>> result = replicate(2, ["A.weights-are-posterior"], "smoke", tempfile.mkdtemp(), workers=1)
    >>> [(claim["verdicts"], claim["pooled"]["outcome"]) for claim in result["claims"]]
    [(['supported', 'supported'], 'supported')]
    """
    one_of("profile", profile, get_args(Profile))
    if whole("times", times, at_least=2) > MOST_RANGES:
        raise BadInput(
            f"times must be at most {MOST_RANGES}; got {times}; go on with --first {MOST_RANGES} "
            f"in another folder."
        )
    check_seed_range("first", first)
    check_seed_range("first + times - 1", first + times - 1)
    ranges = range(first, first + times)
    run = runner_of(engine, address, workers, time_limit, memory_limit)
    all_claims, folder, started = selection(claims), Path(out), time.perf_counter()
    selected, skipped = runnable(all_claims)
    with Store.writing(folder, fresh=False) as store:
        path = prepared_path([claim.measure.__module__ for claim in selected], notice)
        versions = claim_versions(all_claims, selected)
        lenses = {claim.lens for claim in selected}
        record = RunRecord(
            versions, judge_version(), path, environment(lenses), seed_ranges=tuple(ranges)
        )
        cells = [cell for k in ranges for claim in selected for cell in cells_of(claim, profile, k)]
        compute_missing(store, cells, run, record, shown_in_notebook(progress), notice)
        result = judge_replication(selected, profile, store, ranges)
        store.end_run()
        result["skipped"] = skipped
        add_provenance(result, lenses)
        record = with_reused_cells(record, store, cells)
        result["hash"], result["record"] = record.hash, record.plain()
        result["seconds"] = round(time.perf_counter() - started, 3)
        store.write_document("replication", result)
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        replace_file(folder / "replication.json", text)
        write_replication(folder, store)
    return result


def judge_replication(
    claims: Sequence[Claim], profile: Profile, store: Store, ranges: Sequence[int]
) -> dict[str, Any]:
    """The content of `replication.json`, from the cells in the store."""
    failures = {failure["key"]: failure["reason"] for failure in store.failures()}
    measured = [[measured_arms(claim, profile, store, k) for claim in claims] for k in ranges]
    judged = [judge_measured(claims, row, failures) for row in measured]
    pooled = judge_measured(
        claims, [_pooled(column) for column in zip(*measured, strict=True)], failures
    )
    entries = [
        _entry(claim, [row[i] for row in judged], pooled[i]) for i, claim in enumerate(claims)
    ]
    return {
        "schema": SCHEMA,
        "attnlens": __version__,
        "profile": profile,
        "seed_ranges": list(ranges),
        "claims": entries,
        "summary": _summary(entries, len(ranges)),
    }


def _pooled(ranges: Sequence[MeasuredArms]) -> MeasuredArms:
    """The cells of all ranges of a claim, joined as if they were one range."""
    arms = {arm: [cell for one in ranges for cell in one.arms[arm]] for arm in ranges[0].arms}
    missing = [key for one in ranges for key in one.missing]
    return MeasuredArms(arms, missing, sum(one.seconds for one in ranges))


def _entry(claim: Claim, ranges: Sequence[Judged], pooled: Judged) -> dict[str, Any]:
    """The record of one claim: its verdicts per range, its pooled verdict, and their agreement."""
    parts = pooled.verdict.parts
    # Quantities of different ranges are matched by position and not by name: a name may contain
    # a measured number.
    complete = [judged for judged in ranges if len(judged.verdict.parts) == len(parts)]
    return {
        "id": claim.id,
        "lens": claim.lens,
        "title": claim.title,
        "exact_check": claim.exact,
        "verdicts": [judged.verdict.outcome for judged in ranges],
        "controls": [combined_outcome(claim, judged.controls) for judged in ranges],
        "pooled": verdict_to_plain(pooled.verdict),
        "pooled_control": combined_outcome(claim, pooled.controls),
        "ranges": [[part_to_plain(part) for part in judged.verdict.parts] for judged in ranges],
        "parts": [
            _agreement([judged.verdict.parts[i] for judged in complete], part)
            for i, part in enumerate(parts)
        ],
        "cells_without_result": len(pooled.measured.missing),
        "seconds": round(pooled.measured.seconds, 3),
    }


def _agreement(parts: Sequence[Part], pooled: Part) -> dict[str, Any]:
    """How far the estimates of one quantity agree; `pooled` is the quantity from all cells.

    The standard error of an estimate is the one that its interval implies. Quantities without
    sampling error are only listed.
    """
    agreement: dict[str, Any] = {
        "quantity": pooled.quantity,
        "pooled": part_to_plain(pooled),
        "estimates": [part.estimate for part in parts],
        "verdicts": [_alone(part) for part in parts],
        "standard_deviation": None,
        "expected_deviation": None,
        "cochran_q": None,
        "degrees": None,
        "p": None,
        "contained": None,
        "expected_share": None,
    }
    measured = np.isfinite([pooled.estimate, *agreement["estimates"]]).all()
    if pooled.exact or len(parts) < 2 or not measured or min(part.count for part in parts) < 2:
        return to_plain(agreement)
    errors = [implied_error(part.low, part.high, part.count) for part in parts]
    q_test = heterogeneity(agreement["estimates"], errors, [part.count for part in parts])
    if q_test is not None:
        agreement |= {"cochran_q": q_test.q, "degrees": q_test.degrees, "p": q_test.p}
    shares = [expected_share(part.count, len(parts)) for part in parts]
    agreement |= {
        "standard_deviation": float(np.std(agreement["estimates"], ddof=1)),
        "expected_deviation": float(np.sqrt(np.mean(np.square(errors)))),
        "contained": [part.low <= pooled.estimate <= part.high for part in parts],
        "expected_share": float(np.mean(shares)),
    }
    return to_plain(agreement)


def _alone(part: Part) -> Decision:
    """The verdict of one quantity by itself: where its 95 % interval lies."""
    if not np.isfinite(part.estimate):
        return "undecided"
    if part.region.low <= part.low and part.high <= part.region.high:
        return "supported"
    outside = part.high < part.region.low or part.low > part.region.high
    return "refuted" if part.exact or outside else "undecided"


def _summary(entries: Sequence[dict[str, Any]], ranges: int) -> dict[str, Any]:
    """Counts of stable verdicts and of controls, and the coverage of intervals, over all claims."""
    claims = [entry for entry in entries if not entry["exact_check"]]
    controls = [outcome for entry in entries for outcome in entry["controls"]]
    both = [entry["id"] for entry in claims if {"supported", "refuted"} <= set(entry["verdicts"])]
    return {
        "claims": len(claims),
        "stable": sum(len(set(entry["verdicts"])) == 1 for entry in claims),
        "supported_and_refuted": both,
        "controls": len(controls),
        "controls_as_expected": controls.count("refuted"),
        **to_plain(_coverage([part for entry in claims for part in entry["parts"]], ranges)),
    }


def _coverage(parts: Sequence[dict[str, Any]], ranges: int) -> dict[str, Any]:
    """How many intervals contain the pooled estimate of their quantity.

    Quantities of one range share seeds, so the confidence interval of the share is computed from
    its mean over ranges, which are independent. This interval has no width if every range has the
    same share; the interval of Clopper and Pearson, which treats all ranges × quantities as
    independent, is therefore given too.
    """
    complete = [part for part in parts if len(part["contained"] or ()) == ranges]
    contained = np.array([part["contained"] for part in complete], float).reshape(-1, ranges)
    coverage: dict[str, Any] = {
        "intervals": contained.size,
        "intervals_with_pooled_estimate": int(contained.sum()),
        "coverage": None,
        "coverage_interval": None,
        "coverage_interval_if_independent": None,
        "expected_coverage": None,
    }
    if not complete:
        return coverage
    share = mean_reading(contained.mean(0))
    low, high = share_interval(contained.sum(), contained.size)
    return coverage | {
        "coverage": share.value,
        "coverage_interval": np.clip(share.interval(), 0, 1).tolist(),
        "coverage_interval_if_independent": [float(low), float(high)],
        "expected_coverage": float(np.mean([part["expected_share"] for part in complete])),
    }
