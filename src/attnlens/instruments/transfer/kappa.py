"""Estimates of the condition number κ from features and targets, with standard error and interval.

κ² = cᵀ (Aᵀ Σ A)⁺ c is defined in `condition`.

With features f ≈ b(z), pretraining targets Y (k per row: answers at k queries, or one column per
class) and a downstream target y, regressions Y ≈ B f and y ≈ c f give AᵀΣA ≈ BᵀB/k. The estimate
does not change when the features are multiplied by an invertible matrix. Several downstream outputs
have κ² = λ_max(c (BᵀB/k)⁺ cᵀ), for the worst direction of the sum of squares. κ depends on the
units of the targets, but not on the units of the features.

Rank. Features are standardised first, column by column, so that their units do not decide what
counts as zero. A column that varies by no more than the rounding of its values counts as constant
and is dropped (`standardised`). In the remaining columns, directions are dropped in which the
correlation matrix has an eigenvalue of at most 1e−13 of its largest: the rounding error of its
eigenvalues is about d ε, and features that are linear combinations of others in float32 have
eigenvalues of about (6e−8)² = 4e−15.

Noise. In whitened features B̂ = B + E, where the entries of row i of the noise E have the variance
σᵢ²/n. Row i is divided by dᵢ = max(σᵢ/√n, ℓ), with a level ℓ that is chosen below, so that the
noise of every entry is at most one; D = diag(dᵢ). A direction counts as *covered by pretraining* if
its singular value in D⁻¹B̂ is above √k + √d, the largest that noise alone gives (Vershynin,
High-Dimensional Probability, 2018, theorem 4.4.5). E(D⁻¹B̂)ᵀ(D⁻¹B̂) = (D⁻¹B)ᵀ(D⁻¹B) +
Σ(σᵢ²/(n dᵢ²)) I: the second term is subtracted; likewise for c. The level ℓ is first the largest
noise of all rows. If the part of c outside of the covered directions is more than noise, ℓ is
lowered, until no row is divided by more than four times its own noise: otherwise the noise of a
target with large values (in cents) would hide a target with small values (in millions). κ is
infinite if c still has a part outside.

Is the part of ĉ outside more than noise? If c is covered, c = wB, and a direction v outside has
Bv = 0. To first order in E, the directions found are tilted such that B̂v = 0 for the noisy B̂
(Stewart and Sun, Matrix perturbation theory, 1990). The part of ĉ along v is then that of ĉ − wB̂,
the slope of y − wY: its variance is that of the residuals of y − wY, over n. It contains the error
of c, the tilt, and the correlations between the errors of all targets, which for the columns of
classes are large (−1 for two classes). w is estimated by aΣ⁻¹UᵀD⁻¹, with D⁻¹B̂ = UΣVᵀ in the
covered directions and a the part of ĉ in them. More than noise is above the 99.9 % quantile of χ²,
with one degree of freedom for each direction outside, times this variance, summed over outputs (in
resamples, twice that: ĉ and B̂ both contain their errors twice).

Measured with 300 rows, three latents, a feature independent of everything else, and a third latent
that pretraining barely covers (400 data sets, 60 resamples). For true singular values of 2.1, 3.1,
4.2 and 5.9 of that direction in D⁻¹B, where the limit √k + √d is 3.7, intervals covered κ in 1.00,
0.995, 0.99 and 0.94 of data sets (± 0.01), and the estimate was infinite in 0.96, 0.75, 0.35 and
0.04: near the limit the directions found are nearly arbitrary, and the first order is too small.
κ is then called infinite, but its interval starts at a valid bound. Without the tilt the share at
5.9 was 0.96. With the tilt but without correlations, κ of a binary pretraining label and a target
that it covers was infinite in 0.03 to 0.11 of 100 data sets, not in 0.001.

Resamples. The slopes of a bootstrap resample are B̂ + E* with E* as large as E, so their squares
contain the noise twice, and it is subtracted twice (`copies=2`). With a single subtraction, κ was
too small in resamples of weak directions: intervals covered κ in 0.67 to 0.82 of data sets in which
one direction is ten to twenty times weaker than the others (200 rows); with two, in 0.97 or more.

Unseen directions. If the estimate of κ is infinite, the interval is (bound, ∞). For every δ

    κ ≥ ⟨c, δ⟩ √k/‖B δ‖ ≥ (⟨ĉ, δ⟩ − e_c ‖δ‖) √k/(‖B̂ δ‖ + e_B ‖δ‖)

where e_c and e_B bound the errors of ĉ and of B̂ (in operator norm), each with probability 98.75 %.
This holds for all δ at once, so the largest of several is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attnlens.core.readings import BoundedReading
from attnlens.core.status import Status

LEVEL = 0.95
INDEPENDENT = 1e-13  # share of the largest eigenvalue of the correlation matrix; see "Rank" above
PENALTIES = (0.3, 1.0, 3.0)  # ridge penalties tried by `unseen_bound`, in units of the noise


class KappaEstimate(NamedTuple):
    """An estimate of κ.

    outside: the share of c that pretraining does not cover; κ is infinite if it is more than noise.
    explained: the share of the downstream target's variance that the features explain.
    """

    kappa: float
    outside: float
    explained: float


def estimate(
    features: Float[np.ndarray, "samples _d"],
    pretraining: Float[np.ndarray, "samples _k"],
    downstream: Float[np.ndarray, "samples _outputs"],
    copies: float = 1.0,
) -> KappaEstimate:
    """Estimate κ by the formulas of the module's docstring, from whitened features.

    copies: how often the squares of the slopes contain their error variance; 2 for a resample.
    """
    white = whitened(features)
    b, b_errors = _slopes(white, pretraining)
    c, c_errors = _slopes(white, downstream)
    b_noise, c_noise = _variances(b_errors), _variances(c_errors)
    k, d = b.shape
    noise = np.sqrt(np.maximum(b_noise, (1e-9 * np.linalg.norm(b, axis=1)) ** 2))
    # A constant target has a row of zeros.
    b, b_errors, noise = b[noise > 0], b_errors[:, noise > 0], noise[noise > 0]
    total = float((c**2).sum())
    outside = 0.0
    explained = 1 - len(white) * float(c_noise.sum()) / float(downstream.var(0).sum())
    for level in _levels(noise):
        scales = np.maximum(noise, level)[:, None]
        columns, strengths, axes = np.linalg.svd(b / scales, full_matrices=False)
        covered = strengths > math.sqrt(k) + math.sqrt(d)
        inside = c @ axes[covered].T
        outside = total - float((inside**2).sum())
        uncovered = d - int(covered.sum())
        weights = (inside / strengths[covered]) @ columns[:, covered].T / scales.T
        variance = float(_variances(c_errors - b_errors @ weights.T).sum())
        most = copies * variance * _chi_square(uncovered) if uncovered else 0.0
        if not uncovered or outside <= max(most, 1e-9 * total):
            break
    else:
        return KappaEstimate(math.inf, outside / total, explained)
    if not covered.any():
        return KappaEstimate(0.0, 0.0, explained)
    # Bias correction: noise increases BᵀB in each covered direction, and the square of c.
    bias = copies * float(((noise[:, None] / scales) ** 2).sum())
    shrunk = np.sqrt(np.maximum(strengths**2 - bias, 0.1 * strengths**2))[covered]
    inverse = math.sqrt(k) * _inverse_root(scales * columns[:, covered] * shrunk)
    reached = inverse @ inside.T
    matrix = reached.T @ reached - copies * np.diag(c_noise) * float((inverse**2).sum())
    kappa = math.sqrt(max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0))
    return KappaEstimate(kappa, 0.0, explained)


def _levels(noise: Float[np.ndarray, " _k"]) -> np.ndarray:
    """Return the levels ℓ: the largest noise times powers of 1/4, down to < 4 × the smallest."""
    if not noise.size:
        return np.ones(1)
    count = 1 + math.floor(math.log(noise.max() / noise.min(), 4))
    return noise.max() * 4.0 ** -np.arange(count)


def _inverse_root(matrix: Float[np.ndarray, "_k rank"]) -> Float[np.ndarray, "rank rank"]:
    """Return G with GᵀG = (matrixᵀ matrix)⁻¹.

    Rows may differ in size by any factor: with the largest row first and column pivoting, the
    rounding error of a QR factorisation is relative in every row (Cox and Higham, 1998).
    """
    from scipy.linalg import qr, solve_triangular

    largest_first = np.argsort(-np.abs(matrix).max(1))
    factors: Any = qr(matrix[largest_first], mode="economic", pivoting=True)
    _, triangle, pivots = factors
    return solve_triangular(triangle.T, np.eye(len(triangle))[pivots], lower=True)


def standardised(
    features: Float[np.ndarray, "samples _d"],
) -> Float[np.ndarray, "samples _varying"]:
    """Return every column that varies, centred and scaled to variance one.

    With m the largest absolute value of a column, its values and its mean are known up to ε m/2; a
    column whose standard deviation is at most 4 ε m varies only by rounding.

    >>> standardised(np.array([[1e9, 0.1], [3e9, 0.1]])).tolist()
    [[-1.0], [1.0]]
    """
    largest = np.abs(features).max(0, initial=0)
    # Scaling by powers of two changes no digit, and prevents overflow and underflow of squares.
    _, exponents = np.frexp(np.where(largest > 0, largest, 1))
    scaled = np.ldexp(features, -exponents)
    centred = scaled - scaled.mean(0)
    spread = centred.std(0)
    varies = spread > 4 * np.finfo(float).eps
    return centred[:, varies] / spread[varies]


def whitened(features: Float[np.ndarray, "samples _d"]) -> Float[np.ndarray, "samples _rank"]:
    """Return uncorrelated columns of variance one that span the same space as the features.

    "Rank" in the module's docstring says which directions are dropped.
    """
    columns = standardised(features)
    values, vectors = np.linalg.eigh(columns.T @ columns / len(columns))
    independent = values > INDEPENDENT * values.max(initial=0)
    return columns @ (vectors[:, independent] / np.sqrt(values[independent]))


def _slopes(white: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return regression coefficients (target, feature), and residuals (row, target).

    The residuals are scaled: the sum of products of two columns estimates the covariance of the
    errors of any one coefficient of these two targets.
    """
    rows, d = white.shape
    centred = targets - targets.mean(0)
    slopes = centred.T @ white / rows
    return slopes, (centred - white @ slopes.T) / math.sqrt(rows * max(rows - d - 1, 1))


