"""Numbers as people say them, and the readings behind them."""

from __future__ import annotations

import math

import numpy as np

from attnlens.instruments.sample_size import Estimate
from attnlens.records import Answer, Reading
from attnlens.statistics import mean_reading, t_interval

UNKNOWN = "not enough data to say"
SAME = 0.05  # a change of the error by less than this, either way, is none for a practitioner


def unknown(question: str, evidence: str, why: str = "", /, **readings: Reading) -> Answer:
    """The answer that is none."""
    said = f"{UNKNOWN}: {why}" if why else UNKNOWN
    return Answer(question, said, evidence, known=False, readings=readings)


def reading_of(estimate: Estimate, count: int) -> Reading:
    """An estimate as a reading; of an interval that has an end the error is a quarter of it."""
    half = (estimate.high - estimate.low) / (2 * 1.96)
    details = {"low": estimate.low, "high": estimate.high}
    return Reading(estimate.value, half, count, estimate.status, details)


def number(value: float) -> str:
    """Whole where it is large, three digits where it is small."""
    if not math.isfinite(value):
        return "no end" if value > 0 else "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def listed(names: list[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


class Share:
    """What part of a gain is kept, 1 − (e_k − e)/(e₀ − e), paired by fold; e₀ − e is a mean."""

    def __init__(self, some: np.ndarray, everything: np.ndarray, trivial: float, widened: float):
        gain = trivial - float(everything.mean())
        plain = mean_reading(1 - (some - everything) / gain if gain > 0 else some * math.nan)
        error = plain.standard_error * widened
        self.reading = Reading(plain.value, error, plain.count, plain.status)
        self.low, self.high = t_interval(self.reading)

    def __str__(self) -> str:
        ends = f"{100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"{100 * self.reading.value:.0f} % (95 % interval {ends})"


class Change:
    """The paired change of an error, from the log ratio of each fold.

    `widened` is for training rows that folds share (`labelled.inflation`).
    """

    def __init__(self, with_it: np.ndarray, without: np.ndarray, widened: float):
        plain = mean_reading(np.log(with_it) - np.log(without))
        error = plain.standard_error * widened
        self.reading = Reading(plain.value, error, plain.count, plain.status)
        self.low, self.high = t_interval(self.reading)
        self.usable = plain.status == "ok"

    @property
    def better(self) -> bool:
        return self.high < 0

    @property
    def worse(self) -> bool:
        return self.low > 0

    @property
    def none(self) -> bool:
        """Whether it is known to be too small to matter."""
        return self.low > -SAME and self.high < SAME

    def __str__(self) -> str:
        middle, low, high = (100 * math.expm1(v) for v in (self.reading.value, self.low, self.high))
        return f"error {middle:+.0f} %, 95 % interval {low:+.0f} to {high:+.0f} %"
