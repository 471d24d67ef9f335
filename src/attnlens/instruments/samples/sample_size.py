"""Sample complexity: n(ε), the number of samples for error ε, from learning curves.

n(ε) is the smallest sample size whose expected error is at most ε. Between two sizes the curve is
interpolated by a power law (linear on log–log axes). Beyond the largest size it is a forecast by a
fitted law, and the result has the status `EXTRAPOLATED`. Because of noise a curve can rise, so
the closest non-increasing curve is used (isotonic regression; Barlow et al., Statistical Inference
under Order Restrictions, 1972).

**Intervals.** Let E be the errors (replicates, sizes), with R replicates and column means m. A
random draw of the mean curve is

    log m* = log m + √(ν/χ²_ν) · (E/m − 1)ᵀ g / √(R (R − 1)),    g ~ N(0, I_R),  ν = R − 1

so each log m*_i has Student's t distribution about log m_i with the scale of its standard error:
the percentiles of draws *are* the t interval at each size. Correlations between sizes, and between
models that share their replicates, are preserved (the same g is used for all models). For every
quantity that is computed from a curve (a crossing, an exponent, a ratio between models), the
interval is given by the percentiles of its draws. The tests measure the coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attnlens.core.frames import Tabular
from attnlens.core.readings import LEVEL
from attnlens.core.status import Status

from .powerlaw import PowerLaw, fit_power_law, fit_with_floor

DRAWS = 1000
FARTHEST = 10.0  # forecasts end at this multiple of the largest size
FEWEST_FOR_FLOOR = 4  # minimum number of sizes: three parameters fit three points exactly
# Laws are fitted to this share of the sizes, the larger ones, because curves often begin with a
# plateau on which nothing is learned.
TAIL = 0.6

Logs = Float[np.ndarray, "draws sizes"]


@dataclass(frozen=True)
class SampleSize(Tabular):
    """A sample size, or another number derived from learning curves, with its 95 % interval.

    An infinite limit of the interval means that the data give no bound. `status` is `OK`,
    `EXTRAPOLATED`, `AT_MOST` or `AT_LEAST` (the value is a bound), or a reason why there is no
    value.
    """

    value: float
    low: float
    high: float
    status: Status = Status.OK

    def rows(self) -> list[dict[str, Any]]:
        """One row: the value, its interval and its status."""
        ends = {"low": self.low, "high": self.high}
        return [{"value": self.value, **ends, "status": self.status.value}]

    def __str__(self) -> str:
        if self.status is Status.AT_MOST and math.isinf(self.high):
            return f"{_format(self.value)} or fewer, without an upper end"
        if self.status is Status.AT_MOST:
            return f"{self.status} {_format(self.high)}"
        if self.status is Status.AT_LEAST:
            return f"{self.status} {_format(self.low)}"
        if not math.isfinite(self.value):
            bound = f"not reached (95 %: more than {_format(self.low)})"
            return bound if self.low > 0 else "not known"
        high = _format(self.high) if math.isfinite(self.high) else "no upper end"
        text = f"{_format(self.value)} ({_format(self.low)} to {high})"
        return f"{text}, a forecast" if self.status is Status.EXTRAPOLATED else text


class CurveDraws(NamedTuple):
    """The mean learning curve of one model: row 0 is the estimate, the others are random draws."""

    sizes: Float[np.ndarray, " sizes"]
    logs: Logs
    law: PowerLaw  # fitted to the larger sizes; with a floor if there are enough sizes

    @property
    def finite(self) -> bool:
        """Whether every mean error is positive and finite, which all computations need."""
        return bool(np.isfinite(self.logs).all())

    def extrapolated(self, size: float) -> Float[np.ndarray, " draws"]:
        """Return the error at a larger size: the last error times law(size)/law(last size)."""
        last = float(self.sizes[-1])
        return np.exp(self.logs[:, -1]) * self.law.error(size) / self.law.error(last)

    @property
    def reach(self) -> float:
        """The largest size up to which the curve is extrapolated."""
        return FARTHEST * float(self.sizes[-1])


def curve_draws(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "models replicates sizes"],
    inflation: Float[np.ndarray, " sizes"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[CurveDraws]:
    """Draw the mean curve of every model `draws` times, paired between models.

    Standard errors are multiplied by `inflation` if the training sets of replicates overlap.
    """
    random = np.random.default_rng(seed)
    replicates = errors.shape[1]
    freedom = replicates - 1
    factors = np.ones(len(sizes)) if inflation is None else inflation
    directions = random.normal(size=(draws, replicates))
    directions *= np.sqrt(freedom / random.chisquare(freedom, (draws, 1)))
    directions = np.concatenate([np.zeros((1, replicates)), directions])
    results = []
    for table in errors:
        mean = table.mean(0)
        relative = (table / mean - 1) * factors / math.sqrt(replicates * freedom)
        logs = np.log(mean) + directions @ relative
        weights = _weights(sizes, (relative**2).sum(0))
        tail = fitted_sizes(len(sizes))
        fit = fit_with_floor if len(sizes) >= FEWEST_FOR_FLOOR else fit_power_law
        law = fit(sizes[tail], np.exp(logs[:, tail]), weights[tail])
        results.append(CurveDraws(sizes, logs, law))
    return results


def fitted_sizes(count: int) -> slice:
    """Return the slice of `count` sizes to which a law is fitted."""
    return slice(-max(FEWEST_FOR_FLOOR, math.ceil(TAIL * count)), None)


def _weights(
    sizes: Float[np.ndarray, " sizes"], variance: Float[np.ndarray, " sizes"]
) -> Float[np.ndarray, " sizes"]:
    """Return the weights n^(−b) for fitting the law that extrapolates a curve.

    b is the trend of the variance of the log error, which is assumed to be proportional to n^b. The
    inverse variance at a single size, from a few folds, would be too noisy as a weight: errors that
    agree by chance would determine the fit. So only the trend over all sizes is estimated, by least
    squares on log–log axes; a trend is needed because the smallest errors are often the noisiest on
    a logarithmic axis.

    In simulations with 8 and with 4 folds, in which the scatter of errors was constant, grew or
    fell with the size, the root mean square error of the extrapolated log error was 7 % lower to
    2 % higher than with 1/variance, and up to 28 % lower than with equal weights. Intervals covered
    0.83 to 0.97 with 8 folds (0.79 with 4). With all of these weights, coverage was too low if the
    law has no floor and errors scatter less at larger sizes, because the fitted floor is never
    negative.

    Variances are at least a hundredth of their median. If a variance is NaN or all are zero, all
    sizes have equal weights.
    """
    variance = np.maximum(variance, 0.01 * np.median(variance))
    if not (variance > 0).all():
        return np.ones_like(variance)
    x = np.log(sizes) - np.log(sizes).mean()
    trend = (x * np.log(variance)).sum() / max((x**2).sum(), np.finfo(float).tiny)
    return np.exp(-trend * x)


def non_increasing(logs: Logs) -> Logs:
    """Return the closest non-increasing curve (isotonic regression) of each draw.

    The formula is f_i = min over a ≤ i of max over b ≥ i of mean(a … b).
    """
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
    """Return log n(ε) inside the range of sizes, for each draw.

    It is −inf if the error at the first size is at most ε, and inf if no size reaches ε.

    >>> float(np.exp(crossing(np.array([10.0, 1000.0]), np.log([[1.0, 0.01]]), 0.1)[0]).round(9))
    100.0
    """
    x, y, goal = np.log(sizes), non_increasing(logs), math.log(error)
    reached = y <= goal
    place = np.where(reached.any(1), reached.argmax(1), len(sizes) - 1).clip(1)
    row = np.arange(len(y))
    before, after = y[row, place - 1], y[row, place]
    drop = np.where(before > after, before - after, 1.0)
    inside = x[place - 1] + (before - goal) / drop * (x[place] - x[place - 1])
    return np.where(reached[:, 0], -np.inf, np.where(reached.any(1), inside, np.inf))


def log_sizes(draws: CurveDraws, error: float) -> Float[np.ndarray, " draws"]:
    """Return log n(ε) of the estimate and of each draw, extrapolated if no size reaches ε."""
    inside = crossing(draws.sizes, draws.logs, error)
    beyond = draws.law.size(error)
    # The fitted law can lie below the last point of the curve, and would then give a size inside
    # the range: extrapolated sizes are at least the largest size.
    beyond = np.maximum(beyond, draws.sizes[-1])
    beyond = np.log(np.where(beyond > draws.reach, np.inf, beyond))
    return np.where(inside == np.inf, beyond, inside)


def sample_size(draws: CurveDraws, error: float) -> SampleSize:
    """Return n(ε) with its interval: interpolated, extrapolated, or as a bound (`status`)."""
    if not draws.finite:
        return SampleSize(math.nan, 0.0, math.inf, Status.NOT_FINITE)
    logs = log_sizes(draws, error)
    smallest, largest = float(draws.sizes[0]), float(draws.sizes[-1])
    low, high = (math.exp(limit) for limit in interval(logs[1:]))
    low = max(low, smallest)
    if logs[0] == -np.inf:
        return SampleSize(smallest, 0.0, max(high, smallest), Status.AT_MOST)
    if logs[0] == np.inf:
        return SampleSize(math.inf, min(low, draws.reach), math.inf, Status.NOT_REACHED)
    value = math.exp(logs[0])
    status = Status.OK if value <= largest else Status.EXTRAPOLATED
    return SampleSize(value, min(low, value), max(high, value), status)


def ratio(first: CurveDraws, second: CurveDraws, error: float) -> SampleSize:
    """Return n(ε) of the first model divided by n(ε) of the second, from paired draws.

    If one n(ε) is only known to be below the smallest size or beyond the end of the extrapolation,
    that limit replaces it, and the ratio is a bound, `AT_LEAST` or `AT_MOST`. If both lie beyond
    the same limit, the ratio is not known.
    """
    if not (first.finite and second.finite):
        return SampleSize(math.nan, 0.0, math.inf, Status.NOT_FINITE)
    one, two = log_sizes(first, error), log_sizes(second, error)
    least, most = math.log(first.sizes[0]), math.log(first.reach)
    if np.isinf(one[0]) and one[0] == two[0]:
        return SampleSize(math.nan, 0.0, math.inf, Status.NEITHER_KNOWN)
    difference = np.clip(one, least, most) - np.clip(two, least, most)
    low, high = (math.exp(limit) for limit in interval(difference[1:]))
    value = math.exp(difference[0])
    if one[0] == np.inf or two[0] == -np.inf:
        return SampleSize(value, low, math.inf, Status.AT_LEAST)
    if one[0] == -np.inf or two[0] == np.inf:
        return SampleSize(value, 0.0, high, Status.AT_MOST)
    beyond = max(one[0], two[0]) > math.log(first.sizes[-1])
    status = Status.EXTRAPOLATED if beyond else Status.OK
    return SampleSize(value, min(low, value), max(high, value), status)


def interval(draws: Float[np.ndarray, " draws"]) -> tuple[float, float]:
    """Return the central 95 % interval of draws.

    A limit is infinite if more than 2.5 % of the draws are infinite on that side.
    """
    ordered = np.sort(draws)
    tail = (1 - LEVEL) / 2
    last = len(ordered) - 1
    return float(ordered[math.floor(tail * last)]), float(ordered[math.ceil((1 - tail) * last)])


def with_interval(draws: np.ndarray, status: Status = Status.OK) -> SampleSize:
    """Return the first of `draws`, which is the estimate, with the interval of the others."""
    low, high = interval(draws[1:])
    value = float(draws[0])
    if math.isnan(value):
        return SampleSize(math.nan, 0.0, math.inf, Status.NOT_FINITE)
    return SampleSize(value, min(low, value), max(high, value), status)


def _format(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
