"""Estimate the prior of forecasts from the cases of `forecast_cases.prior_tables`.

    python -m benchmarks.forecast_prior        installs the extra peers-forecast for its data

Empirical Bayes: of each case the errors of a quarter of the rows are y, those with 2n and 4n labels
are z. The six numbers of the prior maximise the mean of

    log p(z | y) = log Σ_g p(g) p(y | g) p(z | y, g) − log Σ_g p(g) p(y | g)

over cases, the score of the forecast itself: a prior that maximised p(y, z) would spend its
flexibility on the measured points. The weight of a case is one over the number of cases of its data
set.
The densities of each grid point g are computed once, so only weighted sums depend on the prior.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from attnlens.instruments.samples import forecast
from attnlens.instruments.samples.forecast import CurvePrior, MeasuredCurve, Posterior

from .forecast_cases import Case, measure, prior_models, prior_tables

# A weak penalty on the distance of the six parameters (means, and logarithms of standard
# deviations) from START, in units of PENALTY: it makes the optimum unique where the score is flat.
START = np.array([math.log(0.4), math.log(0.6), -0.5, math.log(2.0), math.log(0.08), math.log(0.7)])
PENALTY = np.array([1.0, 0.5, 2.0, 0.5, 1.0, 0.5])


def usable(case: Case) -> bool:
    errors = np.concatenate([case.errors.mean(0), case.ahead_errors.mean(0)])
    return bool(np.isfinite(errors).all() and (errors > 1e-6).all())


def past(case: Case) -> MeasuredCurve:
    return forecast.measured(case.sizes.astype(float), case.errors, case.test_rows)


def ahead(case: Case, posterior: Posterior) -> np.ndarray:
    """log p(z | y, g) at each grid point (b, r, σ)."""
    t = np.log2(case.ahead_sizes[1:] / case.sizes[-1])
    mean = case.ahead_errors.mean(0)[1:]
    folds = len(case.ahead_errors)
    relative = case.ahead_errors[:, 1:] / mean - 1
    noise = relative.T @ relative / (folds * (folds - 1)) + forecast.LEAST_STD**2 * np.eye(len(t))
    logs = []
    for i, deviation in enumerate(forecast.DEVIATIONS):
        covariance = noise + posterior.variance[i] + deviation**2 * np.minimum(t[:, None], t)
        centre = posterior.level[..., i, None] + forecast.log_shape(t)
        gap = np.log(mean) - centre
        squares = np.einsum("bri,ij,brj->br", gap, np.linalg.inv(covariance), gap)
        logs.append(-0.5 * squares - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1])
    return np.stack(logs, -1)


def estimate(cases: Sequence[Case]) -> tuple[CurvePrior, float]:
    """The prior, and the mean of log p(z | y) under it."""
    cases = [case for case in cases if usable(case)]
    counts = Counter(table(case) for case in cases)
    weights = np.array([1 / counts[table(case)] for case in cases])
    posteriors = [forecast.posterior(past(case)) for case in cases]
    likelihood = np.array([posterior.likelihood.ravel() for posterior in posteriors])
    joint = likelihood + [ahead(c, p).ravel() for c, p in zip(cases, posteriors, strict=True)]

    def score(parameters: np.ndarray) -> float:
        prior = forecast.log_prior(as_prior(parameters)).ravel()
        above, below = (np.asarray(logsumexp(x + prior, axis=1)) for x in (joint, likelihood))
        gains = above - below
        return float(weights @ gains / weights.sum())

    def loss(parameters: np.ndarray) -> float:
        penalty = 0.5 * (((parameters - START) / PENALTY) ** 2).sum()
        return -score(parameters) + penalty / weights.sum()

    best = minimize(loss, START, method="Nelder-Mead", options={"maxiter": 600, "xatol": 1e-2})
    return as_prior(best.x), score(best.x)


def table(case: Case) -> str:
    return case.name.rpartition(",")[0]


def as_prior(parameters: np.ndarray) -> CurvePrior:
    pairs = parameters.reshape(3, 2).tolist()
    return CurvePrior(*((mean, math.exp(log_std)) for mean, log_std in pairs))


def main() -> None:
    cases = list(measure(prior_tables, prior_models))
    prior, score = estimate(cases)
    print(f"{len(cases)} cases, mean log score {score:.3f}")
    for name, (mean, std) in zip(prior._fields, prior, strict=True):
        stored = getattr(forecast.PRIOR, name)
        print(f"{name}: mean {mean:.2f}, standard deviation {std:.2f}; stored {stored}")


if __name__ == "__main__":
    main()
