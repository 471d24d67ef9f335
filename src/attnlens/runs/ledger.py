"""The ledger and the content of the page as plain data: one entry and one section per claim.

Nothing heavy is imported here: `attnlens report` needs this module, and neither JAX nor SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnlens.core.serialise import to_plain, verdict_to_plain
from attnlens.core.verdicts import Decision, Part, Verdict

if TYPE_CHECKING:
    from attnlens.claims.claim import Claim

SCHEMA = 2


def upgraded(ledger: dict[str, Any]) -> dict[str, Any]:
    """A ledger of any schema, converted to the newest one.

    1 → 2: the field "seed" of an entry became "lens": a seed is a random seed everywhere else.
    """
    entries = [
        {("lens" if name == "seed" else name): value for name, value in entry.items()}
        for entry in ledger["claims"]
    ]
    return {**ledger, "schema": SCHEMA, "claims": entries}


def combined_outcome(controls: Sequence[Verdict]) -> Decision:
    """One outcome for several controls: supported if any is, refuted only if all are."""
    outcomes = {control.outcome for control in controls}
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
) -> dict[str, Any]:
    """The entry of a claim in the ledger; its numbers are those of the deciding `part`."""
    return {
        "id": claim.id,
        "lens": claim.lens,
        "verdict": verdict.outcome,
        "quantity": part.quantity if part else None,
        "estimate": to_plain(part.estimate) if part else None,
        "interval": to_plain([part.low, part.high]) if part else None,
        "region": str(part.region) if part else None,
        "exact": verdict.exact,
        "control": combined_outcome(list(controls.values())),
        "controls": {arm: control.outcome for arm, control in controls.items()},
        "reason": verdict.reason,
        "cells_without_result": missing,
        "seconds": round(seconds, 3),
    }


def section(
    claim: Claim,
    verdict: Verdict,
    controls: dict[str, Verdict],
    figure: dict[str, Any] | None,
    views: list[dict[str, Any]],
) -> dict[str, Any]:
    """The section of a claim on the page: plain data only."""
    return {
        "id": claim.id,
        "title": claim.title,
        "statement": claim.statement,
        "formula": claim.formula,
        "prediction": claim.prediction,
        "assumptions": list(claim.assumptions),
        "meaning": claim.meaning,
        "source": claim.source,
        "verdict": verdict_to_plain(verdict),
        "controls": [
            {"arm": arm, "words": words, **verdict_to_plain(controls[arm])}
            for arm, words in claim.controls.items()
        ],
        "figure": figure,
        "views": views,
    }
