"""Verdicts on claims, from the cells in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnlens import __version__
from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Claim, Profile
from attnlens.claims.power import claim_power
from attnlens.claims.rule import Rule
from attnlens.core import statistics
from attnlens.core.checks import BadInput
from attnlens.core.serialise import to_plain
from attnlens.core.user_code import user_code
from attnlens.core.verdicts import Part, Verdict

from .ledger import SCHEMA, entry, section
from .planning import cells_of
from .store.store import Store


class MeasuredArms(NamedTuple):
    """The finished cells of a claim by arm, keys of missing cells, and total seconds measured."""

    arms: dict[str, list[Measured]]
    missing: list[str]
    seconds: float


class Judged(NamedTuple):
    """A claim with the verdicts of its prediction and of its controls."""

    measured: MeasuredArms
    verdict: Verdict
    controls: dict[str, Verdict]


def judge_all(
    claims: Sequence[Claim], profile: Profile, store: Store, seed_range: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger (one entry per claim) and the content of the page (texts, parts, figures)."""
    failures = {failure["key"]: failure["reason"] for failure in store.failures()}
    arms = [measured_arms(claim, profile, store, seed_range) for claim in claims]
    entries, exact_checks, sections = [], [], []
    for claim, judged in zip(claims, judge_measured(claims, arms, failures), strict=True):
        verdict, controls = judged.verdict, judged.controls
        figure, views = None, []
        if verdict.parts:
            with user_code(f"the figure of {claim.id}"):
                figure = to_plain(claim.draw(judged.measured.arms))
                views = to_plain(list(claim.views(judged.measured.arms)))
        part = statistics.deciding_part(verdict.outcome, verdict.parts) if verdict.parts else None
        power = claim_power(claim, profile)
        missing, seconds = len(judged.measured.missing), judged.measured.seconds
        (exact_checks if claim.exact else entries).append(
            entry(claim, verdict, part, controls, missing, seconds, power)
        )
        sections.append(section(claim, verdict, controls, figure, views, power))
    ledger = {
        "schema": SCHEMA,
        "attnlens": __version__,
        "profile": profile,
        "seed_range": seed_range,
        "claims": entries,
        "exact_checks": exact_checks,
    }
    return ledger, {"profile": profile, "claims": sections}


def judge_measured(
    claims: Sequence[Claim], measured: Sequence[MeasuredArms], failures: Mapping[str, str]
) -> list[Judged]:
    """The verdicts of claims and controls; a claim with missing cells is undecided, without parts.

    `failures` holds the reason for each cell that failed, by its key.
    """
    complete = [i for i in range(len(claims)) if not measured[i].missing]
    predictions = judge_predictions([(claims[i], measured[i].arms[PREDICTION]) for i in complete])
    verdicts = dict(zip(complete, predictions, strict=True))
    judged = []
    for i, claim in enumerate(claims):
        if i in verdicts:
            with user_code(f"the rule of {claim.id}"):
                controls = control_verdicts(claim, measured[i].arms, len(claims))
            judged.append(Judged(measured[i], verdicts[i], controls))
            continue
        missing = measured[i].missing
        reason = next((failures[key] for key in missing if key in failures), "not computed")
        words = f"{len(missing)} of its cells have no result: {reason}"
        verdict = Verdict("undecided", (), 1.0, 1.0, False, words)
        judged.append(Judged(measured[i], verdict, dict.fromkeys(claim.controls, verdict)))
    return judged


def judge_predictions(measured: Sequence[tuple[Claim, Sequence[Measured]]]) -> list[Verdict]:
    """One verdict per claim, from the cells of its prediction.

    All claims are judged in one call, because the false-discovery rate is controlled over all of
    them except exact checks.
    """
    parts = [judged_parts(claim, cells) for claim, cells in measured]
    checks = [place for place, (claim, _) in enumerate(measured) if claim.exact]
    return statistics.verdicts(parts, checks=checks)


def judged_parts(claim: Claim, measured: Sequence[Measured]) -> list[Part]:
    """The judged quantities (parts) of a claim, from the cells of its prediction."""
    with user_code(f"the rule of {claim.id}"):
        parts = list(claim.judge(measured))
    wrong = [part for part in parts if not isinstance(part, Part)]
    if wrong or not parts:
        got = f"a {type(wrong[0]).__name__}" if wrong else "none"
        raise BadInput(f"the rule of {claim.id} must give at least one Part; got {got}.")
    return parts


def control_verdicts(
    claim: Claim, measured: Mapping[str, Sequence[Measured]], claims: int
) -> dict[str, Verdict]:
    """The verdict of every control of a claim; `claims` is the number of claims in the ledger."""
    return {arm: _control_verdict(claim, arm, measured[arm], claims) for arm in claim.controls}


def _control_verdict(claim: Claim, arm: str, measured: Sequence[Measured], claims: int) -> Verdict:
    """The verdict of a control; each quantity in `control.quantities` must come out as expected."""
    control = claim.controls[arm]
    if not control.quantities or not isinstance(claim.judge, Rule):
        return statistics.control_verdict(claim.judge(measured), claims)
    # A profile may lack the cells of a quantity: the smoke profile stops at shorter lengths.
    parts = claim.judge.by_key(measured)
    present = [parts[key] for key in control.quantities if key in parts]
    if not present:
        raise BadInput(
            f"the control {arm} of {claim.id} must have cells of "
            f"{' or '.join(control.quantities)}; got none."
        )
    verdicts = [statistics.control_verdict(quantity, claims) for quantity in present]
    # The quantity whose outcome is furthest from the expected one decides.
    order = ["refuted", "undecided", "supported"]
    worst = max if control.expected == "refuted" else min
    return worst(verdicts, key=lambda verdict: order.index(verdict.outcome))


def measured_arms(
    claim: Claim, profile: Profile, store: Store, seed_range: int = 0
) -> MeasuredArms:
    """The cells of a claim that the store holds, in the order of the plan."""
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    missing, seconds = [], 0.0
    for cell in cells_of(claim, profile, seed_range):
        result = store.result(cell.key)
        if result is None:
            missing.append(cell.key)
        else:
            arms[cell.arm].append(Measured(cell.parameters, cell.seeds, result.values))
            seconds += result.seconds
    return MeasuredArms(arms, missing, seconds)
