"""Particles from the prior, carried to a posterior by tempering: sequential Monte Carlo.

    π_β(u) ∝ p(u) p(tokens | u)^β,   0 = β₀ < β₁ < … = 1

The N particles start as draws from the prior. Each stage takes the largest β for which the weights
p(tokens | u)^(β − β_old) keep half of the effective sample size, resamples, and moves all particles
by Metropolis steps that leave π_β unchanged (Del Moral, Doucet and Jasra, Sequential Monte Carlo
samplers, 2006). Where the prior is close to the posterior, β = 1 is reached at once: this is
self-normalised importance sampling from the prior.

The two halves of the particles move in turn. A particle u of one half moves by a difference of two
particles a and b of the other half, u' = u + γ (a − b). Such a step is symmetric and needs no
factorisation (ter Braak, A Markov chain Monte Carlo version of differential evolution, 2006). With
γ = 1 particles can change from one mode to another.

The error of a mean over particles is computed from their ancestors among the N draws from the prior
(Lee and Whiteley, Variance estimation in the particle filter, 2018):

    Var f̄ ≈ N⁻² Σ_k ( Σ_{i descends from k} (f_i − f̄) )²
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key

PARTICLES = 1024
KEPT = 0.5  # share of the effective sample size that a stage keeps
STAGES = 60  # upper limit; 1,000 nats between prior and posterior take about 20 stages
JUMPS = 0.2  # share of steps with γ = 1
BISECTIONS = 40

# Functions that return (log prior, log likelihood) at a point in unconstrained coordinates.
Densities = Callable[[Float[Array, " dim"]], tuple[Float[Array, ""], Float[Array, ""]]]


class Particles(NamedTuple):
    """Draws from the posterior in unconstrained coordinates, with the ancestor of each.

    `beta` is below 1 if `STAGES` stages were not enough to reach the posterior.
    """

    points: Float[Array, "particles dim"]
    ancestor: Int[Array, " particles"]
    beta: Float[Array, ""]


class _State(NamedTuple):
    points: Float[Array, "particles dim"]
    prior: Float[Array, " particles"]
    likelihood: Float[Array, " particles"]
    ancestor: Int[Array, " particles"]
    beta: Float[Array, ""]
    stage: Int[Array, ""]


def temper(
    densities: Densities, start: Float[Array, "particles dim"], key: Key[Array, ""]
) -> Particles:
    """Draws from the posterior; `start` holds draws from the prior."""
    count, dim = start.shape
    prior, likelihood = jax.vmap(densities)(start)
    usable = jnp.isfinite(prior) & jnp.all(jnp.isfinite(start), 1)
    start = jnp.where(usable[:, None], start, 0)
    prior, likelihood = jnp.where(usable, prior, 0), jnp.where(usable, likelihood, -jnp.inf)
    zero = jnp.zeros((), start.dtype)
    state = _State(
        start, prior, _finite(likelihood), jnp.arange(count), zero, jnp.zeros((), jnp.int32)
    )

    def unfinished(state: _State) -> Array:
        return (state.beta < 1) & (state.stage < STAGES)

    def stage(state: _State) -> _State:
        for_resampling, for_moves = jax.random.split(jax.random.fold_in(key, state.stage))
        beta = _next_beta(state)
        weights = jax.nn.softmax((beta - state.beta) * state.likelihood)
        chosen = systematic(weights, for_resampling)
        points, prior, likelihood, ancestor = (part[chosen] for part in state[:4])
        moved = state._replace(
            points=points, prior=prior, likelihood=likelihood, ancestor=ancestor, beta=beta
        )
        # More coordinates need more steps; the last stage gets twice as many.
        steps = jnp.where(beta < 1, 1, 2) * (5 + 2 * dim)

        def step(i: Array, state: _State) -> _State:  # moves one half for even i, the other for odd
            return _move(densities, state, jax.random.fold_in(for_moves, i), i % 2)

        moved = jax.lax.fori_loop(0, 2 * steps, step, moved)
        return moved._replace(stage=state.stage + 1)

    last = jax.lax.while_loop(unfinished, stage, state)
    return Particles(last.points, last.ancestor, last.beta)


def systematic(weights: Float[Array, " particles"], key: Key[Array, ""]) -> Int[Array, " drawn"]:
    """Indices drawn with these probabilities, by systematic resampling."""
    count = weights.shape[0]
    places = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), places), count - 1)


def standard_error(
    values: Float[Array, "particles parts"], ancestor: Int[Array, " particles"]
) -> Float[Array, " parts"]:
    """The standard error of the mean of `values`, from the ancestors (see the module docstring)."""
    centred = values - jnp.mean(values, 0)[None]
    sums = jax.ops.segment_sum(centred, ancestor, num_segments=values.shape[0])
    return jnp.sqrt(jnp.sum(sums**2, 0)) / values.shape[0]


def _next_beta(state: _State) -> Float[Array, ""]:
    """The largest β up to 1 that keeps the share `KEPT` of the effective sample size."""
    count = state.points.shape[0]

    def enough(beta: Array) -> Array:
        logs = (beta - state.beta) * state.likelihood
        return 2 * logsumexp(logs) - logsumexp(2 * logs) >= jnp.log(KEPT * count)

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        inside = enough(middle)
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

    one = jnp.ones_like(state.beta)
    _, high = jax.lax.fori_loop(0, BISECTIONS, halve, (state.beta, one))
    # Return `high`, not `low`: β must grow even if the smallest step loses more than allowed.
    return jnp.where(enough(one), one, high)


def _move(densities: Densities, state: _State, key: Key[Array, ""], half: Array) -> _State:
    """One Metropolis step of every second particle, by differences of the other particles."""
    count, dim = state.points.shape[0] // 2, state.points.shape[1]
    own = 2 * jnp.arange(count) + half
    others = state.points[2 * jnp.arange(count) + 1 - half]
    # One call for all random numbers, because each call adds much code to the compiled program.
    first, second, for_size, for_kind, for_test = jax.random.uniform(
        key, (5, count), state.points.dtype
    )
    # 2.38/√(2d) is the best size for a normal posterior; smaller ones, down to a tenth, serve
    # curved posteriors.
    small = 2.38 / (2 * dim) ** 0.5 * 0.1**for_size
    size = jnp.where(for_kind < JUMPS, 1.0, small)
    difference = others[_index(first, count)] - others[_index(second, count)]
    proposed = state.points[own] + size[:, None] * difference
    prior, likelihood = jax.vmap(densities)(proposed)
    likelihood = _finite(likelihood)
    gain = prior - state.prior[own] + state.beta * (likelihood - state.likelihood[own])
    accepted = jnp.log(for_test) < gain

    def merged(old: Array, new: Array) -> Array:
        keep = accepted.reshape(-1, *(1,) * (new.ndim - 1))
        return old.at[own].set(jnp.where(keep, new, old[own]))

    return state._replace(
        points=merged(state.points, proposed),
        prior=merged(state.prior, prior),
        likelihood=merged(state.likelihood, likelihood),
    )


def _index(uniform: Float[Array, "..."], count: int) -> Int[Array, "..."]:
    """Random indices below `count`, from uniform random numbers below 1."""
    return jnp.minimum((uniform * count).astype(jnp.int32), count - 1)


def _finite(logs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Replace NaN and −∞ by −1e30, so that differences and products stay finite."""
    return jnp.maximum(jnp.where(jnp.isnan(logs), -jnp.inf, logs), -1e30)
