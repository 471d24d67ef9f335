"""`attnlens claims`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlens.core.checks import BadInput

if TYPE_CHECKING:
    from attnlens.claims import Claim


def claims(
    action: Annotated[
        str | None, typer.Argument(help="new: write a claim of your own to start from.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="With new: the name, such as M.median.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every claim: what it says, the rule, and its controls; or write a new one."""
    if action is not None:
        if action != "new" or name is None:
            raise BadInput("attnlens claims takes nothing, or new and a name such as M.median.")
        _write_template(name)
        return
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


def _write_template(name: str) -> None:
    """Write a file with a claim that runs as it is, to be changed by its owner."""
    if not re.fullmatch(r"[A-Z]\.[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise BadInput(
            f"the name of a claim must be a capital letter, a dot and words joined by hyphens, "
            f"such as M.median; got {name!r}."
        )
    module = name[2:].replace("-", "_") + "_claim"
    path = Path(f"{module}.py")
    template = Path(__file__).with_name("claim_template.txt").read_text("utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template.replace("@ID@", name))
    except FileExistsError:
        raise BadInput(f"{path} must not exist yet; rename it, or choose another name.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}).") from None
    print(f"Wrote {path}. Run it with:")
    print(
        f"attnlens verify --claim {module}:CLAIM --profile smoke --out {module.replace('_', '-')}"
    )


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
