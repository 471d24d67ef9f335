"""The declaration of a claim's cells: arms × parameters × blocks of seeds, for every profile.

Everything that affects the result of a cell is one of its parameters: `settings` are the same in
every cell (noise, widths, learning rates), `axes` vary. Parameters are stored with the result and
shown on the page and by `attnlens claims --json`. Settings can be changed for a variation of the
claim (`attnlens verify --claim ID --set NAME=VALUE`).

    GRID = Grid(
        settings={"noise_std": 0.5},
        axes={"length": {"smoke": (32, 128), "default": (32, 128, 512), "full": (32, 128, 512)}},
        blocks={"prediction": {"smoke": 2, "default": 16, "full": 144}, "control": 8},
        seeds_per_block=16,
        cost=lambda parameters, seeds: 0.005 + 2e-4 * seeds,
    )
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from attnlens.core.checks import BadInput

from .cells import Work, blocks
from .claim import PROFILES, Profile

T = TypeVar("T")
PerProfile = T | Mapping[Any, T]
"""One value for every profile, or a mapping from the profile to its value."""
NO_SEEDS = range(0)


@dataclass(frozen=True)
class Grid:
    """Cells for every arm and every combination of the axes, in blocks of seeds.

    settings         parameters with one value: name -> value, or name -> {profile: value}
    axes             parameters that vary: name -> values, or name -> {profile: values}
    blocks           number of blocks per arm: arm -> count, or arm -> {profile: count}
    seeds_per_block  one number; {profile: number}; or a function of the parameters of a cell
    cost             function (parameters, number of seeds) -> rough seconds of a cell
    arm_settings     settings or axes that an arm changes: arm -> {name: value or values}
    derived          parameters computed from the others: name -> function of the parameters
    pilot            the seeds on which settings were chosen: no cell of the claim has one of them

    The first seed is the one after the pilot's. A profile with more blocks only appends seeds, so
    it reuses the cells of a smaller profile.

    >>> grid = Grid(axes={"length": (8, 16)}, blocks={"prediction": 1}, seeds_per_block=2)
    >>> [(work.parameters, work.seeds) for work in grid("default")]
    [({'length': 8}, (0, 1)), ({'length': 16}, (0, 1))]
    """

    blocks: Mapping[str, PerProfile[int]]
    seeds_per_block: PerProfile[int] | Callable[[Mapping[str, Any]], int]
    axes: Mapping[str, PerProfile[Sequence[Any]]] = field(default_factory=dict)
    settings: Mapping[str, PerProfile[Any]] = field(default_factory=dict)
    arm_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    cost: Callable[[Mapping[str, Any], int], float] = lambda parameters, seeds: 1.0
    pilot: range = NO_SEEDS

    def __post_init__(self) -> None:
        both = self.settings.keys() & self.axes.keys()
        if both:
            raise BadInput(f"a parameter must be a setting or an axis; got {min(both)!r} as both.")
        for arm, changes in self.arm_settings.items():
            unknown = changes.keys() - self.settings.keys() - self.axes.keys()
            if unknown:
                raise BadInput(
                    f"the arm {arm!r} must change a setting or an axis of the grid; got "
                    f"{min(unknown)!r}."
                )

    def __call__(self, profile: Profile) -> Iterator[Work]:
        for arm, count in self.blocks.items():
            for parameters in self._combinations(arm, profile):
                size = self._seeds_per_block(parameters, profile)
                for seeds in blocks(_at(count, profile), size, first=self.pilot.stop):
                    yield Work(arm, parameters, seeds, self.cost(parameters, len(seeds)))

    def _combinations(self, arm: str, profile: Profile) -> Iterator[dict[str, Any]]:
        changes = self.arm_settings.get(arm, {})
        settings = {n: _at(changes.get(n, v), profile) for n, v in self.settings.items()}
        axes = {n: _at(changes.get(n, v), profile) for n, v in self.axes.items()}
        for values in itertools.product(*axes.values()):
            parameters = {**settings, **dict(zip(axes, values, strict=True))}
            yield {**parameters, **{n: rule(parameters) for n, rule in self.derived.items()}}

    def _seeds_per_block(self, parameters: Mapping[str, Any], profile: Profile) -> int:
        if callable(self.seeds_per_block):
            return self.seeds_per_block(parameters)
        return _at(self.seeds_per_block, profile)

    @property
    def names(self) -> set[str]:
        """The names of all parameters."""
        return {*self.settings, *self.axes, *self.derived}

    def values(self, profile: Profile, only: str | None = None) -> dict[str, list[Any]]:
        """The values of every parameter in the cells of all arms, or of the arm `only`."""
        values: dict[str, list[Any]] = {}
        for arm, count in self.blocks.items():
            if only not in (None, arm) or not _at(count, profile):
                continue
            for parameters in self._combinations(arm, profile):
                for name, value in parameters.items():
                    known = values.setdefault(name, [])
                    if value not in known:
                        known.append(value)
        return values

    def with_settings(self, changes: Mapping[str, Any]) -> Grid:
        """The same grid with other settings; settings in `arm_settings` stay as they are."""
        own = {name: value for name, value in changes.items() if name in self.settings}
        return replace(self, settings={**self.settings, **own})


@dataclass(frozen=True)
class Grids:
    """Several grids in one claim, for parts that need different cells.

    >>> long = Grid(axes={"length": (64,)}, blocks={"prediction": 1}, seeds_per_block=1)
    >>> wide = Grid(axes={"width": (8,)}, blocks={"prediction": 1}, seeds_per_block=1)
    >>> [work.parameters for work in Grids(long, wide)("default")]
    [{'length': 64}, {'width': 8}]
    """

    parts: tuple[Grid, ...]

    def __init__(self, *parts: Grid) -> None:
        object.__setattr__(self, "parts", parts)

    def __call__(self, profile: Profile) -> Iterator[Work]:
        return itertools.chain.from_iterable(grid(profile) for grid in self.parts)

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for grid in self.parts for name, value in grid.settings.items()}

    @property
    def names(self) -> set[str]:
        """The names of all parameters."""
        return set().union(*(grid.names for grid in self.parts))

    @property
    def pilot(self) -> range:
        """The smallest range that contains the seeds of every pilot.

        >>> one = Grid(blocks={"prediction": 1}, seeds_per_block=1, pilot=range(8))
        >>> Grids(one, replace(one, pilot=range(100, 102)), replace(one, pilot=NO_SEEDS)).pilot
        range(0, 102)
        """
        pilots = [grid.pilot for grid in self.parts if grid.pilot]
        if not pilots:
            return NO_SEEDS
        return range(min(min(p) for p in pilots), max(max(p) for p in pilots) + 1)

    def values(self, profile: Profile, only: str | None = None) -> dict[str, list[Any]]:
        """The values of every parameter in the cells of all grids, of all arms or of `only` one."""
        merged: dict[str, list[Any]] = {}
        for grid in self.parts:
            for name, values in grid.values(profile, only).items():
                known = merged.setdefault(name, [])
                known += [value for value in values if value not in known]
        return merged

    def with_settings(self, changes: Mapping[str, Any]) -> Grids:
        """The same grids with other settings; each setting changes where a grid has it."""
        return Grids(*(grid.with_settings(changes) for grid in self.parts))


def check_seeds(claim: str, works: Iterable[Work], pilot: range) -> None:
    """Raise `BadInput` if a cell has a seed of the pilot, on which settings were chosen."""
    for work in works:
        shared = [seed for seed in work.seeds if seed in pilot]
        if shared:
            raise BadInput(
                f"{claim} must be judged on seeds that its pilot did not use; got seed "
                f"{min(shared)}, and the pilot used {pilot.start} to {pilot.stop - 1}."
            )


def _at(value: Any, profile: Profile) -> Any:
    """The value for a profile, if `value` maps profiles to values; otherwise `value` itself."""
    per_profile = isinstance(value, Mapping) and value.keys() == set(PROFILES)
    return value[profile] if per_profile else value
