"""Attention against the baseline on real data: both trained on the same labels, tested on the same
samples.

The rule for the models, the same for both and fixed beforehand, so that neither is handicapped:

- Self-attention and baseline as B defines them, with the softmax loss; no biases, nothing added.
- Beside the n labels that train, some validate: they decide when to stop and which of two hidden
  widths to keep, for each model, split and n by itself. (Widths chosen on validation rather than
  equal numbers of parameters: a hidden unit of the baseline has p·t weights and one of attention
  p·d_v, so an equal number would starve the baseline of units.)
- Adam with a cosine schedule, the same steps and rate for all.

Beside the two stands the baseline on the *mean* token, at the larger width. It has no attention and
cannot tell tokens apart, but it pools, and so shows how much of a gain is pooling. It is drawn, not
judged.

The control is a fixed permutation of all p·t numbers of a sample, the same for every sample. The
baseline's law does not change at all: its weights start exchangeable and Adam treats each alike. No
label, number or parameter is lost. But a token is no longer a thing: what attention compares and
pools are numbers from anywhere. If attention gains because tokens are things, it must lose that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.base import PREDICTION, Measured, by
from attnlens.data.dataset import Dataset
from attnlens.networks import Baseline, SelfAttention, fit
from attnlens.records import Part, Point, Region, Series
from attnlens.statistics import judge as judge_part
from attnlens.statistics import mean_reading, t_interval

DIFFERENCE = Region(high=-0.02)
CONTROL = "scrambled"
# Hidden units; in a pilot 128 and 512 changed no error by more than its standard error. One width
# is enough to see that a claim runs.
WIDTHS = {"smoke": [8], "default": [8, 32], "full": [8, 32]}
QUERY_DIM, VALUE_DIM = 8, 16
STEPS = 200  # the best validation loss comes after 30 to 120
LEARNING_RATE = 5e-3
BATCH = 32
MODELS = ("attention", "baseline", "mean token")


class Split(NamedTuple):
    """One split as tokens; n labels are the first n of `train`."""

    train: Dataset
    validation: Dataset
    test: Dataset


def errors(
    arm: str,
    splits: Sequence[Split],
    seeds: Sequence[int],
    counts: Sequence[int],
    widths: Sequence[int],
) -> dict[str, np.ndarray]:
    """Test errors (seed, n) of the models at n = `counts`, and each split's hashes, shortened."""
    sets = [*zip(*splits, strict=True)]
    tokens = [np.stack([one.array for one in each]).astype(np.float32) for each in sets]
    labels = [np.stack([one.labels for one in each]) for each in sets]
    if arm == CONTROL:
        order = np.random.default_rng(0).permutation(tokens[0][0, 0].size)
        tokens = [_flat(each)[..., order].reshape(each.shape) for each in tokens]
    classes = len(splits[0].train.classes)
    found = {
        model: _errors([*_candidates(model, tokens, classes, widths)], labels, seeds, counts)
        for model in MODELS
    }
    return {**found, "hashes": np.stack([_hashes(split) for split in splits])}


def _candidates(
    model: str, tokens: Sequence[np.ndarray], classes: int, widths: Sequence[int]
) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """What is trained for a model: a network of each width, with its inputs."""
    length, dim = tokens[0].shape[2:]
    for hidden in widths:
        shared = {"hidden": hidden, "outputs": classes}
        if model == "attention":
            sizes = {"token_dim": dim, "query_dim": QUERY_DIM, "value_dim": VALUE_DIM}
            make = partial(SelfAttention, tokens=length, **sizes, **shared)
            yield make, [each.swapaxes(-1, -2) for each in tokens]
        elif model == "baseline":
            make = partial(Baseline, features=length * dim, **shared)
            yield make, [_flat(each) for each in tokens]
        elif hidden == max(widths):
            # The sum of p tokens over √p has the scale of a token.
            pooled = [each.sum(2) / np.float32(np.sqrt(length)) for each in tokens]
            yield partial(Baseline, features=dim, **shared), pooled


def _errors(
    candidates: Sequence[tuple[Any, list[np.ndarray]]],
    labels: Sequence[np.ndarray],
    seeds: Sequence[int],
    counts: Sequence[int],
) -> np.ndarray:
    """Test errors (seed, n) of the candidate with the lowest validation loss."""
    shape = (len(seeds), len(counts))
    lowest, wrong = [], []
    for make, (train, validation, test) in candidates:
        fitted = fit(
            make, train, labels[0], validation=(validation, labels[1]), data_per_seed=True,
            seeds=seeds, samples=counts, loss="softmax", steps=STEPS, batch=BATCH,
            learning_rate=LEARNING_RATE, schedule="cosine", block=len(seeds) * len(counts),
        )  # fmt: skip
        lowest.append(np.nanmin(fitted.validation, 1).reshape(shape))
        wrong.append(_wrong(fitted.models, test, labels[2]))
    best = np.argmin(lowest, 0)
    return np.take_along_axis(np.array(wrong), best[None], 0)[0]


def _wrong(models: Any, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of test samples that each member gets wrong, (seed, n)."""
    by_seed = jax.tree.map(lambda leaf: leaf.reshape(len(test), -1, *leaf.shape[1:]), models)
    with jax.enable_x64(False):
        guessed = np.asarray(_classes(by_seed, test))
    return (guessed != labels[:, None]).mean(-1)


@jax.jit
def _classes(models: Any, inputs: Any) -> Any:
    """Likeliest classes (seed, member, sample) of models (seed, member), inputs (seed, sample)."""
    one = jax.vmap(lambda model, x: jnp.argmax(jax.vmap(model)(x), -1), in_axes=(0, None))
    return jax.vmap(one)(models, inputs)


def _flat(tokens: np.ndarray) -> np.ndarray:
    return tokens.reshape(*tokens.shape[:-2], -1)


def _hashes(split: Split) -> np.ndarray:
    """The first seven bytes of each split's SHA-256, as whole numbers that a store can keep."""
    return np.array([int(digest[:14], 16) for digest in split.train.splits.values()], np.int64)


def judge(measured: Sequence[Measured], kind: str, counts: Sequence[int]) -> list[Part]:
    """A part a label count, for each value of the parameter `kind`: attention minus baseline."""
    parts = []
    for value, cells in by(measured, kind).items():
        difference = np.concatenate([c.values["attention"] - c.values["baseline"] for c in cells])
        for count, column in zip(counts, difference.T, strict=True):
            quantity = f"test error of attention minus baseline ({value}, {count} labels)"
            parts.append(judge_part(quantity, column, DIFFERENCE))
    return parts


def lines(
    arms: Mapping[str, Sequence[Measured]], kind: str, counts: Sequence[int]
) -> tuple[Series, ...]:
    """Test error over the number of labels: a line a model, arm and value of `kind`."""
    return tuple(
        Series(
            f"{model}, {value}{', scrambled' * (arm != PREDICTION)}",
            _points(np.concatenate([cell.values[model] for cell in cells]), counts),
            control=arm != PREDICTION,
        )
        for arm, measured in arms.items()
        for value, cells in by(measured, kind).items()
        for model in MODELS
    )


def _points(errors: np.ndarray, counts: Sequence[int]) -> tuple[Point, ...]:
    readings = [mean_reading(column) for column in errors.T]
    return tuple(
        Point(count, reading.value, t_interval(reading)[1] - reading.value)
        for count, reading in zip(counts, readings, strict=True)
    )
