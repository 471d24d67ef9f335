"""The spectrum of a symmetric matrix A, from products with it.

A is given as a function `times` that maps rows to rows: times(V) holds A v for each row v of V. The
computations here use NumPy only.

    extremes   eigenpairs at both ends: Lanczos with full orthogonalisation and thick restarts
               (Wu and Simon, 2000), each with its residual ‖A v − λ v‖. An eigenvalue of A lies
               within that residual of λ.
    trace      XTrace (Epperly, Tropp and Webber, 2024) with its leave-one-out standard error
    quadrature stochastic Lanczos quadrature (Golub and Welsch, 1969; Ubaru, Chen and Saad, 2017):
               from a random start z the eigenvalues θ_k of the tridiagonal matrix and the squared
               first entries τ_k of its eigenvectors integrate zᵀ f(A) z/‖z‖² ≈ Σ τ_k f(θ_k), which
               has mean (1/P) Σ_i f(λ_i). Exact for polynomials below degree 2·steps, or when the
               Krylov space is exhausted earlier.

Matfree has XTrace and Lanczos as well, for products that JAX can trace; the products here sum over
chunks of data outside of JAX. The tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attnlens.core.readings import Reading

Times = Callable[[np.ndarray], np.ndarray]
EPS = float(np.finfo(float).eps)


class Eigenpair(NamedTuple):
    """An eigenvalue λ, its residual ‖A v − λ v‖, and its unit eigenvector v."""

    value: float
    residual: float
    vector: np.ndarray


class SpectrumEnds(NamedTuple):
    """Eigenpairs at both ends: `top` from the largest down, `bottom` from the smallest up."""

    top: tuple[Eigenpair, ...]
    bottom: tuple[Eigenpair, ...]
    products: int


def matrix(times: Times, size: int) -> np.ndarray:
    """Return the matrix, from products with all unit vectors, symmetric to the last bit."""
    formed = times(np.eye(size))
    return 0.5 * (formed + formed.T)


def exact_extremes(
    values: np.ndarray, vectors: np.ndarray, formed: np.ndarray, count: int
) -> SpectrumEnds:
    """Return `count` eigenpairs at each end of a full eigendecomposition, with residuals."""

    def pair(i: int) -> Eigenpair:
        residual = formed @ vectors[:, i] - values[i] * vectors[:, i]
        return Eigenpair(float(values[i]), float(np.linalg.norm(residual)), vectors[:, i].copy())

    size = len(values)
    top = tuple(pair(size - 1 - i) for i in range(min(count, size)))
    return SpectrumEnds(top, tuple(pair(i) for i in range(min(count, size))), size)


def extremes(
    times: Times,
    size: int,
    count: int = 1,
    *,
    rtol: float = 1e-6,
    max_products: int = 1000,
    seed: int = 0,
) -> SpectrumEnds:
    """Return `count` eigenpairs at each end of the spectrum.

    The iteration ends when all residuals are below rtol · max |λ|, or after `max_products`
    products. A Krylov space holds one vector of each eigenspace: an eigenvalue of multiplicity two
    appears once. `basis` is an orthonormal basis Q and `images` is W = Q A; Ritz pairs are those of
    Q Wᵀ. If both would take more than `KRYLOV_BYTES`, they are kept in float32, and there are fewer
    vectors before a restart.
    """
    capacity, dtype = krylov_space(size, count)
    # Ritz vectors kept at a restart, half of them from each end.
    keep = min(size, 10 + 3 * count, max(capacity // 2, 2 * count))
    random = np.random.default_rng(seed)
    basis, images = np.empty((capacity, size), dtype), np.empty((capacity, size), dtype)
    stored, products = 0, 0
    following = random.normal(size=size)
    while True:
        new = _orthogonal(following, basis[:stored])
        if new is None:  # the space is invariant: continue with a random direction outside of it
            new = _orthogonal(random.normal(size=size), basis[:stored])
        if new is not None:
            basis[stored] = new
            images[stored] = following = times(np.asarray(new[None], float))[0]
            stored, products = stored + 1, products + 1
        full = stored == capacity or new is None
        if not (full or products >= max_products):
            continue
        projected = np.asarray(basis[:stored] @ images[:stored].T, float)
        values, rotation = np.linalg.eigh(0.5 * (projected + projected.T))
        rotation = rotation.astype(dtype, copy=False)
        number = min(count, stored)
        places = [*range(stored - 1, stored - 1 - number, -1), *range(number)]
        pairs = []
        for i in places:
            vector = rotation[:, i] @ basis[:stored]
            residual = rotation[:, i] @ images[:stored] - float(values[i]) * vector
            pairs.append(Eigenpair(float(values[i]), float(np.linalg.norm(residual)), vector))
        tolerance = rtol * float(np.abs(values).max())
        done = all(pair.residual <= tolerance for pair in pairs) or stored == size or new is None
        if done or products >= max_products:
            return SpectrumEnds(tuple(pairs[:number]), tuple(pairs[number:]), products)
        # Restart with the Ritz vectors at both ends. The next direction is the part of the last
        # image that is orthogonal to the whole basis: all Ritz residuals are multiples of it, so
        # the space remains a Krylov space.
        outside = _orthogonal(following, basis[:stored])
        following = random.normal(size=size) if outside is None else outside
        low = keep // 2
        ritz = np.concatenate([rotation[:, :low], rotation[:, stored - (keep - low) :]], axis=1).T
        for rows in (basis, images):
            rows[:keep] = ritz @ rows[:stored]
        stored = keep


KRYLOV_BYTES = 3 << 30  # limit for the basis and its images in `extremes`


def krylov_space(size: int, count: int) -> tuple[int, type[np.floating]]:
    """Return the number of vectors before a restart for `count` pairs per end, and their precision.

    >>> krylov_space(30, 1), krylov_space(20_000_000, 1)
    ((30, <class 'numpy.float64'>), (20, <class 'numpy.float32'>))
    """
    capacity = 40 + 6 * count
    if 2 * 8 * capacity * size <= KRYLOV_BYTES:
        return min(size, capacity), np.float64
    fewest = 4 * count + 2  # twice the Ritz vectors that are kept, and two new ones
    return max(fewest, min(capacity, KRYLOV_BYTES // (2 * 4 * size))), np.float32


def _orthogonal(vector: np.ndarray, basis: np.ndarray) -> np.ndarray | None:
    """Return the part of `vector` orthogonal to `basis`, normalised; None if it is only rounding.

    A part is only rounding if it is smaller than 100 ε times the vector.
    """
    vector = np.asarray(vector, basis.dtype)
    before = float(np.linalg.norm(vector))
    if before == 0 or len(basis) == len(vector):
        return None
    for _ in range(2):  # orthogonalising twice is enough (Giraud, Langou and Rozložník, 2005)
        vector = vector - (basis @ vector) @ basis
    after = float(np.linalg.norm(vector))
    return None if after <= 100 * float(np.finfo(basis.dtype).eps) * before else vector / after


def trace(times: Times, size: int, probes: int, *, seed: int = 0) -> Reading:
    """Return the trace from 2·probes products (XTrace), with its leave-one-out standard error.

    Let Ω (P × m) be a random normal matrix with one column ω_i per probe, let A Ω = Q R, and let
    Q_i be the factor Q of the same matrix without probe i. Estimate i is

        tr(Q_iᵀ A Q_i) + c_i · ω̂_iᵀ A ω̂_i,    ω̂_i = (I − Q_i Q_iᵀ) ω_i,  c_i = (P − m + 1)/‖ω̂_i‖²:

    The first term is exact on the range of Q_i, where A is large; the second term estimates the
    rest with a random probe. Q_i Q_iᵀ = Q (I − s_i s_iᵀ) Qᵀ with s_i the normalised columns of
    R^(−ᵀ). The estimates are unbiased and exchangeable, but not independent, so √(variance/m) only
    approximates the standard error of their mean: over 400 seeds it was 0.75 of the true one for a
    geometrically falling spectrum, 0.99 for a flat one with outliers. If 2·probes is at least the
    size, the exact diagonal is used instead.
    """
    if 2 * probes >= size:
        return Reading(float(np.trace(times(np.eye(size)))), 0.0, size)
    omega = np.random.default_rng(seed).normal(size=(size, probes))
    images = times(omega.T).T
    q, r = np.linalg.qr(images)
    z = times(q.T).T
    inner = q.T @ z
    diagonal = np.abs(np.diag(r))
    if diagonal.min() <= size * EPS * diagonal.max():
        # A has a lower rank than the number of probes, which span its range: the trace is exact.
        return Reading(float(np.trace(inner)), 0.0, probes)
    s = np.linalg.solve(r.T, np.eye(probes))
    s /= np.linalg.norm(s, axis=0)
    w = q.T @ omega
    x = w - s * (s * w).sum(0)  # Q_i Q_iᵀ ω_i = Q x_i
    captured = np.trace(inner) - (s * (inner @ s)).sum(0)
    form = (omega * images).sum(0) - (x * r).sum(0) - ((z.T @ omega) * x).sum(0)
    form += (x * (inner @ x)).sum(0)
    squared_norm = (omega**2).sum(0) - (x**2).sum(0)  # ‖ω̂_i‖²
    estimates = captured + (size - probes + 1) / squared_norm * form
    error = float(estimates.std(ddof=1) / math.sqrt(probes))
    return Reading(float(estimates.mean()), error, probes)


class Quadrature(NamedTuple):
    """Nodes θ and weights τ, one row per probe.

    The weights of a row sum to one; shorter rows are padded with weights of zero.
    """

    nodes: np.ndarray
    weights: np.ndarray

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return one estimate of (1/P) Σ f(λ_i) per probe; f may return an array with one more axis
        than its argument."""
        values = function(self.nodes)
        weights = self.weights.reshape(self.weights.shape + (1,) * (values.ndim - 2))
        return (weights * values).sum(1)


