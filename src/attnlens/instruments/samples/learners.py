"""Learners (built-in networks, other networks, estimators) and their test errors on folds.

    baseline          y = w₂ φ(w₁ x)
    known-attention   y = w₂ φ(w₁ (x ⊙ f(x))), with a given function f
    self-attention    y = w₂ φ(w₁ vec(w_V x a(x)))
    multi-layer       x ← w_V x a(x) twice, then the same head

(Lens B (ICLR 2021 submission), sections 2 and 3.) These networks have no bias terms, so a constant
feature is added to each input: a token becomes t + 1 numbers, and each feature x_i of a plain row
becomes a token (x_i, 1). Known attention is the baseline on x ⊙ f(x), by its definition, and shares
the baseline's compiled programs. Inputs are standardised with the mean and standard deviation of
all training rows of a fold (which needs no labels), labels with those of the smallest sample of the
fold. Test rows are not used for this.

Errors are the error rate, or the mean squared error as a share of the variance of all labels (1 −
R²; predicting the mean has error 1). If a prediction is not finite, the error is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from attnlens.core import arrays, checks
from attnlens.core.notebook import notebook_line
from attnlens.networks import Baseline, MultiLayerSelfAttention, SelfAttention, fit
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe

from .labelled import Fold, Labelled, mean_and_spread

BUILT_IN = ("baseline", "known-attention", "self-attention", "multi-layer")
ATTENDING = ("self-attention", "multi-layer")  # models that compute a score per pair of tokens
# Defaults for standardised inputs and labels and networks of some hundred parameters: with a cosine
# schedule, these steps are enough to end near a minimum. The penalty is as small as usual
# (scikit-learn's MLP has 1e-4 on half the squared norm). The caller can override all of them.
TRAINING: dict[str, Any] = {
    "steps": 600,
    "batch": 32,
    "learning_rate": 1e-2,
    "schedule": "cosine",
    "l2": 1e-4,
}
GROUP = 128  # maximum number of networks trained together
# Arguments of `fit` that this module sets; the caller may not set them.
RESERVED = ("seeds", "samples", "data_per_seed", "test", "loss", "dtype")


def settings(training: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the caller's arguments for `fit`; raises `BadInput` if one of them is reserved."""
    chosen = dict(training or {})
    if conflicts := [name for name in RESERVED if name in chosen]:
        raise checks.BadInput(
            f"training may not set {conflicts[0]!r}, which the instrument sets; leave it out."
        )
    return chosen


ErrorTable = Float[np.ndarray, "folds sizes"]


def choose(
    models: Any, data: Labelled, attention: Any, hidden: int
) -> dict[str, Callable[..., ErrorTable]]:
    """Return for each model name a function (folds, sizes, seed, training, starts) -> errors."""
    values = attention_values(data, attention)
    if models is None:
        models = ["baseline", "self-attention", *(["multi-layer"] if data.tokens else [])]
        models += ["known-attention"] if values is not None else []
    if isinstance(models, str) or not isinstance(models, (Mapping, Sequence)) or not models:
        raise checks.BadInput(
            f"models must be a list of names out of {', '.join(BUILT_IN)}, or a mapping from names "
            f"to networks or estimators; got {models!r}."
        )
    items = models.items() if isinstance(models, Mapping) else ((name, name) for name in models)
    return {str(name): _learner(str(name), model, data, values, hidden) for name, model in items}


def measured(
    models: Mapping[str, Callable[..., ErrorTable]], *arguments: Any
) -> dict[str, ErrorTable]:
    """The errors of every model of `choose`; a notebook shows which model is next."""
    show = notebook_line(None) or (lambda _: None)
    errors: dict[str, ErrorTable] = {}
    for name, model in models.items():
        show(f"{len(errors)} of {len(models)} models: {name} is next")
        errors[name] = model(*arguments)
    show(f"{len(errors)} of {len(models)} models")
    return errors


