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
from attnlens.claims.estimates import pooled
from attnlens.claims.figures import mean_point
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import ADAM, training_of
from attnlens.core.drawing import Point, Series
from attnlens.core.verdicts import Region
from attnlens.data.dataset import Dataset
from attnlens.networks import Baseline, SelfAttention, fit

CONTROL = "scrambled"
MODELS = ("attention", "baseline", "mean token")
SETTINGS: dict[str, Any] = {
    # Hidden units; in a pilot 128 and 512 units changed no error by more than its standard error.
    # One width is enough for the smoke profile, which only checks that a claim runs.
    "widths": {"smoke": [8], "default": [8, 32], "full": [8, 32]},
    "query_dim": 8,
    "value_dim": 16,
    "sharpness": 5.0,
    # The control permutes the numbers of every sample, in an order drawn from this seed.
    "permuted": False,
    "permutation_seed": 0,
    **ADAM,
    "loss": "softmax",
    "steps": 200,  # the best validation loss is reached after 30 to 120
    "batch": 32,
    "learning_rate": 5e-3,
    "every": 10,  # steps between the evaluations of the validation loss
}
ARM_SETTINGS = {CONTROL: {"permuted": True}}


class Split(NamedTuple):
    """One split of a data set, as tokens; n labels are the first n of `train`."""

    train: Dataset
    validation: Dataset
    test: Dataset


def set_sizes(parameters: Mapping[str, Any]) -> dict[str, int]:
    """Samples of each set of a split; the largest number of labels is that of the training set."""
    own = {name: parameters[f"{name}_samples"] for name in ("validation", "test")}
    return {"train": max(parameters["counts"]), **own}


def errors(
    splits: Sequence[Split], seeds: Sequence[int], parameters: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Test errors (seed, n) of the models at n = `counts`, and shortened hashes of the splits."""
    sets = [*zip(*splits, strict=True)]  # training, validation and test sets of all splits
    tokens = [np.stack([data.array for data in group]).astype(np.float32) for group in sets]
    labels = [np.stack([data.labels for data in group]) for group in sets]
    if parameters["permuted"]:
        random = np.random.default_rng(parameters["permutation_seed"])
        order = random.permutation(tokens[0][0, 0].size)
        tokens = [_flat(array)[..., order].reshape(array.shape) for array in tokens]
    classes = len(splits[0].train.classes)
    errors_by_model = {
        model: _errors(
            [*_candidates(model, tokens, classes, parameters)], labels, seeds, parameters
        )
        for model in MODELS
    }
    return {**errors_by_model, "hashes": np.stack([_hashes(split) for split in splits])}


def _candidates(
    model: str, tokens: Sequence[np.ndarray], classes: int, parameters: Mapping[str, Any]
) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """The networks to train for a model, one per width, with their inputs."""
    length, dim = tokens[0].shape[2:]
    for hidden in parameters["widths"]:
        shared = {"hidden": hidden, "outputs": classes, "sharpness": parameters["sharpness"]}
        if model == "attention":
            sizes = {name: parameters[name] for name in ("query_dim", "value_dim")}
            make = partial(SelfAttention, tokens=length, token_dim=dim, **sizes, **shared)
            yield make, [array.swapaxes(-1, -2) for array in tokens]
        elif model == "baseline":
            make = partial(Baseline, features=length * dim, **shared)
            yield make, [_flat(array) for array in tokens]
        elif hidden == max(parameters["widths"]):
            # The sum of p tokens divided by √p has the scale of one token.
            pooled = [array.sum(2) / np.float32(np.sqrt(length)) for array in tokens]
            yield partial(Baseline, features=dim, **shared), pooled


def _errors(
    candidates: Sequence[tuple[Any, list[np.ndarray]]],
    labels: Sequence[np.ndarray],
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
) -> np.ndarray:
    """Test errors (seed, n) of the candidate with the lowest validation loss."""
    counts = parameters["counts"]
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
            block=len(seeds) * len(counts),
            **training_of(parameters),
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


def rule(kind: str) -> Rule:
    """Attention minus baseline: one part per number of labels and value of the parameter `kind`."""
    return Rule(
        *(
            Quantity(
                f"{key}_labels",
                f"test error of attention minus baseline ({{{kind}}}, {{counts[{column}]}} labels)",
                pooled(partial(_difference, column=column)),
                Region(high=-0.02),
                per=(kind,),
            )
            for column, key in enumerate(("fewer", "more"))
        )
    )


def _difference(cell: Measured, column: int) -> np.ndarray:
    return (cell.values["attention"] - cell.values["baseline"])[:, column]


def lines(arms: Mapping[str, Sequence[Measured]], kind: str) -> tuple[Series, ...]:
    """Test error over the number of labels: one line per model, arm and value of `kind`."""
    return tuple(
        Series(
            f"{model}, {value}{', scrambled' * (arm != PREDICTION)}",
            _points(np.concatenate([cell.values[model] for cell in cells]), cells[0].parameters),
            control=arm != PREDICTION,
        )
        for arm, measured in arms.items()
        for value, cells in group_by(measured, kind).items()
        for model in MODELS
    )


def _points(errors: np.ndarray, parameters: Mapping[str, Any]) -> tuple[Point, ...]:
    return tuple(map(mean_point, parameters["counts"], errors.T))
