"""`replication.html`: the verdicts of every claim on disjoint ranges of seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attnlens.core.verdicts import stability_words, verdict_words

from .ledger_plot import panels, weakest, x_coordinate
from .templating import anchor, render_template

# Vertical distance between the marks of neighbouring ranges in a row of the plot.
STEP = 1.6


def render_replication(replication: Mapping[str, Any]) -> str:
    """The page from the content of `replication.json`."""
    claims = [
        {
            **claim,
            "anchor": anchor(claim["id"]),
            "stability": stability_words(claim["verdicts"], claim["exact_check"]),
            "pooled_words": verdict_words(claim["pooled"]["outcome"], claim["exact_check"]),
            "smallest_p": min((p["p"] for p in claim["parts"] if p["p"] is not None), default=None),
            "contained": _contained(claim["parts"]),
            "parts": [
                # Folders of older versions have no verdicts of single quantities.
                {**part, "stability": stability_words(part["verdicts"], claim["exact_check"])}
                if part.get("verdicts")
                else part
                for part in claim["parts"]
            ],
        }
        for claim in replication["claims"]
    ]
    return render_template(
        "replication.html",
        drawn=False,
        replication=replication,
        summary=replication["summary"],
        claims=claims,
        panels=panels([(claim["lens"], partial(_row, claim)) for claim in claims]),
    )


def _contained(parts: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many intervals of a claim contain the pooled estimate, and how many there are."""
    flags = [flag for part in parts for flag in part["contained"] or ()]
    return sum(flags), len(flags)


def _row(claim: Mapping[str, Any], y: float) -> dict[str, Any]:
    """One row of the plot: a mark per range of seeds and one for the pooled cells.

    A range is drawn at the position of its weakest quantity, as in the plot of a ledger.
    """
    places = [weakest(parts) for parts in claim["ranges"]]
    middle = (len(places) - 1) / 2
    step = min(STEP, 14 / max(1, len(places)))
    pooled = weakest(claim["pooled"]["parts"])
    return {
        "id": claim["id"],
        "anchor": claim["anchor"],
        "title": claim["title"],
        "y": y,
        "marks": [
            {"x": x_coordinate(at), "y": round(y + step * (k - middle), 1), "verdict": verdict}
            for k, (at, verdict) in enumerate(zip(places, claim["verdicts"], strict=True))
            if at is not None
        ],
        "pooled": None if pooled is None else x_coordinate(pooled),
    }
