"""Time budget of `advise`, and the amount of work of each round.

The first round gives an answer in seconds. Each further round uses more rows, folds, sizes and
training steps, which narrows the intervals, until the time is up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attnlens.core.durations import format_duration
from attnlens.instruments.samples.labelled import Labelled

SECONDS_BETWEEN_LINES = 15.0
FIRST_ROUND_SECONDS = 60.0  # the first round may take this long, however small the budget
# Bytes of training inputs that one fit may hold; each fold has its own copy of them.
MOST_INPUT_BYTES = 1 << 29


class Effort(NamedTuple):
    """The work of one round: rows, folds, sizes of a learning curve, training steps, starts."""

    rows: int
    folds: int
    sizes: int
    steps: int
    starts: int = 1

    def __str__(self) -> str:
        starts = f", the best of {self.starts} starts" if self.starts > 1 else ""
        return f"up to {self.rows:,} rows, {self.folds} folds, {self.steps} steps{starts}"


# The first round takes seconds; each further one trains five to eight times as much as the one
# before. More starts come last: they matter once intervals are narrow enough to show a bad minimum.
ROUNDS = (
    Effort(rows=1_000, folds=4, sizes=4, steps=300),
    Effort(rows=3_000, folds=8, sizes=6, steps=600),
    Effort(rows=10_000, folds=8, sizes=8, steps=1_200, starts=2),
    Effort(rows=10_000, folds=16, sizes=8, steps=2_400, starts=4),
)


class OutOfTime(Exception):
    """The budget ended during a computation; answers of finished rounds are kept."""


class Deadline:
    """A deadline that is also a progress function for `fit`: it raises `OutOfTime` when over.

    While `held` is true it raises nothing: the first answer is computed however long it takes.
    `say` receives a line with the remaining time every `SECONDS_BETWEEN_LINES`.
    """

    def __init__(
        self,
        seconds: float,
        held: bool = False,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.clock, self.held, self.say = clock, held, say
        self.last_line = clock()
        self.end = self.last_line + seconds
        self.stopped = False

    @property
    def remaining(self) -> str:
        """The remaining time in words."""
        seconds = self.end - self.clock()
        return (
            f"{format_duration(seconds)} left"
            if seconds > 0 and not self.stopped
            else "the time is up"
        )

    @property
    def over(self) -> bool:
        return self.stopped or (not self.held and self.clock() > self.end)

    def stop(self) -> None:
        """End the budget now: every later call of this deadline raises `OutOfTime`."""
        self.stopped = True

    def __call__(self, progress: Any = None) -> None:
        if self.over:
            raise OutOfTime
        now = self.clock()
        if self.say and now - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = now
            waiting = ", waiting for the first answer" if self.held else ""
            self.say(f"  … {self.remaining}{waiting}")


def limit_effort(effort: Effort, data: Labelled) -> Effort:
    """`effort` with no more rows than the data have, and no more than memory allows."""
    width = int(np.prod(data.inputs.shape[1:])) * 2  # networks append a constant to each feature
    rows_in_memory = MOST_INPUT_BYTES // (4 * width * effort.folds * effort.starts)
    rows = min(effort.rows, len(data.inputs), max(rows_in_memory, 64))
    return effort._replace(rows=rows, folds=max(3, min(effort.folds, rows // 5)))


def sample_rows(data: Labelled, rows: int, seed: int) -> Labelled:
    """`rows` rows at random, stratified by class, with at least two rows of each class."""
    if rows >= len(data.inputs):
        return data
    random = np.random.default_rng(seed)
    if not data.classes:
        chosen = random.permutation(len(data.inputs))[:rows]
        return data.take(chosen)
    share = rows / len(data.inputs)
    rows_by_class = []
    for number in range(data.classes):
        own = random.permutation(np.flatnonzero(data.labels == number))
        rows_by_class.append(own[: max(2, math.floor(share * len(own)))])
    chosen = random.permutation(np.concatenate(rows_by_class))
    return data.take(chosen)