def _variances(errors: np.ndarray) -> np.ndarray:
    return (errors**2).sum(0)


def _chi_square(freedom: int) -> float:
    """Return the 99.9 % quantile of χ² with `freedom` degrees of freedom."""
    from scipy.special import chdtri

    return float(chdtri(freedom, 0.001))


def unseen_bound(
    features: Float[np.ndarray, "samples _d"],
    pretraining: Float[np.ndarray, "samples _k"],
    downstream: Float[np.ndarray, "samples _outputs"],
) -> float:
    """Return a lower limit of κ that needs no covered direction.

    See "Unseen directions" in the module's docstring.

    >>> z = np.random.default_rng(0).standard_normal((400, 2))
    >>> unseen_bound(z, z * [1.0, 0.0], z[:, 1:])
    inf
    """
    from scipy.special import chdtri

    white = whitened(features)
    b, b_errors = _slopes(white, pretraining)
    c, c_errors = _slopes(white, downstream)
    b_noise, c_noise = _variances(b_errors), _variances(c_errors)
    k, d = b.shape
    tail = (1 - LEVEL) / 4  # error probability of one side, divided equally between e_c and e_B
    # Gaussian concentration: ‖E‖ exceeds σ(√k + √d + t)/√n with probability at most exp(−t²/2).
    edge = math.sqrt(b_noise.max(initial=0)) * (
        math.sqrt(k) + math.sqrt(d) + math.sqrt(-2 * math.log(tail))
    )
    _, strengths, axes = np.linalg.svd(b, full_matrices=True)
    strengths = np.append(strengths, np.zeros(d - len(strengths)))
    rounding = 1e-9 * max(strengths.max(initial=0), np.finfo(float).tiny)
    best = 0.0
    for head, variance in zip(c, c_noise, strict=True):
        loss = math.sqrt(variance * float(chdtri(d, tail)))
        for share in PENALTIES:
            along = (axes @ head) / (strengths**2 + (share * edge + rounding) ** 2)
            length = float(np.linalg.norm(along))
            gain = float(axes @ head @ along) - loss * length
            cost = float(np.linalg.norm(strengths * along)) + edge * length
            if gain > 0:
                best = max(best, gain * math.sqrt(k) / cost if cost > rounding * length else np.inf)
    return best


