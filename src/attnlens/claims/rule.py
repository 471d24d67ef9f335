"""The declaration of a claim's rule: quantities, each with an estimate and a region.

    RULE = Rule(
        Quantity(
            "slope",
            "slope of the distance in length (m = {manifold_dim}, L {span})",
            ScalingLaw("squared", "length", root=True).slopes,
            Region(high=-0.10),
            per=("manifold_dim",),
            power=Power(effect=-0.5, std=0.12),
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

from attnlens.core.statistics import judge, judge_exactly
from attnlens.core.verdicts import Part, Region

from .cells import CellKind, Measured, Work, group_by
from .estimates import Estimate, Share, replicates, span_of
from .power import PlannedPart, Power


@dataclass(frozen=True)
class Quantity:
    """One quantity of a rule: what is estimated, from which cells, and where it must lie.

    key       its name in the texts of the claim and in controls
    name      its name in the ledger; {parameter} or {parameter:.3g} is replaced by its value in the
              cells, {span} by the range of the axis over which the estimate is fitted
    estimate  one number per replicate, from the cells of one group
    region    a region, or a function of the values of `per` (in their order)
    per       parameters of the grid: one part of the claim for each combination of their values
    where     only cells with these parameters are used; the quantity is not judged for arms without
              such cells
    against   parameters of the reference cells: the judged numbers are the estimate minus that of
              the reference cells, replicate by replicate; the reference itself is not judged
    exact     True if there is no sampling error: every single number must lie in the region
    power     expected value and scatter from the pilot, from which the claim's power is computed
    """

    key: str
    name: str
    estimate: Estimate
    region: Region | Callable[..., Region]
    per: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    power: Power | None = None

    def parts(self, measured: Sequence[Measured]) -> Iterator[Part]:
        """One judged part per combination of the parameters `per`."""
        for values, group in self._groups(measured):
            region = self.region_at(*values)
            judged = judge_exactly if self.exact else getattr(self.estimate, "judge", judge)
            numbers = self.estimate(group)
            if self.against:
                reference = _with(measured, self.against)
                numbers = np.asarray(numbers) - np.asarray(self.estimate(reference))
            yield judged(self._name(group), numbers, region)

    def planned(self, works: Sequence[Work]) -> Iterator[PlannedPart | None]:
        """One planned part per combination of the parameters `per`; None if `power` is None.

        An exact quantity needs no power and has no planned part.
        """
        for values, group in () if self.exact else self._groups(works):
            if self.power is None:
                yield None
                continue
            effect, std = self.power.at(*values)
            count = replicates(self.estimate, group)
            region, name = self.region_at(*values), self._name(group)
            share = isinstance(self.estimate, Share)
            yield PlannedPart(self.key, name, region, effect, std, count, share)

    def outline(self, works: Sequence[Work]) -> list[tuple[str, Region]]:
        """The name and the region of each part, from the specifications of the cells."""
        groups = self._groups(works)
        return [(self._name(group), self.region_at(*values)) for values, group in groups]

    def region_at(self, *values: Any) -> Region:
        """The region at these values of the parameters `per`."""
        return self.region if isinstance(self.region, Region) else self.region(*values)

    def _groups(
        self, cells: Sequence[CellKind]
    ) -> Iterator[tuple[tuple[Any, ...], list[CellKind]]]:
        """The judged cells, grouped by the values of the parameters `per`."""
        judged = _with(cells, self.where)
        if self.against:
            judged = [cell for cell in judged if not _with([cell], self.against)]
        if not judged:
            return
        groups = group_by(judged, *self.per) if self.per else {(): judged}
        for values, group in groups.items():
            yield (values if isinstance(values, tuple) else (values,)), group

    def _name(self, group: Sequence[Measured | Work]) -> str:
        span = span_of(self.estimate, group) if "{span}" in self.name else ""
        parameters = group[0].parameters.items()
        shown = {n: _Shown(v) if isinstance(v, float) else v for n, v in parameters}
        return self.name.format(**{**shown, "span": span})


class _Shown(float):
    """A float that is formatted with "g" if its placeholder has no format."""

    def __format__(self, form: str) -> str:
        return super().__format__(form or "g")


def _with(cells: Iterable[CellKind], parameters: Mapping[str, Any]) -> list[CellKind]:
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

    def planned(self, works: Sequence[Work]) -> list[PlannedPart | None]:
        """The planned parts of the claim; None for a part without a stated effect."""
        return [part for quantity in self.quantities for part in quantity.planned(works)]

    def refutation(self, works: Sequence[Work]) -> str:
        """A sentence that says which results would refute the claim.

        >>> from attnlens.claims.estimates import pooled
        >>> rule = Rule(Quantity("rate", "rate ({world})", pooled("x"), Region(high=0.07)))
        >>> rule.refutation([Work("prediction", {"world": "urn"}, (0, 1))])
        'Refuted if the 95 % interval of rate (urn) lies wholly above 0.07.'
        """
        cases = []
        for quantity in self.quantities:
            parts = quantity.outline(works)
            if not parts:
                continue
            (name, region), others = parts[0], len(parts) - 1
            what = "a value of" if quantity.exact else "the 95 % interval of"
            where = "lies" if quantity.exact else "lies wholly"
            more = f" (or one of {others} further parts fails like it)" if others > 1 else ""
            more = f" (or that of {parts[1][0]} fails like it)" if others == 1 else more
            cases.append(f"{what} {name} {where} {_outside_words(region)}{more}")
        return f"Refuted if {'; or '.join(cases)}." if cases else ""

    def by_key(self, measured: Sequence[Measured]) -> dict[str, list[Part]]:
        """The judged parts by the key of their quantity; quantities without cells are left out."""
        all_parts = {quantity.key: list(quantity.parts(measured)) for quantity in self.quantities}
        return {key: parts for key, parts in all_parts.items() if parts}

    def words(self) -> dict[str, str]:
        """The values of the placeholders `$key`, `$key_low`, `$key_high` (and of `bound_words`).

        Quantities whose region is a function of parameters have no placeholders.
        """
        words = {}
        for quantity in self.quantities:
            if isinstance(quantity.region, Region):
                region = quantity.region
                words[quantity.key] = region_words(region)
                for end, bound in (("low", region.low), ("high", region.high)):
                    words |= bound_words(f"{quantity.key}_{end}", bound)
        return words


def _outside_words(region: Region) -> str:
    """The complement of a region in words."""
    sides = []
    if region.low > -math.inf:
        sides.append(f"below {number(region.low)}")
    if region.high < math.inf:
        sides.append(f"above {number(region.high)}")
    return " or ".join(sides)


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
    """The placeholders for a bound in the texts of a claim, with their values.

    `$name` is the bound and `$name_percent` the bound in per cent. For the logarithm of a ratio,
    `$name_exp` is the ratio, and `$name_change` its distance from 1 in per cent.

    >>> bound_words("high", math.log(0.75))["high_change"]
    '25 %'
    """
    if not math.isfinite(bound):
        return {}
    words = {name: number(bound), f"{name}_percent": f"{number(100 * bound)} %"}
    if abs(bound) < 10:  # a larger bound is not the logarithm of a ratio
        ratio = math.exp(bound)
        words[f"{name}_exp"] = number(ratio)
        words[f"{name}_exp_percent"] = f"{number(100 * ratio)} %"
        words[f"{name}_change"] = f"{number(100 * abs(ratio - 1))} %"
    return words


def number(value: float) -> str:
    """A number in a sentence, with a minus sign instead of a hyphen."""
    return f"{value:.3g}".replace("-", "−")
