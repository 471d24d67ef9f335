"""What a network learns from n sequences of L tokens, compared with the exact predictor f*.

Excess risk is generalisation + approximation + optimisation error. With the trained network f̂,
the exact predictor f* and the conditional mean m of the label given the latent,

    gap       = test(f̂) − train(f̂), in expectation                  generalisation
    distance  = mean of (f̂ − f*)² on test sequences                 approximation, and the others
    risk      = distance + mean uncertainty = E (f̂ − m)²            excess over the predictor m
    excess    = train(f̂) − train(f*)                                optimisation

The plain difference test(f̂) − train(f̂) contains the noise of two samples of labels, which can make
it negative. A network g that was trained on *neither* sample has the same expected loss on both, so

    gap = [test(f̂) − test(g)] + [train(g) − train(f̂)]

has the same mean for every such g; g is a control variate, and the noise is smaller the closer g is
to f̂. One choice is g = f*. A better choice is the network of the next random seed, trained in the
same way on other sequences, because it makes errors similar to those of f̂. Gaps of different seeds
stay uncorrelated (with three seeds or more): given all data and the network of seed s + 1, the two
terms of g in the gap of seed s cancel in the mean.

The formula for risk is exact: f* is the conditional mean of m given X, so the cross term vanishes.
The decomposition is that of lens A (Zhang, Liu, Cai, Wang and Wang, 2022).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.core import checks, statistics
from attnlens.core.frames import Tabular
from attnlens.core.readings import Curve, Reading
from attnlens.core.status import Status
from attnlens.networks.layout import Layout
from attnlens.networks.reader import Reader
from attnlens.training.settings import Recipe
from attnlens.training.steps import TrainingStatus
from attnlens.training.trainer import Fitted, fit
from attnlens.worlds.base import World
from attnlens.worlds.seeding import episode_keys

from .episodes import Episodes, episodes

# Chosen in pilot runs with some hundred parameters; not tuned, and more steps were not tried.
# Cosine decay to zero removes the noise of small batches at the end.
TRAINING: dict[str, Any] = {
    "steps": 1500,
    "batch": 64,
    "learning_rate": 1e-2,
    "schedule": "cosine",
    "warmup": 50,
}
TRAIN, TEST = 1, 2  # folded into the random keys of training and of test sequences
FROM_MEANS = "mean gaps over seeds, because some single gaps are not positive"


class Learned(NamedTuple):
    """Mean losses per network, as arrays (seeds, sample sizes); NaN if training diverged.

    `other_train` and `other_test` are losses of the next seed's network on the same sequences.
    """

    train: np.ndarray
    test: np.ndarray
    other_train: np.ndarray
    other_test: np.ndarray
    exact_train: np.ndarray
    distance: np.ndarray
    uncertainty: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        return (self.test - self.other_test) + (self.other_train - self.train)

    @property
    def excess(self) -> np.ndarray:
        return self.train - self.exact_train

    @property
    def risk(self) -> np.ndarray:
        return self.distance + self.uncertainty


def draw(
    world: World,
    seeds: Sequence[int],
    count: int,
    length: int,
    part: int,
    label: str = "next",
    exact: bool = True,
) -> Episodes:
    """Draw `count` episodes per seed; `part` is `TRAIN` or `TEST`.

    Episodes of different parts or different lengths are independent.
    """
    keys = jax.vmap(partial(jax.random.split, num=count))(episode_keys(seeds, part, length))
    return episodes(world, keys, length, label, exact)


def learn(
    make: Any,
    train: Episodes,
    test: Episodes,
    seeds: Sequence[int],
    samples: Sequence[int],
    **training: Any,
) -> Learned:
    """Train one network per seed and sample size (`fit`); compare it with f* on the same data."""
    fitted = trained(make, train, seeds, samples, **training)
    return compare(fitted, train, test)


def trained(
    make: Any, train: Episodes, seeds: Sequence[int], samples: Sequence[int], **training: Any
) -> Fitted:
    """Train one network per seed and sample size, all in one compiled program.

    `training` overrides the settings in `TRAINING`.
    """
    settings = {**TRAINING, **training}
    if "warmup" not in training:
        settings["warmup"] = min(TRAINING["warmup"], settings["steps"] // 4)
    return fit(
        make,
        train.inputs,
        train.target,
        seeds=seeds,
        samples=samples,
        data_per_seed=True,
        block=len(seeds) * len(samples),
        **settings,
    )


def compare(fitted: Fitted, train: Episodes, test: Episodes) -> Learned:
    """Return the losses of networks and of f*, on each network's training and test sequences."""
    seeds = {member.seed for member in fitted.members}
    both = (train, test)
    if len(seeds) < 2:
        raise checks.BadInput(
            f"each network is compared with that of the next seed, so give at least two seeds; "
            f"got {len(seeds)}."
        )
    sizes = len(fitted.members) // len(seeds)
    rows = []
    for i, member in enumerate(fitted.members):
        own, other = i // sizes, (i + sizes) % len(fitted.members)  # the next seed, same size
        parts = [jax.tree.map(lambda leaf, j=own: np.asarray(leaf)[j], part) for part in both]
        own_losses, other_losses = (
            [_losses(fitted.recipe, fitted.vectors[which], part) for part in parts]
            for which in (i, other)
        )
        n = member.samples
        diverged = TrainingStatus.DIVERGED in (fitted.status[i], fitted.status[other])
        row = [
            own_losses[0].loss[:n].mean(),
            own_losses[1].loss.mean(),
            other_losses[0].loss[:n].mean(),
            other_losses[1].loss.mean(),
            own_losses[0].exact[:n].mean(),
            own_losses[1].distance.mean(),
            parts[1].uncertainty.mean(),
        ]
        rows.append([np.nan] * len(row) if diverged else row)
    columns = (np.array(column).reshape(len(seeds), -1) for column in zip(*rows, strict=True))
    return Learned(*columns)


