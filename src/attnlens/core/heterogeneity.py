"""Test whether independent estimates of one quantity differ by more than their standard errors.

With k estimates x, standard errors s and weights w = 1/s² whose sum is W, Cochran's statistic

    Q = Σ w (x − x̄)²,   x̄ = Σ w x / W

has k − 1 degrees of freedom. If the standard errors are known, Q is compared with χ². Here each of
them is estimated from n replicates, which makes Q larger: by a factor of 7/5 on average with 8
replicates. So the p-value is that of Welch (On the comparison of several mean values, 1951), who
compares

    F = Q / (k − 1) / (1 + 2 (k − 2) Λ / (k² − 1)),   Λ = Σ (1 − w/W)² / (n − 1)

with the F distribution of k − 1 and (k² − 1) / (3 Λ) degrees of freedom; it tends to χ² as n grows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtrc, stdtr

from . import arrays
from .readings import LEVEL, t_quantile


class Heterogeneity(NamedTuple):
    """Cochran's Q over independent estimates, its degrees of freedom, and Welch's p-value."""

    q: float
    degrees: int
    p: float


def heterogeneity(
    estimates: ArrayLike, errors: ArrayLike, counts: ArrayLike
) -> Heterogeneity | None:
    """Cochran's Q of estimates whose standard errors come from `counts` replicates each.

    Returns None if Q is not defined: for fewer than two estimates, for a standard error that is
    zero or not finite, or for an estimate from a single replicate.

    >>> heterogeneity([1.0, 1.0, 1.0], [0.1, 0.2, 0.1], [8, 8, 8])
    Heterogeneity(q=0.0, degrees=2, p=1.0)
    """
    columns = {"estimates": estimates, "errors": errors, "counts": counts}
    x, s, n = (arrays.numbers(*item) for item in columns.items())
    k = x.size
    usable = np.isfinite(x).all() and np.isfinite(s).all() and (s > 0).all() and (n > 1).all()
    if k < 2 or not usable:
        return None
    w = 1 / s**2
    q = float((w * (x - (w * x).sum() / w.sum()) ** 2).sum())
    spread = float(((1 - w / w.sum()) ** 2 / (n - 1)).sum())
    f = q / (k - 1) / (1 + 2 * (k - 2) * spread / (k**2 - 1))
    return Heterogeneity(q, k - 1, float(fdtrc(k - 1, (k**2 - 1) / (3 * spread), f)))


def expected_share(count: int, estimates: int, level: float = LEVEL) -> float:
    """The expected share of estimates whose t interval contains the mean of all estimates.

    It holds for correct intervals at `level`, with `count` replicates per estimate. The mean of
    all k estimates includes the estimate itself, so the variance of their difference is (1 − 1/k)
    times the variance of the estimate, and the expected share lies above `level`.

    >>> round(expected_share(10**6, 8), 3), expected_share(9, 1)
    (0.964, 1.0)
    """
    if estimates < 2:
        return 1.0
    bound = t_quantile(count - 1, level) / math.sqrt(1 - 1 / estimates)
    return float(2 * stdtr(count - 1, bound) - 1)
