"""Second-order descent to a point where the gradient vanishes.

With objective L(w) and gradient g, a step solves (Levenberg, 1944; Marquardt, 1963)

    (B + μ I) p = −g

and is accepted if L decreases by at least a small share of the decrease that the quadratic model
gᵀp + ½ pᵀBp predicts. The shift μ falls where the model predicts well, and rises where it does not
or where B + μ I is not positive definite. Far from a stationary point B is the generalised
Gauss–Newton matrix Jᵀ ℓ'' J/n + 2 λ₂ I (Schraudolph, 2002), which is cheap and positive
semidefinite; close to it B is the Hessian, for fast convergence. A Hessian costs as much as many
Gauss–Newton matrices, so it is written as Jᵀ ℓ'' J/n + 2 λ₂ I + S. The Gauss–Newton part is
computed at every point; S is reused from an earlier point, and computed again only after the model
has predicted the gradient badly (Dennis, Gay and Welsch, 1981, update S by secants).
Reparametrisations make Hessians singular; a shift that falls with the gradient keeps the
convergence fast nevertheless (Li, Fukushima, Qi and Yamashita, 2004).

Near the end L changes by less than its own rounding error; there a step is accepted if it lowers
‖g‖. To reach saddles as well, ½‖g(w)‖² is minimised instead, by optimistix's Levenberg–Marquardt
with the Hessian as Jacobian: every stationary point is a minimum of ½‖g(w)‖².

Up to `DENSE` parameters, matrices are formed and factorised. With more parameters, only products
with B + μ I are computed, inside lineax's conjugate gradients (Newton–CG; Nocedal and Wright, 2006,
section 7.1).
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
from attnlens.networks.losses import Loss

from .data import Data
from .objective import Objective
from .settings import Recipe

DENSE = 3000  # number of parameters, for which a float64 Hessian has 72 MB; not tuned
# Gradient norm below which the Hessian is used. For a network with 60 parameters, a Hessian costs
# as much as 15 Gauss–Newton steps. With a limit of 1e−5 instead of 1e−4, 16 starts formed 5 instead
# of 20 Hessians, took 183 instead of 124 steps, and ended at the same points.
CLOSE = 1e-5
POOR = 0.1  # relative error of a predicted gradient above which the Hessian is formed again
PATIENCE = 1000  # number of steps after which the Hessian is used at any gradient norm
BEYOND = 1e-3  # the search goes on to this share of the tolerance: about one quadratic step more
INNER = 250  # maximum number of conjugate-gradient steps for one Newton step


class Problem(NamedTuple):
    """The settings of a search for stationary points, without the data."""

    recipe: Recipe
    loss: str | Loss
    tolerance: float
    max_steps: int
    saddles: bool
    dense: bool

    def objective(self, data: Data, l2: Any) -> Objective:
        """Return the objective for `data` and the penalty λ₂ = `l2`."""
        return Objective(self.recipe, self.loss, data, l2)


class SearchResult(NamedTuple):
    """Where a search ended, one entry per start.

    `eigenvalues` are those of the Hessian, or NaN if it is not formed. `shared` and `units` are
    what the network's `units()` returns (see `symmetries`).
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
    gauss: Float[Array, "rows size"]  # the Gauss–Newton matrix; no rows if it is not formed
    rest: Float[Array, "rows size"]  # S: Hessian − Gauss–Newton matrix, as last computed
    shift: Float[Array, ""]
    steps: Int[Array, ""]
    exact: Bool[Array, ""]  # whether B is the Hessian, gauss + rest, and not only gauss
    outdated: Bool[Array, ""]  # whether `rest` was computed at an earlier point


@partial(jax.jit, static_argnames="problem")
def search(
    problem: Problem,
    seeds: UInt[Array, " starts"] | None,
    vectors: Float[Array, "starts size"] | None,
    data: Data,
    test: Data | None,
    l2: Float[Array, ""],
) -> SearchResult:
    """Search for a stationary point from every start, one start after the other.

    A start is a row of `vectors`, or drawn from one of `seeds`. Data are arguments of this
    function, because in a closure they would become constants of the compiled program.
    """
    layout = Layout.of(problem.recipe)

    def one(start: Array) -> SearchResult:
        vector = (
            start if vectors is not None else layout.flatten(problem.recipe(jax.random.key(start)))
        )
        return _one(problem, layout, vector, data, test, l2)

    # In sequence: no start waits for a slower one, and LAPACK calls never run at the same time.
    return jax.lax.map(one, seeds if vectors is None else vectors)


@partial(jax.jit, static_argnames="problem")
def hessian_times(
    problem: Problem, vector: Array, direction: Array, data: Data, l2: Float[Array, ""]
) -> Float[Array, " size"]:
    """The Hessian of the objective times a direction."""
    return problem.objective(data, l2).hessian_product(vector)(direction)


