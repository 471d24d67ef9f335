"""Compare forecasts with the last value, a power law and a law with a floor, on held-out data sets.

    python -m benchmarks.forecasts        installs the extra peers-forecast for its data

From the curve of a quarter of the rows (n labels), each contender forecasts the error with 2n and
4n labels, and n(ε) for the errors ε that are measured with 2n and 4n labels. Targets that are not
below the measured error with n labels are left out, because no further label is needed for them. If
a forecast never reaches ε, its n(ε) counts as infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attnlens.instruments.samples.forecast import forecast_draws
from attnlens.instruments.samples.powerlaw import fit_power_law
from attnlens.instruments.samples.sample_size import (
    CurveDraws,
    curve_draws,
    interval,
    log_sizes,
)

from .forecast_cases import Case, held_out_models, held_out_tables, measure
from .forecast_prior import usable

FACTORS = (2, 4)
CLOSE = 0.15  # the aim for the error with 4n labels: within ± 15 %


class Forecast(NamedTuple):
    """A point and a 95 % interval, and what was measured."""

    value: float
    low: float
    high: float
    truth: float


Contender = Callable[[Case], CurveDraws]


def with_prior(case: Case) -> CurveDraws:
    """The posterior of `attnlens.instruments.samples.forecast`."""
    sizes = case.sizes.astype(float)
    return forecast_draws(sizes, case.errors[None], case.inflation, case.test_rows)[0]


def with_floor(case: Case) -> CurveDraws:
    """a n^(−b) + c, fitted to the larger sizes: the rule before there was a prior."""
    return curve_draws(case.sizes.astype(float), case.errors[None], case.inflation)[0]


def power_law(case: Case) -> CurveDraws:
    """a n^(−b) by least squares on log–log axes."""
    draws = with_floor(case)
    law = fit_power_law(draws.sizes, np.exp(draws.logs), np.ones(len(draws.sizes)))
    return draws._replace(law=law)


def last_value(case: Case) -> CurveDraws:
    """No change from n labels on."""
    draws = with_floor(case)
    return draws._replace(
        law=draws.law._replace(scale=0 * draws.law.scale, floor=np.exp(draws.logs[:, -1]))
    )


CONTENDERS: dict[str, Contender] = {
    "posterior with the prior": with_prior,
    "law with a floor": with_floor,
    "power law": power_law,
    "last value": last_value,
}


def errors(case: Case, draws: CurveDraws) -> list[Forecast]:
    """Forecasts of the error with 2n and 4n labels."""
    forecasts = []
    for size, truth in zip(case.ahead_sizes[1:], case.ahead_errors.mean(0)[1:], strict=True):
        later = draws.extrapolated(float(size))
        forecasts.append(Forecast(float(later[0]), *interval(later[1:]), float(truth)))
    return forecasts


def label_counts(case: Case, draws: CurveDraws) -> list[Forecast]:
    """Forecasts of n(ε) for the errors that are measured with 2n and 4n labels."""
    now, *later = case.ahead_errors.mean(0)
    forecasts, least = [], now
    for size, error in zip(case.ahead_sizes[1:], later, strict=True):
        if error < least:
            counts = np.maximum(np.exp(log_sizes(draws, float(error))), case.sizes[0])
            forecasts.append(Forecast(float(counts[0]), *interval(counts[1:]), float(size)))
        least = min(least, error)
    return forecasts


def summary(cases: Sequence[Case], contender: Contender) -> dict[str, float]:
    pairs = [(case, contender(case)) for case in cases]
    counts = [forecast for pair in pairs for forecast in label_counts(*pair)]
    by_factor = [*zip(*(errors(*pair) for pair in pairs), strict=True)]
    factor = [multiplicative(f.value / f.truth) for f in counts]
    result = {
        "n(ε): targets": len(counts),
        "n(ε): median factor": float(np.median(factor)),
        "n(ε): within 25 %": mean(f <= 1.25 for f in factor),
        "n(ε): within a factor of 2": mean(f <= 2 for f in factor),
        "n(ε): covered": mean(f.low <= f.truth <= f.high for f in counts),
        "n(ε): upper end finite": mean(math.isfinite(f.high) for f in counts),
        "n(ε): median upper / lower end": float(np.median([f.high / f.low for f in counts])),
    }
    for times, own in zip(FACTORS, by_factor, strict=True):
        wrong = [abs(f.value / f.truth - 1) for f in own]
        result[f"error at {times}n: within 15 %"] = mean(w <= CLOSE for w in wrong)
        result[f"error at {times}n: median relative error"] = float(np.median(wrong))
        result[f"error at {times}n: covered"] = mean(f.low <= f.truth <= f.high for f in own)
    return result


def multiplicative(ratio: float) -> float:
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def mean(values: Iterable[bool]) -> float:
    return float(np.mean([*values]))


def report(cases: Sequence[Case]) -> str:
    cases = [case for case in cases if usable(case)]
    results = [summary(cases, contender) for contender in CONTENDERS.values()]
    lines = [f"{len(cases)} curves", f"{'':32}" + "".join(f"{name:>26}" for name in CONTENDERS)]
    for key in results[0]:
        lines.append(f"{key:32}" + "".join(f"{result[key]:>26.3g}" for result in results))
    return "\n".join(lines)


if __name__ == "__main__":
    print(report([*measure(held_out_tables, held_out_models)]))
