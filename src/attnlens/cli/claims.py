"""`attnlens claims`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlens.core.checks import BadInput

if TYPE_CHECKING:
    from attnlens.claims import Claim


def claims(
    action: Annotated[
        str | None,
        typer.Argument(
            help="A claim to describe; or new: write a claim of your own to start from.",
            metavar="[CLAIM|new]",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="With new: the name, such as M.median.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every claim: what it says, rule, controls, stability; or write a new one."""
    if (action == "new") != (name is not None):
        raise BadInput(
            "attnlens claims takes nothing, the name of a claim, or new and a name such as "
            "M.median."
        )
    if name is not None:
        _write_template(name)
        return
    from attnlens.claims import find

    registered = find([action] if action else None)
    if as_json:
        print(json.dumps([_record(claim) for claim in registered], indent=2, ensure_ascii=False))
        return
    for claim in registered:
        print("\n    ".join(description(claim, with_power=action is not None)), end="\n\n")
    _print_stability(registered)


def description(claim: Claim, with_power: bool) -> list[str]:
    """The lines that describe a claim; `with_power` adds its power in every profile (slower)."""
    from attnlens.claims.claim import PROFILES
    from attnlens.claims.power import claim_power

    lines = [claim.id, claim.statement]
    if claim.exact:
        lines.append("Exact check: holds by algebra, and is not evidence.")
    if claim.attribution:
        lines.append(f"Origin: {claim.attribution}")
    lines.append(f"Rule: {claim.prediction}")
    lines += [claim.refutation] if claim.refutation else []
    lines += [f"Control: {control.words}" for control in claim.controls.values()]
    for profile in PROFILES if with_power else ():
        planned = claim_power(claim, profile)
        if planned is not None:
            decisive = " (the profile that decides)" if profile == claim.decisive else ""
            lines.append(
                f"Power in {profile}: {planned.power:.3f} to be {planned.expected}{decisive}"
            )
            lines += [
                f"    {part.name}: {part.replicates} replicates, effect {part.effect:.3g}, "
                f"power {part.power:.3f}"
                for part in planned.parts
            ]
    if claim.needs:
        lines.append(f"Not run here: {claim.needs}")
    return lines + [f"Not run here: {sentence}" for sentence in claim.left_out()]


def _print_stability(claims: Sequence[Claim]) -> None:
    """A table of the stored verdicts on other seeds, for the claims that have them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from attnlens.claims.stability import stored_stability
    from attnlens.core.verdicts import stability_words, verdict_words

    stored = stored_stability()
    if not any(claim.id in stored for claim in claims):
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "stability", "ranges", "profile", "pooled", "controls"):
        table.add_column(name, no_wrap=name == "claim")
    for claim in claims:
        if claim.id not in stored:
            table.add_row(Text(claim.id), "–")
            continue
        kept = stored[claim.id]
        table.add_row(
            Text(claim.id),
            stability_words(kept.verdicts, claim.exact),
            str(len(kept.seed_ranges)),
            kept.profile,
            verdict_words(kept.pooled, claim.exact),
            f"{kept.controls.count('refuted')} of {len(kept.controls)}",
        )
    print("On other seeds (stored verdicts of `attnlens replicate`; controls as they must be):")
    Console().print(table)


def _write_template(name: str) -> None:
    """Write a Python file with a complete example of a claim, for the user to change."""
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
    """A claim as plain data: its texts, the settings that determine its cells, and its rule."""
    from attnlens.claims.claim import PROFILES
    from attnlens.claims.power import claim_power
    from attnlens.claims.rule import Rule
    from attnlens.claims.stability import stored_stability
    from attnlens.core.serialise import to_plain
    from attnlens.core.verdicts import Region
    from attnlens.runs.ledger import parameters

    names = ("id", "lens", "title", "statement", "formula", "prediction", "source")
    rule = claim.judge.quantities if isinstance(claim.judge, Rule) else ()
    planned = {profile: claim_power(claim, profile) for profile in PROFILES}
    stability = stored_stability().get(claim.id)
    powers = {
        profile: {
            "expected": power.expected,
            "power": power.power,
            "parts": [{**vars(part), "power": part.power} for part in power.parts],
        }
        for profile, power in planned.items()
        if power is not None
    }
    return {
        **{name: getattr(claim, name) for name in names},
        "exact": claim.exact,
        "attribution": to_plain(claim.attribution),
        "refutation": claim.refutation,
        "decisive": claim.decisive,
        "power": to_plain(powers) or None,
        "stability": stability and asdict(stability),
        "meaning": asdict(claim.meaning),
        "settings": {profile: parameters(claim, profile) for profile in PROFILES},
        "rule": {quantity.key: quantity.name for quantity in rule},
        "regions": {
            quantity.key: to_plain([quantity.region.low, quantity.region.high])
            for quantity in rule
            if isinstance(quantity.region, Region)  # others are functions of settings
        },
        "controls": {arm: asdict(control) for arm, control in claim.controls.items()},
        "assumptions": [asdict(assumption) for assumption in claim.assumptions],
        "needs": claim.needs,
    }
