"""Shared by the claims on real data: attention and baseline with the same labels and test samples.

The protocol is the same for both models and fixed beforehand, so that neither has an advantage:

- Self-attention and baseline are those of lens B (ICLR 2021 submission), with the softmax loss and
  without biases or any other addition.
- Beside the n training labels there are validation labels. They decide when training stops and
  which of two hidden widths is used, separately for each model, split and n. (Widths are chosen on
  validation instead of equal parameter counts: a hidden unit has p·t weights in the baseline and
  p·d_v in attention, so with equal counts the baseline would have too few units.)
- Adam with a cosine schedule; the same number of steps and the same learning rate for all.

A third model is the baseline on the *mean* token, at the larger width. It has no attention and
cannot distinguish tokens, but it pools them, and so shows how much of a gain is due to pooling. It
is drawn, not judged.

The control applies one fixed permutation to all p·t numbers of a sample, the same for every sample.
The distribution of the baseline's results does not change: its initial weights are exchangeable and
Adam treats all of them alike. No label, number or parameter is lost. But a token is no longer a
unit of the data: attention now compares and pools numbers from unrelated places. If attention gains
because tokens are meaningful units, it must lose this gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.claim import PREDICTION, Measured, group_by
from attnlens.core.drawing import Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import mean_reading
from attnlens.core.verdicts import Part, Region
from attnlens.data.dataset import Dataset
from attnlens.networks import Baseline, SelfAttention, fit

DIFFERENCE = Region(high=-0.02)
CONTROL = "scrambled"
# Hidden units; in a pilot 128 and 512 units changed no error by more than its standard error. One
# width is enough for the smoke profile, which only checks that a claim runs.
WIDTHS = {"smoke": [8], "default": [8, 32], "full": [8, 32]}
QUERY_DIM, VALUE_DIM = 8, 16
STEPS = 200  # the best validation loss is reached after 30 to 120
LEARNING_RATE = 5e-3
BATCH = 32
MODELS = ("attention", "baseline", "mean token")


class Split(NamedTuple):
    """One split of a data set, as tokens; n labels are the first n of `train`."""

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
    """Test errors (seed, n) of the models at n = `counts`, and shortened hashes of the splits."""
    sets = [*zip(*splits, strict=True)]  # training, validation and test sets of all splits
    tokens = [np.stack([data.array for data in group]).astype(np.float32) for group in sets]
    labels = [np.stack([data.labels for data in group]) for group in sets]
    if arm == CONTROL:
        order = np.random.default_rng(0).permutation(tokens[0][0, 0].size)
        tokens = [_flat(array)[..., order].reshape(array.shape) for array in tokens]
    classes = len(splits[0].train.classes)
    errors_by_model = {
        model: _errors([*_candidates(model, tokens, classes, widths)], labels, seeds, counts)
        for model in MODELS
    }
    return {**errors_by_model, "hashes": np.stack([_hashes(split) for split in splits])}


def _candidates(
    model: str, tokens: Sequence[np.ndarray], classes: int, widths: Sequence[int]
) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """The networks to train for a model, one per width, with their inputs."""
    length, dim = tokens[0].shape[2:]
    for hidden in widths:
        shared = {"hidden": hidden, "outputs": classes}
        if model == "attention":
            sizes = {"token_dim": dim, "query_dim": QUERY_DIM, "value_dim": VALUE_DIM}
            make = partial(SelfAttention, tokens=length, **sizes, **shared)
            yield make, [array.swapaxes(-1, -2) for array in tokens]
        elif model == "baseline":
            make = partial(Baseline, features=length * dim, **shared)
            yield make, [_flat(array) for array in tokens]
        elif hidden == max(widths):
            # The sum of p tokens divided by √p has the scale of one token.
            pooled = [array.sum(2) / np.float32(np.sqrt(length)) for array in tokens]
            yield partial(Baseline, features=dim, **shared), pooled


def _errors(
    candidates: Sequence[tuple[Any, list[np.ndarray]]],
    labels: Sequence[np.ndarray],
    seeds: Sequence[int],
    counts: Sequence[int],
) -> np.ndarray:
    """Test errors (seed, n) of the candidate with the lowest validation loss."""
    shape = (len(seeds), len(counts))
    validation_losses, test_errors = [], []
    for make, (train, validation, test) in candidates:
        fitted = fit(
            make,
            train,
            labels[0],
            validation=(validation, labels[1]),
            data_per_seed=True,
            seeds=seeds,
            samples=counts,
            loss="softmax",
            steps=STEPS,
            batch=BATCH,
            learning_rate=LEARNING_RATE,
            schedule="cosine",
            block=len(seeds) * len(counts),
        )
        validation_losses.append(np.nanmin(fitted.validation, 1).reshape(shape))
        test_errors.append(_error_rates(fitted.models, test, labels[2]))
    best = np.argmin(validation_losses, 0)
    return np.take_along_axis(np.array(test_errors), best[None], 0)[0]


def _error_rates(models: Any, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of test samples that each network classifies wrongly, (seed, n)."""
    by_seed = jax.tree.map(lambda leaf: leaf.reshape(len(test), -1, *leaf.shape[1:]), models)
    with jax.enable_x64(False):
        predicted = np.asarray(_classes(by_seed, test))
    return (predicted != labels[:, None]).mean(-1)


@jax.jit
def _classes(models: Any, inputs: Any) -> Any:
    """Likeliest classes (seed, n, sample) for models (seed, n) and inputs (seed, sample)."""
    of_seed = jax.vmap(lambda model, x: jnp.argmax(jax.vmap(model)(x), -1), in_axes=(0, None))
    return jax.vmap(of_seed)(models, inputs)


def _flat(tokens: np.ndarray) -> np.ndarray:
    return tokens.reshape(*tokens.shape[:-2], -1)


def _hashes(split: Split) -> np.ndarray:
    """The first seven bytes of the SHA-256 of each set, as integers, which the store accepts."""
    return np.array([int(digest[:14], 16) for digest in split.train.splits.values()], np.int64)


def judge(measured: Sequence[Measured], kind: str, counts: Sequence[int]) -> list[Part]:
    """Attention minus baseline: one part per number of labels and value of the parameter `kind`."""
    parts = []
    for value, cells in group_by(measured, kind).items():
        difference = np.concatenate([c.values["attention"] - c.values["baseline"] for c in cells])
        for count, column in zip(counts, difference.T, strict=True):
            quantity = f"test error of attention minus baseline ({value}, {count} labels)"
            parts.append(judge_part(quantity, column, DIFFERENCE))
    return parts


def lines(
    arms: Mapping[str, Sequence[Measured]], kind: str, counts: Sequence[int]
) -> tuple[Series, ...]:
    """Test error over the number of labels: one line per model, arm and value of `kind`."""
    return tuple(
        Series(
            f"{model}, {value}{', scrambled' * (arm != PREDICTION)}",
            _points(np.concatenate([cell.values[model] for cell in cells]), counts),
            control=arm != PREDICTION,
        )
        for arm, measured in arms.items()
        for value, cells in group_by(measured, kind).items()
        for model in MODELS
    )


def _points(errors: np.ndarray, counts: Sequence[int]) -> tuple[Point, ...]:
    readings = [mean_reading(column) for column in errors.T]
    return tuple(reading.point(count) for count, reading in zip(counts, readings, strict=True))