class LearnedLosses(NamedTuple):
    """One entry per row: squared loss of f̂, squared distance of f̂ to f*, squared loss of f*."""

    loss: Any
    distance: Any
    exact: Any


@partial(jax.jit, static_argnames="recipe")
def _losses(recipe: Recipe, vector: Any, data: Episodes) -> LearnedLosses:
    inputs, target, exact = jax.tree.map(
        lambda leaf: leaf.astype(vector.dtype), (data.inputs, data.target, data.exact)
    )
    predicted = jax.vmap(Layout.of(recipe).restore(vector))(inputs)

    def squares(a: Any, b: Any) -> Any:
        return ((a - b) ** 2).mean(-1)

    return LearnedLosses(
        squares(predicted, target), squares(predicted, exact), squares(exact, target)
    )


@dataclasses.dataclass(frozen=True)
class Generalisation(Tabular):
    """The generalisation gap against the number of sequences, and against their length.

    length: the number of tokens per sequence in `over_samples`.
    sequences: the number of training sequences in `over_length`.
    """

    over_samples: Curve
    over_length: Curve
    length: int
    sequences: int

    @property
    def readings(self) -> tuple[Reading, ...]:
        return self.over_samples.readings + self.over_length.readings

    def __str__(self) -> str:
        return f"{self.over_samples}\n\n{self.over_length}\n\n{self.in_words()}"

    def in_words(self) -> str:
        """Return a sentence that says what the two slopes mean."""
        parts = []
        for curve, template in (
            (self.over_samples, "twice the sequences multiply the gap by {:.2f}"),
            (self.over_length, "twice the tokens multiply it by {:.2f}"),
        ):
            slope = curve.slope
            if slope is None or slope.status is not Status.OK:
                parts.append(f"no slope in {curve.axis}")
            else:
                low, high = (2.0**end for end in slope.interval())
                source = f"; from {FROM_MEANS}" if curve.slope_of_means else ""
                interval = f" ({low:.2f} to {high:.2f}{source})"
                parts.append(template.format(2.0**slope.value) + interval)
        return f"{parts[0][:1].upper()}{parts[0][1:]}; {parts[1]}."

    def rows(self) -> list[dict[str, Any]]:
        """The rows of both curves."""
        return [*self.over_samples.rows(), *self.over_length.rows()]

    def drawings(self) -> tuple[Curve, Curve]:
        return self.over_samples, self.over_length

    def plot(self) -> Any:
        """One matplotlib figure per curve: (over samples, over length)."""
        return self.over_samples.plot(), self.over_length.plot()


