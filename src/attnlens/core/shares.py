"""Shares: exact binomial tests, the interval of Clopper and Pearson, and power before the run.

A share is the probability that a trial succeeds. With k successes in n independent trials, P(X ≥ k)
for the share s is the p-value of the hypothesis "the share is at or below s". The interval of
Clopper and Pearson (The use of confidence or fiducial limits illustrated in the case of the
binomial, 1934) consists of the shares that neither one-sided test rejects. So the whole interval
lies inside a region exactly when the tests at both ends of the region reject. The coverage of the
interval is at least 95 % for every share. Near 0 and 1 the t interval is too short, and this one is
used instead.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaincinv, gammaln, xlog1py, xlogy

from . import arrays
from .checks import BadInput
from .readings import LEVEL
from .verdicts import Part, Region


def share_interval(
    successes: ArrayLike, count: int, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper ends of the intervals of Clopper and Pearson.

    There is one interval per number of `successes` in `count` trials.

    >>> low, high = share_interval(0, 20)
    >>> float(low), round(float(high), 4)
    (0.0, 0.1684)
    """
    k, tail = np.asarray(successes, float), (1 - level) / 2
    inner_low, inner_high = np.maximum(k, 1), np.minimum(k, count - 1)
    low = betaincinv(inner_low, count - inner_low + 1, tail)
    high = betaincinv(inner_high + 1, count - inner_high, 1 - tail)
    return np.where(k == 0, 0.0, low), np.where(k == count, 1.0, high)


def judge_share(quantity: str, outcomes: ArrayLike, region: Region) -> Part:
    """The part of a claim that judges a share, from trials that succeed (1) or fail (0)."""
    values = arrays.numbers("outcomes", outcomes).ravel()
    count = values.size
    if count < 2 or np.isnan(values).any():
        return Part(quantity, math.nan, -math.inf, math.inf, region, 1.0, 1.0, count)
    if not np.isin(values, (0.0, 1.0)).all():
        raise BadInput(f"a share needs values 0 and 1; got {values.max():.3g} for {quantity!r}.")
    k = int(values.sum())
    low, high = share_interval(k, count)
    p_support = max(_p_above(k, count, region.low), _p_below(k, count, region.high))
    p_refute = min(_p_below(k, count, region.low), _p_above(k, count, region.high))
    return Part(quantity, k / count, float(low), float(high), region, p_support, p_refute, count)


def _p_above(k: int, count: int, share: float) -> float:
    """p-value of "the share is at or below `share`"; 0 if no share can be that low."""
    if share < 0:
        return 0.0
    return 1.0 if k == 0 or share >= 1 else 1 - float(bdtr(k - 1, count, share))


def _p_below(k: int, count: int, share: float) -> float:
    """p-value of "the share is at or above `share`"; 0 if no share can be that high."""
    if share > 1:
        return 0.0
    return 1.0 if k == count or share <= 0 else float(bdtr(k, count, share))


def share_power(effect: float, count: int, region: Region, level: float = LEVEL) -> float:
    """The probability that the interval lies wholly inside the region, if the effect lies inside,
    or wholly outside, if the effect lies outside.

    `effect` is the true share, `count` the number of trials. The probability is exact: a sum over
    all numbers of successes.

    >>> round(share_power(0.5, 20, Region(high=0.05)), 3)  # refuted with 20 trials
    0.999
    """
    k = np.arange(count + 1)
    low, high = share_interval(k, count, level)
    if region.low <= effect <= region.high:
        settled = (low >= region.low) & (high <= region.high)
    else:
        settled = (high < region.low) | (low > region.high)
    choices = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    chance = np.exp(choices + xlogy(k, effect) + xlog1py(count - k, -effect))
    return float(chance[settled].sum())
