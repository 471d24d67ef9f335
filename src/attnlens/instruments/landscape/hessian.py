"""The curvature of a loss at a point: eigenvalues, trace, density and sharpness, with errors.

For a matrix A (the Hessian, Gauss–Newton or the empirical Fisher) at parameters w:

    largest, smallest     λ_max, λ_min with residuals ‖A v − λ v‖
    trace                 tr A
    density               φ_σ(t) = (1/P) Σ_i N(t; λ_i, σ²): the spectrum, smoothed by a Gaussian
    scaled_largest        λ_max(D_w A D_w),  D_w = diag(w)
    scaled_trace          tr(D_w A D_w) = Σ_i w_i² A_ii

The unscaled measures change when the same function is written with other parameters. For example,
(w_Q, w_K) → (α w_Q, w_K/α) leaves the function unchanged. With T the diagonal matrix of this
rescaling, w' = T w and H' = T⁻¹ H T⁻¹, so D_w' H' D_w' = D_w H D_w: the scaled measures do not
change. The same holds for (w_V, w₁) → (α w_V, w₁/α), and for any other diagonal rescaling that
leaves the function unchanged. Dinh, Pascanu, Bengio and Bengio (ICML 2017) showed that unscaled
flatness can be changed at will. The modules `spectrum` (Lanczos, XTrace, stochastic Lanczos
quadrature) and `products` describe how spectra and traces are computed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.core.drawing import Figure
from attnlens.core.frames import Tabular
from attnlens.core.readings import Reading
from attnlens.core.status import Status

from .density import Density, bandwidth, smoothed
from .matrices import CurvatureSettings, FormedMatrix, MatrixProducts
from .products import MATRICES, Subject
from .spectrum import Eigenpair

# Number of parameters up to which the matrix is formed: this takes about as many products as
# stochastic Lanczos quadrature.
DENSE = 500
# An eigenvalue has not converged if its residual, which bounds its error, exceeds this share of the
# largest |λ|.
LOOSE = 0.01


@dataclass(frozen=True)
class PartialCurvature:
    """The curvature with respect to some of the parameters: a diagonal block of A.

    All other parameters are fixed. `size` is the number of parameters in the block.
    """

    size: int
    largest: Eigenpair
    smallest: Eigenpair
    trace: Reading


@dataclass(frozen=True)
class Curvature(Tabular):
    """The result of `curvature`.

    `top` and `bottom` hold eigenpairs from the largest down and from the smallest up. Eigenvectors
    are flat arrays, in the order of the tree of parameters. `exact` says whether the matrix was
    formed.

    >>> bowl = curvature(lambda w: w[0] ** 2 + 3 * w[1] ** 2, np.ones(2))
    >>> round(bowl.largest, 9), round(bowl.smallest, 9)
    (6.0, 2.0)
    """

    matrix: str
    size: int
    loss: float
    gradient_norm: float
    top: tuple[Eigenpair, ...]
    bottom: tuple[Eigenpair, ...]
    trace: Reading
    scaled_largest: Eigenpair | None
    scaled_trace: Reading | None
    density: Density | None
    blocks: Mapping[str, PartialCurvature] = field(default_factory=dict)
    exact: bool = False

    @property
    def largest(self) -> float:
        return self.top[0].value

    @property
    def smallest(self) -> float:
        return self.bottom[0].value

    @property
    def not_converged(self) -> tuple[str, ...]:
        """The names of the numbers that have not converged, empty if all have.

        An eigenvalue is listed if its residual is above a hundredth of the largest |λ|; the trace
        is listed if the half-width of its 95 % interval exceeds its absolute value.

        >>> curvature(lambda w: w[0] ** 2 + 3 * w[1] ** 2, np.ones(2)).not_converged
        ()
        """
        ends = {"largest": self.top, "smallest": self.bottom}
        size = max(abs(pair.value) for pairs in ends.values() for pair in pairs)
        names = [
            f"{name} {i}"
            for name, pairs in ends.items()
            for i, pair in enumerate(pairs, 1)
            if pair.residual > LOOSE * size
        ]
        wide = self.trace.half_width() > abs(self.trace.value)
        return (*names, *(["trace"] if wide else []))

    def __str__(self) -> str:
        how = "exact" if self.exact else "estimated"
        # Estimated eigenvalues (Ritz values) lie inside of the spectrum, so they are bounds.
        at_least, at_most = ("", "") if self.exact else ("at least ", "at most ")
        rows = [
            f"{self.matrix} of {self.size} parameters ({how}): loss {self.loss:.6g}, gradient norm "
            f"{self.gradient_norm:.2g}",
            f"  largest   {at_least}{_pairs(self.top)}",
            f"  smallest  {at_most}{_pairs(self.bottom)}",
            f"  trace     {_number(self.trace)}",
        ]
        if self.scaled_largest is not None and self.scaled_trace is not None:
            rows += [
                "  invariant under rescalings of the parameters:",
                f"  λ_max(DAD) {_pairs((self.scaled_largest,))}",
                f"  tr(DAD)    {_number(self.scaled_trace)}",
            ]
        rows += [
            f"  {name} ({block.size}): largest {_pairs((block.largest,))}, smallest "
            f"{_pairs((block.smallest,))}, trace {_number(block.trace)}"
            for name, block in self.blocks.items()
        ]
        if self.not_converged:
            rows.append(
                f"  not converged: {', '.join(self.not_converged)}; raise max_products for "
                f"eigenvalues, probes for the trace"
            )
        return "\n".join(rows)

    def rows(self) -> list[dict[str, Any]]:
        """One row per number; `residual` is ‖A v − λ v‖ for an eigenvalue, otherwise None."""
        numbers: list[tuple[str, str, float | Eigenpair | Reading | None]] = [
            ("", "loss", self.loss),
            ("", "gradient norm", self.gradient_norm),
            *(("", f"largest {i}", pair) for i, pair in enumerate(self.top, 1)),
            *(("", f"smallest {i}", pair) for i, pair in enumerate(self.bottom, 1)),
            ("", "trace", self.trace),
            ("", "scaled largest", self.scaled_largest),
            ("", "scaled trace", self.scaled_trace),
        ]
        for name, block in self.blocks.items():
            numbers += [
                (name, "largest 1", block.largest),
                (name, "smallest 1", block.smallest),
                (name, "trace", block.trace),
            ]
        return [
            {"block": block, "quantity": quantity, **_row(number)}
            for block, quantity, number in numbers
            if number is not None
        ]

    def figure(self) -> Figure:
        """The spectral density."""
        if self.density is None:
            raise checks.BadInput("no density was computed; call curvature with steps=80.")
        return self.density.figure()

    def plot(self) -> Any:
        """The spectral density as a matplotlib figure."""
        return self.figure().plot()


def _row(number: float | Eigenpair | Reading) -> dict[str, Any]:
    """Return a number of `Curvature` as a row; all rows have the same columns."""
    if isinstance(number, Reading):
        return {**number.row(), "residual": None}
    value, residual = (
        (number.value, number.residual) if isinstance(number, Eigenpair) else (number, None)
    )
    empty = dict.fromkeys(("standard_error", "low", "high", "count"))
    return {"value": value, **empty, "status": Status.OK.value, "residual": residual}


def curvature(
    loss: Callable[..., Any],
    params: Any,
    data: Any = None,
    *,
    matrix: str = "hessian",
    eigenpairs: int = 1,
    blocks: Mapping[str, str | Sequence[str]] | str | None = None,
    scaled: bool = True,
    settings: CurvatureSettings | None = None,
    **numerical: Any,
) -> Curvature:
    """The curvature of a loss at `params`: exact for few parameters, from products for many.

    loss: a function of (params, data) that is a mean over the rows of `data`, or of params alone.
        "gauss-newton" and "fisher" need a `Supervised(criterion, apply)`.
    params: any tree; its floating-point arrays are the parameters. They are never changed.
    data: a tree of arrays with samples along the first axis.
    matrix: "hessian", "gauss-newton" or "fisher".
    eigenpairs: the number of eigenpairs at each end of the spectrum.
    blocks: named sets of parameters; the curvature of each set is also computed, with all other
        parameters fixed. A mapping from names to one or more path prefixes in the tree, such as
        {"attention": "layer", "head": ("first", "second")}; or "top" for one set per top-level
        name.
    scaled: whether to compute the rescaling-invariant measures as well.

    The following keywords control the computation (defaults in brackets). They may be given as
    `settings=CurvatureSettings(…)`; keywords given in addition replace single fields of it.

    probes (10), steps (80): numbers of probes and steps of stochastic Lanczos quadrature (with
        steps=0 no density is computed); the trace takes 2·probes products.
    bandwidth (None): σ of the density; by default a hundredth of the spectrum's range, because
        Lanczos does not resolve much finer details.
    dense (None): whether to form the matrix, which is exact; by default up to 500 parameters.
    rtol (1e-6), max_products (1000): eigenpairs are computed to a residual of `rtol` · max |λ|, or
        until `max_products` products.
    chunk (None): rows of data per computation; by default as many as fit the processor's cache.
    precision ("float64"): "float32" computes products in single precision; sums and Lanczos stay in
        double precision.
    seed (0): random seed of the probes and starting vectors.

    >>> bowl = curvature(lambda w: 0.5 * (3 * w[0] ** 2 + w[1] ** 2), np.array([1.0, 2.0]))
    >>> round(bowl.largest, 6), round(bowl.smallest, 6), round(bowl.trace.value, 6)
    (3.0, 1.0, 4.0)
    """
    checks.one_of("matrix", matrix, MATRICES)
    checks.whole("eigenpairs", eigenpairs, at_least=1)
    how = dataclasses.replace(settings or CurvatureSettings(), **numerical)
    subject = Subject(loss, params, data, chunk=how.chunk, precision=how.precision)
    places_of_blocks = _blocks(subject, blocks)
    value, gradient = subject.value_and_gradient()
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        raise checks.BadInput(f"loss and gradient must be finite at params; got a loss of {value}.")
    formed = subject.size <= DENSE if how.dense is None else how.dense
    source = FormedMatrix(subject, matrix) if formed else MatrixProducts(subject, matrix, how)
    ends = source.extremes(eigenpairs)
    weights = subject.vector
    scaled_pair = source.extremes(1, scale=weights).top[0] if scaled else None
    scaled_trace = source.trace(scale=weights) if scaled else None
    density = None
    if how.steps:
        rule = source.quadrature(how.steps)
        width = how.bandwidth or bandwidth(ends.bottom[0].value, ends.top[0].value)
        density = smoothed(rule, width, formed)
    parts = {}
    for name, places in places_of_blocks.items():
        inside = source.extremes(1, places=places)
        trace = source.trace(places=places)
        parts[name] = PartialCurvature(places.size, inside.top[0], inside.bottom[0], trace)
    return Curvature(
        matrix,
        subject.size,
        value,
        float(np.linalg.norm(gradient)),
        ends.top,
        ends.bottom,
        source.trace(),
        scaled_pair,
        scaled_trace,
        density,
        parts,
        formed,
    )


def _blocks(subject: Subject, blocks: Any) -> dict[str, np.ndarray]:
    """Return for each block the indices of its parameters in the parameter vector."""
    if blocks is None:
        return {}
    arrays = list(subject.places())
    if blocks == "top":
        blocks = {path.split(".")[0]: path.split(".")[0] for path, _ in arrays}
    if not isinstance(blocks, Mapping):
        raise checks.BadInput(
            f'blocks must be a mapping from names to paths, or "top"; got {blocks!r}.'
        )
    places = {}
    for name, starts in blocks.items():
        starts = (starts,) if isinstance(starts, str) else tuple(starts)
        parts = [
            np.arange(place.start, place.stop)
            for path, place in arrays
            if any(path == start or path.startswith(start + ".") for start in starts)
        ]
        if not parts:
            raise checks.BadInput(
                f"block {name!r} must name parameters of the tree, {[p for p, _ in arrays]}; got "
                f"{list(starts)}."
            )
        places[name] = np.concatenate(parts)
    return places


def _pairs(pairs: Sequence[Eigenpair]) -> str:
    return ", ".join(f"{pair.value:.5g} (residual {pair.residual:.1g})" for pair in pairs)


def _number(reading: Reading) -> str:
    return f"{reading.value:.5g} ± {reading.standard_error:.2g}"
