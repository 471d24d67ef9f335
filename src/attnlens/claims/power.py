"""Power before the run: is the number of replicates of a claim large enough to decide it?

    Quantity("slope", …, power=Power(effect=-0.5, std=0.12))

The effect and the standard deviation come from the pilot of the claim; the number of replicates
follows from its grid and its estimate. `attnlens.core.power` has the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlens.core.power import decision_power
from attnlens.core.readings import LEVEL
from attnlens.core.shares import share_power
from attnlens.core.verdicts import Decision, Region

if TYPE_CHECKING:
    from .claim import Claim, Profile

PROMISED = 0.9  # the power that a claim must have in its decisive profile


@dataclass(frozen=True)
class Power:
    """The expected value and the scatter of a quantity, from the pilot.

    effect  the expected value of the quantity
    std     the standard deviation of one replicate; not given for a `Share`, where it follows from
            the effect

    Each is a number, or a function that takes the values of the quantity's `per` parameters, in
    their order.

    >>> Power(effect=lambda m: -2 / (m + 4), std=0.1).at(4)
    (-0.25, 0.1)
    """

    effect: float | Callable[..., float]
    std: float | Callable[..., float] = math.nan

    def at(self, *values: Any) -> tuple[float, float]:
        """Effect and standard deviation at these values of the `per` parameters."""
        effect, std = (f(*values) if callable(f) else f for f in (self.effect, self.std))
        return float(effect), float(std)


@dataclass(frozen=True)
class PlannedPart:
    """One part of a claim before the run: its region, the expected result and the power.

    >>> part = PlannedPart("slope", "slope", Region(high=-0.4), -0.5, 0.1, 16)
    >>> part.expected, round(part.power, 3)
    ('supported', 0.962)
    """

    key: str
    name: str
    region: Region
    effect: float
    std: float
    replicates: int
    share: bool = False

    @property
    def expected(self) -> Decision:
        """Supported if the expected value lies inside the region, refuted if it lies outside."""
        inside = self.region.low <= self.effect <= self.region.high
        return "supported" if inside else "refuted"

    @property
    def power(self) -> float:
        """The probability that the 95 % interval lies wholly on the expected side (in or out)."""
        return self.power_at(LEVEL)

    def power_at(self, level: float) -> float:
        if self.share:
            return share_power(self.effect, self.replicates, self.region, level)
        return decision_power(self.effect, self.std, self.replicates, self.region, level)


@dataclass(frozen=True)
class ClaimPower:
    """The power of a claim in one profile, from its planned parts.

    A claim is supported if every part is supported, so its power is at least 1 − Σ (1 − power of a
    part). It is refuted if one of the k parts is refuted with a Bonferroni correction, so its power
    is then at least the largest power of a part that is expected outside its region, with intervals
    of level 1 − 0.05/k.
    """

    profile: Profile
    parts: tuple[PlannedPart, ...]

    @property
    def expected(self) -> Decision:
        """Refuted if at least one part is expected outside its region, otherwise supported."""
        refuted = any(part.expected == "refuted" for part in self.parts)
        return "refuted" if refuted else "supported"

    @property
    def power(self) -> float:
        """A lower bound of the probability of the expected verdict."""
        if self.expected == "supported":
            return max(0.0, 1 - sum(1 - part.power for part in self.parts))
        level = 1 - (1 - LEVEL) / len(self.parts)
        outside = [part for part in self.parts if part.expected == "refuted"]
        return max(part.power_at(level) for part in outside)


def claim_power(claim: Claim, profile: Profile) -> ClaimPower | None:
    """The power of a claim in a profile; None if it does not state an effect for every part."""
    planned: Callable[..., Sequence[PlannedPart | None]] | None
    planned = getattr(claim.judge, "planned", None)
    if planned is None:
        return None
    parts = planned([work for work in claim.plan(profile) if work.arm == claim.arms[0]])
    stated = [part for part in parts if part is not None]
    complete = bool(parts) and len(stated) == len(parts)
    return ClaimPower(profile, tuple(stated)) if complete else None
