"""How many samples an error costs: n(ε) from learning curves, with an interval.

n(ε) is the smallest sample size whose expected error is at most ε. Between two sizes the curve is a
power law (linear on log–log axes); beyond the largest it is extrapolated by a fitted law, and the
answer says so. Noise makes a curve rise here and there, so the nearest falling curve is read (least
squares; Barlow et al., Statistical Inference under Order Restrictions, 1972).

**Intervals.** E is (replicates, sizes), with column means m. A draw of the mean curve is

    log m* = log m + √(ν/χ²_ν) · (E/m − 1)ᵀ g / √(R (R − 1)),    g ~ N(0, I_R),  ν = R − 1

so each log m*_i is distributed as Student's t about log m_i with the scale of its standard error:
the percentiles of draws *are* the t interval at each size, correlations between sizes and between
models that share their replicates are kept (the same g serves all models), and every quantity that
is computed from a curve (a crossing, an exponent, a ratio between models) has the percentiles of
its draws as interval. Coverage is measured in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attnlens.statistics import LEVEL

from .powerlaw import PowerLaw, fit_power_law, fit_with_floor

DRAWS = 1000
FARTHEST = 10.0  # extrapolation ends at this multiple of the largest size: nothing is known beyond
FEWEST_FOR_FLOOR = 4  # sizes; three numbers cannot be fitted to three points with any error left
# Laws are fitted to the larger sizes only: curves begin with a plateau where nothing is learned.
TAIL = 0.6

Logs = Float[np.ndarray, "draws sizes"]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; infinite ends are ends that the data do not give."""

    value: float
    low: float
    high: float
    status: str = "ok"

    def __str__(self) -> str:
        if self.status in ("at most", "at least"):
            return f"{self.status} {_told(self.value)}"
        if not math.isfinite(self.value):
            return (
                f"not reached (95 %: more than {_told(self.low)})" if self.low > 0 else "not known"
            )
        high = _told(self.high) if math.isfinite(self.high) else "no upper end"
        said = f"{_told(self.value)} ({_told(self.low)} to {high})"
        return f"{said}, extrapolated" if self.status == "extrapolated" else said


class Bundle(NamedTuple):
    """Mean learning curves of one model: row 0 is the estimate, the others are draws about it."""

    sizes: Float[np.ndarray, " sizes"]
    logs: Logs
    law: PowerLaw  # of the larger sizes; with a floor where there are sizes enough

    @property
    def reach(self) -> float:
        return FARTHEST * float(self.sizes[-1])


def bundles(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "models replicates sizes"],
    inflation: Float[np.ndarray, " sizes"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Bundle]:
    """Draws of every model's mean curve, paired over models.

    `inflation` multiplies standard errors, where replicates share training rows.
    """
    random = np.random.default_rng(seed)
    replicates = errors.shape[1]
    freedom = replicates - 1
    wide = np.ones(len(sizes)) if inflation is None else inflation
    directions = random.normal(size=(draws, replicates))
    directions *= np.sqrt(freedom / random.chisquare(freedom, (draws, 1)))
    directions = np.concatenate([np.zeros((1, replicates)), directions])
    found = []
    for own in errors:
        mean = own.mean(0)
        relative = (own / mean - 1) * wide / math.sqrt(replicates * freedom)
        logs = np.log(mean) + directions @ relative
        weights = _weights((relative**2).sum(0))
        tail = larger(len(sizes))
        fit = fit_with_floor if len(sizes) >= FEWEST_FOR_FLOOR else fit_power_law
        law = fit(sizes[tail], np.exp(logs[:, tail]), weights[tail])
        found.append(Bundle(sizes, logs, law))
    return found


def larger(count: int) -> slice:
    """Which of so many sizes a law is fitted to."""
    return slice(-max(FEWEST_FOR_FLOOR, math.ceil(TAIL * count)), None)


def _weights(variance: np.ndarray) -> np.ndarray:
    """1/variance of a log error, floored at a hundredth of the typical one, as `slopes` does."""
    variance = np.maximum(variance, 0.01 * np.median(variance))
    return 1 / variance if (variance > 0).all() else np.ones_like(variance)


