"""Will a pretrained representation transfer? The condition number of a downstream target.

Let the pretraining task be to predict m(q, z) = ⟨ψ(q), A b(z)⟩ for queries q, and let the
downstream target be ⟨c, b(z)⟩, where b(z) are features of the latent z. With Σ the second moment of
ψ(q),

    κ² = cᵀ (Aᵀ Σ A)⁺ c,   κ = ∞ if c is not in the row space of Σ^(1/2) A,

    downstream excess risk ≤ κ² × pretraining excess risk

by the Cauchy–Schwarz inequality in the Σ-norm (docs/theory.md, prediction 14). A large κ means that
pretraining contains little signal about what the downstream task needs.

The module `kappa` estimates κ from features and targets.

κ is a property of the two tasks, and the features must contain what both tasks need: if they have
lost a part of the downstream target, κ describes only the remaining part (`Transfer.explained` is
its share of the variance). To evaluate features behind a bottleneck, give the features before the
bottleneck as `features` and those behind it as `frozen`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlens.core import arrays, checks
from attnlens.core.drawing import Figure, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Reading
from attnlens.core.status import Status

from ..samples.labelled import inflation
from . import kappa
from .kappa import KappaReading
from .scores import h_score, left_out_leep, log_me

FOLDS = 5
MOST_CLASSES = 1000  # maximum number of classes; each becomes a column of ones and zeros
# Printed beside κ, because over the layers of an encoder it does not follow the measured error
# (docs/transfer.md).
COMPARES = "questions of pretraining; to choose a layer use LogME or the measured error"
HIGHER_IS_BETTER = ("LogME", "H-score", "LEEP")


@dataclass(frozen=True)
class Transfer(Tabular):
    """The readings about a pretrained representation and a downstream target.

    kappa: the condition number κ; `interval` is its 95 % interval. If κ is infinite,
        `kappa.outside` is the share of the target that pretraining does not cover, and the interval
        starts at a lower bound of κ.
    error: the measured transfer error of a linear head on held-out samples: the unexplained share
        of variance (numbers) or the share of wrong classes.
    scores: LogME, H-score and LEEP; if a score is not defined, its status is the reason.
    """

    kappa: KappaReading
    error: Reading
    scores: Mapping[str, Reading]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of κ."""
        return self.kappa.low, self.kappa.high

    @property
    def explained(self) -> float:
        """The share of the downstream target's variance that the features explain."""
        return self.kappa.explained

    @property
    def infinite(self) -> float:
        """The share of resamples in which κ is infinite."""
        return self.kappa.infinite

    def __str__(self) -> str:
        low, high = self.interval
        kappa = f"{self.kappa.value:.3g}, 95 % interval {low:.3g} to {high:.3g}"
        if math.isinf(self.kappa.value):
            kappa = f"{self.kappa.value:.3g}, at least {low:.3g}: {self.kappa.reason}"
        explained = f"{self.explained:.0%} of the target's variance"
        rows = [("condition number", kappa), ("of what features explain", explained)]
        rows += [("κ compares", COMPARES), ("transfer error, measured", str(self.error))]
        for name, score in self.scores.items():
            rows.append((name, f"{score.value:.4g}" if score.status is Status.OK else score.reason))
        return "\n".join(f"{name:<26}{text}" for name, text in rows)

    def rows(self) -> list[dict[str, Any]]:
        """One row per reading."""
        readings = {"condition number": self.kappa, "transfer error": self.error, **self.scores}
        return [{"quantity": name, **reading.row()} for name, reading in readings.items()]

    def figure(self) -> Figure:
        """The measured transfer error against the condition number: one point."""
        return against({"target": self})

    def plot(self) -> Any:
        """The point as a matplotlib figure; `against` draws several targets."""
        return self.figure().plot()


def against(transfers: Mapping[str, Transfer]) -> Figure:
    """Condition number against measured transfer error, one named point per target.

    A target with an infinite κ cannot be drawn on the axis; the legend lists it with its error.

    >>> against({}).x_label
    'condition number κ'
    """
    series = []
    for name, transfer in transfers.items():
        kappa, error = transfer.kappa.value, transfer.error
        finite = math.isfinite(kappa) and math.isfinite(error.value)
        label = name if finite else f"{name}: κ infinite, error {error.value:.3g}"
        series.append(Series(label, (error.point(kappa),) if finite else ()))
    return Figure(
        "Condition number against measured transfer",
        "condition number κ",
        "transfer error",
        tuple(series),
        log_y=False,
    )


