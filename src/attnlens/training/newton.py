"""Second-order descent to a point where the gradient vanishes.

With objective L(w) and gradient g, a step solves (Levenberg, 1944; Marquardt, 1963)

    (B + μ I) p = −g

and is accepted if L decreases by at least a small share of the decrease that the quadratic model
gᵀp + ½ pᵀBp predicts. The shift μ falls where the model predicts well, and rises where it does not
or where B + μ I is not positive definite. Far from a stationary point B is the generalised
Gauss–Newton matrix Jᵀ ℓ'' J/n + 2 λ₂ I (Schraudolph, 2002), which is cheap and positive
semidefinite; close to it B is the Hessian, for quadratic convergence. Reparametrisations make
Hessians singular; a shift that falls with the gradient keeps the convergence fast all the same (Li,
Fukushima, Qi and Yamashita, 2004).

Near the end L changes by less than its own rounding error; there a step is accepted if it lowers
‖g‖. To reach saddles as well, ½‖g(w)‖² is minimised instead, by optimistix's Levenberg–Marquardt
with the Hessian as Jacobian: every stationary point is a minimum of that.

Up to `DENSE` parameters, matrices are formed and factorised. Beyond, only products with B + μ I are
computed, inside lineax's conjugate gradients (Newton–CG; Nocedal and Wright, 2006, section 7.1).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import lineax
import optimistix
from jaxtyping import Array, Bool, Float, Int, UInt

from attnlens.networks.layout import Layout
from attnlens.networks.losses import Loss, named

from .data import Data
from .settings import Recipe

DENSE = 3000  # parameters; a float64 Hessian of this size has 72 MB (the limit is not tuned)
COLUMNS = 64  # Hessian columns computed together
CLOSE = 1e-4  # gradient norm from which the Hessian replaces the Gauss–Newton matrix
PATIENCE = 1000  # steps after which it does so at any gradient norm
BEYOND = 1e-3  # share of the tolerance to aim for: with quadratic convergence one more step
INNER = 250  # limit of conjugate-gradient steps for one Newton step


class Problem(NamedTuple):
    """What is searched and how, apart from the data."""

    recipe: Recipe
    loss: str | Loss
    tolerance: float
    max_steps: int
    saddles: bool
    dense: bool


class SearchResult(NamedTuple):
    """Where a search ended, one entry per start.

    Eigenvalues are those of the Hessian; NaN where it is not formed.
    """

    vector: Float[Array, "*starts size"]
    loss: Float[Array, "*starts"]
    gradient_norm: Float[Array, "*starts"]
    eigenvalues: Float[Array, "*starts size"]
    steps: Int[Array, "*starts"]
    test_loss: Float[Array, "*starts"]
    shared: Float[Array, "*starts rest"]
    units: Float[Array, "*starts hidden unit"]


class DescentState(NamedTuple):
    """The state of a descent between two steps."""

    vector: Float[Array, " size"]
    value: Float[Array, ""]
    gradient: Float[Array, " size"]
    matrix: Float[Array, "rows size"]  # no rows where the matrix is not formed
    shift: Float[Array, ""]
    steps: Int[Array, ""]
    exact: Bool[Array, ""]


@partial(jax.jit, static_argnames="problem")
def search(
    problem: Problem,
    seeds: UInt[Array, " starts"] | None,
    vectors: Float[Array, "starts size"] | None,
    data: Data,
    test: Data | None,
    l2: Float[Array, ""],
) -> SearchResult:
    """From every start to a stationary point, one start after the other.

    Data are arguments: closed over, they would be folded into the program as constants.
    """
    layout = Layout.of(problem.recipe)

    def one(start: Array) -> SearchResult:
        vector = (
            start if vectors is not None else layout.flatten(problem.recipe(jax.random.key(start)))
        )
        return _one(problem, layout, vector, data, test, l2)

    # In sequence: no start waits for a slower one, and LAPACK calls never run at the same time.
    return jax.lax.map(one, seeds if vectors is None else vectors)


def objective(
    problem: Problem, vector: Float[Array, " size"], data: Data, l2: Float[Array, ""] | float
) -> Float[Array, ""]:
    """Mean loss plus λ₂‖w‖²."""
    layout, loss = Layout.of(problem.recipe), named(problem.loss)
    errors = jax.vmap(loss)(jax.vmap(layout.restore(vector))(data.inputs), data.targets)
    return jnp.mean(errors) + l2 * jnp.sum(vector[layout.gates :] ** 2)


def hessian(problem: Problem, vector: Array, data: Data, l2: Any) -> Float[Array, "size size"]:
    """The Hessian of the objective, a few columns at a time."""
    product = _hessian_product(problem, vector, data, l2)
    basis = jnp.eye(vector.size, dtype=vector.dtype)
    matrix = jax.lax.map(product, basis, batch_size=min(COLUMNS, vector.size))
    return 0.5 * (matrix + matrix.T)


@partial(jax.jit, static_argnames="problem")
def hessian_times(
    problem: Problem, vector: Array, direction: Array, data: Data, l2: Float[Array, ""]
) -> Float[Array, " size"]:
    """The Hessian of the objective times a direction."""
    return _hessian_product(problem, vector, data, l2)(direction)


def _hessian_product(problem, vector, data, l2):
    slope = jax.grad(lambda w: objective(problem, w, data, l2))
    return lambda direction: jax.jvp(slope, (vector,), (direction,))[1]


def _penalty(layout: Layout, l2: Any, dtype: Any) -> Float[Array, " size"]:
    return 2 * l2 * (jnp.arange(layout.size) >= layout.gates).astype(dtype)


def _gauss_newton(problem, layout, vector, data, l2):
    """Jᵀ ℓ'' J/n + 2 λ₂ I, formed sample by sample."""
    loss = named(problem.loss)

    def one(inputs, target):
        outputs = lambda w: jnp.ravel(layout.restore(w)(inputs))  # noqa: E731
        here = layout.restore(vector)(inputs)
        curvature = jax.hessian(lambda flat: loss(flat.reshape(here.shape), target))(
            jnp.ravel(here)
        )
        return jax.jacrev(outputs)(vector), curvature

    jacobian, curvature = jax.vmap(one)(data.inputs, data.targets)
    count = jacobian.shape[0]
    weighted = jnp.einsum("nab,nbp->nap", curvature, jacobian).reshape(-1, vector.size)
    matrix = jacobian.reshape(-1, vector.size).T @ weighted / count
    return matrix + jnp.diag(_penalty(layout, l2, vector.dtype))


def _gauss_newton_product(problem, layout, vector, data, l2):
    loss = named(problem.loss)

    def outputs(w):
        return jax.vmap(layout.restore(w))(data.inputs)

    def total(predicted):
        return jnp.mean(jax.vmap(loss)(predicted, data.targets))

    here = outputs(vector)

    def product(direction):
        tangent = jax.jvp(outputs, (vector,), (direction,))[1]
        curved = jax.jvp(jax.grad(total), (here,), (tangent,))[1]
        return jax.vjp(outputs, vector)[1](curved)[0] + _penalty(layout, l2, here.dtype) * direction

    return product


def _one(problem, layout, vector, data, test, l2) -> SearchResult:
    value_and_slope = jax.value_and_grad(lambda w: objective(problem, w, data, l2))
    if problem.saddles:
        vector, steps = _minimise_gradient(problem, vector, data, l2)
    else:
        vector, steps = _descend(problem, layout, vector, data, l2, value_and_slope)
    value, gradient = value_and_slope(vector)
    eigenvalues = jnp.full_like(vector, jnp.nan)
    if problem.dense:
        # A descent that went to infinity has no finite matrix to decompose.
        matrix = hessian(problem, vector, data, l2)
        finite = jnp.all(jnp.isfinite(matrix))
        eigenvalues = jnp.linalg.eigvalsh(jnp.where(finite, matrix, 0))
        eigenvalues = jnp.where(finite, eigenvalues, jnp.nan)
    test_loss = jnp.full_like(value, jnp.nan)
    if test is not None:
        test_loss = objective(problem, vector, test, 0.0)
    model = layout.restore(vector)
    empty = vector[:0]
    shared, units = model.units() if hasattr(model, "units") else (vector, empty.reshape(0, 0))
    norm = jnp.linalg.norm(gradient)
    return SearchResult(vector, value, norm, eigenvalues, steps, test_loss, shared, units)


def _minimise_gradient(problem, vector, data, l2):
    """Minimise the gradient norm, which leads to saddles as well as to minima."""
    slope = jax.grad(lambda w, args: objective(problem, w, *args))
    small = problem.tolerance * BEYOND
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solution = optimistix.least_squares(
            slope,
            optimistix.LevenbergMarquardt(rtol=small, atol=small, norm=optimistix.max_norm),
            vector,
            args=(data, l2),
            max_steps=problem.max_steps,
            throw=False,
        )
    return solution.value, jnp.asarray(solution.stats["num_steps"], jnp.int32)


def _descend(problem, layout, vector, data, l2, value_and_slope):
    goal = problem.tolerance * BEYOND

    def formed(at: Array, exact: Array) -> Array:
        if not problem.dense:
            return at[None][:0]
        return jax.lax.cond(
            exact,
            lambda w: hessian(problem, w, data, l2),
            lambda w: _gauss_newton(problem, layout, w, data, l2),
            at,
        )

    def products(now: DescentState):
        if problem.dense:
            return lambda direction: now.matrix @ direction
        newton = _hessian_product(problem, now.vector, data, l2)
        gauss = _gauss_newton_product(problem, layout, now.vector, data, l2)
        return lambda direction: jax.lax.cond(now.exact, newton, gauss, direction)

    def solve(now: DescentState, product) -> Array:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            tag = lineax.positive_semidefinite_tag
            if problem.dense:
                shifted = now.matrix + now.shift * jnp.eye(layout.size, dtype=vector.dtype)
                operator = lineax.MatrixLinearOperator(shifted, tag)
                solver: Any = lineax.Cholesky()
            else:
                operator = lineax.FunctionLinearOperator(
                    lambda p: product(p) + now.shift * p,
                    jax.eval_shape(lambda: now.gradient),
                    tag,
                )
                # Relative tolerance min(0.1, ‖g‖): loose far away, an absolute ‖g‖² near the end.
                within = jnp.minimum(0.1, jnp.linalg.norm(now.gradient))
                solver = lineax.CG(rtol=within, atol=0.0, max_steps=INNER)  # pyright: ignore
            return lineax.linear_solve(operator, -now.gradient, solver, throw=False).value

    def step(now: DescentState) -> DescentState:
        product = products(now)
        move = solve(now, product)
        model = now.gradient @ move + 0.5 * move @ product(move)
        value, gradient = value_and_slope(now.vector + move)
        gain = (value - now.value) / model
        smaller_gradient = jnp.linalg.norm(gradient) < jnp.linalg.norm(now.gradient)
        # Below this the difference of two values of L is rounding error.
        below_rounding = jnp.abs(model) < 1e3 * jnp.finfo(vector.dtype).eps * jnp.abs(now.value)
        good = (model < 0) & jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        good &= jnp.where(below_rounding, smaller_gradient, gain > 1e-4)
        factor = jnp.where(
            good,
            jnp.where(below_rounding | (gain > 0.75), 0.2, jnp.where(gain < 0.25, 3.0, 1.0)),
            5.0,
        ).astype(vector.dtype)
        steps = now.steps + 1
        exact = now.exact | (jnp.linalg.norm(gradient) < CLOSE) & good | (steps >= PATIENCE)
        at = jnp.where(good, now.vector + move, now.vector)
        renew = good | (exact != now.exact)
        return DescentState(
            at,
            jnp.where(good, value, now.value),
            jnp.where(good, gradient, now.gradient),
            jax.lax.cond(renew, formed, lambda at, exact: now.matrix, at, exact),
            jnp.maximum(now.shift * factor, 1e-13),
            steps,
            exact,
        )

    def unfinished(now: DescentState) -> Array:
        failed = (now.shift > 1e15) | ~jnp.isfinite(now.value)
        return (jnp.linalg.norm(now.gradient) > goal) & (now.steps < problem.max_steps) & ~failed

    value, gradient = value_and_slope(vector)
    exact = jnp.zeros((), bool)
    begin = DescentState(
        vector,
        value,
        gradient,
        formed(vector, exact),
        jnp.asarray(1e-2, vector.dtype),
        jnp.zeros((), jnp.int32),
        exact,
    )
    end = jax.lax.while_loop(unfinished, step, begin)
    return end.vector, end.steps
