"""How long to look, and how hard in each round.

Rounds go from a first answer that takes seconds to narrow intervals: each has more rows, folds,
sizes and steps than the one before, until the time is up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attnlens.durations import clock
from attnlens.instruments.labelled import Labelled

SECONDS_BETWEEN_LINES = 15.0
FIRST = 60.0  # seconds that the first round may take at least, whatever the budget
# Bytes of training inputs that one fit may hold: a fold has a copy of its own.
MEMORY = 1 << 29


class Effort(NamedTuple):
    """What one round spends: rows looked at, folds, sizes of a learning curve, steps, starts."""

    rows: int
    folds: int
    sizes: int
    steps: int
    starts: int = 1

    def __str__(self) -> str:
        starts = f", the best of {self.starts} starts" if self.starts > 1 else ""
        return f"up to {self.rows:,} rows, {self.folds} folds, {self.steps} steps{starts}"


# The first is to take seconds. Then each takes five to eight times the training of the one before:
# more starts come last, as they matter once intervals are narrow enough to see a bad minimum.
ROUNDS = (
    Effort(rows=1_000, folds=4, sizes=4, steps=300),
    Effort(rows=3_000, folds=8, sizes=6, steps=600),
    Effort(rows=10_000, folds=8, sizes=8, steps=1_200, starts=2),
    Effort(rows=10_000, folds=16, sizes=8, steps=2_400, starts=4),
)


class OutOfTime(Exception):
    """The budget ended in the middle of something; what is finished counts."""


class Deadline:
    """A moment, and a `fit` progress function that ends training when it has come.

    While it is `held` it ends nothing: the first answer is waited for, however long it takes.
    `say` is told now and then how much time is left.
    """

    def __init__(
        self, seconds: float, held: bool = False, say: Callable[[str], None] | None = None
    ):
        self.end, self.held, self.say = time.monotonic() + seconds, held, say
        self.said = time.monotonic()

    @property
    def left(self) -> str:
        """In words."""
        left = self.end - time.monotonic()
        return f"{clock(left)} left" if left > 0 else "the time is up"

    @property
    def over(self) -> bool:
        return not self.held and time.monotonic() > self.end

    def stop(self) -> None:
        """It has come: whoever asks next, in whatever thread, is out of time."""
        self.end, self.held = -math.inf, False

    def __call__(self, progress: Any = None) -> None:
        if self.over:
            raise OutOfTime
        if self.say and time.monotonic() - self.said > SECONDS_BETWEEN_LINES:
            self.said = time.monotonic()
            waiting = ", waiting for the first answer" if self.held else ""
            self.say(f"  … {self.left}{waiting}")


def affordable(effort: Effort, data: Labelled) -> Effort:
    """`effort` with no more than the data have, and than memory allows."""
    width = int(np.prod(data.inputs.shape[1:])) * 2  # with the constant beside each feature
    fits = MEMORY // (4 * width * effort.folds * effort.starts)
    rows = min(effort.rows, len(data.inputs), max(fits, 64))
    return effort._replace(rows=rows, folds=max(3, min(effort.folds, rows // 5)))


def sample(data: Labelled, rows: int, seed: int) -> Labelled:
    """So many rows at random; of each class its share, and two at least."""
    if rows >= len(data.inputs):
        return data
    random = np.random.default_rng(seed)
    if not data.classes:
        chosen = random.permutation(len(data.inputs))[:rows]
        return data._replace(inputs=data.inputs[chosen], labels=data.labels[chosen])
    share = rows / len(data.inputs)
    parts = []
    for number in range(data.classes):
        own = random.permutation(np.flatnonzero(data.labels == number))
        parts.append(own[: max(2, math.floor(share * len(own)))])
    chosen = random.permutation(np.concatenate(parts))
    return data._replace(inputs=data.inputs[chosen], labels=data.labels[chosen])