BASIS_BYTES = 1 << 30  # limit for Lanczos vectors in memory; probes run in groups that fit it


def quadrature(times: Times, size: int, probes: int, steps: int, *, seed: int = 0) -> Quadrature:
    """Return nodes and weights of stochastic Lanczos quadrature; the probes are random signs."""
    steps = min(steps, size)
    signs = np.random.default_rng(seed).integers(0, 2, size=(probes, size)) * 2.0 - 1.0
    group = int(np.clip(BASIS_BYTES // (8 * size * (steps + 1)), 1, probes))
    parts = [_lanczos(times, signs[i : i + group], steps) for i in range(0, probes, group)]
    return Quadrature(*(np.concatenate(both) for both in zip(*parts, strict=True)))


def _lanczos(times: Times, starts: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    probes, size = starts.shape
    basis = np.zeros((probes, steps, size))
    diagonal, off_diagonal = np.zeros((probes, steps)), np.zeros((probes, steps))
    lengths = np.full(probes, steps)
    basis[:, 0] = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    scale = np.zeros(probes)
    for k in range(steps):
        image = times(basis[:, k])
        diagonal[:, k] = (image * basis[:, k]).sum(1)
        scale = np.maximum(scale, np.linalg.norm(image, axis=1))
        if k + 1 == steps:
            break
        for i in range(probes):
            for _ in range(2):
                known = basis[i, : k + 1]
                image[i] -= (known @ image[i]) @ known
        off_diagonal[:, k] = np.linalg.norm(image, axis=1)
        # If only rounding remains, the probe's Krylov space is exhausted and its rule is exact.
        exhausted = off_diagonal[:, k] <= 100 * EPS * size**0.5 * scale
        lengths = np.where(exhausted, np.minimum(lengths, k + 1), lengths)
        if (lengths <= k + 1).all():
            break
        basis[:, k + 1] = np.where(exhausted[:, None], 0.0, image) / np.where(
            exhausted, 1.0, off_diagonal[:, k]
        ).reshape(-1, 1)
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for i, length in enumerate(lengths):
        rows = np.arange(length - 1)
        tridiagonal = np.diag(diagonal[i, :length])
        tridiagonal[rows, rows + 1] = tridiagonal[rows + 1, rows] = off_diagonal[i, : length - 1]
        values, vectors = np.linalg.eigh(tridiagonal)
        nodes[i, :length], weights[i, :length] = values, vectors[0] ** 2
        nodes[i, length:] = values[-1]
    return nodes, weights