def log_estimate(features, pretraining, downstream, rows, copies: float = 1.0) -> float:
    """Return log κ estimated from these rows; `copies` as for `estimate`."""
    kappa = estimate(features[rows], pretraining[rows], downstream[rows], copies).kappa
    return math.log(kappa) if kappa > 0 else -math.inf


@dataclass(frozen=True)
class KappaReading(BoundedReading):
    """The condition number κ, with its 95 % interval.

    explained: the share of the downstream target's variance that the features explain.
    outside: the share of the target that pretraining does not cover; 0 if κ is finite.
    infinite: the share of resamples in which κ is infinite.
    """

    explained: float = field(kw_only=True)
    outside: float = field(default=0.0, kw_only=True)
    infinite: float = field(kw_only=True)


def reading(
    result: KappaEstimate, logs: np.ndarray, rows: int, ends: tuple[float, float]
) -> KappaReading:
    """Return κ as a reading; `logs` holds log κ of bootstrap resamples, `ends` the interval."""
    low, high = ends
    if math.isinf(result.kappa):
        return KappaReading(
            math.inf,
            math.nan,
            rows,
            Status.NOT_COVERED,
            low=low,
            high=high,
            explained=result.explained,
            outside=result.outside,
            infinite=1.0,
        )
    finite = logs[np.isfinite(logs)]
    # Delta method: d exp(l) = exp(l) dl.
    error = result.kappa * float(finite.std(ddof=1)) if finite.size > 1 else math.nan
    infinite = float((logs == np.inf).mean())
    return KappaReading(
        result.kappa,
        error,
        rows,
        low=low,
        high=high,
        explained=result.explained,
        infinite=infinite,
    )


