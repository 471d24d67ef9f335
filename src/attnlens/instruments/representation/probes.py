"""Probes: what can be predicted from a representation R, by several kinds of regression.

    ridge      linear in R
    quadratic  linear in R and in the products of its coordinates (for up to 40 coordinates)
    kernel     kernel ridge regression with a Gaussian kernel, on Nyström features
    trees      gradient-boosted trees

Each probe is a feature map φ(R) and a penalised linear fit on it. This module predicts numbers by
least squares; `law_probes` predicts the distribution of the latent. Penalties and probes are chosen
on a validation split; the caller evaluates the predictions on the test split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

PROBES = ("ridge", "quadratic", "kernel", "trees")
PENALTIES = (1e-8, 1e-6, 1e-4, 1e-2)  # for features of variance 1: from almost none to strong
MAX_QUADRATIC = 40  # maximum number of coordinates whose products are used: 860 features
CENTRES = 200  # maximum number of centres of the Nyström features
TREES = 100  # rounds of boosting, scikit-learn's default

Table = Float[np.ndarray, "_rows _columns"]
FeatureMap = Callable[[Table], Table]


class Splits(NamedTuple):
    """Row numbers: `train` to fit probes, `validation` to choose one, `test` to evaluate it."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(rows: int, random: np.random.Generator) -> Splits:
    """Split rows at random: 60 % train, 15 % validation (of about a dozen fits), 25 % test."""
    order = random.permutation(rows)
    return Splits(*np.split(order, [int(0.6 * rows), int(0.75 * rows)]))


class ProbeScaling(NamedTuple):
    """Standardises columns; columns that are constant up to rounding are left out."""

    mean: np.ndarray
    std: np.ndarray
    varies: np.ndarray

    @staticmethod
    def of(table: Table) -> ProbeScaling:
        mean, std = table.mean(0), table.std(0)
        # The computed standard deviation of n equal numbers is not 0, because of rounding errors.
        size = np.abs(table).max(0, initial=0)
        return ProbeScaling(mean, std, std > 1e-9 * np.maximum(size, np.finfo(float).tiny))

    def __call__(self, table: Table) -> Table:
        return ((table - self.mean) / np.where(self.varies, self.std, 1))[:, self.varies]


def feature_map(
    probe: str, inputs: Table, targets: Table, random: np.random.Generator
) -> FeatureMap | None:
    """Return φ of a probe, fitted to training rows, or None if the probe is not applicable."""
    scale = ProbeScaling.of(inputs)
    if not scale.varies.any():
        return None
    if probe == "quadratic":
        return _quadratic(scale)
    if probe == "kernel":
        return _kernel(scale, inputs, random)
    return _trees(inputs, targets, random) if probe == "trees" else scale


def _quadratic(scale: ProbeScaling) -> FeatureMap | None:
    count = int(scale.varies.sum())
    if count > MAX_QUADRATIC:
        return None
    left, right = np.triu_indices(count)

    def apply(inputs: Table) -> Table:
        standard = scale(inputs)
        return np.concatenate([standard, standard[:, left] * standard[:, right]], axis=1)

    return apply


def _kernel(scale: ProbeScaling, inputs: Table, random: np.random.Generator) -> FeatureMap:
    """Return Nyström features of exp(−‖x − y‖²/2d) together with linear features.

    Far from the data a Gaussian kernel vanishes; there the linear features extrapolate.
    """
    from sklearn.kernel_approximation import Nystroem

    standard = scale(inputs)
    nystroem = Nystroem(
        gamma=0.5 / standard.shape[1],
        n_components=min(CENTRES, len(standard)),
        random_state=int(random.integers(2**31)),
    ).fit(standard)

    def apply(inputs: Table) -> Table:
        standard = scale(inputs)
        return np.concatenate([standard, np.asarray(nystroem.transform(standard))], axis=1)

    return apply


def _trees(inputs: Table, targets: Table, random: np.random.Generator) -> FeatureMap:
    """Return φ: a column of zeros, then a prediction of each target by boosted trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    scale = ProbeScaling.of(targets)
    columns = scale(targets).T
    seeds = random.integers(2**31, size=len(columns))
    models = [
        HistGradientBoostingRegressor(max_iter=TREES, random_state=int(seed)).fit(inputs, column)
        for seed, column in zip(seeds, columns, strict=True)
    ]

    def apply(inputs: Table) -> Table:
        return np.column_stack(
            [np.zeros(len(inputs)), *(model.predict(inputs) for model in models)]
        )

    return apply


class Rotation(NamedTuple):
    """Maps features to their principal axes, centred and scaled to variance 1.

    `spread` is the standard deviation along each axis before scaling. Ridge regression on φ with
    penalty λ is the same as a penalty of λ/spread² on each of these axes.
    """

    mean: np.ndarray
    axes: np.ndarray
    spread: np.ndarray

    @staticmethod
    def of(features: Table) -> Rotation:
        mean = features.mean(0)
        values, vectors = np.linalg.eigh((features - mean).T @ (features - mean) / len(features))
        keep = values > 1e-12 * max(values.max(initial=0), np.finfo(float).tiny)
        spread = np.sqrt(values[keep])
        return Rotation(mean, vectors[:, keep] / spread, spread)

    def __call__(self, features: Table) -> Table:
        return (features - self.mean) @ self.axes


class FittedNumbers(NamedTuple):
    """Predictions of targets on the test rows, and the probe chosen for each column."""

    predicted: Table
    winners: tuple[str, ...]


def fit_numbers(
    inputs: Table, targets: Table, rows: Splits, probes: Sequence[str], random: np.random.Generator
) -> FittedNumbers:
    """Return least-squares predictions; probe and penalty are chosen for each column separately."""
    constant = targets[rows.train].mean(0)
    best = ((targets[rows.validation] - constant) ** 2).mean(0)
    predicted = np.broadcast_to(constant, (len(rows.test), targets.shape[1])).copy()
    winners = ["constant"] * targets.shape[1]
    for probe in probes:
        features = feature_map(probe, inputs[rows.train], targets[rows.train], random)
        if features is None:
            continue
        for name, validation, test in _least_squares(probe, features, inputs, targets, rows):
            error = ((targets[rows.validation] - validation) ** 2).mean(0)
            better = error < best
            best = np.where(better, error, best)
            predicted[:, better] = test[:, better]
            winners = [name if win else old for win, old in zip(better, winners, strict=True)]
    return FittedNumbers(predicted, tuple(winners))


def _least_squares(probe: str, features: FeatureMap, inputs: Table, targets: Table, rows: Splits):
    """Yield (name, validation predictions, test predictions) for each penalty."""
    mapped = [features(inputs[part]) for part in rows]
    mean, scale = targets[rows.train].mean(0), ProbeScaling.of(targets[rows.train])
    if probe == "trees":  # the features of trees are already standardised predictions
        spread = np.zeros(targets.shape[1])
        spread[scale.varies] = scale.std[scale.varies]
        full = [np.zeros((len(part), targets.shape[1])) for part in rows]
        for whole, part in zip(full, mapped, strict=True):
            whole[:, scale.varies] = part[:, 1:]
        yield probe, mean + full[1] * spread, mean + full[2] * spread
        return
    rotation = Rotation.of(mapped[0])
    train, validation, test = (rotation(part) for part in mapped)
    slopes = train.T @ (targets[rows.train] - mean) / len(train)
    for penalty in PENALTIES:
        shrunk = slopes / (1 + penalty / rotation.spread**2)[:, None]
        yield probe, mean + validation @ shrunk, mean + test @ shrunk
