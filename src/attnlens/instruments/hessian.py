"""How a loss bends at a point: eigenvalues, trace, density and sharpness, each with its error.

For a matrix A (the Hessian, Gauss–Newton or the empirical Fisher) at parameters w:

    largest, smallest     λ_max, λ_min with residuals ‖A v − λ v‖
    trace                 tr A
    density               φ_σ(t) = (1/P) Σ_i N(t; λ_i, σ²): the spectrum, seen through a Gaussian
    scaled_largest        λ_max(D_w A D_w),  D_w = diag(w)
    scaled_trace          tr(D_w A D_w) = Σ_i w_i² A_ii

The raw measures change when a network is written down with other parameters. (w_Q, w_K) → (α w_Q,
w_K/α) is the same function; with T the diagonal matrix that does it, w' = T w and H' = T⁻¹ H T⁻¹,
so D_w' H' D_w' = D_w H D_w: the scaled ones stay (also under (w_V, w₁) → (α w_V, w₁/α), and under
every other diagonal rescaling that leaves the function alone). That raw flatness can be changed at
will was shown by Dinh, Pascanu, Bengio and Bengio (ICML 2017). How spectra and traces are computed
is in `spectrum` (Lanczos, XTrace, stochastic Lanczos quadrature) and `products`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from attnlens import checks, statistics
from attnlens.records import Figure, Point, Reading, Series

from . import spectrum
from .products import MATRICES, Subject
from .spectrum import Eigenpair, Quadrature, Times

DENSE = 500  # parameters up to which the matrix is formed: as many products as SLQ takes anyway
COLUMNS = 50  # of a matrix that is formed, computed together
GRID = 401  # points at which the density is shown


@dataclass(frozen=True)
class Density:
    """The spectral density on a grid, with standard errors over probes (0 where it is exact)."""

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
        """(1/P) Σ f(λ_i) for a function of an array of eigenvalues."""
        each = self.quadrature.mean(function)
        if self.exact:
            return Reading(float(each[0]), 0.0, 1, details={"exact": True})
        return statistics.mean_reading(each)

    def figure(self) -> Figure:
        # Every second point, down to a ten-thousandth of the highest: below that, Gaussian tails.
        rows = zip(self.at[::2], self.value[::2], self.standard_error[::2], strict=True)
        floor = 1e-4 * self.value.max()
        points = tuple(
            Point(float(x), max(float(y), floor), 1.96 * float(e) if y > floor else 0.0)
            for x, y, e in rows
        )
        title = f"Spectral density, through a Gaussian of width {self.bandwidth:.2g}"
        series = (Series("density", points, curve=True),)
        return Figure(title, "eigenvalue", "density", series, log_x=False)

    def plot(self) -> Any:
        """The density as a matplotlib figure."""
        return self.figure().plot()


@dataclass(frozen=True)
class Block:
    """The curvature within some of the parameters, all others held."""

    size: int
    largest: Eigenpair
    smallest: Eigenpair
    trace: Reading


@dataclass(frozen=True)
class Curvature:
    """What `curvature` found. Eigenvectors are flat, in the order of the tree of parameters.

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
    blocks: Mapping[str, Block] = field(default_factory=dict)
    exact: bool = False

    @property
    def largest(self) -> float:
        return self.top[0].value

    @property
    def smallest(self) -> float:
        return self.bottom[0].value

    def __str__(self) -> str:
        how = "exact" if self.exact else "estimated"
        rows = [
            f"{self.matrix} of {self.size} parameters ({how}): loss {self.loss:.6g}, gradient norm "
            f"{self.gradient_norm:.2g}",
            f"  largest   {_said(self.top)}",
            f"  smallest  {_said(self.bottom)}",
            f"  trace     {_number(self.trace)}",
        ]
        if self.scaled_largest is not None and self.scaled_trace is not None:
            rows += [
                "  the same under rescalings of the parameters:",
                f"  λ_max(DAD) {_said((self.scaled_largest,))}",
                f"  tr(DAD)    {_number(self.scaled_trace)}",
            ]
        rows += [
            f"  {name} ({block.size}): largest {_said((block.largest,))}, smallest "
            f"{_said((block.smallest,))}, trace {_number(block.trace)}"
            for name, block in self.blocks.items()
        ]
        return "\n".join(rows)

    def figure(self) -> Figure:
        """The spectral density."""
        if self.density is None:
            raise checks.BadInput("no density was computed; call curvature with steps=80, say.")
        return self.density.figure()

    def plot(self) -> Any:
        """The spectral density as a matplotlib figure."""
        return self.figure().plot()


