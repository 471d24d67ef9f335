"""The classes that a claim is made of.

A claim's file is read from top to bottom: the prediction and the reason for it, the constants with
a reason for each, then four short functions and an optional fifth.

    plan(profile)                    the cells to compute, for the prediction and every control
    measure(arm, parameters, seeds)  one cell, in a worker: named arrays, first axis = seeds
    judge(measured)                  the parts of the rule, from the cells of one arm
    figure(measured by arm)          the figure of the claim
    views(measured by arm)           further figures; most claims have none

The rule (quantities, regions, seeds) is fixed in the file, before any run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from attnlens.core.drawing import Figure, View
from attnlens.core.verdicts import Part

Profile = Literal["smoke", "default", "full"]
"""Size of a run: minutes with wide intervals, the usual one, or hours with narrow intervals."""
PROFILES: tuple[Profile, ...] = ("smoke", "default", "full")
PREDICTION = "prediction"


class Work(NamedTuple):
    """Specification of a cell: arm, parameters, seeds, and a rough cost in seconds.

    >>> Work("prediction", {"length": 16}, (0, 1, 2)).cost
    1.0
    """

    arm: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    cost: float = 1.0


class Measured(NamedTuple):
    """A finished cell, as it is passed to `judge`.

    >>> cell = Measured({"length": 16}, (0, 1), {"squared": np.array([0.5, 0.7])})
    >>> float(cell.values["squared"].mean())
    0.6
    """

    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    values: Mapping[str, np.ndarray]


Judge = Callable[[Sequence[Measured]], Sequence[Part]]


@dataclass(frozen=True)
class Claim:
    """A prediction that can fail, with the rule that judges it.

    `controls` maps the name of each control's arm to a description. `requires` maps each optional
    module that the claim's data come with to the command that installs it.

    >>> from attnlens.claims import find
    >>> (claim,) = find(["A.softmax-smoothed"])
    >>> claim.lens, claim.arms
    ('A', ('prediction', 'distance-to-the-mean'))
    """

    id: str
    title: str
    statement: str
    formula: str  # LaTeX
    prediction: str  # the rule, in words and numbers
    controls: Mapping[str, str]
    assumptions: Sequence[str]
    meaning: str  # the consequence for somebody who designs a model
    source: str  # the paper and the prediction in docs/theory.md, or "our own prediction"
    plan: Callable[[Profile], Iterable[Work]]
    measure: Callable[[str, Mapping[str, Any], Sequence[int]], Mapping[str, Any]]
    judge: Judge
    figure: Callable[[Mapping[str, Sequence[Measured]]], Figure]
    requires: Mapping[str, str] = field(default_factory=dict)
    views: Callable[[Mapping[str, Sequence[Measured]]], Sequence[View]] = lambda _: ()

    @property
    def lens(self) -> str:
        """The letter of the lens (the paper) that the claim belongs to."""
        return self.id[0]

    @property
    def arms(self) -> tuple[str, ...]:
        """The prediction, then the controls."""
        return (PREDICTION, *self.controls)

    @property
    def needs(self) -> str | None:
        """One sentence: the missing package and how to install it; None if nothing is missing."""
        for module, command in self.requires.items():
            if importlib.util.find_spec(module) is None:
                name = module.replace("_", "-")
                return f"{self.id} needs the package {name}; get it with {command}."
        return None


# First seed of the claims whose settings were changed after their results on lower seeds had been
# seen: the seeds on which a setting was chosen must not judge the claim.
FIRST_FRESH_SEED = 1000


def blocks(count: int, size: int, first: int = 0) -> list[tuple[int, ...]]:
    """`count` blocks of `size` seeds, starting at seed `first`.

    A larger `count` only appends blocks, so a larger profile reuses the cells of a smaller one.

    >>> blocks(2, 3)
    [(0, 1, 2), (3, 4, 5)]
    """
    starts = range(first, first + count * size, size)
    return [tuple(range(start, start + size)) for start in starts]


def example(measured: Iterable[Measured], name: str, **parameters: Any) -> np.ndarray | None:
    """The array `name` of the one cell that holds it: an example to be drawn, not judged."""
    for cell in measured:
        if name in cell.values and parameters.items() <= cell.parameters.items():
            return cell.values[name]
    return None


def group_by(measured: Iterable[Measured], *names: str) -> dict[Any, list[Measured]]:
    """Cells grouped by the named parameters; groups sorted by value, their cells by seeds."""
    groups: dict[Any, list[Measured]] = {}
    for cell in sorted(measured, key=lambda cell: cell.seeds):
        values = tuple(cell.parameters[name] for name in names)
        groups.setdefault(values[0] if len(names) == 1 else values, []).append(cell)
    return dict(sorted(groups.items()))
