"""The spectral density of a symmetric matrix, φ_σ(t) = (1/P) Σ_i N(t; λ_i, σ²).

λ_1 … λ_P are the eigenvalues of the matrix; σ is the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlens.core import statistics
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Reading

from .spectrum import Quadrature

GRID = 401  # points at which the density is evaluated


@dataclass(frozen=True)
class Density(Tabular):
    """The spectral density on a grid, with standard errors over probes (0 if it is exact)."""

    at: np.ndarray
    value: np.ndarray
    standard_error: np.ndarray
    bandwidth: float
    quadrature: Quadrature
    exact: bool

    def share_below(self, level: float) -> Reading:
        """The share of eigenvalues at or below `level`."""
        return self.mean(lambda nodes: (nodes <= level).astype(float))

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> Reading:
        """Return (1/P) Σ f(λ_i); `function` is f, applied to an array of eigenvalues."""
        estimates = self.quadrature.mean(function)
        if self.exact:
            return Reading(float(estimates[0]), 0.0, 1)
        return statistics.mean_reading(estimates)

    def rows(self) -> list[dict[str, Any]]:
        """One row per point of the grid."""
        columns = (self.at.tolist(), self.value.tolist(), self.standard_error.tolist())
        return [
            {"eigenvalue": at, "density": value, "standard_error": error}
            for at, value, error in zip(*columns, strict=True)
        ]

    def figure(self) -> Figure:
        # Every second point is drawn. Values below a ten-thousandth of the highest are only the
        # tails of the smoothing Gaussians: they are drawn at that level, without error bars.
        rows = zip(self.at[::2], self.value[::2], self.standard_error[::2], strict=True)
        floor, probes = 1e-4 * self.value.max(), len(self.quadrature.nodes)
        points = tuple(
            Reading(float(y), float(e), probes).point(x) if y > floor else Point(float(x), floor)
            for x, y, e in rows
        )
        title = f"Spectral density, smoothed by a Gaussian of width {self.bandwidth:.2g}"
        series = (Series("density", points, curve=True),)
        return Figure(title, "eigenvalue", "density", series, log_x=False)

    def plot(self) -> Any:
        """The density as a matplotlib figure."""
        return self.figure().plot()


def bandwidth(low: float, high: float) -> float:
    """Return the default σ: a hundredth of the spectrum's range, or of its only eigenvalue."""
    spread = high - low
    return spread / 100 if spread > 0 else max(abs(high), 1.0) / 100


def smoothed(rule: Quadrature, width: float, exact: bool) -> Density:
    """Return the density of the nodes of the quadrature `rule`, smoothed with σ = `width`."""
    nodes = rule.nodes[rule.weights > 0]
    at = np.linspace(nodes.min() - 4 * width, nodes.max() + 4 * width, GRID)

    def gaussian(nodes: np.ndarray) -> np.ndarray:
        distance = (at - nodes[..., None]) / width
        return np.exp(-0.5 * distance**2) / (width * math.sqrt(2 * math.pi))

    estimates = rule.mean(gaussian)
    error = np.zeros(GRID) if exact else estimates.std(0, ddof=1) / math.sqrt(len(estimates))
    return Density(at, estimates.mean(0), error, width, rule, exact)
