"""What a claim is made of.

A claim's file reads top to bottom: what is predicted and why, the constants with a reason for
each, then four short functions.

    plan(profile)            the work: which parameters, which seeds, for prediction and controls
    measure(arm, parameters, seeds)   one cell, in a worker: named arrays with seeds first
    judge(measured)          the parts of the rule, from one arm's cells
    figure(measured by arm)  what to draw
    views(measured by arm)   what else is worth looking at; most claims have none

The rule (quantities, regions, seeds) is fixed in the file, before any run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from attnlens.records import Cell, Figure, Part, View

from .code_version import code_version

Profile = Literal["smoke", "default", "full"]
"""How long a run may take: minutes with wide intervals, the usual, or hours with tight ones."""
PROFILES: tuple[Profile, ...] = ("smoke", "default", "full")
PREDICTION = "prediction"


class Work(NamedTuple):
    """A cell to be: arm, parameters, seeds, and a rough cost in seconds.

    >>> Work("prediction", {"length": 16}, (0, 1, 2)).cost
    1.0
    """

    arm: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    cost: float = 1.0


class Measured(NamedTuple):
    """A finished cell, as a judge sees it.

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
    """A prediction that can fail. `controls` maps each control's arm to what it is, in words;
    `requires` maps optional modules that its data come with to the command that installs them.

    >>> from attnlens.claims import find
    >>> (claim,) = find(["A.softmax-smoothed"])
    >>> claim.seed, claim.arms
    ('A', ('prediction', 'distance-to-the-mean'))
    """

    id: str
    title: str
    statement: str
    formula: str  # LaTeX
    prediction: str  # the rule, in words and numbers
    controls: Mapping[str, str]
    assumptions: Sequence[str]
    meaning: str  # what it means for somebody who designs a model
    source: str
    plan: Callable[[Profile], Iterable[Work]]
    measure: Callable[[str, Mapping[str, Any], Sequence[int]], Mapping[str, Any]]
    judge: Judge
    figure: Callable[[Mapping[str, Sequence[Measured]]], Figure]
    requires: Mapping[str, str] = field(default_factory=dict)
    views: Callable[[Mapping[str, Sequence[Measured]]], Sequence[View]] = lambda _: ()

    @property
    def seed(self) -> str:
        """The seed document: A or B."""
        return self.id[0]

    @property
    def arms(self) -> tuple[str, ...]:
        return (PREDICTION, *self.controls)

    @property
    def needs(self) -> str | None:
        """What is not installed and how to get it, in one sentence; nothing when all is there."""
        for module, command in self.requires.items():
            if importlib.util.find_spec(module) is None:
                name = module.replace("_", "-")
                return f"{self.id} needs the package {name}; get it with {command}."
        return None

    def cells(self, profile: Profile) -> list[Cell]:
        """The cells that `profile` needs, in the order in which they are computed."""
        module = self.measure.__module__
        name, code = f"{module}:{self.measure.__name__}", code_version(module)
        return [
            Cell(self.id, work.arm, name, dict(work.parameters), work.seeds, code, work.cost)
            for work in self.plan(profile)
        ]


# Where the seeds of a claim start whose settings were changed after a look at lower seeds: what a
# setting was chosen on must not judge it.
UNSEEN = 1000


def blocks(count: int, size: int, first: int = 0) -> list[tuple[int, ...]]:
    """`count` blocks of `size` seeds from `first` on. More blocks only add to the list, so that a
    larger profile reuses the cells of a smaller one.

    >>> blocks(2, 3)
    [(0, 1, 2), (3, 4, 5)]
    """
    starts = range(first, first + count * size, size)
    return [tuple(range(start, start + size)) for start in starts]


def example(measured: Iterable[Measured], name: str, **parameters: Any) -> np.ndarray | None:
    """The array that only one cell holds: an example, kept to be looked at and not judged."""
    for cell in measured:
        if name in cell.values and parameters.items() <= cell.parameters.items():
            return cell.values[name]
    return None


def by(measured: Iterable[Measured], *names: str) -> dict[Any, list[Measured]]:
    """Cells grouped by the named parameters, groups and members in a fixed order."""
    groups: dict[Any, list[Measured]] = {}
    for cell in sorted(measured, key=lambda cell: cell.seeds):
        values = tuple(cell.parameters[name] for name in names)
        groups.setdefault(values[0] if len(names) == 1 else values, []).append(cell)
    return dict(sorted(groups.items()))