def known_condition_number(
    head: Any, mixing: Any = None, query_moment: Any = None, *, tolerance: float | None = None
) -> float:
    """κ of a known world: head c (d), mixing A (r, d) and second moment Σ (r, r) of ψ(q).

    The arguments are `head`, `mixing` and `query_moment`; A and Σ default to the identity. A
    direction counts as not covered by pretraining if its singular value in Σ^(1/2) A, relative to
    the largest, is at most `tolerance`. The default is √(size × ε), about 3e−8, because a singular
    Σ has eigenvalues of about ε in floating point, and its square root has singular values of √ε.

    >>> round(known_condition_number([1.0, 1.0], query_moment=[[1.0, 0.0], [0.0, 0.25]]) ** 2, 12)
    5.0
    >>> known_condition_number([1.0, 1.0], query_moment=[[1.0, 0.0], [0.0, 0.0]])
    inf
    """
    c = _finite("head", np.atleast_1d(arrays.numbers("head", head)), 1)
    moment = None if query_moment is None else _finite("query_moment", query_moment, 2)
    mixing_matrix = None if mixing is None else _finite("mixing", mixing, 2)
    size = (
        len(moment)
        if moment is not None
        else len(c)
        if mixing_matrix is None
        else len(mixing_matrix)
    )
    matrix = np.eye(size, len(c)) if mixing_matrix is None else mixing_matrix
    if matrix.shape != (size, len(c)) or (moment is not None and moment.shape != (size, size)):
        raise checks.BadInput(
            f"mixing must be (r, d) and query_moment (r, r) for a head of d = {len(c)} numbers; "
            f"got {matrix.shape} and {None if moment is None else moment.shape}."
        )
    if moment is not None:
        values, vectors = np.linalg.eigh(0.5 * (moment + moment.T))
        if values[0] < -1e-9 * max(values[-1], 0) or values[-1] <= 0:
            raise checks.BadInput(
                f"query_moment must be a second moment, with no negative eigenvalue and one "
                f"above 0; got eigenvalues from {values[0]:.3g} to {values[-1]:.3g}."
            )
        matrix = (np.sqrt(np.maximum(values, 0))[:, None] * vectors.T) @ matrix
    _, singular, axes = np.linalg.svd(matrix, full_matrices=False)
    if tolerance is None:
        tolerance = math.sqrt(max(matrix.shape) * np.finfo(float).eps)
    covered = singular > tolerance * singular.max(initial=0)
    inside = axes[covered] @ c
    outside = np.linalg.norm(c - axes[covered].T @ inside)
    # c is in the row space if the rest of it is below `tolerance`, which is far above rounding.
    if outside > tolerance * np.linalg.norm(c):
        return math.inf
    return float(np.linalg.norm(inside / singular[covered]))


def condition_number(
    features: Any,
    pretraining: Any,
    downstream: Any,
    *,
    frozen: Any = None,
    source: Any = None,
    resamples: int = 400,
    seed: int = 0,
) -> Transfer:
    """κ of a downstream target with its interval, and LogME, H-score, LEEP and the measured
    transfer error.

    features: features (n, d) of a pretrained model for n samples.
    pretraining: what the model was trained to predict: numbers (n,) or (n, k), or n classes as an
        array of integers.
    downstream: the downstream targets: numbers (n,) or (n, outputs), or n classes as integers.
    frozen: the features for the error and the scores, if they differ from `features`.
    source: class probabilities (n, classes) of the pretrained model, for LEEP only; by default
        those of a cross-validated logistic regression from features to pretraining classes.
    resamples: the number of bootstrap resamples for the interval of κ.

    >>> random = np.random.default_rng(0)
    >>> z = random.standard_normal((500, 3))
    >>> result = condition_number(z, z * [1.0, 1.0, 0.2], z @ [0.0, 0.6, 0.8], resamples=50)
    >>> abs(result.kappa.value - math.sqrt(3 * (0.6**2 + 0.8**2 / 0.2**2))) < 1e-9
    True
    """
    table = _features("features", features)
    questions, question_classes = _targets("pretraining", pretraining, len(table))
    targets, classes = _targets("downstream", downstream, len(table))
    checks.whole("resamples", resamples, at_least=24, at_most=100_000)
    if len(table) < max(24, 3 * (table.shape[1] + 1)):
        raise checks.BadInput(
            f"condition_number needs at least 24 samples and three per feature; got "
            f"{len(table)} samples of {table.shape[1]} features."
        )
    transferred = table if frozen is None else _features("frozen", frozen)
    if len(transferred) != len(table):
        raise checks.BadInput(
            f"frozen must have a row for each of the {len(table)} samples; got {len(transferred)}."
        )
    random = np.random.default_rng(checks.seed_number("seed", seed))
    result = kappa.estimate(table, questions, targets)
    size = len(table)
    logs = np.array(
        [
            kappa.log_estimate(table, questions, targets, random.integers(size, size=size), 2.0)
            for _ in range(resamples)
        ]
    )
    ends = kappa.interval(result, logs, table, questions, targets)
    return Transfer(
        kappa=kappa.reading(result, logs, size, ends),
        error=_transfer_error(transferred, targets, classes, random),
        scores=_scores(transferred, targets, classes, question_classes, source),
    )


