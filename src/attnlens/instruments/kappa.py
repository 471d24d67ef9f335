"""κ from features and targets, with its standard error and interval: what `transfer` reports.

κ² = cᵀ (Aᵀ Σ A)⁺ c is defined in `transfer`.

With features f ≈ b(z), pretraining targets Y (k of them a row: answers at k queries, or
one column a class) and a downstream target y, regressions Y ≈ B f and y ≈ c f give AᵀΣA ≈ BᵀB/k.
Nothing changes when the features are multiplied by an invertible matrix. Several downstream
outputs have κ² = λ_max(c (BᵀB/k)⁺ cᵀ): the worst of them, for the sum of squares.

Noise. In whitened features B̂ = B + E, where E has variance σ²/n in each entry: E B̂ᵀB̂ = BᵀB +
(Σσ²/n) I, which is taken off; likewise for c. A direction counts as asked about when its singular
value in B̂ is above σ(√k + √d)/√n, the largest that noise alone gives (Vershynin, High-Dimensional
Probability, 2018, theorem 4.4.5). κ is infinite when the rest of c is more than noise: above the
99.9 % point of what its regression errors give.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attnlens.records import Reading

LEVEL = 0.95
GROUPS = 50  # of the jackknife behind the interval
ONE_SIDED = 0.1  # of the resamples: below it they are shifted by more than their own spread


class Estimate(NamedTuple):
    """κ (infinite where `outside`, the share of c not asked about, is more than noise), and the
    share of the downstream target that the features explain."""

    kappa: float
    outside: float
    explained: float


def estimate(
    features: Float[np.ndarray, "samples _d"],
    asked: Float[np.ndarray, "samples _k"],
    wanted: Float[np.ndarray, "samples _outputs"],
) -> Estimate:
    """κ by the formulas above; all in features whitened by their own covariance."""
    centred = features - features.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(features))
    # Features that are a combination of others, to the rounding of a squared matrix, add nothing.
    kept = values > 1e-13 * max(values.max(initial=0), np.finfo(float).tiny)
    white = centred @ (vectors[:, kept] / np.sqrt(values[kept]))
    asks, asks_noise = _slopes(white, asked)
    needs, needs_noise = _slopes(white, wanted)
    k, d = asks.shape
    _, strengths, axes = np.linalg.svd(asks, full_matrices=False)
    edge = math.sqrt(asks_noise.max(initial=0)) * (math.sqrt(k) + math.sqrt(d))
    seen = strengths > max(edge, 1e-9 * strengths.max(initial=0))
    along = needs @ axes[seen].T
    rest = float((needs**2).sum() - (along**2).sum())
    total = float((needs**2).sum())
    hidden = d - int(seen.sum())
    explained = 1 - len(white) * float(needs_noise.sum()) / float(wanted.var(0).sum())
    if hidden and rest > max(needs_noise.sum() * _chi_square(hidden), 1e-9 * total):
        return Estimate(math.inf, rest / total, explained)
    # Debiased: what noise adds to BᵀB in each seen direction, and to c.
    energy = strengths[seen] ** 2 - asks_noise.sum()
    energy = np.maximum(energy, 0.1 * strengths[seen] ** 2) / k
    if not seen.any():
        return Estimate(0.0, 0.0, explained)
    matrix = (along / energy) @ along.T - np.diag(needs_noise) * (1 / energy).sum()
    return Estimate(math.sqrt(max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0)), 0.0, explained)


def _slopes(white: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Regression coefficients (target, feature) and the variance of a coefficient's error."""
    rows, d = white.shape
    centred = targets - targets.mean(0)
    slopes = centred.T @ white / rows
    residual = ((centred - white @ slopes.T) ** 2).sum(0) / max(rows - d - 1, 1)
    return slopes, residual / rows


def _chi_square(freedom: int) -> float:
    """The 99.9 % point of χ²."""
    from scipy.special import chdtri

    return float(chdtri(freedom, 0.001))


def log_estimate(features, asked, wanted, rows) -> float:
    kappa = estimate(features[rows], asked[rows], wanted[rows]).kappa
    return math.log(kappa) if kappa > 0 else -math.inf


def reading(found: Estimate, logs: np.ndarray, rows: int) -> Reading:
    if math.isinf(found.kappa):
        said = (
            f"{found.outside:.0%} of the target lies where pretraining asks no more than noise does"
        )
        return Reading(math.inf, math.nan, rows, said, {"explained": found.explained})
    finite = logs[np.isfinite(logs)]
    # d exp(l) = exp(l) dl carries the standard error over from the logarithm.
    error = found.kappa * float(finite.std(ddof=1)) if finite.size > 1 else math.nan
    details = {"explained": found.explained, "infinite": float((logs == np.inf).mean())}
    return Reading(found.kappa, error, rows, details=details)


def interval(found: Estimate, logs: np.ndarray, features, asked, wanted) -> tuple[float, float]:
    """BCa (Efron, JASA 1987): percentiles of the resamples, moved by bias and acceleration.

    With features nearly as many as samples, resampling itself moves κ: resamples repeat rows and
    leave others out. Where it moves nine in ten of them to one side of the estimate, their
    percentiles say nothing, and the interval is exp(log κ ± 1.96 s), with s the spread of the
    resamples or that of the jackknife, whichever is larger.
    """
    from scipy.special import ndtr, ndtri

    if math.isinf(found.kappa) or found.kappa <= 0:
        return found.kappa, found.kappa
    at = math.log(found.kappa)
    groups = np.array_split(np.arange(len(features)), min(GROUPS, len(features)))
    keep = [np.setdiff1d(np.arange(len(features)), group) for group in groups]
    left_out = np.array([log_estimate(features, asked, wanted, rows) for rows in keep])
    pull = left_out.mean() - left_out if np.isfinite(left_out).all() else np.zeros(1)
    spread = float((pull**2).sum())
    acceleration = float((pull**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    share = float((logs < at).mean())
    if min(share, 1 - share) < ONE_SIDED:
        finite = logs[np.isfinite(logs)]
        deviations = math.sqrt(spread * (len(pull) - 1) / len(pull)), float(np.std(finite))
        half = float(ndtri((1 + LEVEL) / 2)) * max(deviations)
        return math.exp(at - half), math.exp(at + half)
    bias = float(ndtri(share))
    ends = []
    for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        moved = bias + float(ndtri(tail))
        level = float(ndtr(bias + moved / (1 - acceleration * moved)))
        place = int(np.clip(round(level * (len(logs) - 1)), 0, len(logs) - 1))
        ends.append(math.exp(np.sort(logs)[place]))
    return ends[0], ends[1]
