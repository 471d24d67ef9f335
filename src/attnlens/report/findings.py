"""The findings that matter most, in plain words, from the numbers alone.

In this order, until there are three:

1. a claim whose control came out supported, or whose cells have no result: not to be trusted;
2. refuted claims, the one furthest outside its region first;
3. supported claims, of each lens in turn, the one furthest inside its region first; those with a
   measured interval before identities and what holds to rounding, which could hardly have failed;
4. undecided claims, the one nearest to a decision first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .picture import END, weakest

MOST = 3


def findings(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """At most three findings: the claim's anchor, a headline and a sentence."""
    ranked = sorted(sections, key=_rank)
    supported = [s for s in ranked if _kind(s) == 2]
    ranked = [
        *(s for s in ranked if _kind(s) < 2),
        *_in_turn(supported),
        *(s for s in ranked if _kind(s) > 2),
    ]
    return [_told(section) for section in ranked[:MOST]]


def _kind(section: Mapping[str, Any]) -> int:
    entry = section["entry"]
    if entry["control"] == "supported" or entry["cells_without_result"]:
        return 0
    return {"refuted": 1, "supported": 2, "undecided": 3}[entry["verdict"]]


def _rank(section: Mapping[str, Any]) -> tuple[int, bool, float, str]:
    at = weakest(section["verdict"]["parts"])
    distance = 0.0 if at is None else abs(at)
    certain = bool(section["entry"]["exact"]) or distance >= END
    return _kind(section), certain, -distance, section["id"]


def _in_turn(sections: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first of each lens, then the second of each, and so on."""
    lenses: dict[str, list[Mapping[str, Any]]] = {}
    for section in sections:
        lenses.setdefault(section["entry"]["seed"], []).append(section)
    longest = max(map(len, lenses.values()), default=0)
    return [group[i] for i in range(longest) for group in lenses.values() if i < len(group)]


def _told(section: Mapping[str, Any]) -> dict[str, str]:
    entry = section["entry"]
    if entry["cells_without_result"]:
        sentence = f"It could not be judged: {entry['reason']}."
        return _finding(section, "no verdict", sentence.replace("..", "."))
    if entry["control"] == "supported":
        wrong = [c["words"] for c in section["controls"] if c["outcome"] == "supported"]
        sentence = (
            f"Its control came out supported too, so the experiment cannot tell them apart: "
            f"{' '.join(wrong)}"
        )
        return _finding(section, "not to be trusted", sentence)
    sentence = entry["reason"]
    if entry["verdict"] == "supported":
        sentence = f"{_measured(entry)} {section['meaning']}"
    return _finding(section, entry["verdict"], sentence)


def _measured(entry: Mapping[str, Any]) -> str:
    """Quantity, estimate and interval as a sentence."""
    quantity = entry["quantity"]
    said = f"{quantity[:1].upper()}{quantity[1:]} is {entry['estimate']:.3g}"
    interval = entry["interval"] or [None]
    if not entry["exact"] and None not in interval:
        said += f" ({interval[0]:.3g} to {interval[1]:.3g})"
    return f"{said}; {entry['region']} was needed."


def _finding(section: Mapping[str, Any], verdict: str, sentence: str) -> dict[str, str]:
    return {
        "anchor": section["anchor"],
        "headline": f"{section['title']}: {verdict}",
        "sentence": sentence,
        "verdict": section["entry"]["verdict"],
    }