def _learner(
    name: str, model: Any, data: Labelled, values: np.ndarray | None, hidden: int
) -> Callable[..., ErrorTable]:
    if isinstance(model, str):
        checks.one_of("each model", model, BUILT_IN)
        if model == "known-attention" and values is None:
            raise checks.BadInput(
                "known-attention needs attention=…, f(X) as an array of X's shape or a function; "
                "give it, or leave this model out."
            )
        if model == "known-attention":
            data = data._replace(inputs=data.inputs * values)
        make, layout = built_in(model, data, hidden)
        return partial(network_errors, make, layout, data)
    if hasattr(model, "fit") and hasattr(model, "predict"):
        return partial(estimator_errors, model, data)
    if callable(model):
        return partial(network_errors, model, "as given", data)
    raise checks.BadInput(
        f"model {name!r} must be a name, a function of a random key that returns a network, or a "
        f"scikit-learn estimator; got a {type(model).__name__}."
    )


def built_in(model: str, data: Labelled, hidden: int, **shape: Any) -> tuple[partial, str]:
    """Return a function that makes one of lens B's networks for these data, and its input layout.

    The layout is "flat" (rows of features) or "tokens".
    """
    outputs = max(data.classes, 1)
    if model in ("baseline", "known-attention"):
        wide = data.inputs.shape[1] + 1
        if data.tokens:
            wide = data.inputs.shape[1] * (data.inputs.shape[2] + 1)
        return partial(Baseline, features=wide, hidden=hidden, outputs=outputs, **shape), "flat"
    tokens, dim = data.inputs.shape[1], data.inputs.shape[2] + 1 if data.tokens else 2
    network = SelfAttention if model == "self-attention" else MultiLayerSelfAttention
    sizes = {"tokens": tokens, "token_dim": dim, "hidden": hidden, "outputs": outputs}
    return partial(network, **sizes, **shape), "tokens"


def attention_values(data: Labelled, attention: Any) -> Float[np.ndarray, "rows ..."] | None:
    """Return f(X) of known attention, in the shape of X, or None if `attention` is None."""
    if attention is None:
        return None
    raw = attention(data.inputs) if callable(attention) else attention
    values = arrays.numbers("attention", raw)
    if values.shape != data.inputs.shape or not np.isfinite(values).all():
        raise checks.BadInput(
            f"attention must be finite numbers in X's shape {data.inputs.shape}, or a function "
            f"that returns them; got {values.shape}."
        )
    return values


# -- networks --------------------------------------------------------------------------------------


def network_errors(
    make: Callable[..., Any],
    layout: str,
    data: Labelled,
    parts: Sequence[Fold],
    sizes: Sequence[int],
    seed: int,
    training: Mapping[str, Any],
    starts: int = 1,
) -> ErrorTable:
    """Return test errors of a network trained on each fold's first n rows, in one call of `fit`.

    Of several random initialisations (`starts`) the one with the smallest final training loss is
    used. If `training` has k penalties, the result has k columns per size, one per penalty.
    """
    inputs, tests, targets, undo = prepared(layout, data, parts, sizes)
    members = starts * len(parts)
    fitted = fit(
        make,
        np.repeat(inputs, starts, axis=0),
        np.repeat(targets, starts, axis=0),
        seeds=range(seed * members, (seed + 1) * members),
        samples=sizes,
        loss="softmax" if data.classes else "squared",
        data_per_seed=True,
        dtype="float32",
        **{"block": GROUP, "progress": False, **TRAINING, **training},
    )
    vectors = fitted.vectors.reshape(len(parts), starts, -1, fitted.vectors.shape[1])
    # A network that diverged has no final loss; it is chosen only if all starts diverged.
    last = fitted.train[:, -1].reshape(vectors.shape[:3])
    losses = np.where(np.isfinite(last), last, np.inf)
    best = losses.argmin(1)[:, None, :, None]
    vectors = np.take_along_axis(vectors, best, axis=1)[:, 0]
    trained = np.isfinite(losses.min(1))  # (fold, size)
    with jax.enable_x64(False):
        outputs = np.asarray(_outputs(Recipe.of(make), vectors, tests), float)
    errors = []
    for fold, own, converged, (centre, scale) in zip(parts, outputs, trained, undo, strict=True):
        own = own[:, : len(fold.test)]
        predicted = own.argmax(-1) if data.classes else centre + scale * own[..., 0]
        # The argmax of outputs that are NaN is meaningless: a diverged network has the error NaN.
        usable = converged & np.isfinite(own).all((1, 2))
        errors.append(
            [
                test_error(data, fold, row) if finite else math.nan
                for row, finite in zip(predicted, usable, strict=True)
            ]
        )
    return np.array(errors)


