"""Measures of whole layers: the order of tokens, pairs of content and position, linear probes.

With h(x) the mean over tokens of a layer's hidden states of an input x:

    order    E‖h(x∘π) − h(x)‖² / E‖h(x) − h(x')‖², where π shuffles the tokens of x and x' is
             another input: 0 for a bag of words, 1 if a shuffled input is as far away as another
    pairs    E‖H(x∘π) − H(x)∘π‖² / E‖H(x) − h(x)‖², where H are the hidden states of all tokens
             and π moves every token together with its position: 0 to rounding where tokens with
             their positions are exchangeable (lens A (Zhang et al., 2022)), as in every encoder
             that reads positions from the tokens alone; a causal mask breaks it
    probe    the error of a linear predictor of the label from h, on inputs that it was not fitted
             to: the share of wrong classes or, for numbers, the unexplained share of the variance.
             Five folds; the ridge penalty is chosen inside each training part by its leave-one-out
             error
    tokens   how well hidden states predict tokens that the model cannot see at their position
             (masked tokens, or the next one): the share of the variance of the tokens' input
             embeddings, in leading principal coordinates, that a linear map of the hidden state
             leaves unexplained, on inputs that it was not fitted to; predicting the mean embedding
             gives 1
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from attnlens.core.readings import Reading
from attnlens.core.statistics import mean_reading

from ..samples.labelled import inflation

FOLDS = 5
PENALTIES = np.logspace(-3, 5, 9)  # ridge penalties, for columns of variance one


def ratio_of_means(
    above: Float[np.ndarray, " inputs"], below: Float[np.ndarray, " inputs"]
) -> Reading:
    """Return mean(above)/mean(below), with the standard error of a ratio (Cochran, 1977, 2.11).

    >>> print(ratio_of_means(np.array([1.0, 1.0]), np.array([2.0, 2.0])))
    0.5 ± 0 (n = 2)
    """
    if not below.mean() > 0:
        return mean_reading(np.full(len(above), np.nan))
    ratio = float(above.mean() / below.mean())
    residuals = mean_reading((above - ratio * below) / below.mean())
    return replace(residuals, value=ratio) if residuals.status.has_number else residuals


def order_sensitivity(
    original: Float[np.ndarray, "inputs width"], shuffled: Float[np.ndarray, "inputs width"]
) -> Reading:
    """Return `order`, given h(x) of inputs (`original`) and h(x∘π) of the same inputs shuffled."""
    squared = ((shuffled - original) ** 2).sum(-1)
    # The mean squared distance of two independent inputs is twice their variance.
    between = 2 * ((original - original.mean(0)) ** 2).sum(-1)
    count = len(original)
    return ratio_of_means(squared, between * count / max(count - 1, 1))


def pair_deviation(
    hidden: Float[np.ndarray, "tokens width"],
    permuted: Float[np.ndarray, "tokens width"],
    order: Int[np.ndarray, " tokens"],
) -> tuple[float, float]:
    """Return numerator and denominator of `pairs` for one input; `permuted` has token order[i] at
    position i."""
    hidden, permuted = np.asarray(hidden, float), np.asarray(permuted, float)
    moved = float(((permuted - hidden[order]) ** 2).sum(-1).mean())
    return moved, float(((hidden - hidden.mean(0)) ** 2).sum(-1).mean())


def probe_errors(
    features: Float[np.ndarray, "inputs width"], labels: np.ndarray, *, seed: int = 0
) -> Float[np.ndarray, " inputs"]:
    """Return the error on each input of a probe that was not fitted to it.

    Integer labels are classes, other labels are numbers.
    """
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = np.asarray(labels).dtype.kind in "iub"
    errors = np.zeros(len(labels))
    for train, test in folds(labels, seed):
        head = (RidgeClassifierCV if classes else RidgeCV)(PENALTIES)
        fitted = make_pipeline(StandardScaler(), head).fit(features[train], labels[train])
        wrong = fitted.predict(features[test]) - labels[test]
        errors[test] = wrong != 0 if classes else wrong**2
    return errors if classes else errors / np.var(labels)


def token_probe_errors(
    features: Float[np.ndarray, "tokens width"],
    targets: Float[np.ndarray, "tokens coordinates"],
    inputs: Int[np.ndarray, " tokens"],
    *,
    seed: int = 0,
) -> Float[np.ndarray, " inputs"]:
    """Return the mean squared error per input of a linear probe of tokens, as a share of variance.

    The probe predicts the row of `targets` of every token from its features; errors are divided by
    the variance of the targets. `inputs` says to which input a token belongs; all tokens of an
    input are in the same fold.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names, numbers = np.unique(inputs, return_inverse=True)
    squares = np.zeros(len(targets))
    order = np.random.default_rng(seed).permutation(len(names))
    for fold in np.array_split(order, FOLDS):
        test = np.isin(numbers, fold)
        head = make_pipeline(StandardScaler(), RidgeCV(PENALTIES))
        predicted = head.fit(features[~test], targets[~test]).predict(features[test])
        squares[test] = ((predicted - targets[test]) ** 2).sum(-1)
    variance = float(targets.var(0).sum())
    return np.bincount(numbers, squares) / np.bincount(numbers) / variance


def leading_coordinates(
    rows: Float[np.ndarray, "rows _columns"], count: int
) -> Float[np.ndarray, "rows _count"]:
    """Return the first `count` principal coordinates of each row."""
    centred = np.asarray(rows, float) - rows.mean(0, dtype=float)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    return (left * scales)[:, :count]


def probe_reading(errors: Float[np.ndarray, " inputs"]) -> Reading:
    """Return the mean of `probe_errors`, or of a difference of two such arrays, as a reading.

    Training parts overlap, so the standard error over inputs is multiplied by the variance
    inflation factor (after Nadeau and Bengio, 2003).
    """
    reading, count = mean_reading(errors), len(errors)
    factor = float(inflation(np.array([count - count / FOLDS]), count, FOLDS)[0])
    return replace(reading, standard_error=reading.standard_error * factor)


def folds(labels: np.ndarray, seed: int):
    """Return the rows (train, test) of each of `FOLDS` folds, stratified by class."""
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if np.asarray(labels).dtype.kind in "iub" else KFold
    return kind(FOLDS, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels)
