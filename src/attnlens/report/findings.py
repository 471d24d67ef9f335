"""The most important findings of a run, in plain words, chosen by rule.

At most three, in this order:

1. claims that cannot be trusted: a control came out supported, or cells have no result;
2. refuted claims and exact checks that fail, the one furthest outside its region first;
3. supported claims, from each lens in turn, the most surprising first: claims whose region has two
ends (an estimate can miss it on either side), then claims whose region has one end, then equalities
up to rounding (they hardly ever fail). Among equals the one furthest inside its region is first;
4. undecided claims, the one nearest to a decision first;
5. exact checks that hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlens.core.verdicts import verdict_words

from .ledger_plot import END, weakest

MOST_FINDINGS = 3


def findings(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """At most three findings: the claim's anchor, a headline and a sentence."""
    ranked = sorted(sections, key=_rank)
    supported = [s for s in ranked if _rule_number(s) == 2]
    ranked = [
        *(s for s in ranked if _rule_number(s) < 2),
        *_in_turn(supported),
        *(s for s in ranked if _rule_number(s) > 2),
    ]
    return [_describe(section) for section in ranked[:MOST_FINDINGS]]


def _rule_number(section: Mapping[str, Any]) -> int:
    """The index, from 0, of the rule in the module docstring that applies to a claim."""
    entry = section["entry"]
    if entry["control"] == "supported" or entry["cells_without_result"]:
        return 0
    if section.get("check", False) and entry["verdict"] != "refuted":
        return 4
    return {"refuted": 1, "supported": 2, "undecided": 3}[entry["verdict"]]


def _rank(section: Mapping[str, Any]) -> tuple[int, bool, bool, float, str]:
    position = weakest(section["verdict"]["parts"])
    distance = 0.0 if position is None else abs(position)
    certain = bool(section["entry"]["exact"]) or distance >= END
    return _rule_number(section), certain, not _sharp(section), -distance, section["id"]


def _sharp(section: Mapping[str, Any]) -> bool:
    """Whether a part of the claim has a region with two ends."""
    parts = section["verdict"]["parts"]
    return any(None not in part.get("edges", (None, None)) for part in parts)


def _in_turn(sections: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sections reordered: the first of each lens, then the second of each, and so on."""
    lenses: dict[str, list[Mapping[str, Any]]] = {}
    for section in sections:
        lenses.setdefault(section["entry"]["lens"], []).append(section)
    longest = max(map(len, lenses.values()), default=0)
    return [group[i] for i in range(longest) for group in lenses.values() if i < len(group)]


def _describe(section: Mapping[str, Any]) -> dict[str, str]:
    entry = section["entry"]
    if entry["cells_without_result"]:
        sentence = f"It could not be judged: {entry['reason']}."
        return _finding(section, "no verdict", sentence.replace("..", "."))
    if entry["control"] == "supported":
        controls = [
            c["words"]
            for c in section["controls"]
            if c["outcome"] not in (c.get("expected", "refuted"), "undecided")
        ]
        sentence = (
            f"A control did not come out as it must, so the experiment shows nothing: "
            f"{' '.join(controls)}"
        )
        return _finding(section, "not to be trusted", sentence)
    sentence = entry["reason"]
    if entry["verdict"] == "supported":
        sentence = f"{_measurement(entry)} {section['meaning']}"
    words = verdict_words(entry["verdict"], section.get("check", False))
    return _finding(section, words, sentence)


def _measurement(entry: Mapping[str, Any]) -> str:
    """Quantity, estimate and interval as a sentence."""
    quantity = entry["quantity"]
    sentence = f"{quantity[:1].upper()}{quantity[1:]} is {entry['estimate']:.3g}"
    interval = entry["interval"] or [None]
    if not entry["exact"] and None not in interval:
        sentence += f" ({interval[0]:.3g} to {interval[1]:.3g})"
    return f"{sentence}; {entry['region']} was needed."


def _finding(section: Mapping[str, Any], verdict: str, sentence: str) -> dict[str, str]:
    return {
        "anchor": section["anchor"],
        "headline": f"{section['title']}: {verdict}",
        "sentence": sentence,
        "verdict": section["entry"]["verdict"],
    }
