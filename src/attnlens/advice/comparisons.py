"""Errors of two trainings, compared fold by fold.

Both comparisons take `inflation`, the factor by which standard errors grow because folds share
training rows (`labelled.inflation`; Nadeau and Bengio, 2003).
"""

from __future__ import annotations

import math

import numpy as np

from attnlens.core.readings import Reading
from attnlens.core.statistics import mean_reading
from attnlens.core.status import Status

NEGLIGIBLE = 0.05  # a change of the log error by less than this does not matter in practice


class KeptShare:
    """The share of a gain that is kept with some of the inputs, 1 − (e_k − e)/(e₀ − e).

    e_k is the error with some of the inputs, e with all of them, e₀ when inputs are ignored. The
    difference e_k − e is taken fold by fold; the gain e₀ − e is a mean over folds.
    """

    def __init__(self, some: np.ndarray, everything: np.ndarray, trivial: float, inflation: float):
        gain = trivial - float(everything.mean())
        mean = mean_reading(1 - (some - everything) / gain if gain > 0 else some * math.nan)
        error = mean.standard_error * inflation
        self.reading = Reading(mean.value, error, mean.count, mean.status)
        self.low, self.high = self.reading.interval()

    def __str__(self) -> str:
        interval = f"{100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"{100 * self.reading.value:.0f} % (95 % interval {interval})"


class ErrorChange:
    """The effect of a modification on an error: the mean over folds of log(with) − log(without)."""

    def __init__(self, with_it: np.ndarray, without: np.ndarray, inflation: float):
        mean = mean_reading(np.log(with_it) - np.log(without))
        error = mean.standard_error * inflation
        self.reading = Reading(mean.value, error, mean.count, mean.status)
        self.low, self.high = self.reading.interval()

    @property
    def usable(self) -> bool:
        return self.reading.status is Status.OK

    @property
    def better(self) -> bool:
        return self.high < 0

    @property
    def worse(self) -> bool:
        return self.low > 0

    @property
    def negligible(self) -> bool:
        """Whether the whole interval lies within ± `NEGLIGIBLE`."""
        return self.low > -NEGLIGIBLE and self.high < NEGLIGIBLE

    def __str__(self) -> str:
        middle, low, high = (100 * math.expm1(v) for v in (self.reading.value, self.low, self.high))
        return f"error {middle:+.0f} %, 95 % interval {low:+.0f} to {high:+.0f} %"
