"""Draws from a posterior, the checks that they must pass, and moments with Monte Carlo errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from attnlens.core.readings import Reading
from attnlens.core.status import Status

from . import nuts
from .diagnostics import DIVERGENT_LIMIT, EFFECTIVE_LIMIT, ENERGY_LIMIT, R_HAT_LIMIT
from .laws import lower_triangle
from .nuts import Nuts
from .second_opinion import GAP, PARTICLES_LIMIT, Opinion, effective_or_one

LONGEST = 20_000  # draws per chain; a model that needs more should be reparametrised


class Moments(NamedTuple):
    """Mean and variance of a distribution, elementwise; `error` is the Monte Carlo standard error
    of the mean."""

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]
    error: Float[Array, "*shape"]


@dataclass(frozen=True)
class ReferenceRisk(Reading):
    """A risk for which `failed` of `episodes` reference posteriors have failed their checks."""

    failed: int = field(kw_only=True)
    episodes: int = field(kw_only=True)


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
    def ok(self) -> Bool[Array, ""]:
        """Whether no check has failed; also true for `Status.UNCONFIRMED` (no second opinion)."""
        return (
            self._converged()
            & (self._divergent_share() <= DIVERGENT_LIMIT)
            & (self.energy >= ENERGY_LIMIT)
            & ~self.opinion.disagrees
        )

    @property
    def status(self) -> Status:
        """The first check that failed, as a status; not available in traced code."""
        if not bool(self._converged()) and bool(self.opinion.separate):
            return Status.SEPARATE_MODES
        if float(self._divergent_share()) > DIVERGENT_LIMIT:
            return Status.DIVERGENT
        if float(self.energy) < ENERGY_LIMIT:
            return Status.LOW_ENERGY
        if not bool(self._converged()):
            return Status.NOT_CONVERGED
        if bool(self.opinion.disagrees):
            return Status.DISAGREES
        return Status.OK if bool(self.opinion.available) else Status.UNCONFIRMED

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
        """The draws by name of site, even if a check has failed: to inspect, not for results."""
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
