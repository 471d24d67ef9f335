"""Forecasts of learning curves beyond the measured sizes, with a prior from other curves.

With n the largest measured size and t = log₂(m/n), the mean error with m labels is

    log e(m) = μ + log f(m) + δ(t),    f(m) = r + (1 − r) (m/n)^(−b)

a power law with the exponent b and a floor that is the share r of the error at n, times a
deviation: no real curve is exactly a power law. δ is a random walk in t with δ(0) = 0 and variance
σ² per doubling of the labels, so a forecast becomes less certain with every doubling. The
logarithms y of the mean errors are measured with the covariance S of their folds,
y = log e + N(0, S).

**Prior.** log b, logit r and log σ have normal distributions (`PRIOR`), estimated once from
learning curves of other models on other data (`benchmarks/forecast_prior.py`); μ has a flat prior.
A few points do not determine three parameters: where the measured errors say little, the prior
decides.

**Posterior.** (b, r, σ) are on a fixed grid. Given a grid point g, y is normal with the covariance
C = S + σ² W, W_ij = min(|t_i|, |t_j|), and μ is integrated out:

    v = 1/(1ᵀ C⁻¹ 1),   μ_g = v 1ᵀ C⁻¹ d,   d = y − log f,
    log p(y | g) = −½ (dᵀ C⁻¹ d − μ_g²/v) − ½ log det C + ½ log v

The forecast is the mixture over g of normal distributions of log e(m) with the mean μ_g + log f(m)
and the variance v + σ² t. Draws of it replace draws of a fitted law in `sample_size`.

**Covariance.** Training sets are nested, and all sizes of a fold share the test rows, so errors of
different sizes are correlated. Few folds do not give a full matrix: variances follow a trend in
log n, and all correlations are equal (the mean of the sample correlations). An error rate p on T
test rows has a variance of at least p (1 − p)/T.

**Plateaus.** Sizes below n/32 are left out. So are the first sizes, at which nothing is learned
yet: those with an error above 0.9 of the largest error, except the last of them. At least four
sizes are kept. A plateau at the end is a floor: r is near one.

`benchmarks/forecasts.py` judges forecasts on data sets that the prior was not estimated from: 55
curves of 14 tables, from a quarter of the rows to all rows. In parentheses are the results of a law
with a floor, fitted by least squares, and of a power law. The forecast error is within 15 % of the
measured one in 80 % of cases (84 %, 64 %), and the median deviation is 4.8 % (7.2 %, 10 %). n(ε) is
wrong by a median factor of 2.0 (2.9, 2.0). Its intervals cover 98 % (100 %, 87 %), but only 5 % of
them have an upper end below 100 n (2 %, 30 %): with a few hundred labels, a floor just above ε can
seldom be excluded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from .powerlaw import PowerLaw
from .sample_size import CurveDraws, curve_draws

REACH = 100.0  # forecasts end at this multiple of the largest size
WINDOW = 32.0  # sizes below the largest one divided by this are left out
PLATEAU = 0.9  # share of the largest error above which nothing is learned yet
FEWEST = 4  # sizes that are kept in any case
MOST_SHARED = 0.95  # largest correlation of errors at different sizes
LEAST_STD = 1e-3  # smallest standard deviation of a log error: smaller differences are ignored
# n(ε) is the median of the draws that reach ε, if these are at least a quarter of all draws. It
# answers "how many labels, if ε is ever reached", and an interval without an upper end says that ε
# may never be reached. On the curves that the prior was estimated from, the median factor between
# this estimate and the truth is 2.0. The median of all draws, which is often infinite, has 2.9.
LIKELY = 0.25
PATH_POINTS = 121  # sizes between which n(ε) is interpolated: steps of 4 % in n


class CurvePrior(NamedTuple):
    """Mean and standard deviation of log b, of logit r and of log σ."""

    log_exponent: tuple[float, float]
    logit_floor: tuple[float, float]
    log_deviation: tuple[float, float]


# 104 curves of 23 data sets; mean log score of the errors ahead 1.49.
PRIOR = CurvePrior((-0.24, 0.56), (-0.17, 1.98), (-3.17, 0.90))

# Grid: exponents b, floors r and deviations σ.
EXPONENTS = np.geomspace(0.02, 3.0, 21)
FLOORS = expit(np.linspace(-5, 5, 21))
DEVIATIONS = np.geomspace(0.01, 0.4, 7)


class MeasuredCurve(NamedTuple):
    """Logarithms of mean errors, their covariance, and t = log₂ of size / largest size."""

    t: Float[np.ndarray, " sizes"]
    logs: Float[np.ndarray, " sizes"]
    covariance: Float[np.ndarray, "sizes sizes"]


class Posterior(NamedTuple):
    """Log likelihood, mean of μ and its variance at each grid point (b, r, σ)."""

    likelihood: Float[np.ndarray, "b r s"]
    level: Float[np.ndarray, "b r s"]
    variance: Float[np.ndarray, " s"]

    def weights(self, prior: CurvePrior = PRIOR) -> Float[np.ndarray, "b r s"]:
        """The posterior probabilities of the grid points."""
        logs = self.likelihood + log_prior(prior)
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()


def log_prior(prior: CurvePrior) -> Float[np.ndarray, "b r s"]:
    """The log probabilities of the grid points: the grid is even in log b, logit r and log σ."""
    axes = (np.log(EXPONENTS), logit(FLOORS), np.log(DEVIATIONS))
    logs = [-0.5 * ((x - mean) / std) ** 2 for x, (mean, std) in zip(axes, prior, strict=True)]
    logs = [own - np.log(np.exp(own).sum()) for own in logs]
    return logs[0][:, None, None] + logs[1][:, None] + logs[2]


def measured(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "folds sizes"],
    test_rows: int = 0,
) -> MeasuredCurve:
    """The logs of the mean errors with their covariance S, without plateaus (module's docstring).

    test_rows: the number of test rows in all folds together if the error is an error rate, else 0.
    """
    kept = used_sizes(sizes, errors.mean(0))
    sizes, errors = sizes[kept], errors[:, kept]
    folds, mean = len(errors), errors.mean(0)
    relative = errors / mean - 1
    sample = relative.T @ relative / (folds * (folds - 1))
    variance = sample.diagonal()
    if test_rows:
        variance = np.maximum(variance, (1 - np.minimum(mean, 1)) / (mean * test_rows))
    variance = np.maximum(variance, max(0.01 * np.median(variance), LEAST_STD**2))
    x = np.log(sizes / sizes[-1])
    if len(x) > 2:
        slope, height = np.polyfit(x, np.log(variance), 1)
        variance = np.exp(height + slope * x)
    scale = np.sqrt(np.maximum(sample.diagonal(), LEAST_STD**2))
    others = ~np.eye(len(sizes), dtype=bool)
    shared = np.clip((sample / np.outer(scale, scale))[others].mean(), 0.0, MOST_SHARED)
    covariance = np.sqrt(np.outer(variance, variance)) * np.where(others, shared, 1.0)
    return MeasuredCurve(x / math.log(2), np.log(mean), covariance)


def used_sizes(sizes: np.ndarray, means: np.ndarray) -> slice:
    """The sizes that the law is fitted to: see "Plateaus" in the module's docstring.

    >>> used_sizes(np.array([1, 2, 4, 8, 16, 32]), np.array([0.5, 0.5, 0.5, 0.3, 0.2, 0.1]))
    slice(2, None, None)
    """
    first = int((sizes < (1 - 1e-9) * sizes[-1] / WINDOW).sum())  # up to rounding
    while first + 1 < len(sizes) and means[first + 1] > PLATEAU * means[first:].max():
        first += 1
    return slice(max(0, min(first, len(sizes) - FEWEST)), None)


def posterior(data: MeasuredCurve) -> Posterior:
    """The likelihood of the measured errors at every grid point."""
    shape = log_shape(data.t)
    residual = (data.logs - shape).reshape(-1, len(data.t)).T
    walk = np.minimum(np.abs(data.t)[:, None], np.abs(data.t))
    likelihood, level, variance = [], [], []
    for deviation in DEVIATIONS:
        root = np.linalg.cholesky(data.covariance + deviation**2 * walk)
        white = np.linalg.solve(root, residual)
        ones = np.linalg.solve(root, np.ones(len(root)))
        spread = 1 / (ones @ ones)
        middle = spread * (ones @ white)
        squares = (white**2).sum(0) - middle**2 / spread
        logs = -0.5 * squares - np.log(root.diagonal()).sum() + 0.5 * math.log(spread)
        likelihood.append(logs)
        level.append(middle)
        variance.append(spread)
    grid = (len(EXPONENTS), len(FLOORS), len(DEVIATIONS))
    return Posterior(
        np.stack(likelihood, -1).reshape(grid),
        np.stack(level, -1).reshape(grid),
        np.array(variance),
    )


def log_shape(t: np.ndarray) -> Float[np.ndarray, "b r sizes"]:
    """log f at the sizes n 2^t for every exponent and floor."""
    floor = FLOORS[None, :, None]
    return np.log(floor + (1 - floor) * 2.0 ** (-EXPONENTS[:, None, None] * t))


class Paths(NamedTuple):
    """Draws of curves beyond n. Row 0 of every result is the estimate: the median of the other
    rows, unless the method's docstring says otherwise."""

    largest: float  # n
    level: Float[np.ndarray, " draws"]  # μ
    rate: Float[np.ndarray, " draws"]  # b
    share: Float[np.ndarray, " draws"]  # r
    deviation: Float[np.ndarray, " draws"]  # σ g, g standard normal: δ(t) = σ g √t

    def error(self, size: float) -> Float[np.ndarray, " rows"]:
        """The error at `size`; below the largest size, that of the power law alone."""
        return np.exp(self._logs(np.array([size])))[:, 0]

    def size(self, error: float) -> Float[np.ndarray, " rows"]:
        """The smallest size above n with at most this error; infinite beyond `REACH`.

        The first row is the median of the draws that reach the error, if a share of `LIKELY` does.
        """
        ratios = np.geomspace(1.0, REACH, PATH_POINTS)
        logs = np.minimum.accumulate(self._logs(self.largest * ratios), axis=1)
        goal = math.log(error)
        reached = logs <= goal
        place = reached.argmax(1).clip(1)
        row = np.arange(len(logs))
        before, after = logs[row, place - 1], logs[row, place]
        part = (before - goal) / np.where(before > after, before - after, 1.0)
        steps = np.log(ratios)
        inside = steps[place - 1] + part.clip(0, 1) * (steps[place] - steps[place - 1])
        sizes = np.where(reached.any(1), self.largest * np.exp(inside), np.inf)[1:]
        finite = sizes[np.isfinite(sizes)]
        likely = len(finite) >= LIKELY * len(sizes)
        return np.concatenate([[np.median(finite) if likely else np.inf], sizes])

    def law(self) -> PowerLaw:
        """The power laws without their deviations."""
        scale = np.exp(self.level) * (1 - self.share) * self.largest**self.rate
        parameters = (scale, self.rate, np.exp(self.level) * self.share)
        return PowerLaw(*(_with_median(parameter) for parameter in parameters))

    def _logs(self, sizes: np.ndarray) -> Float[np.ndarray, "rows sizes"]:
        t = np.log2(sizes / self.largest)
        share = self.share[:, None]
        law = np.log(share + (1 - share) * 2.0 ** (-self.rate[:, None] * t))
        walk = self.deviation[:, None] * np.sqrt(np.maximum(t, 0))
        return _with_median(self.level[:, None] + law + walk)


class ForecastDraws(CurveDraws):
    """Draws of a mean curve with the forecast in place of a fitted law."""

    def power_law(self) -> PowerLaw:
        """The law a n^(−b) + c of each draw; NaN if an error is not finite."""
        law: Any = self.law
        return law.law() if isinstance(law, Paths) else law

    def extrapolated(self, size: float) -> Float[np.ndarray, " draws"]:
        """Return the error at a larger size."""
        return self.law.error(size)

    @property
    def reach(self) -> float:
        """The largest size up to which the curve is forecast."""
        return REACH * float(self.sizes[-1])


def forecast_draws(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "models folds sizes"],
    inflation: Float[np.ndarray, " sizes"],
    test_rows: int = 0,
) -> list[ForecastDraws]:
    """Draw the mean curve of every model and its continuation, paired between models.

    The levels μ of different models are correlated as their last measured errors are, because the
    models share folds. Everything else is independent between models.
    """
    results = []
    for seed, (table, curve) in enumerate(
        zip(errors, curve_draws(sizes, errors, inflation), strict=True)
    ):
        paths: Any = curve.law
        if curve.finite:
            last = curve.logs[1:, -1] - curve.logs[0, -1]
            data = measured(sizes, table, test_rows)
            paths = draw_paths(float(sizes[-1]), posterior(data), last, seed)
        results.append(ForecastDraws(sizes, curve.logs, paths))
    return results


def draw_paths(largest: float, grid: Posterior, last: np.ndarray, seed: int) -> Paths:
    """Draw one path per entry of `last`, the deviation of the last log error in that draw.

    The path with the k-th smallest level is given to the draw with the k-th smallest deviation.
    """
    random, count = np.random.default_rng(seed), len(last)
    total = np.cumsum(grid.weights().ravel())
    places = (np.arange(count) + 0.5) / count  # systematic sampling: every share within 1/count
    b, r, s = np.unravel_index(np.searchsorted(total, places * total[-1]), grid.level.shape)
    level = grid.level[b, r, s] + np.sqrt(grid.variance[s]) * random.normal(size=count)
    order = np.empty(count, int)
    order[np.argsort(last, kind="stable")] = np.argsort(level, kind="stable")
    walk = DEVIATIONS[s] * random.normal(size=count)
    return Paths(largest, level[order], EXPONENTS[b[order]], FLOORS[r[order]], walk[order])


def _with_median(draws: np.ndarray) -> np.ndarray:
    return np.concatenate([np.median(draws, axis=0, keepdims=True), draws])
