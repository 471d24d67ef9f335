"""Verdicts on claims, from the cells in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attnlens import __version__
from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile
from attnlens.claims.rule import Rule
from attnlens.core import statistics
from attnlens.core.serialise import to_plain
from attnlens.core.verdicts import Verdict

from .ledger import SCHEMA, entry, section
from .planning import cells_of
from .store.store import Store


def judge_all(
    claims: Sequence[Claim], profile: Profile, store: Store
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger (one entry per claim) and the content of the page (texts, parts, figures)."""
    failures = {failure["key"]: failure["reason"] for failure in store.failures()}
    arms = [_measured(claim, profile, store) for claim in claims]
    reasons = [[failures[k] for k in keys if k in failures] for _, keys, _ in arms]
    complete = [i for i in range(len(claims)) if not arms[i][1]]
    parts = {i: list(claims[i].judge(arms[i][0][PREDICTION])) for i in complete}
    # One call for all claims: the false-discovery rate is controlled over all of them.
    verdicts = dict(zip(parts, statistics.verdicts(list(parts.values())), strict=True))

    entries, sections = [], []
    for i, claim in enumerate(claims):
        measured, missing, seconds = arms[i]
        if i in verdicts:
            verdict = verdicts[i]
            controls = {
                arm: _control_verdict(claim, arm, measured[arm], len(claims))
                for arm in claim.controls
            }
            figure, views = to_plain(claim.draw(measured)), to_plain(list(claim.views(measured)))
        else:
            reason = (
                f"{len(missing)} of its cells have no result: {(reasons[i] or ['not computed'])[0]}"
            )
            verdict = Verdict("undecided", (), 1.0, 1.0, False, reason)
            controls = {arm: replace(verdict) for arm in claim.controls}
            figure, views = None, []
        part = statistics.deciding_part(verdict.outcome, verdict.parts) if verdict.parts else None
        entries.append(entry(claim, verdict, part, controls, len(missing), seconds))
        sections.append(section(claim, verdict, controls, figure, views))
    ledger = {"schema": SCHEMA, "attnlens": __version__, "profile": profile, "claims": entries}
    return ledger, {"profile": profile, "claims": sections}


def _control_verdict(claim: Claim, arm: str, measured: Sequence[Measured], claims: int) -> Verdict:
    """The verdict of a control; each quantity that it is about must come out as expected."""
    control = claim.controls[arm]
    if not control.quantities or not isinstance(claim.judge, Rule):
        return statistics.control_verdict(claim.judge(measured), claims)
    parts = claim.judge.by_key(measured)
    verdicts = [statistics.control_verdict(parts[key], claims) for key in control.quantities]
    # The quantity that came out least as expected decides.
    order = ["refuted", "undecided", "supported"]
    worst = max if control.expected == "refuted" else min
    return worst(verdicts, key=lambda verdict: order.index(verdict.outcome))


def _measured(
    claim: Claim, profile: Profile, store: Store
) -> tuple[dict[str, list[Measured]], list[str], float]:
    """The finished cells of a claim by arm, the keys of missing cells, and the seconds in total."""
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    missing, seconds = [], 0.0
    for cell in cells_of(claim, profile):
        result = store.result(cell.key)
        if result is None:
            missing.append(cell.key)
        else:
            arms[cell.arm].append(Measured(cell.parameters, cell.seeds, result.values))
            seconds += result.seconds
    return arms, missing, seconds