def falling(logs: Logs) -> Logs:
    """The nearest curve that never rises: f_i = min over a ≤ i of max over b ≥ i of mean(a … b)."""
    count = logs.shape[1]
    sums = np.concatenate([np.zeros((len(logs), 1)), np.cumsum(logs, axis=1)], axis=1)
    fitted = np.full_like(logs, np.inf)
    for a in range(count):
        means = (sums[:, a + 1 :] - sums[:, [a]]) / np.arange(1, count - a + 1)
        highest = np.maximum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        fitted[:, a:] = np.minimum(fitted[:, a:], highest)
    return fitted


def crossing(
    sizes: Float[np.ndarray, " sizes"], logs: Logs, error: float
) -> Float[np.ndarray, " draws"]:
    """log n(ε) inside the range: −inf where the first size already reaches ε, inf where none does.

    >>> float(np.exp(crossing(np.array([10.0, 1000.0]), np.log([[1.0, 0.01]]), 0.1)[0]).round(9))
    100.0
    """
    x, y, goal = np.log(sizes), falling(logs), math.log(error)
    reached = y <= goal
    place = np.where(reached.any(1), reached.argmax(1), len(sizes) - 1).clip(1)
    row = np.arange(len(y))
    before, after = y[row, place - 1], y[row, place]
    drop = np.where(before > after, before - after, 1.0)
    inside = x[place - 1] + (before - goal) / drop * (x[place] - x[place - 1])
    return np.where(reached[:, 0], -np.inf, np.where(reached.any(1), inside, np.inf))


def log_sizes(bundle: Bundle, error: float) -> Float[np.ndarray, " draws"]:
    """log n(ε) of the estimate and of each draw, extrapolated where no size reaches ε."""
    inside = crossing(bundle.sizes, bundle.logs, error)
    beyond = bundle.law.size(error)
    # A law that runs a little below its last point must not give a size inside the range.
    beyond = np.maximum(beyond, bundle.sizes[-1])
    beyond = np.log(np.where(beyond > bundle.reach, np.inf, beyond))
    return np.where(inside == np.inf, beyond, inside)


def sample_size(bundle: Bundle, error: float) -> Estimate:
    """n(ε) with its interval: interpolated, extrapolated, or censored at either end."""
    logs = log_sizes(bundle, error)
    smallest, largest = float(bundle.sizes[0]), float(bundle.sizes[-1])
    low, high = (math.exp(end) for end in interval(logs[1:]))
    low = max(low, smallest)
    if logs[0] == -np.inf:
        return Estimate(smallest, 0.0, max(high, smallest), "at most")
    if logs[0] == np.inf:
        return Estimate(math.inf, min(low, bundle.reach), math.inf, "not reached")
    value = math.exp(logs[0])
    status = "ok" if value <= largest else "extrapolated"
    return Estimate(value, min(low, value), max(high, value), status)


def ratio(first: Bundle, second: Bundle, error: float) -> Estimate:
    """n(ε) of the first over n(ε) of the second, paired.

    Where one of them is only known to lie beyond an end of the grid, that end stands in for it and
    the ratio is a bound, "at least" or "at most"; where both lie beyond the same end, or a bound
    would say nothing, it is not known.
    """
    one, two = log_sizes(first, error), log_sizes(second, error)
    least, most = math.log(first.sizes[0]), math.log(first.reach)
    if np.isinf(one[0]) and one[0] == two[0]:
        return Estimate(math.nan, 0.0, math.inf, "neither n(ε) is known")
    difference = np.clip(one, least, most) - np.clip(two, least, most)
    low, high = (math.exp(end) for end in interval(difference[1:]))
    value = math.exp(difference[0])
    if one[0] == np.inf or two[0] == -np.inf:
        return Estimate(value, low, math.inf, "at least")
    if one[0] == -np.inf or two[0] == np.inf:
        return Estimate(value, 0.0, high, "at most")
    status = "extrapolated" if max(one[0], two[0]) > math.log(first.sizes[-1]) else "ok"
    return Estimate(value, min(low, value), max(high, value), status)


def interval(draws: Float[np.ndarray, " draws"]) -> tuple[float, float]:
    """The central 95 % of draws; an end is infinite where more than 2.5 % of them are."""
    ordered = np.sort(draws)
    tail = (1 - LEVEL) / 2
    last = len(ordered) - 1
    return float(ordered[math.floor(tail * last)]), float(ordered[math.ceil((1 - tail) * last)])


def _told(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
