"""Conditional-mean-embedding attention: kernel ridge regression from keys to values.

    CME(q; K, V) = κ(q, K) (κ(K, K) + λ I)⁻¹ V

λ is the whole ridge, not λL. In a Gaussian-process world with covariance κ and noise variance λ
this is the exact posterior mean, and the posterior variance is
κ(q, q) − κ(q, K)(κ(K, K) + λ I)⁻¹ κ(K, q) (`worlds.gaussian_process`).

Leave-one-out residuals have a closed form: the residual at token i of the fit without it is
v_i − CME_{−i}(k_i) = α_i / (A⁻¹)_ii with A = κ(K, K) + λ I and α = A⁻¹ V.

(Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional distributions, 2009;
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and 5.4.)
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attnlens.core import checks, kernels

from . import inputs, solve
from .native import cholesky
from .ridge import RULES, choose

METHODS = ("auto", "cholesky", "iterative")
# Up to this length the matrix and its factor fit into memory (1 GB in float64) and Cholesky is
# faster.
LONGEST_CHOLESKY = 8192
# Matrix entries that are factorised in one batched call. With LAPACK, longer sequences are
# factorised one at a time. Native code distributes the matrices of a call over threads, and they
# should stay in the last-level cache.
BATCH_ENTRIES, NATIVE_BATCH_ENTRIES = 2**14, 2**20


class WithVariance(NamedTuple):
    """An estimate and its posterior variance.

    >>> one = jnp.ones((1, 1))
    >>> cme(one, one, one, ridge=1.0, variance=True).var.round(5).tolist()
    [[0.5]]
    """

    mean: Float[Array, "*batch queries value_dim"]
    var: Float[Array, "*batch queries 1"]


class SolveInfo(eqx.Module):
    """How the linear system was solved; outside jit `str(info)` is one sentence about it.

    >>> one = jnp.ones((1, 1))
    >>> bool(cme(one, one, one, ridge=1.0, return_info=True).info.converged)
    True
    """

    method: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    residual: Float[Array, "*batch"]  # the largest ‖b − A x‖/‖b‖ over the right-hand sides
    steps: Int[Array, "*batch"]
    converged: Bool[Array, "*batch"]

    def __str__(self) -> str:
        worst, steps = float(jnp.max(self.residual, initial=0)), int(jnp.max(self.steps, initial=0))
        if bool(jnp.all(self.converged)):
            return f"{self.method}: solved to a relative residual of {worst:.1e} in {steps} steps."
        if self.method == "cholesky":
            return "cholesky: the matrix is not positive definite in this precision; raise ridge."
        return (
            f"iterative: not converged: relative residual {worst:.1e} after {steps} steps, above "
            f"the tolerance {self.tolerance:.0e}; raise ridge, rank or max_steps."
        )


class Estimate(NamedTuple):
    """All results of `cme`; those that were not requested are None.

    >>> one = jnp.ones((1, 1))
    >>> fit = cme(one, one, one, ridge=1.0, return_info=True)
    >>> fit.mean.round(5).tolist(), fit.var
    ([[0.5]], None)
    """

    mean: Float[Array, "*batch queries value_dim"]
    var: Float[Array, "*batch queries 1"] | None
    residuals: Float[Array, "*batch length value_dim"] | None
    ridge: Float[Array, "*batch"]
    info: SolveInfo | None


def cme(
    query: Float[Array, "*batch queries dim"],
    key: Float[Array, "*batch length dim"],
    value: Float[Array, "*batch length value_dim"],
    *,
    ridge: float | Float[Array, ...] | str,
    temperature: float | Float[Array, ""] | None = None,
    kernel: str = "rbf",
    mask: Bool[Array, ...] | None = None,
    variance: bool = False,
    residuals: bool = False,
    return_info: bool = False,
    method: str = "auto",
    tolerance: float | None = None,
    rank: int = 256,
    max_steps: int = 500,
) -> Any:  # an array (*batch, queries, value_dim), `WithVariance` or `Estimate`
    """Kernel ridge attention; `temperature` defaults to √d.

    `ridge` is a number (or one number per batch member), or "loo" or "evidence": chosen by
    leave-one-out error or by marginal likelihood, and then a constant in differentiation. `mask`
    (true = may be attended to) is one row for all queries: (..., length) or (..., 1, length).

    With `variance=True` the result has the posterior variance beside the mean. With
    `residuals=True` (leave-one-out residuals, one per token) or `return_info=True` the result is
    an `Estimate`, whose `info` has the relative residual and whether the solve converged.

    `method` is "cholesky", "iterative" (conjugate gradients until the relative residual is below
    `tolerance`, at most `max_steps`, with a partial-Cholesky preconditioner of rank `rank`;
    memory linear in the length) or "auto": Cholesky up to length 8,192. Outside jit an iterative
    solve that does not converge warns; inside jit, check `return_info`.

    >>> keys = jnp.eye(2)
    >>> value = jnp.array([[1.0], [3.0]])
    >>> cme(keys, keys, value, ridge=1.0, temperature=1.0, kernel="linear").round(2)
    Array([[0.5],
           [1.5]], dtype=float32)
    """
    kappa = kernels.KERNELS[checks.one_of("kernel", kernel, kernels.KERNELS)]
    query, key, value = inputs.operands(query=query, key=key, value=value)
    batch, length, dtype = key.shape[:-2], key.shape[-2], value.dtype
    method = _method(method, length, ridge, residuals) if length else "cholesky"
    scale = inputs.scale("temperature", temperature, query.shape[-1])
    seen = inputs.token_mask(mask, key.shape)
    query, key, value = (inputs.at_least_single(array) for array in (query, key, value))
    key, value = inputs.hide(key, seen), inputs.hide(value, seen)
    goal = solve.default_tolerance(key.dtype, length) if tolerance is None else tolerance
    checks.positive("tolerance", goal)
    checks.whole("rank", rank, 1)
    checks.whole("max_steps", max_steps, 1)

    def one(member) -> Estimate:
        query, key, value, seen, number = member
        system = solve.System(kappa, key, seen, scale, 0.0 if number is None else number)
        if isinstance(ridge, str):
            system = system._replace(ridge=choose(ridge, system.gram(), value, seen))
        # One solve for all right-hand sides, so that LAPACK calls never overlap.
        right = [value]
        cross = system.cross(query) if variance else None
        if cross is not None:
            right.append(cross)
        if residuals:
            right.append(jnp.eye(length, dtype=key.dtype))
        columns = jnp.concatenate(right, -1)
        if method == "cholesky":
            solved = solve.by_cholesky(system, columns)
        else:
            solved = solve.by_iteration(system, columns, goal, rank, max_steps)
        width = value.shape[-1]
        weights, rest = solved.columns[:, :width], solved.columns[:, width:]
        mean = cross.T @ weights if cross is not None else system.read(query, weights)
        var = left_out = None
        if cross is not None:
            explained = jnp.sum(cross * rest[:, : query.shape[0]], 0)
            var = jnp.maximum(_prior(kappa, query, scale) - explained, 0)[:, None]
        if residuals:
            left_out = weights / jnp.diagonal(rest[:, -length:])[:, None] if length else weights
        needs_info = return_info or residuals or method == "iterative"
        info = _info(system, columns, solved, method, goal) if needs_info else None
        return Estimate(mean, var, left_out, jnp.asarray(system.ridge, key.dtype), info)

    number = None if isinstance(ridge, str) else jnp.broadcast_to(_number(ridge, key.dtype), batch)
    members = (query, key, value, seen, number)
    direct = number is not None and method == "cholesky"
    native = direct and cholesky.fits(length, key.dtype) and cholesky.load()
    estimate = _for_each(one, members, batch, length, native)
    _warn(estimate.info)
    if residuals or return_info:
        return _cast(estimate, dtype)
    if variance:
        assert estimate.var is not None
        return _cast(WithVariance(estimate.mean, estimate.var), dtype)
    return _cast(estimate.mean, dtype)


def _method(method: str, length: int, ridge: object, residuals: bool) -> str:
    checks.one_of("method", method, METHODS)
    if isinstance(ridge, str):
        checks.one_of("ridge, when it is not a number,", ridge, RULES)
    if method == "auto":
        method = "cholesky" if length <= LONGEST_CHOLESKY else "iterative"
    if method == "iterative" and (residuals or isinstance(ridge, str)):
        raise checks.BadInput(
            f"leave-one-out residuals and a ridge chosen from the data need the whole matrix, "
            f"which an iterative solve at length {length} does not hold; give a number as ridge "
            f"and residuals=False, or method='cholesky'."
        )
    return method


def _number(ridge: Any, dtype: jnp.dtype) -> Array:
    return jnp.asarray(inputs.positive("ridge", ridge), dtype)


def _prior(kappa: kernels.Kernel, query: Array, scale: float | Array) -> Array:
    """The prior variance κ(q, q) of every query."""
    return jax.vmap(lambda point: kappa(point[None], point[None], scale)[0, 0])(query)


def _info(
    system: solve.System, columns: Array, solved: solve.Solved, method: str, goal: float
) -> SolveInfo:
    stop = jax.lax.stop_gradient
    residual = solve.relative_residual(system.frozen(), stop(columns), stop(solved.columns))
    # Conjugate gradients stop by a residual that is updated recursively and differs from the true
    # one by rounding: a factor of two allows for that. A factorisation that fails gives NaN.
    converged = residual <= 2 * goal if method == "iterative" else jnp.isfinite(residual)
    return SolveInfo(method, goal, residual, solved.steps, converged)


def _for_each(one, members, batch: tuple[int, ...], length: int, native: bool) -> Estimate:
    """Apply `one` to every batch member in sequence, or to groups of members with few tokens."""
    if not batch:
        return one(members)
    count = math.prod(batch)
    flat = jax.tree.map(lambda array: array.reshape(count, *array.shape[len(batch) :]), members)
    entries = NATIVE_BATCH_ENTRIES if native else BATCH_ENTRIES
    group = max(1, min(count, entries // max(length, 1) ** 2))
    results = jax.lax.map(one, flat, batch_size=group if group > 1 else None)
    return jax.tree.map(lambda array: array.reshape(*batch, *array.shape[1:]), results)


def _warn(info: SolveInfo | None) -> None:
    if info is None or info.method != "iterative" or isinstance(info.converged, jax.core.Tracer):
        return
    if not bool(jnp.all(info.converged)):
        warnings.warn(str(info), stacklevel=3)


def _cast(result, dtype: jnp.dtype):
    """Convert the result to `dtype` if that is a half precision."""
    if dtype.itemsize >= 4:
        return result
    return jax.tree.map(lambda array: array.astype(dtype), result)