def interval(
    result: KappaEstimate, logs: np.ndarray, features, pretraining, downstream
) -> tuple[float, float]:
    """Return the interval exp(log κ ± z s) of κ.

    s is the standard deviation of the finite `logs`, log κ of bootstrap resamples. z is a quantile
    of the normal distribution, not of Student's t, because s comes from many resamples of one data
    set. The upper end is infinite if κ is infinite in more than 2.5 % of the resamples; the lower
    end is 0 if κ is 0 in more than 2.5 % of them.

    Bootstrap percentiles, also those corrected for bias and acceleration (BCa; Efron, JASA 1987),
    need not contain the estimate if there are nearly as many features as samples: resamples repeat
    some rows and omit others, which shifts nearly all of their estimates to one side.
    """
    from scipy.special import ndtri

    if math.isinf(result.kappa):
        return unseen_bound(features, pretraining, downstream), math.inf
    if result.kappa <= 0:
        return result.kappa, result.kappa
    tail = (1 - LEVEL) / 2
    finite = logs[np.isfinite(logs)]
    half = -float(ndtri(tail)) * (float(finite.std(ddof=1)) if finite.size > 1 else math.inf)
    low = 0.0 if (logs == -np.inf).mean() > tail else result.kappa * math.exp(-half)
    high = math.inf if (logs == np.inf).mean() > tail else result.kappa * math.exp(half)
    return low, high