def generalisation(
    world: World,
    make: Any = None,
    *,
    samples: Sequence[int] = (64, 256, 1024),
    lengths: Sequence[int] = (8, 32, 128),
    seeds: int = 8,
    label: str = "next",
    test_sequences: int = 2048,
    training: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Generalisation:
    """The generalisation gap of a trained network over n and over L, with slopes.

        gap = E [test(f̂) − train(f̂)]

    f̂ is the trained network, n the number of training sequences, L the number of tokens in each.
    `world` is a world whose tokens are vectors, or pairs of keys and values that are vectors; its
    posterior is not needed. label="latent" needs a latent with finitely many coordinates.
    `make` is a function of a random key that returns a network whose input is `ReaderInputs`; by
    default a small `Reader`. n runs through `samples` at the first of `lengths`; L runs through
    `lengths` at the middle one of `samples`. `training` overrides the settings of `fit`. Every seed
    draws new data and initial parameters.

    >>> from attnlens.worlds import NormalMean
    >>> result = generalisation(NormalMean(), samples=(16, 64), lengths=(4, 8), seeds=2,
    ...                         training={"steps": 20})
    >>> result.over_samples.at
    (16, 64)
    """
    samples = tuple(checks.whole("each of samples", n, at_least=2) for n in samples)
    lengths = checks.lengths(lengths)
    if list(samples) != sorted(set(samples)) or not samples:
        raise checks.BadInput(
            f"samples must be increasing numbers, such as (64, 256); got {samples}."
        )
    checks.whole("seeds", seeds, at_least=2)
    checks.whole("test_sequences", test_sequences, at_least=2)
    middle = samples[len(samples) // 2]
    with jax.enable_x64(True):
        numbers = [checks.seed_number("seed", seed) * seeds + i for i in range(seeds)]
        make = make or reader_for(world, label)

        def gaps(length: int, counts: Sequence[int]) -> np.ndarray:
            train = draw(world, numbers, max(counts), length, TRAIN, label, exact=False)
            test = draw(world, numbers, test_sequences, length, TEST, label, exact=False)
            return learn(make, train, test, numbers, counts, **(training or {})).gap

        by_samples = gaps(lengths[0], samples)
        by_length = np.column_stack([gaps(length, (middle,)) for length in lengths])
    return Generalisation(
        gap_curve("sequences", samples, by_samples),
        gap_curve("tokens", lengths, by_length),
        length=lengths[0],
        sequences=middle,
    )


def reader_for(world: World, label: str = "next", **settings: Any) -> Any:
    """Return a function that makes a `Reader` for the world's tokens (2 heads, 16 hidden units)."""
    drawn = episodes(world, jax.random.split(jax.random.key(0), 1), 1, label, exact=False)
    key, value, query = drawn.inputs.key, drawn.inputs.value, drawn.inputs.query
    if key.ndim != 3:
        raise checks.BadInput(
            f"the default network reads keys that are vectors; those of {type(world).__name__} "
            f"have {key.ndim - 2} dimensions; give make=…, a network that reads its tokens."
        )
    sizes = {
        "key_dim": key.shape[-1],
        "value_dim": value.shape[-1],
        "query_dim": 0 if query is None else query.shape[-1],
        "outputs": drawn.target.shape[-1],
    }
    return partial(Reader, **{**sizes, "heads": 2, "hidden": 16, **settings})


def gap_curve(axis: str, at: Sequence[int], gaps: np.ndarray) -> Curve:
    """Return a curve of mean gaps over seeds.

    If all gaps are positive, its slope is the mean of the slopes of single seeds; otherwise it is
    the slope of the mean gaps (`Curve.slope_of_means`).
    """
    readings = tuple(statistics.mean_reading(column) for column in gaps.T)
    slope, of_means = None, not (gaps > 0).all()
    if len(at) > 1:
        slope = (
            _slope_of_means(at, gaps)
            if of_means
            else statistics.mean_reading(statistics.slopes(np.log(at), np.log(gaps)))
        )
    return Curve(
        axis, "generalisation gap", tuple(at), readings, slope, slope_of_means=bool(of_means)
    )


def _slope_of_means(at: Sequence[int], gaps: np.ndarray) -> Reading:
    """Return the slope of the log mean gap, with a jackknife standard error over seeds."""
    logs = statistics.log_of_mean(gaps)
    if np.isnan(logs).any():  # a mean gap is not positive, or a network diverged
        return Reading(np.nan, np.nan, len(gaps), Status.GAP_NOT_POSITIVE)
    return statistics.mean_reading(statistics.slopes(np.log(at), logs))
