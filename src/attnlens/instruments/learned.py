"""What a network learns from n sequences of L tokens, beside the exact predictor f*.

Excess risk is generalisation + approximation + optimisation error. With the trained network f̂,
the exact predictor f* and the conditional mean m of the label given the latent,

    gap       = test(f̂) − train(f̂), in expectation                  generalisation
    distance  = mean of (f̂ − f*)² on test sequences                 approximation (+ the rest)
    risk      = distance + mean uncertainty = E (f̂ − m)²            above that of knowing z
    excess    = train(f̂) − train(f*)                                optimisation

The raw difference test(f̂) − train(f̂) carries the noise of two samples of labels, which can turn it
negative. A network g that saw *neither* sample has the same risk on both in expectation, so

    gap = [test(f̂) − test(g)] + [train(g) − train(f̂)]

has the same mean whatever g is, and less noise the closer g is to f̂. f* would do; the network of
the next seed, trained in the same way on other sequences, does better, for it also has what f̂ has
and f* has not. Gaps of different seeds stay uncorrelated (from three seeds on): given everything of
seed s + 1, the terms of g in the gap of seed s still cancel in the mean.

risk is exact in its second term: f* is the conditional mean of m given X, so the cross term
vanishes. The decomposition is that of lens A (Zhang, Liu, Cai, Wang and Wang, 2022).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens import checks, statistics
from attnlens.networks.ensemble import Fitted, fit
from attnlens.networks.parameters import Layout
from attnlens.networks.reader import Reader
from attnlens.networks.settings import Recipe
from attnlens.records import Curve, Reading
from attnlens.worlds.base import ExactWorld

from .episodes import Episodes, episodes
from .inference import episode_keys

# From pilots with some hundred parameters; not a tuned optimum, and more steps were not tried.
# Cosine decay to zero ends the noise of small batches.
TRAINING: dict[str, Any] = {
    "steps": 1500, "batch": 64, "learning_rate": 1e-2, "schedule": "cosine", "warmup": 50,
}  # fmt: skip
TRAIN, TEST = 1, 2  # labels of the random keys
MEANS = "mean gaps over seeds, for some single ones are not positive"


class Learned(NamedTuple):
    """Mean losses a member, (seeds, samples) each; NaN where training diverged. `other` is the
    next seed's network on the same sequences."""

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
    world: ExactWorld,
    seeds: Sequence[int],
    count: int,
    length: int,
    part: int,
    label: str = "next",
    exact: bool = True,
) -> Episodes:
    """`count` episodes for every seed; training and test episodes, and lengths, are independent."""
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
    """Train one network a seed and sample size (`fit`), and compare it with f* on the same data."""
    fitted = trained(make, train, seeds, samples, **training)
    return compare(fitted, train, test)


