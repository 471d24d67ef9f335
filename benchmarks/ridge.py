"""Kernel ridge regression problems, and their solutions in float64.

κ(Q, K) (κ(K, K) + λ I)⁻¹ V,    κ(q, k) = exp(−‖q−k‖²/2τ)

heads    standard normal keys of 16 features, 16 values, τ = 4, λ = 0.1
sphere   keys on the unit sphere in three dimensions, τ = 0.5, λ = 0.09, one value, 256
         queries: κ(K, K) is ill-conditioned without λ, as for any smooth kernel
world    as sphere with 16 queries: episodes of the Gaussian-process world
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contest import relative_error

Array = np.ndarray


class Problem(NamedTuple):
    """Inputs with a leading axis of heads (or episodes), temperature τ and ridge λ."""

    query: Array
    key: Array
    value: Array
    temperature: float
    ridge: float

    def heads(self) -> Iterator[tuple[Array, Array, Array]]:
        return zip(self.query, self.key, self.value, strict=True)

    def part(self, index: int, parts: int) -> Problem:
        """Every `parts`-th head, from head `index` on."""
        query, key, value = (x[index::parts] for x in self[:3])
        return Problem(query, key, value, self.temperature, self.ridge)


def problem(kind: str, heads: int, length: int, dtype: str) -> Problem:
    random = np.random.default_rng(0)
    if kind == "heads":
        parts = [random.normal(size=(heads, length, 16)).astype(dtype) for _ in range(3)]
        return Problem(*parts, temperature=4.0, ridge=0.1)
    queries = 16 if kind == "world" else 256
    points = random.normal(size=(heads, length + queries, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    key, query = points[:, :length], points[:, length:]
    noise = 0.3 * random.normal(size=(heads, length, 1))
    value = np.sin(4 * key[..., :1]) * key[..., 1:2] + noise
    return Problem(*(x.astype(dtype) for x in (query, key, value)), temperature=0.5, ridge=0.09)


# ---- the truth ---------------------------------------------------------------------------------


def gaussian(left: Array, right: Array, temperature: float) -> Array:
    """The kernel matrix κ of all pairs, in the inputs' precision; allocates one matrix only."""
    squared = left @ right.T
    squared *= -2
    squared += np.sum(left * left, -1)[:, None]
    squared += np.sum(right * right, -1)
    np.maximum(squared, 0, out=squared)
    squared *= -0.5 / temperature
    return np.exp(squared, out=squared)


def solve(query: Array, key: Array, value: Array, task: Problem) -> Array:
    """The solution of one head by SciPy, in the inputs' precision."""
    import scipy.linalg

    matrix = gaussian(key, key, task.temperature)
    matrix.flat[:: len(key) + 1] += np.asarray(task.ridge, matrix.dtype)
    # The transpose of the symmetric matrix is the same matrix in LAPACK's column-major order.
    factor = scipy.linalg.cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    weights = scipy.linalg.cho_solve(factor, value, check_finite=False)
    return gaussian(query, key, task.temperature) @ weights


def on_the_sphere(task: Problem, degree: int = 22) -> Array:
    """The solution for kind "sphere" in float64, at any length. To rounding, the kernel has finite
    rank on the unit sphere:

        exp((x·y − 1)/τ) = e^{−t} Σ_n (2n+1) i_n(t) P_n(x·y)        t = 1/τ
                         = e^{−t} Σ_n 4π i_n(t) Σ_m Y_nm(x) Y_nm(y)

    with modified spherical Bessel functions i_n(2) < 1e-22 from n = 22 on. So κ(K, K) = Φ Φᵀ with
    (degree + 1)² columns, and κ(q, K)(ΦΦᵀ + λI)⁻¹ v = φ(q)ᵀ (ΦᵀΦ + λI)⁻¹ Φᵀ v.
    """
    import scipy.linalg
    from scipy.special import sph_harm_y, spherical_in

    sharpness = 1 / task.temperature

    def features(points: Array) -> Array:
        polar, around = (
            np.arccos(np.clip(points[:, 2], -1, 1)),
            np.arctan2(points[:, 1], points[:, 0]),
        )
        columns = []
        for n in range(degree + 1):
            size = np.sqrt(4 * np.pi * np.exp(-sharpness) * spherical_in(n, sharpness))
            columns.append(size * sph_harm_y(n, 0, polar, around).real)
            for m in range(1, n + 1):
                whole = size * 2**0.5 * sph_harm_y(n, m, polar, around)
                columns += [whole.real, whole.imag]
        return np.stack(columns, 1)

    ((query, key, value),) = task.heads()
    rows = features(key)
    matrix = rows.T @ rows + task.ridge * np.eye(rows.shape[1])
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), rows.T @ value)
    return (features(query) @ weights)[None]


def truth(task: Problem, kind: str) -> Array:
    """The solution in float64; stored in a file, because all contenders are compared with it."""
    folder = Path(os.environ.get("BENCH_SCRATCH") or tempfile.gettempdir())
    digest = hashlib.sha256(b"".join(x.tobytes() for x in task[:3])).hexdigest()
    path = folder / f"attnlens-truth-{kind}-{digest[:16]}.npy"
    if path.exists():
        return np.load(path)
    query, key, value = (np.asarray(x, float) for x in task[:3])
    wide = Problem(query, key, value, task.temperature, task.ridge)
    if kind == "sphere":
        solution = on_the_sphere(wide)
    else:
        solution = np.stack([solve(*head, wide) for head in wide.heads()])
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".npy", delete=False) as fresh:
        np.save(fresh, solution)
    Path(fresh.name).replace(path)
    return solution


def judge(task: Problem, kind: str) -> Callable[[Any], Mapping[str, float]]:
    def accuracy(answer: Any) -> dict[str, float]:
        exact = truth(task, kind)
        return {"relative error": relative_error(np.reshape(answer, exact.shape), exact)}

    return accuracy


def affordable(length: int, dtype: str) -> None:
    """Raise MemoryError if the kernel matrix needs over half of the memory: otherwise the system
    might stop another process."""
    needed = length**2 * np.dtype(dtype).itemsize / 1e9
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if needed > there / 2:
        raise MemoryError(f"needs {needed:.0f} GB for the matrix, of {there:.0f} GB here")
