"""How good a representation is: what it has lost about the latent, and what it keeps besides.

For tokens X with latent z, the posterior P(z|X) and a representation R(X)

    sufficiency gap   S(R) = E KL( P(z|X) ‖ P(z|R) )     nats; 0 exactly when R is sufficient
    excess content    M(R) = share of R's variance that the posterior does not determine

(our formalisation of claim (a) of lens A). Posterior statistics have S = M = 0; the sorted tokens
of a continuous world S = 0 and M > 0; the first token S > 0.

S is estimated with the exact posterior on one side and, on the other, the best law that probes
can read off R, in the posterior's own family (`probes`, `families`). The reading is the mean over
held-out episodes of KL(P(z|X) ‖ P̂(z|R)), with no noise from drawn latents (Rao–Blackwell). Since

    E KL(P(z|X) ‖ P̂(z|R)) = S(R) + E KL(P(z|R) ‖ P̂(z|R)),

it is an *upper* bound of S, up to its standard error: a weak probe can only raise it, and so can
a P(z|R) that lies outside of the family. For classes, for a Gaussian R of a Gaussian world, and
wherever R is the posterior's parameter in disguise, the family holds P(z|R) and S is reached.

M is the residual share 1 − R², averaged over R's standardised coordinates, of the best
least-squares probe from the posterior's statistics to R, on held-out episodes. A weak probe can
only raise M too. It is undefined where R does not vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from attnlens import checks, statistics
from attnlens.records import Figure, Point, Reading, Series
from attnlens.worlds import ExactWorld, GaussianProcess

from .families import Family, described, divergence
from .probes import PROBES, Scaling, Splits, read_law, read_numbers, split

LABELS = ("exact", "drawn")
Encoder = Callable[[Any], Any]


@dataclass(frozen=True)
class Representation:
    """What was found about a representation.

    gap: S(R) in nats; its details name the probe that won, and the gap of no representation at
        all ("of nothing": the mutual information between tokens and latent, if the family holds
        the prior).
    excess: M(R); its details name the winning probes.
    squared_error: E‖E[z|X] − ẑ(R)‖², the squared error of predicting the latent from R above that
        of the exact posterior mean (for classes, of their probabilities).
    """

    gap: Reading
    excess: Reading
    squared_error: Reading

    def __str__(self) -> str:
        rows = (
            ("sufficiency gap (nats)", self.gap),
            ("excess content (share)", self.excess),
            ("excess squared error", self.squared_error),
        )
        return "\n".join(f"{name:<24}{reading}" for name, reading in rows)

    def figure(self) -> Figure:
        """What is missing and what is in excess, with 95 % intervals."""
        rows = {
            "sufficiency gap (nats)": self.gap,
            "excess content (share)": self.excess,
            "excess squared error": self.squared_error,
        }
        points = tuple(
            Point(float(place), reading.value, 1.96 * reading.standard_error)
            for place, reading in enumerate(rows.values(), 1)
        )
        title = "What a representation lacks, and what it holds too much"
        return Figure(title, "", "measured", (Series("found", points),), False, False, tuple(rows))

    def plot(self) -> Any:
        """The three numbers as a matplotlib figure."""
        return self.figure().plot()


class Episodes(NamedTuple):
    """One row an episode: representation R, natural parameters η of the posterior, labels
    t = E[T(z)|X] or T(z), hints for trees (t, and η where it may be seen), and the posterior's
    statistics."""

    encoded: np.ndarray
    eta: np.ndarray
    labels: np.ndarray
    hints: np.ndarray
    statistics: np.ndarray


def representation(
    encode: Encoder,
    world: ExactWorld,
    *,
    length: int | Sequence[int] = 8,
    episodes: int = 4096,
    probes: Sequence[str] = PROBES,
    labels: str = "exact",
    seed: int = 0,
) -> Representation:
    """Sufficiency gap and excess content of `encode(tokens)`, in nats and as a share.

    encode: a function of one episode's tokens (an array (L, dim), or `Pairs`) that returns
        numbers, equally many at every length. One that JAX cannot trace is called episode by
        episode with NumPy arrays.
    length: the number of tokens, or several; episodes are shared equally among them.
    episodes: how many are drawn: 60 % fit the probes, 15 % choose among them, 25 % are judged.
    labels: what probes learn from: "exact" expectations under the posterior (less noise), or
        latents as they were "drawn", so that nothing but the last comparison knows the posterior.

    >>> from attnlens.worlds import NormalMean
    >>> found = representation(lambda tokens: tokens.mean(0), NormalMean(), episodes=400,
    ...     probes=("ridge",))
    >>> found.gap.value < 1e-6
    True
    """
    lengths = checks.lengths([length] if isinstance(length, int) else length)
    # 25 % are judged and 15 % choose: below this neither has ten episodes.
    checks.whole("episodes", episodes, at_least=64)
    checks.one_of("labels", labels, LABELS)
    probes = [checks.one_of("each probe", probe, PROBES) for probe in probes]
    checks.whole("seed", seed)
    with jax.enable_x64(True):
        drawn = draw(encode, world, lengths, episodes, labels, seed)
    family = described(world).family
    draws = np.random.default_rng([seed, 1])
    rows = split(len(drawn.eta), draws)
    gap, squared_error = _gap(family, drawn, rows, probes, draws, labels == "exact")
    excess = share_left(drawn.statistics, drawn.encoded, rows, probes, draws)
    return Representation(gap, excess, squared_error)


def _gap(
    family: Family, drawn: Episodes, rows: Splits, probes: Sequence[str], draws: Any, exact: bool
) -> tuple[Reading, Reading]:
    read = read_law(
        family, drawn.encoded, drawn.eta, drawn.labels, drawn.hints, rows, probes, draws, exact
    )
    eta = drawn.eta[rows.judge]
    nothing = divergence(family, eta, np.broadcast_to(read.centre, eta.shape))
    details = {"probe": read.winner, "of nothing": float(nothing.mean())}
    gap = statistics.mean_reading(divergence(family, eta, read.eta))
    error = ((family.latent_mean(eta) - family.latent_mean(read.eta)) ** 2).sum(-1)
    return _with(gap, details), _with(statistics.mean_reading(error), {"probe": read.winner})


def share_left(
    inputs: np.ndarray, outputs: np.ndarray, rows: Splits, probes: Sequence[str], draws: Any
) -> Reading:
    """1 − R² of the best probe from inputs to outputs, the mean over standardised coordinates.

    It is u/v with u the squared residuals and v the squared deviations, averaged over coordinates;
    the standard error of such a ratio M is that of the mean of (u_i − M v_i)/v (Cochran, Sampling
    Techniques, 1977, section 2.11).
    """
    scale = Scaling.of(outputs[rows.fit])
    if not scale.varies.any():
        reason = "excess content is undefined, since the representation does not vary"
        return Reading(np.nan, np.nan, len(rows.judge), reason)
    standard = scale(outputs)
    read = read_numbers(inputs, standard, rows, probes, draws)
    judged = standard[rows.judge]
    residual = ((judged - read.predicted) ** 2).mean(-1)
    deviation = ((judged - judged.mean(0)) ** 2).mean(-1)
    share = residual.mean() / deviation.mean()
    mean = statistics.mean_reading((residual - share * deviation) / deviation.mean())
    return Reading(float(share), mean.standard_error, mean.count, details={"probes": read.winners})


def _with(reading: Reading, details: dict[str, Any]) -> Reading:
    return Reading(reading.value, reading.standard_error, reading.count, reading.status, details)


# -- episodes --------------------------------------------------------------------------------


def draw(
    encode: Encoder,
    world: ExactWorld,
    lengths: Sequence[int],
    episodes: int,
    labels: str,
    seed: int,
) -> Episodes:
    """Fresh episodes of the world, each length's in a row; call it under x64."""
    family, natural = described(world)
    if labels == "drawn" and isinstance(world, GaussianProcess):
        raise checks.BadInput(
            "labels='drawn' needs a latent with finitely many coordinates, but GaussianProcess "
            "came; use labels='exact'."
        )
    parts = []
    for i, length in enumerate(lengths):
        count = episodes // len(lengths) + (i < episodes % len(lengths))
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), length), count)
        latent, tokens, eta, statistic = jax.tree.map(
            np.asarray, sampled(world, natural, keys, length)
        )
        if labels == "drawn":
            known = hints = family.statistic(latent)
        else:
            known = family.expected(eta)
            hints = np.concatenate([known, eta], axis=1)
        parts.append(Episodes(encoded(encode, tokens), eta, known, hints, statistic))
    sizes = {part.encoded.shape[1] for part in parts}
    if len(sizes) > 1:
        raise checks.BadInput(
            f"encode must return equally many numbers at every length, but {sorted(sizes)} came."
        )
    return Episodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@eqx.filter_jit