def trained(
    make: Any, train: Episodes, seeds: Sequence[int], samples: Sequence[int], **training: Any
) -> Fitted:
    """One network a seed and sample size, all in one program; `training` overrides `TRAINING`."""
    settings = {**TRAINING, **training}
    if "warmup" not in training:
        settings["warmup"] = min(TRAINING["warmup"], settings["steps"] // 4)
    return fit(
        make, train.inputs, train.target, seeds=seeds, samples=samples, data_per_seed=True,
        block=len(seeds) * len(samples), **settings,
    )  # fmt: skip


def compare(fitted: Fitted, train: Episodes, test: Episodes) -> Learned:
    """Trained networks beside f*, on the sequences that each was trained on and on others."""
    seeds = {member.seed for member in fitted.members}
    both = (train, test)
    if len(seeds) < 2:
        raise checks.BadInput(
            "a network is compared with the next seed's: give at least two seeds."
        )
    sizes = len(fitted.members) // len(seeds)
    rows = []
    for i, member in enumerate(fitted.members):
        own, other = i // sizes, (i + sizes) % len(fitted.members)  # the next seed, same size
        parts = [jax.tree.map(lambda leaf, j=own: np.asarray(leaf)[j], part) for part in both]
        mine, others = (
            [_losses(fitted.recipe, fitted.vectors[which], part) for part in parts]
            for which in (i, other)
        )
        n, lost = member.samples, "diverged" in (fitted.status[i], fitted.status[other])
        row = [
            mine[0].loss[:n].mean(), mine[1].loss.mean(),
            others[0].loss[:n].mean(), others[1].loss.mean(),
            mine[0].exact[:n].mean(), mine[1].distance.mean(), parts[1].uncertainty.mean(),
        ]  # fmt: skip
        rows.append([np.nan] * len(row) if lost else row)
    columns = (np.array(column).reshape(len(seeds), -1) for column in zip(*rows, strict=True))
    return Learned(*columns)


class Losses(NamedTuple):
    """Row by row: squared loss of f̂, squared distance of f̂ to f*, squared loss of f*."""

    loss: Any
    distance: Any
    exact: Any


@partial(jax.jit, static_argnames="recipe")
def _losses(recipe: Recipe, vector: Any, data: Episodes) -> Losses:
    inputs, target, exact = jax.tree.map(
        lambda leaf: leaf.astype(vector.dtype), (data.inputs, data.target, data.exact)
    )
    predicted = jax.vmap(Layout.of(recipe).restore(vector))(inputs)

    def squares(a: Any, b: Any) -> Any:
        return ((a - b) ** 2).mean(-1)

    return Losses(squares(predicted, target), squares(predicted, exact), squares(exact, target))


@dataclasses.dataclass(frozen=True)
class Generalisation:
    """The generalisation gap over the number of sequences, and over their length."""

    over_samples: Curve
    over_length: Curve

    @property
    def readings(self) -> tuple[Reading, ...]:
        return self.over_samples.readings + self.over_length.readings

    def __str__(self) -> str:
        return f"{self.over_samples}\n\n{self.over_length}\n\n{self.in_words()}"

    def in_words(self) -> str:
        """What the two slopes mean."""
        said = []
        for curve, fact in (
            (self.over_samples, "twice the sequences multiply the gap by {:.2f}"),
            (self.over_length, "twice the tokens multiply it by {:.2f}"),
        ):
            slope = curve.slope
            if slope is None or slope.status != "ok":
                said.append(f"no slope in {curve.axis}")
            else:
                low, high = (2.0**end for end in statistics.t_interval(slope))
                of = f"; from {slope.details['of']}" if "of" in slope.details else ""
                said.append(fact.format(2.0**slope.value) + f" ({low:.2f} to {high:.2f}{of})")
        return f"{said[0][:1].upper()}{said[0][1:]}; {said[1]}."

    def plot(self) -> Any:
        """Both curves as one matplotlib figure each: (over samples, over length)."""
        return self.over_samples.plot(), self.over_length.plot()


def generalisation(
    world: ExactWorld,
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
    """The generalisation gap of a trained network over n and L, varied separately, with slopes.

        gap = E [test(f̂) − train(f̂)]

    `make` is a function of a random key that returns a network whose input is `Asked`; a small
    `Reader` by default. n varies at the first of `lengths`, L at the middle one of `samples`.
    `training` overrides the settings of `fit`. Each seed redraws data and start.

    >>> from attnlens.worlds import NormalMean
    >>> found = generalisation(NormalMean(), samples=(16, 64), lengths=(4, 8), seeds=2,
    ...                        training={"steps": 20})
    >>> found.over_samples.at
    (16, 64)
    """
    samples = tuple(checks.whole("each of samples", n, at_least=2) for n in samples)
    lengths = checks.lengths(lengths)
    if list(samples) != sorted(set(samples)) or not samples:
        raise checks.BadInput(
            f"samples must be increasing numbers, such as (64, 256), but {samples} came."
        )
    checks.whole("seeds", seeds, at_least=2)
    checks.whole("test_sequences", test_sequences, at_least=2)
    middle = samples[len(samples) // 2]
    with jax.enable_x64(True):
        numbers = [checks.whole("seed", seed) * seeds + i for i in range(seeds)]
        make = make or reader_for(world, label)

        def gaps(length: int, counts: Sequence[int]) -> np.ndarray:
            train = draw(world, numbers, max(counts), length, TRAIN, label, exact=False)
            test = draw(world, numbers, test_sequences, length, TEST, label, exact=False)
            return learn(make, train, test, numbers, counts, **(training or {})).gap

        by_samples = gaps(lengths[0], samples)
        by_length = np.column_stack([gaps(length, (middle,)) for length in lengths])
    return Generalisation(
        _curve("sequences", samples, by_samples, {"length": lengths[0]}),
        _curve("tokens", lengths, by_length, {"sequences": middle}),
    )


def reader_for(world: ExactWorld, label: str = "next", **settings: Any) -> Any:
    """A recipe for a `Reader` that fits the world's tokens: two heads, sixteen hidden units."""
    drawn = episodes(world, jax.random.split(jax.random.key(0), 1), 1, label, exact=False)
    key, value, query = drawn.inputs.key, drawn.inputs.value, drawn.inputs.query
    sizes = {
        "key_dim": key.shape[-1], "value_dim": value.shape[-1],
        "query_dim": 0 if query is None else query.shape[-1], "outputs": drawn.target.shape[-1],
    }  # fmt: skip
    return partial(Reader, **{**sizes, "heads": 2, "hidden": 16, **settings})


def _curve(axis: str, at: Sequence[int], gaps: np.ndarray, details: Mapping[str, Any]) -> Curve:
    """A curve of mean gaps; its slope is the mean of the seeds' own slopes where all gaps are
    positive, and that of the means otherwise (its details say so)."""
    readings = tuple(statistics.mean_reading(column) for column in gaps.T)
    slope = None
    if len(at) > 1:
        if (gaps > 0).all():
            slope = statistics.mean_reading(statistics.slopes(np.log(at), np.log(gaps)))
        else:
            slope = _slope_of_means(at, gaps)
    return Curve(axis, "generalisation gap", tuple(at), readings, slope, details)


def _slope_of_means(at: Sequence[int], gaps: np.ndarray) -> Reading:
    """The slope through the logarithms of mean gaps, with a jackknife standard error over seeds."""
    logs = statistics.log_of_mean(gaps)
    if np.isnan(logs).any():  # also where a network diverged
        return Reading(np.nan, np.nan, len(gaps), "a mean gap is not positive: use more seeds")
    slope = statistics.mean_reading(statistics.slopes(np.log(at), logs))
    return dataclasses.replace(slope, details={"of": MEANS})