def predicts(transfers: Sequence[Transfer]) -> dict[str, float]:
    """Return how well each score orders several transfers by their measured error.

    The values are Spearman's rank correlations, with the sign such that 1 is perfect. A score that
    is not defined for all transfers is left out.
    """
    from scipy.stats import spearmanr

    if len(transfers) < 3:
        raise checks.BadInput(f"transfers must be at least three; got {len(transfers)}.")
    errors = [transfer.error.value for transfer in transfers]
    table = {"condition number": [transfer.kappa.value for transfer in transfers]}
    for name in HIGHER_IS_BETTER:
        if all(transfer.scores[name].status is Status.OK for transfer in transfers):
            table[name] = [-transfer.scores[name].value for transfer in transfers]
    return {name: float(np.asarray(spearmanr(values, errors))[0]) for name, values in table.items()}


# -- transfer error and scores ---------------------------------------------------------------


def _transfer_error(features, targets, classes, random) -> Reading:
    """Return the error of a linear head, by five-fold cross-validation.

    Training sets overlap, so the standard error over rows is multiplied by the variance inflation
    factor of learning curves (after Nadeau and Bengio, 2003).
    """
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from attnlens.core.statistics import mean_reading

    folds = np.array_split(random.permutation(len(features)), FOLDS)
    errors = np.zeros(len(features))
    # In very large or small units the squares of features would overflow or vanish.
    features = kappa.standardised(features)
    variance = float(targets.var(0).sum())
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(features)), fold)
        if classes is None:
            head = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 3, 10)))
            predicted = head.fit(features[rest], targets[rest]).predict(features[fold])
            errors[fold] = ((predicted.reshape(targets[fold].shape) - targets[fold]) ** 2).sum(-1)
        else:
            head = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            errors[fold] = (
                head.fit(features[rest], classes[rest]).predict(features[fold]) != (classes[fold])
            )
    reading = mean_reading(errors if classes is not None else errors / variance)
    count = len(features)
    factor = float(inflation(np.array([count - count / FOLDS]), count, FOLDS)[0])
    return replace(reading, standard_error=reading.standard_error * factor)


def _scores(features, targets, classes, question_classes, source) -> dict[str, Reading]:
    # The prior of LogME and the penalty of a logistic regression are the same for all columns, so
    # the columns are standardised to make both independent of units.
    columns = kappa.standardised(features)
    outputs = targets - targets.mean(0) if classes is None else targets
    scores = {"LogME": _score(log_me(columns, outputs), len(features))}
    if classes is None:
        missing = Reading(math.nan, math.nan, 0, Status.NEEDS_CLASSES)
        return {**scores, "H-score": missing, "LEEP": missing}
    scores["H-score"] = _score(h_score(features, classes), len(features))
    if source is None and question_classes is None:
        return {**scores, "LEEP": Reading(math.nan, math.nan, 0, Status.NEEDS_SOURCE)}
    if source is None:
        source = _source(columns, question_classes)
    if source is None:
        return {**scores, "LEEP": Reading(math.nan, math.nan, 0, Status.NEEDS_SOURCE)}
    probabilities = _finite("source", source, 2)
    return {**scores, "LEEP": _score(left_out_leep(probabilities, classes), len(features))}


def _source(columns: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
    """Return cross-validated probabilities of the pretraining classes by logistic regression, or
    None if a class has a single row."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = min(FOLDS, int(np.bincount(classes).min()))
    if folds < 2:
        return None
    model = LogisticRegression(max_iter=1000)
    split = StratifiedKFold(folds)
    return np.asarray(cross_val_predict(model, columns, classes, cv=split, method="predict_proba"))


def _score(value: float, rows: int) -> Reading:
    return Reading(value, math.nan, rows)


def _finite(name: str, values: Any, dims: int) -> np.ndarray:
    array = arrays.numbers(name, values)
    if array.ndim != dims or not array.size or not np.isfinite(array).all():
        raise checks.BadInput(
            f"{name} must be finite numbers in {dims} dimension{'s' * (dims > 1)}; got shape "
            f"{array.shape}{'' if np.isfinite(array).all() else ' with NaN or infinity'}."
        )
    return array


def _features(name: str, values: Any) -> np.ndarray:
    """Return `values` as finite numbers (n, d), of which at least one column varies."""
    table = _finite(name, values, 2)
    if not kappa.standardised(table).shape[1]:
        raise checks.BadInput(
            f"{name} must have a column that varies by more than its rounding; got none in shape "
            f"{table.shape}."
        )
    return table


def _targets(name: str, values: Any, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return targets (n, k), one-hot rows for classes, and the class numbers (None for numbers)."""
    array = arrays.plain(name, values)
    classes = None
    if array.ndim == 1 and array.dtype.kind in "iub":
        names, classes = np.unique(array, return_inverse=True)
        if len(names) > MOST_CLASSES:
            raise checks.BadInput(
                f"{name} must hold at most {MOST_CLASSES:,} classes; got {len(names):,} different "
                f"whole numbers; convert them to floating point if they are quantities."
            )
        array = np.eye(len(names))[classes]
    table = _finite(name, array[:, None] if array.ndim == 1 else array, 2)
    if len(table) != rows or not np.ptp(table, 0).any():
        raise checks.BadInput(
            f"{name} must have a row for each of the {rows} samples and vary among them; got "
            f"shape {np.shape(values)}{' without variation' if len(table) == rows else ''}."
        )
    return arrays.moderate(name, table), classes
