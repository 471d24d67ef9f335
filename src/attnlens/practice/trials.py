"""One round's material: rows, folds and settings that all questions of the round share.

Because folds are shared, every comparison is paired: with and without a change of the inputs, the
same rows train and the same rows test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from attnlens.instruments import learners
from attnlens.instruments.labelled import Fold, Labelled, folds, inflation
from attnlens.records import Reading
from attnlens.statistics import t_interval

from .budget import Deadline, Effort
from .phrases import Change, Share

T = TypeVar("T")
MOST_AT_ONCE = 16  # trainings under way: as many as the last round has folds


@dataclass(frozen=True)
class Trial:
    """`total` is how many labels the user has, of which this round looks at some; `deadline` is
    given where a `map` trains elsewhere."""

    data: Labelled
    parts: list[Fold]
    effort: Effort
    total: int
    hidden: int
    seed: int
    training: Mapping[str, Any]
    deadline: Deadline | None = None

    @classmethod
    def of(
        cls,
        data: Labelled,
        effort: Effort,
        total: int,
        hidden: int,
        seed: int,
        training: Mapping[str, Any],
        deadline: Deadline | None = None,
    ) -> Trial:
        parts = folds(data, effort.folds, seed)
        return cls(data, parts, effort, total, hidden, seed, training, deadline)

    @property
    def labels(self) -> int:
        """How many rows a fold leaves to train on."""
        return min(len(fold.train) for fold in self.parts)

    @property
    def quantity(self) -> str:
        return "error rate" if self.data.classes else "relative squared error"

    @property
    def trivial(self) -> float:
        """The error of whoever ignores the inputs: of the commonest class, or of the mean."""
        if not self.data.classes:
            return 1.0
        return 1 - float(np.bincount(self.data.labels).max()) / len(self.data.labels)

    def learned(self, error: Reading) -> bool:
        """Whether an error is shown to be below that of ignoring the inputs."""
        return bool(t_interval(error)[1] < self.trivial)

    def errors(
        self,
        model: str,
        data: Labelled | None = None,
        parts: list[Fold] | None = None,
        seed: int | None = None,
    ) -> np.ndarray:
        """A model's test error in each fold, trained on all that the folds leave."""
        data = self.data if data is None else data
        parts = self.parts if parts is None else parts
        make, layout = learners.built_in(model, data, self.hidden)
        found = learners.network_errors(
            make, layout, data, parts, (self.labels,), self.seed if seed is None else seed,
            self.training, self.effort.starts,
        )[:, 0]  # fmt: skip
        # A fold without a wrong row counts half a wrong one: less cannot be told from none.
        return np.maximum(found, 0.5 / max(len(f.test) for f in parts)) if data.classes else found

    def at_once(self, jobs: Iterable[Callable[[], T]]) -> list[T]:
        """The results of several trainings. Where a `map` takes blocks to other processes, all are
        under way together, each waiting in a thread; otherwise they go one after the other."""
        if self.deadline is None:
            return [job() for job in jobs]
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            try:
                begun = [threads.submit(job) for job in jobs]
                for ended in wait(begun, return_when=FIRST_EXCEPTION).done:
                    ended.result()  # raises what failed first, whatever is still under way
                return [each.result() for each in begun]
            except BaseException:  # out of time, or interrupted: nobody waits for the others
                threads.shutdown(wait=False, cancel_futures=True)
                self.deadline.stop()
                raise

    @property
    def widened(self) -> float:
        """By how much standard errors are, for training rows that folds share."""
        rows, count = len(self.data.inputs), len(self.parts)
        return float(inflation(np.array([float(self.labels)]), rows, count)[0])

    def change(self, with_it: np.ndarray, without: np.ndarray) -> Change:
        """How errors changed, paired by fold."""
        return Change(with_it, without, self.widened)

    def share(self, some: np.ndarray, everything: np.ndarray) -> Share:
        """How much of the gain over ignoring the inputs is kept, paired by fold."""
        return Share(some, everything, self.trivial, self.widened)