def curvature(
    loss: Callable[..., Any],
    params: Any,
    data: Any = None,
    *,
    matrix: str = "hessian",
    eigenpairs: int = 1,
    probes: int = 10,
    steps: int = 80,
    bandwidth: float | None = None,
    blocks: Mapping[str, str | Sequence[str]] | str | None = None,
    scaled: bool = True,
    dense: bool | None = None,
    rtol: float = 1e-6,
    max_products: int = 1000,
    chunk: int | None = None,
    precision: str = "float64",
    seed: int = 0,
) -> Curvature:
    """The curvature of a loss at `params`, without ever forming it (or by forming it, when small).

    loss: a function of (params, data) that is a mean over the rows of `data`, or of params alone.
        `Supervised(criterion, apply)` makes one whose Gauss–Newton and Fisher matrices are known.
    params: any tree; its floating-point arrays are the parameters. They are never changed.
    data: a tree of arrays with samples along the first axis, taken `chunk` rows at a time; left
        out, as many as the processor's cache holds. Only one chunk is computed with at a time.
    matrix: "hessian", "gauss-newton" or "fisher".
    eigenpairs: how many at each end, to a residual of `rtol` · max |λ|, or `max_products` products.
    probes, steps: of stochastic Lanczos quadrature (steps=0 leaves the density out); the trace
        takes 2·probes products. `bandwidth` is the density's σ, a hundredth of its range if left
        out: Lanczos does not see much finer.
    blocks: which parameters to look at alone: {"attention": "layer", "head": ("first", "second")}
        by the beginnings of their paths in the tree, or "top" for one block a top-level name.
    scaled: whether to compute the rescaling-invariant measures as well.
    dense: whether to form the matrix and be exact; by default up to 500 parameters.
    precision: "float32" computes products in single precision; sums and Lanczos stay in double.

    >>> found = curvature(lambda w: 0.5 * (3 * w[0] ** 2 + w[1] ** 2), np.array([1.0, 2.0]))
    >>> round(found.largest, 6), round(found.smallest, 6), round(found.trace.value, 6)
    (3.0, 1.0, 4.0)
    """
    checks.one_of("matrix", matrix, MATRICES)
    checks.whole("eigenpairs", eigenpairs, at_least=1)
    checks.whole("probes", probes, at_least=2)
    checks.whole("steps", steps)
    checks.whole("max_products", max_products, at_least=2)
    checks.whole("seed", seed)
    checks.positive("rtol", rtol)
    if bandwidth is not None:
        checks.positive("bandwidth", bandwidth)
    subject = Subject(loss, params, data, chunk=chunk, precision=precision)
    chosen = _blocks(subject, blocks)
    value, gradient = subject.value_and_gradient()
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        raise checks.BadInput(
            f"loss and gradient must be finite at params, but the loss is {value} there."
        )
    formed = subject.size <= DENSE if dense is None else dense
    look = _Exact(subject, matrix) if formed else _Sampled(
        subject, matrix, probes, rtol, max_products, seed
    )  # fmt: skip
    both = look.ends(eigenpairs)
    weights = subject.vector
    scaled_pair = look.ends(1, scale=weights).top[0] if scaled else None
    scaled_trace = look.trace(scale=weights) if scaled else None
    density = None
    if steps:
        rule = look.quadrature(steps)
        width = bandwidth or _bandwidth(both.bottom[0].value, both.top[0].value)
        density = _density(rule, width, formed)
    found = {}
    for name, places in chosen.items():
        inside = look.ends(1, places=places)
        found[name] = Block(
            places.size, inside.top[0], inside.bottom[0], look.trace(places=places)
        )  # fmt: skip
    return Curvature(
        matrix, subject.size, value, float(np.linalg.norm(gradient)), both.top, both.bottom,
        look.trace(), scaled_pair, scaled_trace, density, found, formed,
    )  # fmt: skip


