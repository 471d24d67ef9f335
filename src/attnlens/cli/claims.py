"""`attnlens claims`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from attnlens.claims import Claim


def claims(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every claim: what it says, the rule, and its controls."""
    from attnlens.claims import find

    registered = find()
    if as_json:
        print(json.dumps([_record(claim) for claim in registered], indent=2, ensure_ascii=False))
        return
    for c in registered:
        print(f"{c.id}\n    {c.statement}\n    Rule: {c.prediction}")
        for control in c.controls.values():
            print(f"    Control: {control.words}")
        if c.needs:
            print(f"    Not run here: {c.needs}")
        print()


def _record(claim: Claim) -> dict[str, Any]:
    """A claim as plain data: its texts, everything that decides its cells, and its rule."""
    from attnlens.claims.claim import PROFILES
    from attnlens.claims.rule import Rule
    from attnlens.runs.ledger import parameters

    names = ("id", "lens", "title", "statement", "formula", "prediction", "source")
    rule = claim.judge.quantities if isinstance(claim.judge, Rule) else ()
    return {
        **{name: getattr(claim, name) for name in names},
        "meaning": asdict(claim.meaning),
        "settings": {profile: parameters(claim, profile) for profile in PROFILES},
        "rule": {quantity.key: quantity.name for quantity in rule},
        "controls": {arm: asdict(control) for arm, control in claim.controls.items()},
        "assumptions": [asdict(assumption) for assumption in claim.assumptions],
        "needs": claim.needs,
    }
