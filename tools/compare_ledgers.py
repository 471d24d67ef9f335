"""Compare the numbers of two ledgers exactly.

    python tools/compare_ledgers.py OLD NEW

OLD and NEW are results folders or `ledger.json` files, of any schema. For every claim the tool
compares: verdict, estimate, interval, the numbers in the text of the region, outcome of every
control, number of cells without a result. If both are folders with a `results.sqlite`, it also
compares every part (judged quantity) of the prediction and of every control: outcome, estimate,
interval, edges of the region, number of replicates.

It ignores seconds, machine, packages, hash and record, and all texts. Parts are paired by their
position within a claim; if only the name of a quantity differs, this is printed but does not count
as a difference.

Exit status: 0 all equal, 1 some numbers differ, 2 a ledger cannot be read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlens.core.checks import BadInput, ExplainedError
from attnlens.core.serialise import ledger_entries
from attnlens.runs.ledger import upgraded
from attnlens.runs.store.errors import FILE
from attnlens.runs.store.store import Store

NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+−]?\d+)?")
PART_FIELDS = ("estimate", "low", "high", "count", "exact")


class Run(NamedTuple):
    """A ledger of the newest schema and the content of its page (None: not stored)."""

    ledger: Mapping[str, Any]
    page: Mapping[str, Any] | None


class Facts(NamedTuple):
    """Values of a claim that two runs must share, and names of quantities, by place in the run."""

    numbers: dict[str, Any]
    quantities: dict[str, str]


class Comparison(NamedTuple):
    """One sentence per difference and per renamed quantity, and the counts of what was compared."""

    differences: list[str]
    renamed: list[str]
    claims: int
    numbers: int


def read(path: Path) -> Run:
    """The run in a results folder, or the ledger in a file."""
    if path.is_file():
        return Run(upgraded(json.loads(path.read_text())), None)
    file, ledger, page = path / "ledger.json", None, None
    if (path / FILE).is_file():
        with Store.reading(path) as store:
            ledger, page = store.document("ledger"), store.document("page")
    if file.is_file():
        ledger = json.loads(file.read_text())
    if not isinstance(ledger, dict):
        raise BadInput(f"{path} must be a results folder or a ledger file; it holds no ledger.")
    return Run(upgraded(ledger), page)


def compare(old: Run, new: Run) -> Comparison:
    """All differences between two runs."""
    both = old.page is not None and new.page is not None
    before, after = (facts_by_claim(run, with_parts=both) for run in (old, new))
    differences, renamed, count = [], [], 0
    for claim in [*before, *(claim for claim in after if claim not in before)]:
        if claim not in before or claim not in after:
            differences.append(f"{claim}: only in {'OLD' if claim in before else 'NEW'}")
            continue
        numbers = changes(before[claim].numbers, after[claim].numbers)
        differences += [f"{claim}, {change}" for change in numbers]
        names = before[claim].quantities, after[claim].quantities
        common = names[0].keys() & names[1].keys()  # a missing part is already a difference
        pairs = ({key: side[key] for key in sorted(common)} for side in names)
        renamed += [f"{claim}, {change}" for change in changes(*pairs)]
        count += len(before[claim].numbers)
    return Comparison(differences, renamed, len(before), count)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per key whose value differs."""
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in old or key not in new or old[key] != new[key]:
            values = [repr(side[key]) if key in side else "absent" for side in (old, new)]
            yield f"{key}: {' -> '.join(values)}"


def facts_by_claim(run: Run, with_parts: bool) -> dict[str, Facts]:
    """The facts of every claim in the ledger; `with_parts` adds all parts stored for the page."""
    facts = {entry["id"]: entry_facts(entry) for entry in ledger_entries(run.ledger)}
    if with_parts and run.page is not None:
        for section in run.page["claims"]:
            arms = {"prediction": section["verdict"]}
            arms |= {f"control {verdict['arm']}": verdict for verdict in section["controls"]}
            for arm, verdict in arms.items():
                add_parts(facts[section["id"]], arm, verdict)
    return facts


def entry_facts(entry: Mapping[str, Any]) -> Facts:
    """The facts in the ledger entry of one claim."""
    interval = entry["interval"] or (None, None)
    numbers = {
        "verdict": entry["verdict"],
        "estimate": entry["estimate"],
        "interval, low": interval[0],
        "interval, high": interval[1],
        "region": NUMBER.findall(entry["region"] or ""),
        "exact": entry["exact"],
        "control": entry["control"],
        "cells without result": entry["cells_without_result"],
    }
    numbers |= {f"control {arm}": outcome for arm, outcome in entry["controls"].items()}
    quantity = {"quantity": entry["quantity"]} if entry["quantity"] else {}
    return Facts(numbers, quantity)


def add_parts(facts: Facts, arm: str, verdict: Mapping[str, Any]) -> None:
    """Add the values of all parts of one arm to `facts`."""
    facts.numbers[f"{arm}: outcome"] = verdict["outcome"]
    for number, part in enumerate(verdict["parts"], start=1):
        place = f"{arm}, part {number}"
        for field in PART_FIELDS:
            facts.numbers[f"{place}: {field}"] = part[field]
        for edge, value in zip(("low", "high"), part["edges"], strict=True):
            facts.numbers[f"{place}: {edge} edge"] = value
        facts.quantities[f"{place}: quantity"] = part["quantity"]


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: compare_ledgers.py OLD NEW", file=sys.stderr)
        return 2
    try:
        runs = [read(Path(argument)) for argument in arguments]
        result = compare(*runs)
    except (ExplainedError, OSError, ValueError, LookupError, TypeError) as error:
        print(f"compare_ledgers: a ledger cannot be read: {error!r}", file=sys.stderr)
        return 2
    for path, run in zip(arguments, runs, strict=True):
        if run.page is None:
            print(f"{path} has no page content: only the numbers of the ledgers are compared.")
    for sentence in result.renamed:
        print(f"renamed: {sentence}")
    for sentence in result.differences:
        print(f"differs: {sentence}")
    verdict = f"{len(result.differences)} differences" if result.differences else "all equal"
    print(f"{result.claims} claims, {result.numbers} numbers: {verdict}")
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
