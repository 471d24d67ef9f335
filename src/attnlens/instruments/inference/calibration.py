"""Calibration: does the truth look like one more draw from a posterior?

In an episode with latent z and tokens x, the exact posterior is the law of z given x, so z and M
draws from it are exchangeable. So the rank of z among the draws is uniform on 0 … M, if they are
ranked by any function of the latent and the tokens. Two such functions are used here:

    coordinates   each coordinate of the latent: simulation-based calibration (Talts et al.,
                  Validating Bayesian inference algorithms with simulation-based calibration, 2018)
    distance      the distance to a random point that depends on the tokens (Lemos et al., Sampling-
                  based accuracy testing of posterior estimators for general inference, 2023). It
                  detects errors that no single coordinate shows: wrong correlations, and a
                  posterior that ignores the tokens.

A posterior that is too narrow gives too many extreme ranks, one that is too wide too few. Coverage
is the share of episodes whose z lies in the central credible interval of a level, averaged over
coordinates. Uniformity is tested by Pearson's χ² over bins of equal size; Holm's correction is
applied to the p-values, of which the smallest is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from attnlens.core import arrays, checks, statistics
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Curve, Reading
from attnlens.worlds.base import World, require_posterior
from attnlens.worlds.model import TOGETHER, ReferenceWorld
from attnlens.worlds.sampled_posterior import UNUSABLE, ReferenceReading, judged
from attnlens.worlds.seeding import episode_keys

from .amortised import FRESH, AmortisedPosterior, simulated, split_tokens
from .latents import latent_vector
from .two_samples import c2st

LEVELS = tuple(level / 10 for level in range(1, 10))
BINS, PER_BIN = 10, 5  # bins of ranks; Pearson's test needs an expected count of five per bin
SIGNIFICANT = 0.05

# A function (tokens of one episode, number of draws, seed) -> draws (number, dim).
Sampler = Callable[[Any, int, int], Any]


@dataclass(frozen=True)
class Calibration(Tabular):
    """Ranks of the true latent among draws from a posterior, with p-value and coverage.

    `ranks` has one row per episode and one column per coordinate of the latent; `distance_ranks`
    has the rank by distance of each episode (see the module's docstring). All ranks are between 0
    and `draws`.

    >>> even = np.arange(100)  # one episode per rank
    >>> result = Calibration(even[:, None], even, draws=99, length=4)
    >>> result.calibrated, [round(reading.value, 6) for reading in result.coverage.readings[:3]]
    (True, [0.1, 0.2, 0.3])
    """

    ranks: np.ndarray
    distance_ranks: np.ndarray
    draws: int
    length: int

    @property
    def p_values(self) -> tuple[float, ...]:
        """Pearson's p-values for uniform ranks: one per coordinate, then that of the distance."""
        columns = [*self.ranks.T, self.distance_ranks]
        return tuple(uniform_p_value(column, self.draws) for column in columns)

    @property
    def p_value(self) -> float:
        """The smallest of `p_values`, corrected for their number: small if not calibrated."""
        return min(statistics.holm(self.p_values))

    @property
    def calibrated(self) -> bool:
        """Whether no miscalibration was found at level 5 %; a stronger test may still find one."""
        return self.p_value >= SIGNIFICANT

    @property
    def coverage(self) -> Curve:
        """The coverage of central credible intervals as a function of their level."""
        return Curve("level", "coverage", LEVELS, tuple(map(self._covered, LEVELS)))

    def __str__(self) -> str:
        verdict = "no miscalibration was found" if self.calibrated else "it is not calibrated"
        half, wide = self._covered(0.5), self._covered(0.9)
        return (
            f"{verdict} (p = {self.p_value:.2g}; {len(self.ranks)} episodes of {self.length} "
            f"tokens, {self.draws} draws each)\n"
            f"the 50 % interval contains the truth in {half.value:.0%}, the 90 % interval in "
            f"{wide.value:.0%}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per level: coverage with its interval."""
        return self.coverage.rows()

    def figure(self) -> Figure:
        """Coverage against level; for a calibrated posterior it lies on the diagonal."""
        curve = self.coverage
        points = [r.point(level) for level, r in zip(LEVELS, curve.readings, strict=True)]
        exact = Series("calibrated", (Point(0.0, 0.0), Point(1.0, 1.0)), line=True)
        series = (Series("coverage", tuple(points)), exact)
        title = "Coverage of credible intervals"
        return Figure(title, "level", "share of true latents inside", series, False, False)

    def plot(self) -> Any:
        """The figure, drawn by matplotlib."""
        return self.figure().plot()

    def _covered(self, level: float) -> Reading:
        """Return the coverage at `level`: of M + 1 ranks, level · (M + 1) are in the interval."""
        outside = round((1 - level) * (self.draws + 1) / 2)
        inside = (self.ranks >= outside) & (self.ranks <= self.draws - outside)
        return statistics.mean_reading(inside.mean(1))


def calibration(
    posterior: AmortisedPosterior | Sampler | None,
    world: World,
    *,
    length: int | None = None,
    episodes: int = 400,
    draws: int = 99,
    seed: int = 0,
) -> Calibration:
    """Ranks of the true latent among draws from a posterior, in new episodes of a world.

    posterior: an `AmortisedPosterior`; or None for the exact posterior of a world that has one; or
        a function of (tokens, number of draws, seed) that returns draws (number, dim), such as one
        that calls another package.
    length: the number of tokens; by default the length of the amortised posterior.
    draws: number of draws per episode; one less than a multiple of twenty.

    >>> from attnlens.worlds import NormalMean
    >>> calibration(None, NormalMean(), length=4, episodes=100).calibrated
    True
    """
    length = _length(posterior, length)
    checks.whole("episodes", episodes, at_least=BINS * PER_BIN)
    if (checks.whole("draws", draws, at_least=19) + 1) % 20:
        raise checks.BadInput(f"draws must be one less than a multiple of 20; got {draws}.")
    seed = checks.seed_number("seed", seed)
    with jax.enable_x64(True):
        latent, tokens = simulated(world, episodes, length, seed, FRESH)
        drawn, outcomes = _draws(posterior, world, tokens, draws, seed)
    if (outcomes >= UNUSABLE).any():
        refused = judged(ReferenceReading(np.nan, np.nan, episodes), outcomes)
        raise checks.BadInput(f"calibration needs draws in every episode; got {refused.reason}")
    return calibration_of(latent, drawn, tokens, seed)


def calibration_of(latent: Any, draws: Any, tokens: Any, seed: int = 0) -> Calibration:
    """Return the calibration of existing draws, such as those of another package.

    latent: the true latents (episodes, dim).
    draws: draws from the posterior (episodes, M, dim).
    tokens: an array (episodes, length, token_dim).

    >>> random = np.random.default_rng(0)
    >>> latent, draws = random.normal(size=(400, 1)), random.normal(size=(400, 99, 1))
    >>> calibration_of(latent, 0.3 * draws, np.zeros((400, 5, 1))).calibrated  # too narrow
    False
    """
    named_arrays = {"latent": latent, "draws": draws, "tokens": tokens}
    latent, draws, tokens = (arrays.finite_numbers(*item) for item in named_arrays.items())
    shapes = latent.shape, draws.shape, tokens.shape
    fit_together = (
        tuple(map(len, shapes)) == (2, 3, 3)
        and latent.shape == (draws.shape[0], draws.shape[2])
        and len(latent) == len(tokens)
        and min(map(min, shapes)) > 0
    )
    if not fit_together:
        raise checks.BadInput(
            f"latent, draws and tokens must have shapes (episodes, dim), (episodes, M, dim) and "
            f"(episodes, length, token_dim); got {shapes[0]}, {shapes[1]} and {shapes[2]}."
        )
    for name, array in (("latent", latent), ("draws", draws), ("tokens", tokens)):
        arrays.moderate(name, array)
    random = np.random.default_rng(checks.seed_number("seed", seed))
    scale = latent.std(0) + (latent.std(0) == 0)
    summary = tokens.mean(1)
    summary = (summary - summary.mean(0)) / (summary.std(0) + (summary.std(0) == 0))
    mixing = random.standard_normal((summary.shape[1], latent.shape[1]))
    mixing /= np.sqrt(summary.shape[1])
    points = latent.mean(0) + scale * (summary @ mixing)

    def distance(values: np.ndarray) -> np.ndarray:
        return np.sqrt((((values - points[:, None]) / scale) ** 2).sum(-1, keepdims=True))

    return Calibration(
        ranks(latent, draws, random),
        ranks(distance(latent[:, None])[:, 0], distance(draws), random)[:, 0],
        draws.shape[1],
        tokens.shape[1],
    )


def ranks(truth: np.ndarray, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return how many draws lie below the truth (episodes, dim); ties are broken at random."""
    below = (draws < truth[:, None]).sum(1)
    equal = (draws == truth[:, None]).sum(1)
    return below + random.integers(0, equal + 1)


def uniform_p_value(ranked: np.ndarray, draws: int) -> float:
    """Return Pearson's p-value for ranks that are uniform on 0 … `draws`, in equal bins."""
    from scipy.special import chdtrc

    counts = np.bincount(ranked * BINS // (draws + 1), minlength=BINS)
    expected = len(ranked) / BINS
    return float(chdtrc(BINS - 1, ((counts - expected) ** 2).sum() / expected))


def reference_c2st(
    posterior: AmortisedPosterior | Sampler | None,
    world: World,
    *,
    length: int | None = None,
    episodes: int = 8,
    draws: int = 1000,
    classifier: Any = None,
    seed: int = 0,
) -> Reading:
    """The mean over new episodes of C2ST between a posterior and the world's own: ½ is perfect.

    `posterior` is as in `calibration`; `classifier` as in `c2st`. The value is NaN if a reference
    posterior failed its checks.

    >>> from attnlens.worlds import NormalMean
    >>> broad = lambda tokens, count, seed: np.random.default_rng(seed).normal(size=(count, 1))
    >>> reference_c2st(broad, NormalMean(), length=8, episodes=4, draws=200).value > 0.6
    True
    """
    world = require_posterior("reference_c2st", world)
    length = _length(posterior, length)
    checks.whole("episodes", episodes, at_least=2)
    checks.whole("draws", draws, at_least=20)
    seed = checks.seed_number("seed", seed)
    with jax.enable_x64(True):
        _, tokens = simulated(world, episodes, length, seed, FRESH)
        ours, own_outcomes = _draws(posterior, world, tokens, draws, seed)
        theirs, outcomes = _draws(None, world, tokens, draws, seed + 1)
    outcomes = np.maximum(outcomes, own_outcomes)
    if (outcomes >= UNUSABLE).any():
        return judged(ReferenceReading(np.nan, np.nan, episodes), outcomes)
    pairs = zip(ours, theirs, strict=True)
    values = [c2st(*pair, classifier=classifier, seed=seed).value for pair in pairs]
    return judged(ReferenceReading.of(statistics.mean_reading(values)), outcomes)


def _length(posterior: Any, length: int | None) -> int:
    if length is not None:
        return checks.whole("length", length, at_least=1)
    if not isinstance(posterior, AmortisedPosterior):
        raise checks.BadInput("give length=…, the number of tokens in an episode.")
    return posterior.length


def _draws(
    posterior: Any, world: World, tokens: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws (episodes, count, dim) from a posterior, given token matrices; and the outcome
    of the checks of each episode, 0 for posteriors that are not sampled references."""
    fine = np.zeros(len(tokens), int)
    keys = jax.random.split(episode_keys((seed,), count)[0], len(tokens))
    if isinstance(posterior, AmortisedPosterior):
        return posterior.draws(tokens, keys, count), fine
    if posterior is None:
        world = require_posterior("calibration of a world's own posterior", world)
        drawn, outcomes = _reference(world, split_tokens(world, tokens), keys, count)
        return np.asarray(drawn), fine if outcomes is None else np.asarray(outcomes)
    episodes = (
        jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), split_tokens(world, tokens))
        for i in range(len(tokens))
    )
    seeds = np.random.default_rng(seed).integers(2**31, size=len(tokens))
    drawn = [posterior(x, count, int(s)) for x, s in zip(episodes, seeds, strict=True)]
    return np.stack([np.asarray(part, float).reshape(count, -1) for part in drawn]), fine


@eqx.filter_jit
def _reference(world: Any, tokens: Any, keys: Key[Array, " episodes"], count: int) -> Any:
    def one(episode: tuple[Any, Any]) -> tuple[Array, Array | None]:
        posterior = world.posterior(episode[0])
        drawn = jax.vmap(lambda key: latent_vector(world, posterior.sample(key)))(
            jax.random.split(episode[1], count)
        )
        return drawn, getattr(posterior, "outcome", None)

    together = min(TOGETHER, keys.shape[0]) if isinstance(world, ReferenceWorld) else None
    return jax.lax.map(one, (tokens, keys), batch_size=together)
