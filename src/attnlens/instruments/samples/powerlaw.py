"""Learning curves as power laws, with or without a floor.

    error(n) = a n^(−b) + c,    b > 0,  a, c ≥ 0

a is `scale`, b is `exponent`, c is `floor`. Without a floor, log error is linear in log n, and
weighted least squares on log–log axes gives a and b. With a floor, the law is linear in (a, c) for
a fixed b; with e_i the error at size n_i, the weighted sum of squared relative residuals

    Σ_i w_i ((a n_i^(−b) + c)/e_i − 1)²

has a closed-form minimum under a, c ≥ 0. The only remaining unknown, b, is found on a grid that is
refined around its best point. No iteration can fail to converge, and all curves of a batch are
fitted together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Range of exponents: from almost no learning to faster than any theoretical rate.
EXPONENTS = (0.02, 3.0)
GRID = 41  # points of the first grid of exponents
# Points of the refined grids, and how often the grid is refined. Each refinement makes the step of
# the grid four times smaller: 0.075 · 4^−7 is 5e−6.
FINER, REFINEMENTS = 9, 7


class PowerLaw(NamedTuple):
    """The law a n^(−b) + c, with one entry per curve."""

    scale: Float[np.ndarray, " curves"]
    exponent: Float[np.ndarray, " curves"]
    floor: Float[np.ndarray, " curves"]

    def error(self, size: float) -> Float[np.ndarray, " curves"]:
        return self.scale * size**-self.exponent + self.floor

    def size(self, error: float) -> Float[np.ndarray, " curves"]:
        """Return the n at which the law equals `error`; infinity if the floor is not below it."""
        above = error - self.floor
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            size = (self.scale / above) ** (1 / self.exponent)
        return np.where((above > 0) & np.isfinite(size), size, np.inf)


def fit_power_law(
    sizes: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, "curves sizes"],
    weights: Float[np.ndarray, " sizes"],
) -> PowerLaw:
    """Fit a n^(−b) by weighted least squares on log–log axes; b = 0 for a rising curve."""
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
    """Fit a n^(−b) + c by the search over b that the module's docstring describes."""
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
    """Return the smallest residual, a and c as arrays (curve, exponent).

    With u = n^(−b)/e and v = 1/e there are two normal equations. If the solution for one unknown is
    negative, that unknown is zero at the minimum, and the other one follows from one equation.
    """
    # Sizes are divided by their geometric mean, so that no power n^(−b) is extreme.
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
