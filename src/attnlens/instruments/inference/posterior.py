"""How the exact posterior concentrates as tokens arrive, in one episode.

After n tokens x₁ … x_n of an episode with latent z, for n = 0 … L,

    E[m | x₁ … x_n]  and  sd(m | x₁ … x_n),

where m is the quantity of interest: the conditional mean m(q, z) at one query q if tokens have
keys, otherwise the latent itself (class probabilities if it is one of finitely many classes). The
true value of m in the episode is reported, too. One compiled program serves all n: tokens after the
n-th are masked. If the posterior is sampled, every n has its own draws, and rows whose checks
failed are NaN. If infinitely many tokens determine z, the posterior converges to it (Doob, 1949).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import ndtri

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.status import ADVICE, Status
from attnlens.worlds.base import Episode, ExactWorld, World, require_posterior
from attnlens.worlds.model import over_episodes
from attnlens.worlds.sampled_posterior import OUTCOMES

from .latents import latent_moments, latent_vector

MAX_DRAWN = 4  # maximum number of components in one figure
# Half-width of the central 95 % of a normal distribution. The standard deviation of a posterior is
# exact, not estimated from replicates, so Student's t distribution does not apply. For posteriors
# that are not normal the band is an approximation.
NORMAL_QUANTILE = float(ndtri(0.975))


@dataclass(frozen=True)
class Tightening(Tabular):
    """Posterior mean and standard deviation after n tokens (row n), one column per component.

    The components are those of the quantity of interest; `truth` holds their true values. If the
    posterior is sampled, `statuses` has the status of each row, and a refused row is NaN.
    """

    quantity: str
    mean: np.ndarray
    standard_deviation: np.ndarray
    truth: np.ndarray
    statuses: tuple[Status, ...] = ()

    def __str__(self) -> str:
        rows = [f"{self.quantity}, after 0 and after {len(self.mean) - 1} tokens"]
        for i, truth in enumerate(self.truth):
            prior, last = (
                f"{self.mean[n, i]:.3g} ± {self.standard_deviation[n, i]:.2g}" for n in (0, -1)
            )
            rows.append(f"  {i + 1}: {prior} → {last}; true value {truth:.3g}")
        refused = [status for status in self.statuses if not status.has_number]
        if refused:
            worst = max(set(refused), key=refused.count)
            rows.append(
                f"{len(refused)} of {len(self.statuses)} posteriors failed a check; most often "
                f"{worst}; {ADVICE[worst]}."
            )
        return "\n".join(rows)

    def rows(self) -> list[dict[str, Any]]:
        """One row per number of tokens and component."""
        return [
            {
                "tokens": n,
                "component": i + 1,
                "mean": float(self.mean[n, i]),
                "standard_deviation": float(self.standard_deviation[n, i]),
                "truth": float(truth),
            }
            for n in range(len(self.mean))
            for i, truth in enumerate(self.truth)
        ]

    def figure(self) -> Figure:
        """Posterior mean with 95 % band of the first components; true values are dashed lines."""
        series, last = [], len(self.mean) - 1
        for i in range(min(MAX_DRAWN, len(self.truth))):
            name = "posterior" if len(self.truth) == 1 else f"component {i + 1}"
            rows = zip(self.mean[:, i], self.standard_deviation[:, i], strict=True)
            points = [
                Point(float(n), float(m), NORMAL_QUANTILE * float(s))
                for n, (m, s) in enumerate(rows)
            ]
            # With few tokens the variance of some posteriors is infinite, so no band is drawn.
            finite = tuple(p for p in points if np.isfinite(p.half_width))
            series.append(Series(name, finite, curve=True))
            line = tuple(Point(float(n), float(self.truth[i])) for n in (0, last))
            series.append(Series(f"{name}, true value", line, line=True, like=name))
        title = "The posterior as tokens arrive"
        return Figure(title, "tokens", self.quantity, tuple(series), log_x=False, log_y=False)

    def plot(self) -> Any:
        """The band as a matplotlib figure."""
        return self.figure().plot()


def tightening(world: World, *, length: int = 64, seed: int = 0) -> Tightening:
    """How the posterior of `world` concentrates in one episode of `length` tokens.

    world: a world with a posterior, in closed form or sampled (`FromModel`); a sampled posterior
        takes one run of NUTS per number of tokens.

    The result has `mean` and `standard_deviation`, both of shape (length + 1, components), whose
    row n is the posterior after n tokens, and `truth`, the true values, of shape (components,).

    >>> from attnlens.worlds import NormalMean
    >>> result = tightening(NormalMean(noise_std=0.5), length=4)
    >>> [round(float(s), 12) for s in result.standard_deviation[:, 0] ** -2.0]
    [1.0, 5.0, 9.0, 13.0, 17.0]
    """
    checks.whole("length", length, at_least=1)
    world = require_posterior("tightening", world)
    with jax.enable_x64(True):
        key = jax.random.key(checks.seed_number("seed", seed))
        path = _follow(world, key, length)
        mean, var, truth = (np.asarray(part, float) for part in path[:3])
    symbol = "m(q, z)" if _has_keys(world) else "latent"
    classes = not var.any()
    quantity = "probability of the class" if classes else f"{symbol}, posterior mean and 95 % band"
    statuses = () if path[3] is None else tuple(OUTCOMES[i] for i in np.asarray(path[3]))
    return Tightening(quantity, mean, np.sqrt(var), truth, statuses)


def _has_keys(world: ExactWorld) -> bool:
    shapes = eqx.filter_eval_shape(lambda key: world.sample(key, 1, 1), jax.random.key(0))
    return shapes.query is not None


@eqx.filter_jit
def _follow(
    world: ExactWorld, key: Key[Array, ""], length: int
) -> tuple[Float[Array, "times parts"], Float[Array, "times parts"], Float[Array, " parts"], Any]:
    episode = world.sample(key, length, 1)

    def after(count: Any) -> tuple[Array, Array, Any]:
        posterior = world.posterior(episode.tokens, jnp.arange(length) < count)
        return *_moments(world, posterior, episode), getattr(posterior, "outcome", None)

    mean, var, outcomes = over_episodes(world, after, jnp.arange(length + 1))
    truth = latent_vector(world, episode.latent) if episode.answer is None else episode.answer
    return mean, var, jnp.ravel(truth), outcomes


def _moments(world: ExactWorld, posterior: Any, episode: Episode) -> tuple[Array, Array]:
    """Return posterior mean and variance of the quantity of interest; variance 0 for classes."""
    if episode.query is not None:
        law = world.predictive(posterior, episode.query)
        return jnp.ravel(law.mean), jnp.ravel(law.var)
    mean, var = latent_moments(posterior)
    return mean, jnp.zeros_like(var) if hasattr(posterior, "probs") else var