class _Exact:
    """Answers from the matrix itself."""

    def __init__(self, subject: Subject, matrix: str):
        width = min(COLUMNS, subject.size)
        self.matrix = spectrum.matrix(partial(subject.times, matrix=matrix, width=width),
                                      subject.size)  # fmt: skip

    def _part(self, scale: Any, places: Any) -> np.ndarray:
        part = self.matrix if scale is None else scale[:, None] * self.matrix * scale
        return part if places is None else part[np.ix_(places, places)]

    def ends(self, count: int, scale: Any = None, places: Any = None) -> spectrum.Ends:
        part = self._part(scale, places)
        return spectrum.ends(*np.linalg.eigh(part), part, count)

    def trace(self, scale: Any = None, places: Any = None) -> Reading:
        part = self._part(scale, places)
        return Reading(float(np.trace(part)), 0.0, len(part), details={"exact": True})

    def quadrature(self, steps: int) -> Quadrature:
        values = np.linalg.eigvalsh(self.matrix)[None]
        return Quadrature(values, np.full(values.shape, 1 / values.size))


class _Sampled:
    """Answers from products with it."""

    def __init__(self, subject, matrix, probes, rtol, max_products, seed):
        self.subject, self.kind, self.probes, self.seed = subject, matrix, probes, seed
        self.settings = {"rtol": rtol, "max_products": max_products, "seed": seed}

    def _times(self, scale: Any, places: Any, width: int) -> tuple[Times, int]:
        whole = self.subject.size
        kept = np.arange(whole) if places is None else places

        def times(rows: np.ndarray) -> np.ndarray:
            full = np.zeros((len(rows), whole))
            full[:, kept] = rows
            weights = 1.0 if scale is None else scale
            product = weights * self.subject.times(weights * full, self.kind, width=width)
            return product[:, kept]

        return times, len(kept)

    def ends(self, count: int, scale: Any = None, places: Any = None) -> spectrum.Ends:
        return spectrum.extremes(*self._times(scale, places, 1), count, **self.settings)

    def trace(self, scale: Any = None, places: Any = None) -> Reading:
        times, size = self._times(scale, places, self.probes)
        return spectrum.trace(times, size, self.probes, seed=self.seed)

    def quadrature(self, steps: int) -> Quadrature:
        times, size = self._times(None, None, self.probes)
        return spectrum.quadrature(times, size, self.probes, steps, seed=self.seed)


def _bandwidth(low: float, high: float) -> float:
    spread = high - low
    return spread / 100 if spread > 0 else max(abs(high), 1.0) / 100


def _density(rule: Quadrature, width: float, exact: bool) -> Density:
    used = rule.nodes[rule.weights > 0]
    at = np.linspace(used.min() - 4 * width, used.max() + 4 * width, GRID)

    def bump(nodes: np.ndarray) -> np.ndarray:
        apart = (at - nodes[..., None]) / width
        return np.exp(-0.5 * apart**2) / (width * math.sqrt(2 * math.pi))

    each = rule.mean(bump)
    error = np.zeros(GRID) if exact else each.std(0, ddof=1) / math.sqrt(len(each))
    return Density(at, each.mean(0), error, width, rule, exact)


def _blocks(subject: Subject, blocks: Any) -> dict[str, np.ndarray]:
    """The places in the vector of each block's parameters."""
    if blocks is None:
        return {}
    named = list(subject.places())
    if blocks == "top":
        blocks = {path.split(".")[0]: path.split(".")[0] for path, _ in named}
    if not isinstance(blocks, Mapping):
        raise checks.BadInput(
            f'blocks must be a mapping from names to paths, or "top", but {blocks!r} came.'
        )
    chosen = {}
    for name, starts in blocks.items():
        starts = (starts,) if isinstance(starts, str) else tuple(starts)
        parts = [
            np.arange(place.start, place.stop)
            for path, place in named
            if any(path == start or path.startswith(start + ".") for start in starts)
        ]
        if not parts:
            raise checks.BadInput(
                f"block {name!r} must name parameters of the tree, {[p for p, _ in named]}, but "
                f"{list(starts)} came."
            )
        chosen[name] = np.concatenate(parts)
    return chosen


def _said(pairs: Sequence[Eigenpair]) -> str:
    return ", ".join(f"{pair.value:.5g} (residual {pair.residual:.1g})" for pair in pairs)


def _number(reading: Reading) -> str:
    return f"{reading.value:.5g} ± {reading.standard_error:.2g}"
