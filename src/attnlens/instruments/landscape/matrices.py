"""A curvature matrix, formed or known by its products only, and its extremes, trace and density.

`FormedMatrix` and `MatrixProducts` have the same methods. `scale` is the diagonal of D in D A D,
and `places` are the indices of the parameters of a diagonal block. Without the matrix, extremes
come from Lanczos with restarts (Wu and Simon, 2000), the trace from XTrace (Epperly, Tropp and
Webber, 2024) and the density from stochastic Lanczos quadrature (Ubaru, Chen and Saad, 2017); see
`spectrum`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import spectrum
from .products import Subject
from .spectrum import Quadrature, SpectrumEnds, Times

COLUMNS = 50  # columns computed together when the matrix is formed


@dataclass(frozen=True)
class CurvatureSettings:
    """The numerical settings of `curvature` as one object; each is also a keyword of `curvature`.

    >>> CurvatureSettings(probes=20).steps
    80
    """

    probes: int = 10
    steps: int = 80
    bandwidth: float | None = None
    dense: bool | None = None
    rtol: float = 1e-6
    max_products: int = 1000
    chunk: int | None = None
    precision: str = "float64"
    seed: int = 0

    def __post_init__(self):
        checks.whole("probes", self.probes, at_least=2)
        checks.whole("steps", self.steps)
        checks.whole("max_products", self.max_products, at_least=2)
        checks.seed_number("seed", self.seed)
        checks.positive("rtol", self.rtol)
        if self.bandwidth is not None:
            checks.positive("bandwidth", self.bandwidth)


class FormedMatrix:
    """A curvature matrix that is formed: all numbers are exact."""

    def __init__(self, subject: Subject, matrix: str):
        width = min(COLUMNS, subject.size)
        self.matrix = spectrum.matrix(
            partial(subject.times, matrix=matrix, width=width), subject.size
        )

    def _part(self, scale: Any, places: Any) -> np.ndarray:
        part = self.matrix if scale is None else scale[:, None] * self.matrix * scale
        return part if places is None else part[np.ix_(places, places)]

    def extremes(self, count: int, scale: Any = None, places: Any = None) -> SpectrumEnds:
        part = self._part(scale, places)
        whole = scale is None and places is None
        values, vectors = self._decomposition if whole else np.linalg.eigh(part)
        return spectrum.exact_extremes(values, vectors, part, count)

    @cached_property
    def _decomposition(self) -> tuple[np.ndarray, np.ndarray]:
        """All eigenvalues and eigenvectors, for the extremes and for the density."""
        return np.linalg.eigh(self.matrix)

    def trace(self, scale: Any = None, places: Any = None) -> Reading:
        part = self._part(scale, places)
        return Reading(float(np.trace(part)), 0.0, len(part))

    def quadrature(self, steps: int) -> Quadrature:
        values = self._decomposition[0][None]
        return Quadrature(values, np.full(values.shape, 1 / values.size))


class MatrixProducts:
    """A curvature matrix that is not formed: all numbers are estimated from products with it."""

    def __init__(self, subject: Subject, matrix: str, settings: CurvatureSettings):
        self.subject, self.kind, self.settings = subject, matrix, settings

    def _times(self, scale: Any, places: Any, width: int) -> tuple[Times, int]:
        whole = self.subject.size
        chosen = np.arange(whole) if places is None else places

        def times(rows: np.ndarray) -> np.ndarray:
            full = np.zeros((len(rows), whole))
            full[:, chosen] = rows
            weights = 1.0 if scale is None else scale
            product = weights * self.subject.times(weights * full, self.kind, width=width)
            return product[:, chosen]

        return times, len(chosen)

    def extremes(self, count: int, scale: Any = None, places: Any = None) -> SpectrumEnds:
        how = self.settings
        return spectrum.extremes(
            *self._times(scale, places, 1),
            count,
            rtol=how.rtol,
            max_products=how.max_products,
            seed=how.seed,
        )

    def trace(self, scale: Any = None, places: Any = None) -> Reading:
        probes = self.settings.probes
        times, size = self._times(scale, places, probes)
        return spectrum.trace(times, size, probes, seed=self.settings.seed)

    def quadrature(self, steps: int) -> Quadrature:
        probes = self.settings.probes
        times, size = self._times(None, None, probes)
        return spectrum.quadrature(times, size, probes, steps, seed=self.settings.seed)
