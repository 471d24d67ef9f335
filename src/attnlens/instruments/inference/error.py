"""The error of attention as an inference method, over the number of tokens.

For an operator A and an episode (tokens, queries, latent z) the error of A is measured against one
of these targets

    answer     the conditional mean m(q, z) = E[v | k = q, z]
    smoothed   the limit of softmax attention at a fixed temperature, E[v κ]/E[κ] given z, where κ
               is the kernel of softmax
    posterior  the posterior mean of m(q, z) given the tokens

and averaged over queries. In a world whose tokens have no keys, the operator is called with one
query, the vector of zeros, and with the tokens as both keys and values; its target is the mean of a
token given the latent, or the posterior mean of this mean. If the posterior is sampled, the
variance of its Monte Carlo error is subtracted from squared distances to it. Their expectation is
then the squared distance to the exact mean, and the standard errors over episodes include the
remaining Monte Carlo noise.

The root mean square over episodes falls as a power of the length L; the slope on log–log axes is
that power, fitted by ordinary least squares. Its interval is the jackknife interval over episodes
(`statistics.log_of_mean`). The fit starts at the first length at which the exact posterior has
resolved half of the prior variance, and contains at least the two longest lengths (a rule that
depends only on the world, not on the operator). The predicted power is reported beside the slope:
−1/2 for the target "smoothed"; for "answer" the power of the exact posterior, which is optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens.core import checks, statistics
from attnlens.core.readings import Curve, Reading
from attnlens.core.status import Status
from attnlens.worlds.base import ExactWorld, World, require_posterior
from attnlens.worlds.model import Moments, ReferenceWorld, over_episodes
from attnlens.worlds.sampled_posterior import ReferenceReading, judged
from attnlens.worlds.seeding import episode_keys

TARGETS = ("answer", "smoothed", "posterior")
Operator = Callable[..., Any]


class Errors(NamedTuple):
    """The squared error and the exact posterior variance of each episode, means over queries."""

    squared: Float[Array, " episodes"]
    posterior_var: Float[Array, " episodes"]


def errors(
    operator: Operator,
    world: ExactWorld,
    keys: Key[Array, " episodes"],
    length: int,
    queries: int,
    target: str = "answer",
    smoothing: float | Float[Array, ""] = 1.0,
) -> Errors:
    """Return the squared errors of `operator` in new episodes of `world`, one episode per key.

    If the target is "smoothed", it is `smoothing` times the answer (`world.smoothing`).
    """
    return _measured(operator, world, keys, length, queries, target, smoothing)[0]


@eqx.filter_jit
def _measured(
    operator: Operator,
    world: ExactWorld,
    keys: Key[Array, " episodes"],
    length: int,
    queries: int,
    target: str,
    smoothing: float | Float[Array, ""],
) -> tuple[Errors, Any]:
    """Return the errors, and the outcome of the checks of sampled posteriors (otherwise None)."""

    def one(key: Key[Array, ""]) -> tuple[Errors, Any]:
        episode = world.sample(key, length, queries)
        posterior = world.posterior(episode.tokens)
        exact = world.predictive(posterior, episode.query)
        if episode.answer is None:
            tokens = episode.tokens
            estimate = operator(jnp.zeros((1, tokens.shape[1]), tokens.dtype), tokens, tokens)
            answer = world.token_mean(episode.latent)[None].astype(tokens.dtype)
            variance = world.uncertainty(posterior) / tokens.shape[1]
        else:
            estimate = operator(episode.query, episode.tokens.key, episode.tokens.value)
            answer, variance = episode.answer, jnp.mean(exact.var)
        mean = exact.mean.reshape(answer.shape)
        truth = {"answer": answer, "smoothed": smoothing * answer, "posterior": mean}[target]
        if jnp.shape(estimate) != truth.shape:  # a shape (queries,) would be broadcast silently
            raise checks.BadInput(
                f"the operator must return (queries, value_dim) = {truth.shape}; got "
                f"{jnp.shape(estimate)}; give every query its own row."
            )
        squared = jnp.mean((estimate - truth) ** 2)
        if target == "posterior" and isinstance(exact, Moments):
            squared = squared - jnp.mean(exact.error**2)
        return Errors(squared, variance), getattr(posterior, "outcome", None)

    return over_episodes(world, one, keys)


@dataclass(frozen=True)
class ErrorCurve(Curve):
    """Errors at each number of tokens; `exact` holds the errors of the exact posterior mean."""

    exact: tuple[float, ...] = field(kw_only=True)


def inference_error(
    operator: Operator,
    world: World,
    lengths: Sequence[int],
    *,
    target: str = "answer",
    temperature: float | None = None,
    episodes: int = 256,
    queries: int = 16,
    seed: int = 0,
) -> ErrorCurve:
    """Root-mean-square error of an attention operator over the number of tokens, with its rate.

        error(L) = √ E mean_q ‖A(q; k¹ … k^L, v¹ … v^L) − target(q)‖²  ∝  L^slope

    operator: any function of (query, key, value), as in `attnlens.attention`, such as the method
        `answers` of a trained `Reader`.
    world: a world with a posterior, in closed form or sampled (`FromModel`, with fewer `episodes`).
        The module's docstring says how tokens without keys are treated.
    lengths: the numbers of tokens L.
    target: "answer", "smoothed" or "posterior" (see the module's docstring).
    temperature: the temperature of the operator; only needed for the target "smoothed".
    episodes: number of independent episodes per length.
    queries: number of queries per episode.

    Returns a `Curve`, computed in float64. Softmax attention is the estimator of Nadaraya (1964)
    and Watson (1964), whose limit at a fixed temperature is the smoothed mean.

    >>> from attnlens.attention import softmax
    >>> from attnlens.worlds import LinearRegression
    >>> curve = inference_error(softmax, LinearRegression(), (16, 64), episodes=64)
    >>> [reading.count for reading in curve.readings]
    [64, 64]
    """
    lengths = checks.lengths(lengths)
    world = require_posterior("inference_error", world)
    checks.one_of("target", target, TARGETS)
    checks.whole("episodes", episodes, at_least=2)
    checks.whole("queries", queries, at_least=1)
    smoothing = _smoothing(world, temperature) if target == "smoothed" else 1.0

    sampled = isinstance(world, ReferenceWorld) and target == "posterior"
    readings, exact_var, squares = [], [], []
    with jax.enable_x64(True):
        first = checks.seed_number("seed", seed) * episodes
        for length in lengths:
            keys = episode_keys(range(first, first + episodes), length)
            measured, outcomes = _measured(
                operator, world, keys, length, queries, target, smoothing
            )
            squares.append(np.asarray(measured.squared))
            mean = statistics.mean_reading(squares[-1])
            # With a sampled posterior, the mean is a difference of estimates and may be negative.
            rmse = math.sqrt(mean.value) if not mean.value < 0 else 0.0
            exact_var.append(float(np.mean(measured.posterior_var)))
            # Delta method: d√x = dx / 2√x. A mean square of zero means that the operator equals
            # its target exactly in every episode.
            error = mean.standard_error / (2 * rmse) if rmse else 0.0
            status = Status.OK if math.isfinite(rmse) else Status.NOT_FINITE
            reading = ReferenceReading(rmse, error, episodes, status)
            readings.append(judged(reading, np.asarray(outcomes)) if sampled else reading)
        half = _prior_var(world, queries) / 2
    last = max(0, len(lengths) - 2)
    start = min(last, next((i for i, var in enumerate(exact_var) if var <= half), last))
    slope, predicted = None, None
    if len(lengths) > 1:
        slope = _slope(lengths[start:], np.stack(squares[start:], axis=1))
        if target == "smoothed":
            predicted = -0.5
        elif target == "answer":
            roots = 0.5 * np.log(exact_var[start:])
            predicted = float(statistics.slopes(np.log(lengths[start:]), roots[None])[0])
    return ErrorCurve(
        axis="length",
        quantity=f"root-mean-square error to the {target}",
        at=lengths,
        readings=tuple(readings),
        slope=slope,
        predicted=predicted,
        fitted_from=float(lengths[start]),
        exact=tuple(map(math.sqrt, exact_var)),
    )


def _slope(lengths: Sequence[int], squared: Float[np.ndarray, "episodes lengths"]) -> Reading:
    """Return the slope of the log root mean square, with its standard error over episodes.

    The slope is linear in the logarithms, so the slopes of their jackknife pseudo-values are the
    pseudo-values of the slope.
    """
    if not np.isfinite(squared).all():
        return Reading(math.nan, math.nan, len(squared), Status.NOT_FINITE)
    logs = 0.5 * statistics.log_of_mean(squared)
    if np.isnan(logs).any():
        return Reading(math.nan, math.nan, len(squared), Status.ZERO_ERROR)
    return statistics.mean_reading(statistics.slopes(np.log(lengths), logs))


def _prior_var(world: ExactWorld, queries: int) -> float:
    """Return the prior variance of m(q, z), averaged over queries."""
    episode = world.sample(jax.random.key(0), 1, queries)
    size = 1 if episode.query is not None else episode.tokens.shape[1]
    return float(world.uncertainty(world.prior(), episode.query)) / size


def _smoothing(world: ExactWorld, temperature: float | None) -> float:
    known = getattr(world, "smoothing", None)
    if known is None:
        raise checks.BadInput(
            f"target 'smoothed' needs a world with a known smoothed mean, such as "
            f"LinearRegression; got {type(world).__name__}; use target='answer'."
        )
    if temperature is None:
        raise checks.BadInput(
            "target 'smoothed' needs temperature=…, the temperature of the operator."
        )
    return known(temperature)
