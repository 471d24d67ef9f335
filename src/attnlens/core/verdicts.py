"""Records of how a claim was judged.

Region    the interval in which a quantity must lie
Part      one judged quantity of a claim: estimate, interval, region, p-values
Verdict   supported, refuted or undecided, with the reason
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .frames import Tabular

Decision = Literal["supported", "refuted", "undecided"]


def verdict_words(outcome: str, check: bool) -> str:
    """The word that is shown for an outcome.

    An exact check (`check=True`) "holds" or "fails", because it is not evidence for a claim.

    >>> verdict_words("supported", check=True), verdict_words("supported", check=False)
    ('holds', 'supported')
    """
    return {"supported": "holds", "refuted": "fails"}.get(outcome, outcome) if check else outcome


@dataclass(frozen=True)
class Region:
    """The values for which a part of a claim holds: low ≤ quantity ≤ high."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"≤ {self.high:.3g}"
        return (
            f"≥ {self.low:.3g}" if self.high == math.inf else f"{self.low:.3g} to {self.high:.3g}"
        )


@dataclass(frozen=True)
class Part:
    """One judged quantity of a claim: estimate, 95 % interval `low` to `high`, and region.

    `p_support` is the p-value of the null hypothesis "outside the region" and `p_refute` that of
    "inside"; both tests are one-sided, at the boundary of the region. `count` is the number of
    replicates. An exact part has no sampling error: its p-values are 0 or 1.
    """

    quantity: str
    estimate: float
    low: float
    high: float
    region: Region
    p_support: float
    p_refute: float
    count: int
    exact: bool = False


@dataclass(frozen=True)
class Verdict(Tabular):
    """The outcome of judging a claim or a control, with the reason in one sentence.

    `statistics.verdicts` computes verdicts from the parts of all claims together. `holm` is False
    where the claim is decided at the false-discovery rate, but would not be under Holm's stricter
    correction, which bounds the probability of any wrong decision.

    >>> from attnlens.core.statistics import judge, verdicts
    >>> part = judge("slope", [-0.50, -0.51, -0.49, -0.50], Region(-0.55, -0.45))
    >>> verdicts([[part]])[0].outcome
    'supported'
    """

    outcome: Decision
    parts: tuple[Part, ...]
    p_support: float
    p_refute: float
    exact: bool
    reason: str
    holm: bool = True

    def rows(self) -> list[dict[str, Any]]:
        """One row per part; a region without a lower or upper bound has an infinite end there."""
        return [
            {
                "outcome": self.outcome,
                "quantity": part.quantity,
                "estimate": part.estimate,
                "low": part.low,
                "high": part.high,
                "region_low": part.region.low,
                "region_high": part.region.high,
                "p_support": part.p_support,
                "p_refute": part.p_refute,
                "count": part.count,
                "exact": part.exact,
            }
            for part in self.parts
        ]


def stability_words(outcomes: Sequence[str], check: bool = False) -> str:
    """Whether the outcomes on all ranges of seeds agree ("stable" or "moved"), with their counts.

    >>> stability_words(["supported"] * 8)
    'stable: 8 supported'
    >>> stability_words(["supported", "undecided", "supported"])
    'moved: 2 supported, 1 undecided'
    """
    counts = Counter(outcomes).most_common()
    listed = ", ".join(f"{count} {verdict_words(outcome, check)}" for outcome, count in counts)
    return f"{'stable' if len(counts) == 1 else 'moved'}: {listed}"
