"""Solve (κ(K, K) + λ I) X = B by Cholesky factors or by preconditioned conjugate gradients.

**Derivatives.** X is defined by A X = B, so Ȧ X + A Ẋ = Ḃ: Ẋ solves the same system with the
right-hand side Ḃ − Ȧ X. `jax.lax.custom_linear_solve` gets A as a product, which it differentiates,
and a solver, which it does not. So a gradient costs one more solve with the same factor or
preconditioner, and factorisations and iterations are never differentiated.

**Without the matrix.** A X is computed in tiles of rows; each tile of the kernel matrix is computed
when it is needed, so memory is linear in the length. The preconditioner is M = s I + F Fᵀ with F
the pivoted partial Cholesky factor of κ(K, K) (Harbrecht, Peters and Schneider, 2012; Gardner et
al., GPyTorch, 2018): with G = F/√s and the Cholesky factor C Cᵀ = I + Gᵀ G,

    s M⁻¹ = I − W Wᵀ,   W = G C⁻ᵀ        (Woodbury)

In exact arithmetic s = λ is best. The smallest eigenvalue of I − W Wᵀ is near s/‖F‖² and is lost in
rounding when that is below ε, so s is at least 32 ε tr(Fᵀ F).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import lineax
import matfree.low_rank
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array

from attnlens.core import kernels

from .native import cholesky

# Entries of the kernel matrix that a matrix-free product holds at a time (32 MB in float64).
TILE_ENTRIES = 2**22
TOLERANCE = {"float32": 1e-5, "float64": 1e-8}


def default_tolerance(dtype: jnp.dtype, length: int) -> float:
    """The default tolerance of the relative residual, which rounding errors allow a solve to reach.

    In a product κ(K, K) α each of L terms is rounded, which adds up to c ε √L ‖α‖ ≤ c ε √L ‖b‖/λ.
    At 65,536 tokens with κ(k, k)/λ = 11 the residual of a float32 solve stopped at 33 ε √L: c = 3.
    The default is 40 ε √L or, where that is smaller, `TOLERANCE`. In float32 40 ε √L is the larger
    one from a few tokens on.
    """
    return max(TOLERANCE[dtype.name], 40 * float(jnp.finfo(dtype).eps) * length**0.5)


# lineax stops with NaN when pᵀAp ≤ 100 ε n rᵀz, to detect a singular A. At n = 65,536 in float32
# the right side is 0.8 rᵀz, and with a *good* preconditioner pᵀAp ≈ rᵀz is close to that. A
# constant factor on the preconditioner changes no step of the iteration and increases the left side
# relative to the right one by this factor.
PRECONDITIONER_FACTOR = 1024.0


class System(NamedTuple):
    """A = κ(K, K) + λ I; the rows and columns of masked tokens are those of λ I."""

    kernel: kernels.Kernel
    key: Array  # (L, d)
    mask: Array | None  # (L,)
    temperature: float | Array
    ridge: float | Array

    def frozen(self) -> System:
        """The same system with gradients stopped."""
        stop = jax.lax.stop_gradient
        return self._replace(
            key=stop(self.key), temperature=stop(self.temperature), ridge=stop(self.ridge)
        )

    def gram(self) -> Array:
        """κ(K, K), zero for masked tokens."""
        gram = self.kernel(self.key, self.key, self.temperature)
        if self.mask is None:
            return gram
        return jnp.where(self.mask[:, None] & self.mask[None, :], gram, 0)

    def cross(self, query: Array) -> Array:
        """κ(K, Q), zero for masked tokens."""
        cross = self.kernel(self.key, query, self.temperature)
        return cross if self.mask is None else jnp.where(self.mask[:, None], cross, 0)

    def read(self, query: Array, columns: Array) -> Array:
        """κ(Q, K) · columns, in tiles of queries; the derivative computes each tile again."""

        @jax.checkpoint
        def rows(tile, key, columns, temperature):
            # κ(Q, K) is not computed as the transpose of κ(K, Q): XLA would multiply with a
            # transpose at a third of the speed.
            weights = self.kernel(tile, key, temperature)
            if self.mask is not None:
                weights = jnp.where(self.mask[None, :], weights, 0)
            return weights @ columns

        count, length = query.shape[0], self.key.shape[0]
        size = max(1, min(count, TILE_ENTRIES // max(length, 1)))
        if size >= count:
            return rows(query, self.key, columns, self.temperature)
        padded = jnp.pad(query, ((0, -count % size), (0, 0))).reshape(-1, size, query.shape[1])
        tiles = jax.lax.map(lambda tile: rows(tile, self.key, columns, self.temperature), padded)
        return tiles.reshape(-1, columns.shape[1])[:count]

    def product(self, columns: Array) -> Array:
        """A · columns, without forming A."""
        product = self.read(self.key, columns)
        if self.mask is not None:
            product = jnp.where(self.mask[:, None], product, 0)
        return product + self.ridge * columns


class Solved(NamedTuple):
    """The solution X, and the number of iterations (0 for a direct solve)."""

    columns: Array
    steps: Array


def by_cholesky(system: System, columns: Array) -> Solved:
    """Solve with the matrix and its Cholesky factor in memory; one LAPACK call at a time."""
    matrix = system.gram() + system.ridge * jnp.eye(columns.shape[0], dtype=columns.dtype)
    frozen = jax.lax.stop_gradient(matrix)
    if cholesky.fits(columns.shape[0], columns.dtype) and cholesky.load():
        factor, solve = cholesky.factor(frozen), cholesky.solve
    else:
        factor, solve = jnp.linalg.cholesky(frozen, symmetrize_input=False), _by_factor
    solution = jax.lax.custom_linear_solve(
        lambda x: matrix @ x, columns, lambda _, b: solve(factor, b), symmetric=True
    )
    return Solved(solution, jnp.zeros((), jnp.int32))


@jax.custom_batching.sequential_vmap
def _by_factor(factor: Array, columns: Array) -> Array:
    # Batch members are solved in sequence: for a whole batch JAX would not call BLAS but run a loop
    # of its own, which is ten times slower.
    return cho_solve((factor, True), columns)


def by_iteration(
    system: System, columns: Array, tolerance: float, rank: int, max_steps: int
) -> Solved:
    """Solve by preconditioned conjugate gradients, one system per column, vmapped over columns."""
    frozen = system.frozen()
    correct = preconditioner(frozen, rank)
    dtype = columns.dtype
    readable = jnp.all(jnp.isfinite(frozen.key))

    def solve(_, right):
        # (K/λ + I) u = b with u = λ x: then ‖u‖ ≤ ‖b‖, so one absolute tolerance suits both the
        # residual and the change of u, which lineax compares with it.
        unit = jax.ShapeDtypeStruct((right.shape[0],), dtype)
        product = lineax.FunctionLinearOperator(
            lambda u: frozen.product(u[:, None])[:, 0] / frozen.ridge,
            unit,
            lineax.positive_semidefinite_tag,
        )
        inverse = lineax.FunctionLinearOperator(correct, unit, lineax.positive_semidefinite_tag)

        def one(b):
            size = jnp.sqrt(jnp.sum(b**2))
            solver = lineax.CG(
                rtol=0.0,
                atol=tolerance * size,  # pyright: ignore[reportArgumentType] (lineax also takes arrays)
                norm=lineax.internal.two_norm,
                max_steps=max_steps,
            )
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                solution = lineax.linear_solve(
                    product, b, solver, options={"preconditioner": inverse}, throw=False
                )
            # If an input is not finite, the iteration returns its starting point: NaN instead.
            known = jnp.isfinite(size) & readable
            value = jnp.where(known, solution.value / frozen.ridge, jnp.nan)
            return value, solution.stats["num_steps"]

        solution, steps = jax.vmap(one, 1, (1, 0))(right)
        return solution, jnp.max(steps, initial=0).astype(jnp.int32)

    solution, steps = jax.lax.custom_linear_solve(
        system.product, columns, solve, symmetric=True, has_aux=True
    )
    return Solved(solution, steps)


def preconditioner(system: System, rank: int) -> Callable[[Array], Array]:
    """The function b ↦ c M⁻¹ b for some constant c > 0; `rank` is the number of columns of F."""
    length, dtype = system.key.shape[0], system.key.dtype

    def element(i, j):
        i, j = (jax.lax.dynamic_slice_in_dim(system.key, at, 1) for at in (i, j))
        return system.kernel(i, j, system.temperature)[0, 0]

    def seen_element(i, j):
        seen = True if system.mask is None else system.mask[i] & system.mask[j]
        return jnp.where(seen, element(i, j), 0)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        partial_cholesky = matfree.low_rank.cholesky_partial_pivot(
            seen_element, nrows=length, rank=min(rank, length)
        )
        factor = partial_cholesky()[0].astype(dtype)
    # When the remaining diagonal is rounding error, the next column and all later ones are NaN. The
    # columns before them represent the whole matrix up to rounding.
    factor = jnp.where(jnp.all(jnp.isfinite(factor), 0), factor, 0)
    shift = jnp.maximum(system.ridge, 32 * jnp.finfo(dtype).eps * jnp.sum(factor**2))
    g = factor / jnp.sqrt(shift)
    capacitance = jnp.linalg.cholesky(jnp.eye(g.shape[1], dtype=dtype) + g.T @ g)
    w = solve_triangular(capacitance, g.T, lower=True).T
    return partial(_correct, w)


def _correct(w: Array, b: Array) -> Array:
    return (b - w @ (w.T @ b)) * PRECONDITIONER_FACTOR


def relative_residual(system: System, columns: Array, solution: Array) -> Array:
    """The largest ‖b − A x‖/‖b‖ over the columns."""
    error = jnp.sqrt(jnp.sum((columns - system.product(solution)) ** 2, 0))
    size = jnp.sqrt(jnp.sum(columns**2, 0))
    return jnp.max(jnp.where(size > 0, error / jnp.where(size > 0, size, 1), error), initial=0)
