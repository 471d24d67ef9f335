"""`attnlens claims`."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def claims(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every claim: what it says, the rule, and its controls."""
    from attnlens.claims import find

    registered = find()
    if as_json:
        names = ("id", "lens", "title", "statement", "formula", "prediction", "meaning", "source")
        rows = [
            {
                **{name: getattr(c, name) for name in names},
                "controls": dict(c.controls),
                "needs": c.needs,
            }
            for c in registered
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for c in registered:
        print(f"{c.id}\n    {c.statement}\n    Rule: {c.prediction}")
        for words in c.controls.values():
            print(f"    Control: {words}")
        if c.needs:
            print(f"    Not run here: {c.needs}")
        print()
