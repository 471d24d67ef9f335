"""How stable the shipped ledger is: stored replications, and their part of the pages of the lenses.

    python tools/lens_stability.py keep DIR [DIR ...]   folders of `attnlens replicate`
    python tools/lens_stability.py add DIR [DIR ...]    like keep, but adds to what is stored

Both write two files. `docs/runs/replication.json` has per claim the verdicts in every range of
seeds and per quantity the estimates and how far they agree; the pages of the lenses are made from
it (`tools/lens_page.py write`). `src/attnlens/claims/stability.json` has the verdicts only; the
package ships it, and `attnlens claims` prints it. Every claim has ranges of its own: folders may
differ in their number and in the profile.

If several folders hold a claim, the last one counts, and a line says so: ranges are never joined
here, because the pooled verdict needs the cells. To join folders, run `attnlens store merge` and
then `attnlens replicate --out` with the merged folder, which judges the stored cells.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stored_json import rounded, write_claims

from attnlens.core.shares import share_interval
from attnlens.core.verdicts import stability_words, verdict_words
from attnlens.report.templating import number

ROOT = Path(__file__).parent.parent
STORED = ROOT / "docs" / "runs" / "replication.json"
SHIPPED = ROOT / "src" / "attnlens" / "claims" / "stability.json"
OF_RUN = ("attnlens", "hash", "machine", "packages", "profile", "seed_ranges", "seconds")
OF_CLAIM = (
    "exact_check",
    "verdicts",
    "controls",
    "pooled_control",
    "cells_without_result",
    "seconds",
)
OF_PART = (
    "quantity",
    "estimates",
    "standard_deviation",
    "expected_deviation",
    "cochran_q",
    "degrees",
    "p",
    "contained",
    "expected_share",
)
SHIPPED_FIELDS = ("profile", "seed_ranges", "verdicts", "controls", "pooled")
USUAL = "default"  # the profile of a replication, unless the page says otherwise


def keep(
    folders: Sequence[Path], stored: Path = STORED, shipped: Path = SHIPPED, add: bool = False
) -> None:
    """Copy from the `replication.json` of every folder what the pages and the package need; with
    `add`, keep the claims that `stored` already holds."""
    before = json.loads(stored.read_text("utf-8")) if add else {"runs": [], "claims": {}}
    runs, claims = before["runs"], before["claims"]
    for folder in folders:
        result = json.loads((folder / "replication.json").read_text("utf-8"))
        names = [claim["id"] for claim in result["claims"]]
        runs.append({name: result[name] for name in OF_RUN} | {"claims": names})
        for claim in result["claims"]:
            again = " (in place of those stored before)" if claim["id"] in claims else ""
            claims[claim["id"]] = kept_claim(claim, result)
            count = len(result["seed_ranges"])
            print(f"{claim['id']}: {count} ranges, {result['profile']}, from {folder}{again}")
    write_claims(stored, runs, claims)
    write_claims(shipped, [], {name: shipped_part(claim) for name, claim in claims.items()})


def kept_claim(claim: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What is stored of one claim of a replication; numbers are rounded."""
    return rounded(
        {name: result[name] for name in ("profile", "seed_ranges")}
        | {name: claim[name] for name in OF_CLAIM}
        | {"pooled": claim["pooled"]["outcome"]}
        | {"parts": [{name: part[name] for name in OF_PART} for part in claim["parts"]]}
    )


def shipped_part(claim: dict[str, Any]) -> dict[str, Any]:
    """What the package ships of one claim."""
    return {name: claim[name] for name in SHIPPED_FIELDS}


def section(lens: str, names: Sequence[str], file: Path = STORED) -> list[str]:
    """The section of the page of a lens whose claims are `names`: one row per claim, then flips,
    controls and coverage in words. Empty if no claim of the lens was replicated."""
    kept = json.loads(file.read_text("utf-8")) if file.is_file() else {"runs": [], "claims": {}}
    claims = {name: kept["claims"][name] for name in names if name in kept["claims"]}
    if not claims:
        return []
    judged = {name: claim for name, claim in claims.items() if not claim["exact_check"]}
    stable = sum(len(set(claim["verdicts"])) == 1 for claim in judged.values())
    return [
        "## Other seeds",
        "",
        f"`attnlens replicate` judged these claims on disjoint ranges of seeds "
        f"({origin(kept['runs'], claims)}; [numbers](runs/{file.name})). {stable} of "
        f"{len(judged)} have the same verdict in every range. *Pooled* is the verdict of all "
        f"ranges together. *Smallest p* is the smallest p-value of Cochran's Q over the claim's "
        f"quantities, not corrected for their number. *Contain pooled* counts the intervals that "
        f"contain the estimate from all ranges together.",
        "",
        "| claim | ranges | verdicts | pooled | smallest p | contain pooled | controls as expected "
        "|",
        "|---|---|---|---|---|---|---|",
        *[row(name, claim) for name, claim in claims.items()],
        "",
        *missing([name for name in names if name not in claims]),
        " ".join([flips(judged), controls(claims), *lost(claims), *coverage(judged)]),
        "",
    ]


