"""Learning curves as power laws, with or without a floor.

    error(n) = a n^(−b) + c,    b > 0,  a, c ≥ 0

a is `scale`, b is `exponent`, c is `floor`. Without a floor the logarithm is linear in log n and
weighted least squares on log–log axes gives a and b. With one, for a fixed b the law is linear in
(a, c); the relative residuals

    Σ_i w_i ((a n_i^(−b) + c)/e_i − 1)²

have a closed-form minimum under a, c ≥ 0. The only remaining unknown, b, is found on a grid that is
refined around its best point. There is no iteration that could fail to converge, and all curves of
a batch are fitted at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Range of exponents: from almost no learning to faster than any theoretical rate.
EXPONENTS = (0.02, 3.0)
GRID = 41
FINER, REFINEMENTS = 9, 7  # each refinement narrows the bracket fourfold: 0.075 · 4^−7 is 5e−6


class PowerLaw(NamedTuple):
    """a n^(−b) + c, one entry per curve."""

    scale: Float[np.ndarray, " curves"]
    exponent: Float[np.ndarray, " curves"]
    floor: Float[np.ndarray, " curves"]

    def error(self, size: float) -> Float[np.ndarray, " curves"]:
        return self.scale * size**-self.exponent + self.floor

    def size(self, error: float) -> Float[np.ndarray, " curves"]:
        """The n at which the error is reached; infinity where the floor lies above it."""
        above = error - self.floor
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            size = (self.scale / above) ** (1 / self.exponent)
        return np.where((above > 0) & np.isfinite(size), size, np.inf)


def fit_power_law(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "curves sizes"],
    weights: Float[np.ndarray, " sizes"],
) -> PowerLaw:
    """a n^(−b): weighted least squares on log–log axes; b = 0 for a rising curve."""
    x, y = np.log(sizes), np.log(errors)
    centre = np.average(x, weights=weights)
    slope = (y * (weights * (x - centre))).sum(-1) / (weights * (x - centre) ** 2).sum()
    slope = np.minimum(slope, 0.0)
    height = np.average(y, axis=-1, weights=weights) - slope * centre
    return PowerLaw(np.exp(height), np.abs(slope), np.zeros_like(slope))


def fit_with_floor(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "curves sizes"],
    weights: Float[np.ndarray, " sizes"],
) -> PowerLaw:
    """a n^(−b) + c, by the search over b of the module's docstring."""
    curves = np.arange(len(errors))
    grid = np.broadcast_to(np.linspace(*EXPONENTS, GRID), (len(errors), GRID))
    for _ in range(REFINEMENTS):
        best = _profile(sizes, errors, weights, grid)[0].argmin(axis=1)
        low, high = (grid[curves, (best + step).clip(0, grid.shape[1] - 1)] for step in (-1, 1))
        grid = np.linspace(low, high, FINER, axis=1)
    residual, scale, floor = _profile(sizes, errors, weights, grid)
    best = residual.argmin(axis=1)
    return PowerLaw(scale[curves, best], grid[curves, best], floor[curves, best])


def _profile(
    sizes: np.ndarray, errors: np.ndarray, weights: np.ndarray, exponents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Smallest residual and its (a, c) for each curve and exponent: arrays (curve, exponent).

    With u = n^(−b)/e and v = 1/e the normal equations are 2 × 2. Where one solution is negative,
    that unknown is zero at the minimum, and the other follows from one equation.
    """
    # n^(−b) is taken relative to the geometric mean of the sizes, so that no power is extreme.
    logs = np.log(sizes)
    middle = logs.mean()
    u = np.exp(-exponents[:, :, None] * (logs - middle)) / errors[:, None, :]
    v = 1 / errors
    uu, uv = (u * u) @ weights, (u @ (weights * v)[:, :, None])[..., 0]
    ru, rv = u @ weights, (v @ weights)[:, None]
    vv = ((v * v) @ weights)[:, None]
    determinant = np.maximum(uu * vv - uv**2, np.finfo(float).tiny)
    # Draws of a noisy curve can differ by hundreds of powers of ten; a fit that overflows is
    # discarded.
    with np.errstate(over="ignore", invalid="ignore"):
        a, c = (ru * vv - rv * uv) / determinant, (rv * uu - ru * uv) / determinant
        a, c = np.where(c < 0, ru / uu, a), np.maximum(c, 0)
        a, c = np.maximum(a, 0), np.where(a < 0, rv / vv, c)
        residual = ((a[..., None] * u + c[..., None] * v[:, None, :] - 1) ** 2) @ weights
    residual = np.where(np.isfinite(residual), residual, np.inf)
    return residual, a * np.exp(exponents * middle), c
