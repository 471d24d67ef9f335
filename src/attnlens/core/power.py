"""Power before the run: the probability that a given number of replicates decides a claim.

The judged numbers x₁ … x_n of a part are taken as independent normal draws with mean μ (the stated
effect) and standard deviation σ. Their t interval is x̄ ± c·s/√n with c the Student quantile of
ν = n − 1 degrees of freedom. u = s/σ = √(χ²_ν/ν) is independent of x̄, so for a region from l to h

    P(interval inside)  = E[ (Φ((h − μ)√n/σ − c u) − Φ((l − μ)√n/σ + c u))₊ ]
    P(interval outside) = E[ Φ((l − μ)√n/σ − c u) + Φ(−(h − μ)√n/σ − c u) ].

If only one end of the region is finite, these are tails of the noncentral t distribution. If both
are finite, the first formula is the power of two one-sided tests (Owen, A special case of a
bivariate non-central t-distribution, 1965). The expectation over u is one integral of a smooth
function, computed by Gauss–Legendre quadrature to about 1e−10.

Only NumPy and `scipy.special` are imported here: `scipy.stats` takes 1.8 s to load.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri, gammaln, ndtr

from .readings import LEVEL, t_quantile
from .verdicts import Region

POINTS = 200  # quadrature points: a test checks that the error is below 1e−10 from 2 replicates on
TAIL = 1e-13  # probability that u lies beyond either end of the integral


def decision_power(
    effect: float, std: float, count: int, region: Region, level: float = LEVEL
) -> float:
    """The probability that the interval of `count` replicates lies wholly on the effect's side.

    The effect's side is inside the region if the effect lies inside (the claim is expected to be
    supported), and outside otherwise (the claim is expected to be refuted). `std` is the standard
    deviation of one replicate. Returns NaN for fewer than two replicates.

    >>> round(decision_power(-0.5, 0.1, 16, Region(-0.6, -0.4)), 3)
    0.924
    """
    if count < 2:
        return math.nan
    inside = region.low <= effect <= region.high
    if std == 0:
        return 1.0
    scale = math.sqrt(count) / std
    low, high = (region.low - effect) * scale, (region.high - effect) * scale
    quantile = t_quantile(count - 1, level)
    # If both ends are finite, an interval inside the region is at most as wide as the region, which
    # bounds u by `longest`.
    longest = (high - low) / (2 * quantile) if inside else math.inf
    u, weights = _quadrature(count - 1, longest)
    half = quantile * u
    if inside:
        chance = np.maximum(ndtr(high - half) - ndtr(low + half), 0.0)
    else:
        chance = ndtr(low - half) + ndtr(-high - half)
    return float(min(1.0, chance @ weights))


def _quadrature(freedom: int, longest: float) -> tuple[np.ndarray, np.ndarray]:
    """Quadrature points u = √(χ²_ν/ν) up to `longest`, and weights multiplied by u's density.

    ν is `freedom`.
    """
    start = math.sqrt(chdtri(freedom, 1 - TAIL) / freedom)
    end = min(longest, math.sqrt(chdtri(freedom, TAIL) / freedom))
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    width = max(0.0, end - start)
    u = start + width * (nodes + 1) / 2
    half = freedom / 2
    # Density of u: 2 (ν/2)^(ν/2) u^(ν−1) e^(−ν u²/2) / Γ(ν/2).
    log_density = (
        math.log(2)
        + half * math.log(half)
        - float(gammaln(half))
        + (freedom - 1) * np.log(np.maximum(u, 1e-300))
        - half * u**2
    )
    return u, weights * width / 2 * np.exp(log_density)
