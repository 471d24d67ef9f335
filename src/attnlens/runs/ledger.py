"""The ledger and the content of the page as plain data: one entry and one section per claim.

Neither JAX nor SciPy is imported here: `attnlens report` needs this module and must start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlens.core.serialise import (
    ledger_entries,
    part_to_plain,
    to_plain,
    verdict_to_plain,
)
from attnlens.core.verdicts import Decision, Part, Verdict

if TYPE_CHECKING:
    from attnlens.claims.claim import Claim, Profile
    from attnlens.claims.power import ClaimPower

SCHEMA = 5


def upgraded(ledger: dict[str, Any]) -> dict[str, Any]:
    """A ledger of any schema, converted to the newest one.

    1 → 2: the field "seed" of an entry became "lens": a seed is a random seed everywhere else.
    2 → 3: "hash" and "record" (`provenance.RunRecord`) were added; older runs have none.
    3 → 4: exact checks moved from "claims" to "exact_checks" (in older ledgers the entries without
    sampling error), and "attribution" and "power" were added to each entry.
    4 → 5: "seed_range" was added, and "parts" and "control_parts" to each entry: every judged
    quantity of the claim and of its controls. Older ledgers hold the deciding quantity only.
    """
    if ledger.get("schema", 1) >= SCHEMA:
        return ledger
    added = {"attribution": None, "power": None, "parts": [], "control_parts": {}}
    entries = [
        added | {("lens" if name == "seed" else name): value for name, value in entry.items()}
        for entry in ledger_entries(ledger)
    ]
    apart = {entry["id"] for entry in ledger.get("exact_checks", ())}
    if "exact_checks" not in ledger:
        apart = {entry["id"] for entry in entries if entry.get("exact", False)}
    return {
        "hash": None,
        "record": None,
        "seed_range": 0,
        **ledger,
        "schema": SCHEMA,
        "claims": [entry for entry in entries if entry["id"] not in apart],
        "exact_checks": [entry for entry in entries if entry["id"] in apart],
    }


def combined_outcome(claim: Claim, controls: Mapping[str, Verdict]) -> Decision:
    """One outcome for all controls of a claim: "refuted" if every control came out as expected.

    Negative controls must be refuted. A positive control must be supported; its outcome is counted
    the other way round, so that "supported" always means that a control failed.
    """
    turned: dict[Decision, Decision] = {"supported": "refuted", "refuted": "supported"}
    outcomes = {
        verdict.outcome
        if claim.controls[arm].expected == "refuted"
        else turned.get(verdict.outcome, "undecided")
        for arm, verdict in controls.items()
    }
    if "supported" in outcomes:
        return "supported"
    return "refuted" if outcomes == {"refuted"} else "undecided"


def entry(
    claim: Claim,
    verdict: Verdict,
    part: Part | None,
    controls: dict[str, Verdict],
    missing: int,
    seconds: float,
    power: ClaimPower | None = None,
) -> dict[str, Any]:
    """The entry of a claim in the ledger; its numbers are those of the deciding `part`.

    "exact" says that the numbers have no sampling error.
    """
    return {
        "id": claim.id,
        "lens": claim.lens,
        "verdict": verdict.outcome,
        "quantity": part.quantity if part else None,
        "estimate": to_plain(part.estimate) if part else None,
        "interval": to_plain([part.low, part.high]) if part else None,
        "region": str(part.region) if part else None,
        "exact": verdict.exact,
        "holm": verdict.holm,
        "control": combined_outcome(claim, controls),
        "controls": {arm: control.outcome for arm, control in controls.items()},
        "reason": verdict.reason,
        "parts": [part_to_plain(part) for part in verdict.parts],
        "control_parts": {
            arm: [part_to_plain(part) for part in control.parts]
            for arm, control in controls.items()
        },
        "attribution": to_plain(claim.attribution),
        "power": _power_to_plain(claim, power),
        "cells_without_result": missing,
        "seconds": round(seconds, 3),
    }


def _power_to_plain(claim: Claim, power: ClaimPower | None) -> dict[str, Any] | None:
    """The expected verdict and the power: the probability, computed in advance, of that verdict."""
    if power is None:
        return None
    facts = {"expected": power.expected, "power": power.power, "decisive": claim.decisive}
    return to_plain(facts)


def parameters(claim: Claim, profile: Profile) -> dict[str, list[Any]]:
    """Every parameter of the cells of a claim with its values; empty if the plan declares none.

    Results depend on these parameters, the seeds and the code only.
    """
    declared = getattr(claim.plan, "values", None)
    return {} if declared is None else declared(profile)


def section(
    claim: Claim,
    verdict: Verdict,
    controls: dict[str, Verdict],
    figure: dict[str, Any] | None,
    views: list[dict[str, Any]],
    power: ClaimPower | None = None,
) -> dict[str, Any]:
    """The section of a claim on the page: plain data only."""
    planned = {part.name: to_plain(part.power) for part in power.parts} if power else {}
    return {
        "id": claim.id,
        "title": claim.title,
        "statement": claim.statement,
        "formula": claim.formula,
        "prediction": claim.prediction,
        "settings": parameters(claim, "default"),
        "variation": dict(claim.variation),
        "assumptions": to_plain(list(claim.assumptions)),
        "meaning": claim.meaning.of(verdict.outcome),
        "source": claim.source,
        "attribution": to_plain(claim.attribution),
        "refutation": claim.refutation,
        "planned_power": planned,
        "verdict": verdict_to_plain(verdict),
        "controls": [
            {
                "arm": arm,
                "words": control.words,
                "expected": control.expected,
                **verdict_to_plain(controls[arm]),
            }
            for arm, control in claim.controls.items()
        ],
        "figure": figure,
        "views": views,
    }