@partial(jax.jit, static_argnames=("recipe",))
def _outputs(recipe: Recipe, vectors: Array, inputs: Any) -> Array:
    """Return outputs (fold, size, row, output) for parameters (fold, size, parameter)."""
    restore = Layout.of(recipe).restore

    def one(vector: Array, rows: Any) -> Array:
        return jax.vmap(restore(vector))(rows)

    return jax.vmap(jax.vmap(one, (0, None)))(vectors, inputs)


def prepared(
    layout: str, data: Labelled, parts: Sequence[Fold], sizes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Return training inputs, test inputs and training targets (first axis: folds), and the (mean,
    scale) of the labels of each fold.

    Inputs and numeric targets are standardised. Shorter test sets repeat their last row, so that
    all test sets have equal sizes.
    """
    longest = max(len(fold.test) for fold in parts)
    trains, tests, targets, undo = [], [], [], []
    for fold in parts:
        train = fold.train[: sizes[-1]]
        test = np.append(fold.test, np.repeat(fold.test[-1], longest - len(fold.test)))
        axes = tuple(range(data.inputs.ndim - 1))
        pool = data.inputs[fold.train]
        centre, spread = pool.mean(axes), pool.std(axes)
        spread = np.where(spread > 0, spread, 1.0)
        for rows, tables in ((train, trains), (test, tests)):
            tables.append(_arrange(layout, (data.inputs[rows] - centre) / spread))
        labels = data.labels[train]
        if data.classes:
            targets.append(labels)
            undo.append((0.0, 1.0))
        else:
            centre, scale = mean_and_spread(labels[: sizes[0]])
            targets.append(((labels - centre) / scale)[:, None])
            undo.append((centre, scale))
    return np.stack(trains), np.stack(tests), np.stack(targets), undo


def _arrange(layout: str, x: np.ndarray) -> np.ndarray:
    """Return standardised inputs in a network's layout, with the constant feature, as float32."""
    x = x.astype(np.float32)
    if layout == "as given":
        return x
    if layout == "tokens":
        pairs = x if x.ndim == 3 else x[:, :, None]
        return np.swapaxes(_with_ones(pairs), 1, 2)  # lens B writes tokens as columns
    return _with_ones(x).reshape(len(x), -1)


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)


# -- estimators ------------------------------------------------------------------------------------


def estimator_errors(
    estimator: Any,
    data: Labelled,
    parts: Sequence[Fold],
    sizes: Sequence[int],
    seed: int,
    training: Mapping[str, Any],
    starts: int = 1,
) -> ErrorTable:
    """Return test errors of a scikit-learn estimator; a new clone is fitted per fold and size.

    Tokens are flattened. `seed`, `training` and `starts` are not used.
    """
    from sklearn.base import clone

    rows = data.inputs.reshape(len(data.inputs), -1)

    def one(fold: Fold, size: int) -> float:
        train = fold.train[:size]
        fitted: Any = clone(estimator)
        fitted.fit(rows[train], data.labels[train])
        return test_error(data, fold, predictions(fitted, rows[fold.test]))

    return np.array([[one(fold, size) for size in sizes] for fold in parts])


def predictions(fitted: Any, inputs: Any) -> np.ndarray:
    """Return the predictions of a fitted estimator for these inputs, as a vector."""
    return arrays.plain("predictions of a model", fitted.predict(inputs)).reshape(-1)


def test_error(data: Labelled, fold: Fold, predicted: np.ndarray) -> float:
    """Return the error of predictions for a fold's test rows; NaN if one of them is not finite."""
    truth = data.labels[fold.test]
    if predicted.shape != truth.shape:
        raise checks.BadInput(
            f"a model must predict one value per row, {len(truth)} here; got {predicted.shape}."
        )
    if predicted.dtype.kind not in arrays.NUMBERS:  # classes are numbers, so text is never right
        predicted = arrays.numbers("predictions of a model", predicted)
    if not np.isfinite(predicted).all():
        return math.nan
    if data.classes:
        return float(np.mean(predicted != truth))
    with np.errstate(over="ignore"):
        error = float(np.mean((predicted - truth) ** 2) / data.labels.var())
    return error if math.isfinite(error) else math.nan