def _one(problem, layout, vector, data, test, l2) -> SearchResult:
    objective = problem.objective(data, l2)
    if problem.saddles:
        vector, steps = _minimise_gradient(problem, objective, vector)
        value, gradient = objective.value_and_slope(vector)
    else:
        end = _descend(problem, objective, vector)
        vector, steps, value, gradient = end.vector, end.steps, end.value, end.gradient
    eigenvalues = jnp.full_like(vector, jnp.nan)
    if problem.dense:
        # After a descent that went to infinity, the Hessian is not finite and has no eigenvalues.
        matrix = objective.hessian(vector)
        finite = jnp.all(jnp.isfinite(matrix))
        eigenvalues = jnp.linalg.eigvalsh(jnp.where(finite, matrix, 0))
        eigenvalues = jnp.where(finite, eigenvalues, jnp.nan)
    test_loss = jnp.full_like(value, jnp.nan)
    if test is not None:
        test_loss = problem.objective(test, 0.0).value(vector)
    model = layout.restore(vector)
    empty = vector[:0]
    shared, units = model.units() if hasattr(model, "units") else (vector, empty.reshape(0, 0))
    norm = jnp.linalg.norm(gradient)
    return SearchResult(vector, value, norm, eigenvalues, steps, test_loss, shared, units)


def _minimise_gradient(problem, objective, vector):
    """Minimise the gradient norm, which leads to saddles as well as to minima."""
    small = problem.tolerance * BEYOND
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solution = optimistix.least_squares(
            lambda w, args: objective._replace(data=args[0], l2=args[1]).slope(w),
            optimistix.LevenbergMarquardt(rtol=small, atol=small, norm=optimistix.max_norm),
            vector,
            args=(objective.data, objective.l2),
            max_steps=problem.max_steps,
            throw=False,
        )
    return solution.value, jnp.asarray(solution.stats["num_steps"], jnp.int32)


def _descend(problem, objective, vector) -> DescentState:
    goal = problem.tolerance * BEYOND
    none = jnp.zeros((0, vector.size), vector.dtype)

    def evaluated(at: Array) -> tuple[Array, Array, Array]:
        if problem.dense:
            return objective.with_gauss_newton(at)
        return (*objective.value_and_slope(at), none)

    def product(now: DescentState):
        if problem.dense:
            return lambda direction: (now.gauss + now.rest) @ direction
        newton = objective.hessian_product(now.vector)
        gauss = objective.gauss_newton_product(now.vector)
        return lambda direction: jax.lax.cond(now.exact, newton, gauss, direction)

    def solve(now: DescentState, times) -> Array:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            tag = lineax.positive_semidefinite_tag
            if problem.dense:
                shifted = now.gauss + now.rest + now.shift * jnp.eye(vector.size)
                operator = lineax.MatrixLinearOperator(shifted, tag)
                solver: Any = lineax.Cholesky()
            else:
                operator = lineax.FunctionLinearOperator(
                    lambda p: times(p) + now.shift * p,
                    jax.eval_shape(lambda: now.gradient),
                    tag,
                )
                # Relative tolerance min(0.1, ‖g‖): loose far from a stationary point; near one, the
                # residual is at most ‖g‖².
                within = jnp.minimum(0.1, jnp.linalg.norm(now.gradient))
                solver = lineax.CG(rtol=within, atol=0.0, max_steps=INNER)  # pyright: ignore (lineax also takes arrays)
            return lineax.linear_solve(operator, -now.gradient, solver, throw=False).value

    def step(now: DescentState) -> DescentState:
        times = product(now)
        move = solve(now, times)
        modelled = times(move)
        model = now.gradient @ move + 0.5 * move @ modelled
        value, gradient, gauss = evaluated(now.vector + move)
        gain = (value - now.value) / model
        before, after = jnp.linalg.norm(now.gradient), jnp.linalg.norm(gradient)
        # If L is expected to change by less than this, its change is dominated by rounding errors.
        below_rounding = jnp.abs(model) < 1e3 * jnp.finfo(vector.dtype).eps * jnp.abs(now.value)
        good = (model < 0) & jnp.isfinite(value) & jnp.isfinite(after)
        good &= jnp.where(below_rounding, after < before, gain > 1e-4)
        steps = now.steps + 1
        exact = now.exact | (after < CLOSE) & good | (steps >= PATIENCE)
        wrong = jnp.linalg.norm(gradient - now.gradient - modelled) > POOR * before
        outdated = now.exact & jnp.where(good, wrong, now.outdated)
        renew = exact & (outdated | ~now.exact) & ~(good & (after <= goal))
        factor = jnp.where(
            good,
            jnp.where(below_rounding | (gain > 0.75), 0.2, jnp.where(gain < 0.25, 3.0, 1.0)),
            jnp.where(now.exact & now.outdated, 1.0, 5.0),
        ).astype(vector.dtype)
        at = jnp.where(good, now.vector + move, now.vector)
        gauss = jnp.where(good, gauss, now.gauss)
        rest = now.rest
        if problem.dense:
            rest = jax.lax.cond(
                renew, lambda w, b: objective.hessian(w) - b, lambda w, b: now.rest, at, gauss
            )
        return DescentState(
            at,
            jnp.where(good, value, now.value),
            jnp.where(good, gradient, now.gradient),
            gauss,
            rest,
            jnp.maximum(now.shift * factor, 1e-13),
            steps,
            exact,
            ~renew & (good | now.outdated),
        )

    def unfinished(now: DescentState) -> Array:
        failed = (now.shift > 1e15) | ~jnp.isfinite(now.value)
        return (jnp.linalg.norm(now.gradient) > goal) & (now.steps < problem.max_steps) & ~failed

    value, gradient, gauss = evaluated(vector)
    begin = DescentState(
        vector,
        value,
        gradient,
        gauss,
        jnp.zeros_like(gauss),
        jnp.asarray(1e-2, vector.dtype),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), bool),
        jnp.zeros((), bool),
    )
    return jax.lax.while_loop(unfinished, step, begin)
