"""How good a representation is: the information about the latent that it has lost, and what it
contains in excess.

For tokens X with latent z, the posterior P(z|X) and a representation R(X)

    sufficiency gap   S(R) = E KL( P(z|X) ‖ P(z|R) )     nats; 0 exactly when R is sufficient
    excess content    M(R) = share of R's variance that the posterior does not determine

(docs/theory.md, "A(a) Representation"). Posterior statistics have S = M = 0; the sorted tokens of a
continuous world have S = 0 and M > 0; the first token has S > 0.

To estimate S, the exact posterior is compared with P̂(z|R), the best distribution in its family
that probes can predict from R (`law_probes`, `families`). The reading is the mean of
KL(P(z|X) ‖ P̂(z|R)) over held-out episodes, without noise from sampled latents (Rao–Blackwell).
Since

    E KL(P(z|X) ‖ P̂(z|R)) = S(R) + E KL(P(z|R) ‖ P̂(z|R)),

the reading is an *upper* bound of S, up to its standard error: a weak probe can only raise it, and
so can a P(z|R) that lies outside of the family. For classes, for a Gaussian R of a Gaussian world,
and if R is an invertible function of the posterior's parameter, the family contains P(z|R) and the
bound is attained.

A sampled posterior (`FromModel`) is replaced by the normal distribution with its mean and
covariance, on both sides. The gap is then what R has lost about this mean and covariance: 0 exactly
if R determines them. Their Monte Carlo error (k numbers, n effective draws) raises the gap by about
k/(2 n); it raises M, too.

M is measured with the best least-squares probe that predicts R from the posterior's statistics: it
is the share of variance that this probe leaves unexplained on held-out episodes (one minus the
coefficient of determination), averaged over R's standardised coordinates. Here too, a weak probe
can only raise M. M is undefined if R does not vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from attnlens.core import checks, statistics
from attnlens.core.drawing import Figure, Series
from attnlens.core.frames import Tabular
from attnlens.core.status import Status
from attnlens.worlds import ExactWorld, GaussianProcess, World
from attnlens.worlds.base import require_posterior
from attnlens.worlds.model import ReferenceWorld, over_episodes
from attnlens.worlds.sampled_posterior import UNUSABLE, ReferenceReading, judged

from .families import Family, GaussianFamily, divergence, from_moments, posterior_family
from .law_probes import fit_law
from .probes import PROBES, ProbeScaling, Splits, fit_numbers, split

LABELS = ("exact", "drawn")
EPISODES, SAMPLED_EPISODES = 4096, 256  # defaults for exact and for sampled posteriors
Encoder = Callable[[Any], Any]


@dataclass(frozen=True)
class ProbedReading(ReferenceReading):
    """A reading from the best of several probes; `probes` names the best one per regression."""

    probes: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class SufficiencyGap(ProbedReading):
    """A sufficiency gap in nats.

    of_nothing: the gap of a constant representation. If the family contains the prior, it is the
        mutual information between tokens and latent.
    """

    of_nothing: float = field(kw_only=True)

    @property
    def probe(self) -> str:
        """The name of the chosen probe."""
        return self.probes[0]


@dataclass(frozen=True)
class Representation(Tabular):
    """The readings about a representation.

    gap: the sufficiency gap S(R) in nats.
    excess: the excess content M(R), a share.
    squared_error: E‖E[z|X] − ẑ(R)‖², the excess squared error of the prediction ẑ(R) of the latent
        (for classes, of their probabilities) over that of the exact posterior mean.
    """

    gap: SufficiencyGap
    excess: ProbedReading
    squared_error: ProbedReading

    def __str__(self) -> str:
        rows = (
            ("sufficiency gap (nats)", self.gap),
            ("excess content (share)", self.excess),
            ("excess squared error", self.squared_error),
        )
        return "\n".join(f"{name:<24}{reading}" for name, reading in rows)

    def rows(self) -> list[dict[str, Any]]:
        """One row per reading."""
        readings = {"gap": self.gap, "excess": self.excess, "squared_error": self.squared_error}
        return [{"quantity": name, **reading.row()} for name, reading in readings.items()]

    def figure(self) -> Figure:
        """The three readings with 95 % intervals."""
        rows = {
            "sufficiency gap (nats)": self.gap,
            "excess content (share)": self.excess,
            "excess squared error": self.squared_error,
        }
        points = tuple(reading.point(place) for place, reading in enumerate(rows.values(), 1))
        title = "What a representation lacks, and what it contains in excess"
        series = (Series("measured", points),)
        return Figure(title, "", "measured", series, False, False, tuple(rows))

    def plot(self) -> Any:
        """Return the three readings as a matplotlib figure."""
        return self.figure().plot()


class EpisodeSamples(NamedTuple):
    """Arrays with one row per episode.

    encoded: the representation R.
    eta: the natural parameters η of the posterior.
    labels: t = E[T(z)|X] or T(z).
    hints: the numbers that trees learn to predict: t, and η if labels are exact.
    statistics: the posterior's statistics.
    outcome: of a sampled posterior, the outcome of its checks; otherwise 0.
    """

    encoded: np.ndarray
    eta: np.ndarray
    labels: np.ndarray
    hints: np.ndarray
    statistics: np.ndarray
    outcome: np.ndarray


def representation(
    encode: Encoder,
    world: World,
    *,
    length: int | Sequence[int] = 8,
    episodes: int | None = None,
    probes: Sequence[str] = PROBES,
    labels: str = "exact",
    seed: int = 0,
) -> Representation:
    """Sufficiency gap and excess content of `encode(tokens)`, in nats and as a share.

    world: a world with a posterior, in closed form or sampled (`FromModel`).
    encode: a function of one episode's tokens (an array (L, dim), or `Pairs`) that returns
        numbers, equally many for every length. A function that JAX cannot trace is called with
        NumPy arrays, one episode at a time.
    length: the number of tokens, or several numbers, among which episodes are divided equally.
    episodes: the number of episodes: 60 % for training the probes, 15 % for validation, 25 % for
        the readings. By default 4,096, or 256 if posteriors are sampled. If one of the sampled
        posteriors has failed its checks, the readings are NaN.
    labels: what probes are trained on: "exact" expectations under the posterior (less noise), or
        "drawn" latents; with these, only the final comparison uses the posterior.

    >>> from attnlens.worlds import NormalMean
    >>> result = representation(lambda tokens: tokens.mean(0), NormalMean(), episodes=400,
    ...     probes=("ridge",))
    >>> result.gap.value < 1e-6
    True
    """
    lengths = checks.lengths([length] if isinstance(length, int) else length)
    world = require_posterior("representation", world)
    if episodes is None:
        episodes = SAMPLED_EPISODES if isinstance(world, ReferenceWorld) else EPISODES
    # 15 % of the episodes are for validation: with fewer than 64, they would be fewer than ten.
    checks.whole("episodes", episodes, at_least=64)
    checks.one_of("labels", labels, LABELS)
    probes = [checks.one_of("each probe", probe, PROBES) for probe in probes]
    checks.seed_number("seed", seed)
    with jax.enable_x64(True):
        samples = draw(encode, world, lengths, episodes, labels, seed)
    if (samples.outcome >= UNUSABLE).any():
        return _refused(samples.outcome)
    family = posterior_family(world).family
    random = np.random.default_rng([seed, 1])
    rows = split(len(samples.eta), random)
    gap, squared_error = _gap(family, samples, rows, probes, random, labels == "exact")
    excess = unexplained_share(samples.statistics, samples.encoded, rows, probes, random)
    return Representation(
        judged(gap, samples.outcome),
        judged(excess, samples.outcome),
        judged(squared_error, samples.outcome),
    )


def _refused(outcome: np.ndarray) -> Representation:
    """Return NaN readings, for the case that a sampled posterior has failed its checks."""
    nothing = judged(ProbedReading(np.nan, np.nan, len(outcome)), outcome)
    gap = judged(SufficiencyGap.of(nothing, of_nothing=np.nan), outcome)
    return Representation(gap, nothing, nothing)


def _gap(
    family: Family,
    samples: EpisodeSamples,
    rows: Splits,
    probes: Sequence[str],
    random: np.random.Generator,
    exact: bool,
) -> tuple[SufficiencyGap, ProbedReading]:
    """Return (sufficiency gap, squared error), both on the test rows."""
    inputs, eta, labels, hints = samples[:4]
    law = fit_law(family, inputs, eta, labels, hints, rows, probes, random, exact)
    eta = eta[rows.test]
    constant = divergence(family, eta, np.broadcast_to(law.centre, eta.shape))
    gap = statistics.mean_reading(divergence(family, eta, law.eta))
    error = ((family.latent_mean(eta) - family.latent_mean(law.eta)) ** 2).sum(-1)
    squared = statistics.mean_reading(error)
    of_nothing = float(constant.mean())
    return (
        SufficiencyGap.of(gap, probes=(law.winner,), of_nothing=of_nothing),
        ProbedReading.of(squared, probes=(law.winner,)),
    )


def unexplained_share(
    inputs: np.ndarray,
    outputs: np.ndarray,
    rows: Splits,
    probes: Sequence[str],
    random: np.random.Generator,
) -> ProbedReading:
    """Return the share of the outputs' variance that the best probe from `inputs` leaves.

    The share is M = u/v, with u the squared residuals and v the squared deviations of the
    standardised outputs, both averaged over coordinates and test rows. The standard error of such a
    ratio is that of the mean of (u_i − M v_i)/v (Cochran, Sampling Techniques, 1977, section 2.11).
    """
    scale = ProbeScaling.of(outputs[rows.train])
    if not scale.varies.any():
        return ProbedReading(np.nan, np.nan, len(rows.test), Status.CONSTANT_REPRESENTATION)
    standard = scale(outputs)
    fitted = fit_numbers(inputs, standard, rows, probes, random)
    truth = standard[rows.test]
    residual = ((truth - fitted.predicted) ** 2).mean(-1)
    deviation = ((truth - truth.mean(0)) ** 2).mean(-1)
    share = residual.mean() / deviation.mean()
    mean = statistics.mean_reading((residual - share * deviation) / deviation.mean())
    return ProbedReading(float(share), mean.standard_error, mean.count, probes=fitted.winners)


# -- episodes --------------------------------------------------------------------------------


def draw(
    encode: Encoder,
    world: ExactWorld,
    lengths: Sequence[int],
    episodes: int,
    labels: str,
    seed: int,
) -> EpisodeSamples:
    """Draw new episodes of the world, ordered by length; call it with x64 enabled."""
    family, natural = posterior_family(world)
    if isinstance(world, ReferenceWorld):
        natural = world.representation_and_outcome
    if labels == "drawn" and isinstance(world, GaussianProcess):
        raise checks.BadInput(
            "labels='drawn' needs a latent with finitely many coordinates; got GaussianProcess; "
            "use labels='exact'."
        )
    parts = []
    for i, length in enumerate(lengths):
        count = episodes // len(lengths) + (i < episodes % len(lengths))
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), length), count)
        latent, tokens, eta, statistic = jax.tree.map(
            np.asarray, sample_episodes(world, natural, keys, length)
        )
        outcome = np.zeros(count, int)
        if isinstance(world, ReferenceWorld):
            assert isinstance(family, GaussianFamily)
            latent = _flat(latent)
            statistic, outcome = statistic[:, :-1], statistic[:, -1].astype(int)
            fine = outcome < UNUSABLE
            eta = np.full_like(statistic, np.nan)
            eta[fine] = from_moments(statistic[fine], family.dim)
        if labels == "drawn":
            targets = hints = family.statistic(latent)
        else:
            targets = family.expected(eta)
            hints = np.concatenate([targets, eta], axis=1)
        encoded = encode_episodes(encode, tokens)
        parts.append(EpisodeSamples(encoded, eta, targets, hints, statistic, outcome))
    sizes = {part.encoded.shape[1] for part in parts}
    if len(sizes) > 1:
        raise checks.BadInput(
            f"encode must return equally many numbers at every length; got {sorted(sizes)}."
        )
    return EpisodeSamples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@eqx.filter_jit
def sample_episodes(
    world: ExactWorld, natural: Callable[[Any], Array], keys: Key[Array, " episodes"], length: int
) -> tuple[Any, Any, Array, Array]:
    """Draw one episode per key: latents, tokens, natural parameters and statistics."""

    def one(key: Key[Array, ""]) -> tuple[Any, Any, Array, Array]:
        episode = world.sample(key, length)
        eta = natural(episode.tokens)
        if not isinstance(world, GaussianProcess):  # `natural` is the world's representation
            return episode.latent, episode.tokens, eta, eta
        later = jax.lax.optimization_barrier((episode.tokens, eta))[0]
        return episode.latent, episode.tokens, eta, world.representation(later)

    return over_episodes(world, one, keys)


def _flat(latent: Any) -> np.ndarray:
    """Concatenate all parts of latents (leading axis: episodes), one row per episode."""
    parts = [np.asarray(leaf, float) for leaf in jax.tree.leaves(latent)]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def encode_episodes(encode: Encoder, tokens: Any) -> np.ndarray:
    """Return R, one row per episode, for tokens with a leading axis of episodes."""
    rows = jax.tree.leaves(tokens)[0].shape[0]
    try:
        # A plain function may read variables that change between two calls, so it is traced each
        # time. A function that is a pytree (a method of a world or network) holds all that it
        # reads, so its compiled program is reused.
        plain = any(leaf is encode for leaf in jax.tree.leaves(encode))
        if plain:
            values = jax.jit(partial(_map_episodes, encode))(tokens)
        else:
            values = _compiled_map(encode, tokens)
    except (jax.errors.JAXTypeError, TypeError):  # `encode` does not consist of JAX operations
        episodes = (jax.tree.map(lambda leaf, i=i: leaf[i], tokens) for i in range(rows))
        values = [np.asarray(encode(episode), float) for episode in episodes]
    table = np.asarray(values, float).reshape(rows, -1)
    if not table.shape[1] or not np.isfinite(table).all():
        raise checks.BadInput(
            "encode must return at least one number, all of them finite; got "
            f"{'none' if not table.shape[1] else 'NaN or infinity'}."
        )
    return table


@eqx.filter_jit
def _compiled_map(encode: Encoder, tokens: Any) -> Array:
    """`_map_episodes`, compiled once per type of encoder and shape of tokens."""
    return _map_episodes(encode, tokens)


def _map_episodes(encode: Encoder, tokens: Any) -> Array:
    """Encode episodes in sequence: an encoder may call LAPACK, and these calls must not overlap."""
    return jax.lax.map(encode, tokens)