def origin(runs: Sequence[dict[str, Any]], claims: dict[str, Any]) -> str:
    """The versions, dates and processors of the runs that judged these claims."""
    of_page = [run for run in runs if any(name in claims for name in run["claims"])]
    dates = sorted({run["machine"]["finished"][:10] for run in of_page})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions = " and ".join(sorted({run["attnlens"] for run in of_page}))
    processors = " and ".join(sorted({run["machine"]["processor"] for run in of_page}))
    return (
        f"{USUAL} profile unless the row names another; attnlens {versions}, {span}, {processors}"
    )


def row(name: str, claim: dict[str, Any]) -> str:
    p_values = [part["p"] for part in claim["parts"] if part["p"] is not None]
    flags = contained([claim])
    profile = "" if claim["profile"] == USUAL else f" ({claim['profile']})"
    cells = [
        f"`{name}`",
        f"{len(claim['seed_ranges'])}{profile}",
        stability_words(claim["verdicts"], claim["exact_check"]),
        verdict_words(claim["pooled"], claim["exact_check"]),
        number(min(p_values)) if p_values else "–",
        f"{sum(flags)} of {len(flags)}" if flags else "–",
        f"{claim['controls'].count('refuted')} of {len(claim['controls'])}",
    ]
    return f"| {' | '.join(cells)} |"


def missing(names: Sequence[str]) -> list[str]:
    """A line that names the claims without a stored replication."""
    return [f"Not replicated yet: {quoted(names)}.", ""] if names else []


def flips(claims: dict[str, Any]) -> str:
    """A sentence that names the claims that were both supported and refuted."""
    both = [
        name for name, claim in claims.items() if {"supported", "refuted"} <= set(claim["verdicts"])
    ]
    return f"Supported in one range and refuted in another: {quoted(both) or 'no claim'}."


def controls(claims: dict[str, Any]) -> str:
    """How often all controls of a claim came out as expected, and where they did not."""
    outcomes = [outcome for claim in claims.values() for outcome in claim["controls"]]
    sentence = (
        f"In {outcomes.count('refuted')} of {len(outcomes)} pairs of claim and range all controls "
        f"came out as they must"
    )
    for outcome, words in (("undecided", "undecided at least once"), ("supported", "failed")):
        names = [name for name, claim in claims.items() if outcome in claim["controls"]]
        sentence += f"; {words}: {quoted(names)}" if names else ""
    return f"{sentence}."


def lost(claims: dict[str, Any]) -> list[str]:
    """A sentence about claims with cells that failed; their ranges are undecided."""
    names = [name for name, claim in claims.items() if claim["cells_without_result"]]
    return [f"Some cells have no result, which leaves ranges undecided: {quoted(names)}."] * (
        len(names) > 0
    )


def coverage(claims: dict[str, Any]) -> list[str]:
    """How many intervals contain the pooled estimate, and how many correct intervals would."""
    flags = contained(claims.values())
    if not flags:
        return []
    parts = [part for claim in claims.values() for part in claim["parts"] if part["contained"]]
    weights = [len(part["contained"]) for part in parts]
    expected = np.average([part["expected_share"] for part in parts], weights=weights)
    low, high = share_interval(sum(flags), len(flags))
    return [
        f"Exact checks apart, {sum(flags)} of {len(flags)} intervals contain the pooled estimate: "
        f"{sum(flags) / len(flags):.1%} (95 % interval {float(low):.1%} to {float(high):.1%} if "
        f"they were independent); of correct 95 % intervals {expected:.1%} would."
    ]


def contained(claims: Any) -> list[bool]:
    """For every interval of the claims, whether it contains the pooled estimate."""
    return [flag for claim in claims for part in claim["parts"] for flag in part["contained"] or ()]


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["keep", _, *_]:
            keep([Path(folder) for folder in arguments[1:]])
        case ["add", _, *_]:
            keep([Path(folder) for folder in arguments[1:]], add=True)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
