"""Draws from a posterior, the checks that they must pass, and moments with Monte Carlo errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from attnlens.core.readings import Reading
from attnlens.core.status import ADVICE, Status

from . import nuts
from .diagnostics import DIVERGENT_LIMIT, EFFECTIVE_LIMIT, ENERGY_LIMIT, R_HAT_LIMIT
from .laws import lower_triangle
from .nuts import Nuts
from .second_opinion import GAP, PARTICLES_LIMIT, Opinion, effective_or_one

# The statuses of a posterior; with the first two it has numbers.
OUTCOMES = (
    Status.OK,
    Status.UNCONFIRMED,
    Status.SEPARATE_MODES,
    Status.DIVERGENT,
    Status.LOW_ENERGY,
    Status.NOT_CONVERGED,
    Status.DISAGREES,
)
UNUSABLE = 2  # outcomes from here on have no numbers
LONGEST = 20_000  # draws per chain; a model that needs more should be reparametrised


class Moments(NamedTuple):
    """Mean and variance of a distribution, elementwise; `error` is the Monte Carlo standard error
    of the mean."""

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]
    error: Float[Array, "*shape"]


@dataclass(frozen=True)
class ReferenceReading(Reading):
    """A reading that rests on sampled reference posteriors of `episodes` episodes.

    If `failed` of them failed a check, there is no number, and `cause` is the most frequent first
    failed check.
    """

    failed: int = field(default=0, kw_only=True)
    episodes: int = field(default=0, kw_only=True)
    cause: Status = field(default=Status.OK, kw_only=True)

    @property
    def details(self) -> Mapping[str, Any]:
        own = dict(super().details)
        if self.failed:
            return {**own, "advice": ADVICE[self.cause]}
        return {name: own[name] for name in own if name not in ("failed", "episodes", "cause")}


Judged = TypeVar("Judged", bound=ReferenceReading)


def judged(reading: Judged, outcomes: Int[np.ndarray, "..."]) -> Judged:
    """The reading, with the status of the reference posteriors behind it.

    outcomes: `SampledPosterior.outcome` of every episode.

    >>> divergent = OUTCOMES.index(Status.DIVERGENT)
    >>> print(judged(ReferenceReading(0.5, 0.1, 3), np.array([0, divergent, 0])).reason[:42])
    1 of 3 reference posteriors failed a check
    """
    outcomes = outcomes.ravel()
    failed = outcomes[outcomes >= UNUSABLE]
    if len(failed):
        cause = OUTCOMES[int(np.bincount(failed).argmax())]
        return dataclasses.replace(
            reading,
            value=np.nan,
            standard_error=np.nan,
            status=Status.SOME_NOT_CONVERGED,
            failed=len(failed),
            episodes=len(outcomes),
            cause=cause,
        )
    if outcomes.any() and reading.status is Status.OK:
        return dataclasses.replace(reading, status=Status.UNCONFIRMED)
    return reading


class SampledPosterior(eqx.Module):
    """The law of the latent as draws with convergence diagnostics, and the tokens behind it.

    `latent` has the structure of the latent, with leading axes (chains, draws); `sites` holds the
    same draws under NumPyro's names. If a check has failed, every number is NaN, including the
    draws; `refused_draws` holds the actual draws, from which the cause may be found.

    `divergences` is the number of divergent steps, `energy` the smallest E-BFMI of a chain, and
    `opinion` the comparison of the draws with particles that start from the prior.
    """

    unchecked_latent: Any
    unchecked_sites: Any
    tokens: Any
    mask: Any
    r_hat: Float[Array, " dim"]
    effective: Float[Array, " dim"]
    divergences: Int[Array, ""]
    energy: Float[Array, ""]
    opinion: Opinion
    nuts: Nuts

    @property
    def outcome(self) -> Int[Array, ""]:
        """The index of the status in `OUTCOMES`, also in traced code."""
        converged = self._converged()
        failures = jnp.stack(
            [
                ~converged & self.opinion.separate,
                ~(self._divergent_share() <= DIVERGENT_LIMIT),
                ~(self.energy >= ENERGY_LIMIT),
                ~converged,
                self.opinion.disagrees,
            ]
        )
        without = jnp.where(self.opinion.available, 0, 1)
        return jnp.where(jnp.any(failures), jnp.argmax(failures) + UNUSABLE, without)

    @property
    def ok(self) -> Bool[Array, ""]:
        """Whether no check has failed; also true for `Status.UNCONFIRMED` (no second opinion)."""
        return self.outcome < UNUSABLE

    @property
    def status(self) -> Status:
        """The first check that failed, as a status; not available in traced code."""
        return OUTCOMES[int(self.outcome)]

    @property
    def details(self) -> dict[str, Any]:
        """The numbers of every check, with their limits; not available in traced code."""
        shares = jnp.asarray(self.opinion.chain_shares)
        mean, spread, modes = (float(gap) for gap in self.opinion.gap)
        return {
            "r_hat": float(jnp.max(self.r_hat)),
            "r_hat_limit": R_HAT_LIMIT,
            "effective": float(jnp.min(self.effective)),
            "effective_limit": EFFECTIVE_LIMIT,
            "divergences": int(self.divergences),
            "draws": self._count(),
            "energy": float(self.energy),
            "energy_limit": ENERGY_LIMIT,
            "modes": int(self.opinion.modes),
            "low_share": float(jnp.min(shares[:, jnp.argmax(jnp.ptp(shares, 0))])),
            "high_share": float(jnp.max(shares[:, jnp.argmax(jnp.ptp(shares, 0))])),
            "mean_gap": mean,
            "spread_gap": spread,
            "mode_gap": modes,
            "gap_limit": GAP,
            "particles": float(self.opinion.effective),
            "particles_limit": PARTICLES_LIMIT,
            "target": self.nuts.target,
            "advice": self._longer(),
        }

    @property
    def reason(self) -> str:
        """The status in words, with the numbers of the check; not available in traced code."""
        return self.status.sentence(self.details)

    @property
    def latent(self) -> Any:
        """The draws, with leading axes (chains, draws); NaN where a check has failed."""
        return self._checked_tree(self.unchecked_latent)

    @property
    def sites(self) -> Any:
        """The draws by name of site; NaN where a check has failed."""
        return self._checked_tree(self.unchecked_sites)

    @property
    def refused_draws(self) -> Any:
        """The draws by name of site, even if a check has failed: for inspection only."""
        return self.unchecked_sites

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.checked(jnp.mean(self._points(), 0))

    @property
    def error(self) -> Float[Array, " dim"]:
        """The Monte Carlo standard error of the mean."""
        return self.checked(self.moments(nuts.flatten(self.unchecked_latent)).error)

    @property
    def var(self) -> Float[Array, " dim"]:
        return self.checked(self.moments(nuts.flatten(self.unchecked_latent)).var)

    @property
    def cov(self) -> Float[Array, "dim dim"]:
        centred = self._points() - jnp.mean(self._points(), 0)[None, :]
        return self.checked(centred.T @ centred / centred.shape[0])

    def sample(self, key: Key[Array, ""]) -> Any:
        """One of the draws, at random; NaN where a check has failed."""
        return jax.tree.map(lambda leaf: jax.random.choice(key, leaf), self.pooled())

    def natural(self) -> Float[Array, " size"]:
        """Mean and lower triangle of the covariance of the latent, flat.

        Outside exponential families no finite statistic is sufficient; these are the statistics
        of the normal distribution with the same mean and covariance.
        """
        return jnp.concatenate([self.mean, lower_triangle(self.cov)])

    def pooled(self) -> Any:
        """The draws of all chains along one axis; NaN where a check has failed."""
        return pooled(self.latent)

    def checked(self, value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """`value`, or NaN if a check failed."""
        return jnp.where(self.ok, value, jnp.nan)

    def moments(self, values: Float[Array, "chains draws *shape"]) -> Moments:
        """Moments of a function of the latent, from its values at the draws.

        They are numbers even if a check has failed. With n effective draws the mean has the
        variance var/n. The mean square of the draws around their own mean is too small by the
        factor (n − 1)/n, which is corrected.
        """
        flat = values.reshape(*values.shape[:2], -1)
        size = effective_or_one(flat)
        points = flat.reshape(-1, flat.shape[-1])
        var = jnp.var(points, 0) * size / jnp.maximum(size - 1, 1)
        parts = jnp.mean(points, 0), var, jnp.sqrt(var / size)
        return Moments(*(part.reshape(values.shape[2:]) for part in parts))

    def _points(self) -> Float[Array, "draws dim"]:
        flat = nuts.flatten(self.unchecked_latent)
        return flat.reshape(-1, flat.shape[-1])

    def _count(self) -> int:
        return self.nuts.chains * self.nuts.draws

    def _converged(self) -> Bool[Array, ""]:
        """Every coordinate has R-hat ≤ 1.05 and at least 400 effective draws."""
        return jnp.all(self.r_hat <= R_HAT_LIMIT) & jnp.all(self.effective >= EFFECTIVE_LIMIT)

    def _divergent_share(self) -> Float[Array, ""]:
        return self.divergences.astype(self.energy.dtype) / float(self._count())

    def _checked_tree(self, tree: Any) -> Any:
        def one(leaf: Array) -> Array:
            return self.checked(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

        return jax.tree.map(one, tree)

    def _longer(self) -> str:
        """Advice on settings with enough draws, estimated from the effective sample size so far."""
        effective = max(float(jnp.min(self.effective)), 1.0)
        required = 1.5 * EFFECTIVE_LIMIT / effective * self.nuts.draws
        draws = max(2 * self.nuts.draws, 100 * round(required / 100))
        if not draws <= LONGEST:
            return "reparametrise the model: chains long enough to pass would be very long"
        return f"run longer chains, Nuts(warmup={2 * self.nuts.warmup}, draws={draws})"


def pooled(tree: Any) -> Any:
    """Draws with leading axes (chains, draws), along one axis."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)