def sampled(
    world: ExactWorld, natural: Callable[[Any], Array], keys: Key[Array, " episodes"], length: int
) -> tuple[Any, Any, Array, Array]:
    """Latents, tokens, natural parameters and statistics of fresh episodes, one a key."""

    def one(key: Key[Array, ""]) -> tuple[Any, Any, Array, Array]:
        episode = world.sample(key, length)
        eta = natural(episode.tokens)
        if not isinstance(world, GaussianProcess):  # then η is the representation
            return episode.latent, episode.tokens, eta, eta
        later = jax.lax.optimization_barrier((episode.tokens, eta))[0]
        return episode.latent, episode.tokens, eta, world.representation(later)

    # In sequence: LAPACK calls must not overlap where JAX runs many threads.
    return jax.lax.map(one, keys)


def encoded(encode: Encoder, tokens: Any) -> np.ndarray:
    """R, one row an episode, from tokens with a leading axis of episodes."""
    rows = jax.tree.leaves(tokens)[0].shape[0]
    try:
        # A plain function may read things that change between two calls: it is traced each time.
        # One whose parts are arrays (a world's or a network's method) carries all it reads.
        plain = any(leaf is encode for leaf in jax.tree.leaves(encode))
        found = jax.jit(partial(_each, encode))(tokens) if plain else _traced(encode, tokens)
    except (jax.errors.JAXTypeError, TypeError):  # not made of JAX operations
        episodes = (jax.tree.map(lambda leaf, i=i: leaf[i], tokens) for i in range(rows))
        found = [np.asarray(encode(episode), float) for episode in episodes]
    table = np.asarray(found, float).reshape(rows, -1)
    if not table.shape[1] or not np.isfinite(table).all():
        raise checks.BadInput(
            "encode must return at least one number, all of them finite, but "
            f"{'none' if not table.shape[1] else 'NaN or infinity'} came."
        )
    return table


@eqx.filter_jit
def _traced(encode: Encoder, tokens: Any) -> Array:
    """Compiled once for a kind of encoder and a shape, however often it is asked."""
    return _each(encode, tokens)


def _each(encode: Encoder, tokens: Any) -> Array:
    """Episode after episode: an encoder may call LAPACK, and such calls must not overlap."""
    return jax.lax.map(encode, tokens)
