"""The rule of a claim, declared: quantities, each with its estimate per replicate and its region.

    RULE = Rule(
        Quantity(
            "slope",
            "slope of the distance in length (m = {manifold_dim}, L {span})",
            ScalingLaw("squared", "length", root=True).slopes,
            Region(high=-0.10),
            per=("manifold_dim",),
        ),
    )

The texts of a claim take their numbers from here: `$slope` in `Claim.prediction` becomes "at most
−0.1", and `$slope_high` becomes "−0.1" (see `Rule.words` and `bound_words`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlens.core.statistics import judge, judge_exactly
from attnlens.core.verdicts import Part, Region

from .claim import Measured, group_by
from .estimates import span_of

Estimate = Callable[[Sequence[Measured]], ArrayLike]
"""One number per independent replicate, from the cells of one group."""


@dataclass(frozen=True)
class Quantity:
    """One quantity of a rule: what is estimated, from which cells, and where it must lie.

    key       its name in the texts of the claim and in controls
    name      its name in the ledger; {parameter} or {parameter:.3g} is filled in from the cells,
              {span} with the range of the axis that the estimate is fitted over
    estimate  one number per replicate, from the cells of one group
    region    a region, or a function of the values of `per` (in their order)
    per       parameters of the grid: one part of the claim for each combination of their values
    where     only cells with these parameters are used; arms without such cells have no such part
    against   parameters of the reference cells: the judged numbers are the estimate minus that of
              the reference, pair by pair; the reference itself is not judged
    exact     True if there is no sampling error: every single number must lie in the region
    """

    key: str
    name: str
    estimate: Estimate
    region: Region | Callable[..., Region]
    per: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    def parts(self, measured: Sequence[Measured]) -> Iterator[Part]:
        """One judged part per combination of the parameters `per`."""
        cells = _with(measured, self.where)
        if self.against:
            cells = [cell for cell in cells if not _with([cell], self.against)]
        if not cells:
            return
        groups = group_by(cells, *self.per) if self.per else {(): cells}
        for values, group in groups.items():
            values = values if isinstance(values, tuple) else (values,)
            region = self.region if isinstance(self.region, Region) else self.region(*values)
            judged = judge_exactly if self.exact else judge
            numbers = self.estimate(group)
            if self.against:
                reference = _with(measured, self.against)
                numbers = np.asarray(numbers) - np.asarray(self.estimate(reference))
            yield judged(self._name(group), numbers, region)

    def _name(self, group: Sequence[Measured]) -> str:
        span = span_of(self.estimate, group) if "{span}" in self.name else ""
        parameters = group[0].parameters.items()
        shown = {n: _Shown(v) if isinstance(v, float) else v for n, v in parameters}
        return self.name.format(**{**shown, "span": span})


class _Shown(float):
    """A number that is written as briefly as possible, unless its placeholder has a format."""

    def __format__(self, form: str) -> str:
        return super().__format__(form or "g")


def _with(cells: Iterable[Measured], parameters: Mapping[str, Any]) -> list[Measured]:
    return [cell for cell in cells if parameters.items() <= cell.parameters.items()]


@dataclass(frozen=True)
class Rule:
    """The quantities of a claim; all of them must lie in their regions.

    >>> from attnlens.claims.estimates import pooled
    >>> rule = Rule(Quantity("mean", "mean of x", pooled("x"), Region(-1, 1)))
    >>> import numpy as np
    >>> [part.estimate for part in rule([Measured({}, (0, 1), {"x": np.array([0.25, 0.75])})])]
    [0.5]
    """

    quantities: tuple[Quantity, ...]

    def __init__(self, *quantities: Quantity) -> None:
        object.__setattr__(self, "quantities", quantities)

    def __call__(self, measured: Sequence[Measured]) -> list[Part]:
        return [part for quantity in self.quantities for part in quantity.parts(measured)]

    def by_key(self, measured: Sequence[Measured]) -> dict[str, list[Part]]:
        """The parts of every quantity that the cells have."""
        found = {quantity.key: list(quantity.parts(measured)) for quantity in self.quantities}
        return {key: parts for key, parts in found.items() if parts}

    def words(self) -> dict[str, str]:
        """What the texts of the claim may use: `$key`, `$key_low`, `$key_high` (and `bound_words`).

        Only for quantities with one region; where it depends on a parameter, the text says how.
        """
        found = {}
        for quantity in self.quantities:
            if isinstance(quantity.region, Region):
                region = quantity.region
                found[quantity.key] = region_words(region)
                for end, bound in (("low", region.low), ("high", region.high)):
                    found |= bound_words(f"{quantity.key}_{end}", bound)
        return found


def region_words(region: Region) -> str:
    """The region in words.

    >>> region_words(Region(high=-0.1)), region_words(Region(0.95, 1.05))
    ('at most −0.1', 'between 0.95 and 1.05')
    """
    if region.low == -math.inf:
        return f"at most {number(region.high)}"
    if region.high == math.inf:
        return f"at least {number(region.low)}"
    return f"between {number(region.low)} and {number(region.high)}"


def bound_words(name: str, bound: float) -> dict[str, str]:
    """The ways in which a text may write a bound.

    `$name` is the bound and `$name_percent` the bound in per cent. For the logarithm of a ratio,
    `$name_exp` is the ratio, and `$name_change` its distance from 1 in per cent.

    >>> bound_words("high", math.log(0.75))["high_change"]
    '25 %'
    """
    if not math.isfinite(bound):
        return {}
    words = {name: number(bound), f"{name}_percent": f"{number(100 * bound)} %"}
    if abs(bound) < 10:  # larger ones are not logarithms
        ratio = math.exp(bound)
        words[f"{name}_exp"] = number(ratio)
        words[f"{name}_exp_percent"] = f"{number(100 * ratio)} %"
        words[f"{name}_change"] = f"{number(100 * abs(ratio - 1))} %"
    return words


def number(value: float) -> str:
    """A number in a sentence, with a minus sign instead of a hyphen."""
    return f"{value:.3g}".replace("-", "−")
