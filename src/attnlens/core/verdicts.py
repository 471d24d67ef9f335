"""Records of how a claim was judged.

Region    the interval in which a quantity must lie
Part      one judged quantity of a claim: estimate, interval, region, p-values
Verdict   supported, refuted or undecided, with the reason
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decision = Literal["supported", "refuted", "undecided"]


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

    `p_support` is the p-value of "outside the region" and `p_refute` that of "inside"; both are
    one-sided, at the boundary of the region. An exact part has no sampling error: its p-values
    are 0 or 1.
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
class Verdict:
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
