"""Will a pretrained representation transfer? The condition number of a downstream target.

Let pretraining ask for m(q, z) = ⟨ψ(q), A b(z)⟩ and a downstream task for ⟨c, b(z)⟩. With Σ the
second moment of ψ(q),

    κ² = cᵀ (Aᵀ Σ A)⁺ c,   κ = ∞ where c is not in the row space of Σ^(1/2) A,

    downstream excess risk ≤ κ² × pretraining excess risk

by the Cauchy–Schwarz inequality in the Σ-norm (prediction (14) of our formalisation of lens A). A
large κ says that pretraining hardly asks about what the task needs.

The module `kappa` estimates it from features and targets.

κ is about the two tasks, and features must still hold what both need: of a target that they have
lost, κ only sees the part that is left (`kappa.details["explained"]` says how much). To judge
features that went through a bottleneck, give rich ones as `features` and those as `frozen`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlens import checks
from attnlens.records import Figure, Point, Reading, Series

from . import kappa
from .scores import h_score, leep, log_me

FOLDS = 5
MORE_IS_BETTER = ("LogME", "H-score", "LEEP")


@dataclass(frozen=True)
class Transfer:
    """What was found about a pretrained representation and a downstream target.

    kappa: the condition number, infinite with a status that says how much of the target lies
        outside of what pretraining asks about; `interval` is its 95 % interval (BCa).
    error: the measured transfer error, of a linear head on held-out samples: the share of variance
        that is left (numbers) or the share of wrong classes.
    scores: LogME, H-score and LEEP; those that are not defined have a status that says why.
    """

    kappa: Reading
    interval: tuple[float, float]
    error: Reading
    scores: Mapping[str, Reading]

    def __str__(self) -> str:
        low, high = self.interval
        kappa = f"{self.kappa.value:.3g}, 95 % interval {low:.3g} to {high:.3g}"
        if math.isinf(self.kappa.value):
            kappa = f"{self.kappa.value:.3g}: {self.kappa.status}"
        held = f"{self.kappa.details['explained']:.0%} of the target's variance"
        rows = [("condition number", kappa), ("of what features explain", held)]
        rows += [("transfer error, measured", str(self.error))]
        for name, score in self.scores.items():
            rows.append((name, f"{score.value:.4g}" if score.status == "ok" else score.status))
        return "\n".join(f"{name:<26}{said}" for name, said in rows)

    def figure(self) -> Figure:
        """The measured transfer error at the condition number."""
        return against({"target": self})

    def plot(self) -> Any:
        """That point as a matplotlib figure; `against` draws several targets."""
        return self.figure().plot()


def against(transfers: Mapping[str, Transfer]) -> Figure:
    """Condition number against measured transfer error, a named target a point.

    A target with an infinite κ has no place on the axis: its name in the legend says so.

    >>> against({}).x_label
    'condition number κ'
    """
    series = []
    for name, found in transfers.items():
        kappa, error = found.kappa.value, found.error
        point = Point(kappa, error.value, 1.96 * error.standard_error)
        drawn = math.isfinite(kappa) and math.isfinite(error.value)
        words = name if drawn else f"{name}: κ infinite, error {error.value:.3g}"
        series.append(Series(words, (point,) if drawn else ()))
    return Figure(
        "Condition number against measured transfer", "condition number κ", "transfer error",
        tuple(series), log_y=False,
    )  # fmt: skip


def known_condition_number(
    head: Any, mixing: Any = None, query_moment: Any = None, *, tolerance: float | None = None
) -> float:
    """κ of a known world: head c (d), mixing A (r, d) and second moment Σ (r, r) of ψ(q).

    A and Σ are the identity where they are left out. `tolerance` is the singular value of
    Σ^(1/2) A, as a share of the largest, below which a direction counts as not asked about; by
    default the root of (size × ε), about 3e−8: a Σ that is singular on paper has eigenvalues of
    size ε in floating point, and its root has the root of that.

    >>> round(known_condition_number([1.0, 1.0], query_moment=[[1.0, 0.0], [0.0, 0.25]]) ** 2, 12)
    5.0
    >>> known_condition_number([1.0, 1.0], query_moment=[[1.0, 0.0], [0.0, 0.0]])
    inf
    """
    c = _finite("head", np.atleast_1d(np.asarray(head, float)), 1)
    moment = None if query_moment is None else _finite("query_moment", query_moment, 2)
    size = len(c) if moment is None else len(moment)
    matrix = np.eye(size, len(c)) if mixing is None else _finite("mixing", mixing, 2)
    if matrix.shape != (size, len(c)) or (moment is not None and moment.shape != (size, size)):
        raise checks.BadInput(
            f"mixing must be (r, d) and query_moment (r, r) for a head of d = {len(c)} numbers, "
            f"but {matrix.shape} and {None if moment is None else moment.shape} came."
        )
    if moment is not None:
        values, vectors = np.linalg.eigh(0.5 * (moment + moment.T))
        if values[0] < -1e-9 * max(values[-1], 0) or values[-1] <= 0:
            raise checks.BadInput(
                f"query_moment must be a second moment, with no negative eigenvalue and one "
                f"above 0, but its eigenvalues go from {values[0]:.3g} to {values[-1]:.3g}."
            )
        matrix = (np.sqrt(np.maximum(values, 0))[:, None] * vectors.T) @ matrix
    _, singular, axes = np.linalg.svd(matrix, full_matrices=False)
    if tolerance is None:
        tolerance = math.sqrt(max(matrix.shape) * np.finfo(float).eps)
    seen = singular > tolerance * singular.max(initial=0)
    along = axes[seen] @ c
    outside = np.linalg.norm(c - axes[seen].T @ along)
    # The rest of c is known to rounding; a direction is in the row space to `tolerance` or not.
    if outside > tolerance * np.linalg.norm(c):
        return math.inf
    return float(np.linalg.norm(along / singular[seen]))


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
    """κ of a downstream target, with an interval, beside LogME, H-score, LEEP and the measured
    transfer error.

    features: (n, d), of a pretrained model. pretraining: what it was trained to predict, (n,) or
    (n, k) numbers, or n class numbers (an integer array). downstream: (n,) or (n, outputs)
    numbers, or n class numbers. frozen: the features that the error and the scores are about, where
    they are others. source: (n, classes) probabilities of the pretrained model, for
    LEEP only; left out, a logistic regression from features to pretraining classes gives them.

    >>> draws = np.random.default_rng(0)
    >>> z = draws.standard_normal((500, 3))
    >>> found = condition_number(z, z * [1.0, 1.0, 0.2], z @ [0.0, 0.6, 0.8], resamples=50)
    >>> found.interval[0] < math.sqrt(3 * (0.6**2 + 0.8**2 / 0.2**2)) < found.interval[1]
    True
    """
    table = _finite("features", features, 2)
    asked, asked_classes = _targets("pretraining", pretraining, len(table))
    wanted, classes = _targets("downstream", downstream, len(table))
    checks.whole("resamples", resamples, at_least=24)
    if len(table) < max(24, 3 * (table.shape[1] + 1)):
        raise checks.BadInput(
            f"condition_number needs at least 24 samples and three a feature, but "
            f"{len(table)} samples of {table.shape[1]} features came."
        )
    moved = table if frozen is None else _finite("frozen", frozen, 2)
    if len(moved) != len(table):
        raise checks.BadInput(
            f"frozen must have a row for each of the {len(table)} samples, but {len(moved)} came."
        )
    draws = np.random.default_rng(checks.whole("seed", seed))
    found = kappa.estimate(table, asked, wanted)
    logs = np.array(
        [
            kappa.log_estimate(table, asked, wanted, draws.integers(len(table), size=len(table)))
            for _ in range(resamples)
        ]
    )
    return Transfer(
        kappa=kappa.reading(found, logs, len(table)),
        interval=kappa.interval(found, logs, table, asked, wanted),
        error=_transfer_error(moved, wanted, classes, draws),
        scores=_scores(moved, wanted, classes, asked_classes, source),
    )


def predicts(transfers: Sequence[Transfer]) -> dict[str, float]:
    """How well each score orders several transfers by their measured error: rank correlations
    (Spearman), with the sign turned so that 1 is perfect. Scores that some lack are left out."""
    from scipy.stats import spearmanr

    if len(transfers) < 3:
        raise checks.BadInput(f"give at least three transfers to compare; {len(transfers)} came.")
    errors = [transfer.error.value for transfer in transfers]
    table = {"condition number": [transfer.kappa.value for transfer in transfers]}
    for name in MORE_IS_BETTER:
        if all(transfer.scores[name].status == "ok" for transfer in transfers):
            table[name] = [-transfer.scores[name].value for transfer in transfers]
    return {name: float(np.asarray(spearmanr(values, errors))[0]) for name, values in table.items()}


# -- beside it -------------------------------------------------------------------------------


def _transfer_error(features, wanted, classes, draws) -> Reading:
    """A linear head, judged on samples that it has not seen (five folds)."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from attnlens.statistics import mean_reading

    folds = np.array_split(draws.permutation(len(features)), FOLDS)
    errors = np.zeros(len(features))
    variance = float(wanted.var(0).sum())
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(features)), fold)
        if classes is None:
            head = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 3, 10)))
            predicted = head.fit(features[rest], wanted[rest]).predict(features[fold])
            errors[fold] = ((predicted.reshape(wanted[fold].shape) - wanted[fold]) ** 2).sum(-1)
        else:
            head = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            errors[fold] = (
                head.fit(features[rest], classes[rest]).predict(features[fold]) != (classes[fold])
            )
    return mean_reading(errors if classes is not None else errors / variance)


def _scores(features, wanted, classes, asked_classes, source) -> dict[str, Reading]:
    centred = features - features.mean(0)
    targets = wanted - wanted.mean(0) if classes is None else wanted
    found = {"LogME": _score(log_me(centred, targets), len(features))}
    if classes is None:
        missing = Reading(math.nan, math.nan, 0, "not defined: it needs downstream classes")
        return {**found, "H-score": missing, "LEEP": missing}
    found["H-score"] = _score(h_score(features, classes), len(features))
    if source is None and asked_classes is None:
        said = "not defined: it needs source=… or pretraining classes"
        return {**found, "LEEP": Reading(math.nan, math.nan, 0, said)}
    if source is None:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=1000).fit(features, asked_classes)
        source = model.predict_proba(features)
    probabilities = _finite("source", source, 2)
    return {**found, "LEEP": _score(leep(probabilities, classes), len(features))}


def _score(value: float, rows: int) -> Reading:
    return Reading(value, math.nan, rows)


def _finite(name: str, values: Any, dims: int) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != dims or not array.size or not np.isfinite(array).all():
        raise checks.BadInput(
            f"{name} must be finite numbers in {dims} dimension{'s' * (dims > 1)}, but shape "
            f"{array.shape}{'' if np.isfinite(array).all() else ' with NaN or infinity'} came."
        )
    return array


def _targets(name: str, values: Any, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(n, k) numbers; of classes their one-hot rows, and the class numbers as well."""
    array = np.asarray(values)
    classes = None
    if array.ndim == 1 and array.dtype.kind in "iub":
        names, classes = np.unique(array, return_inverse=True)
        array = np.eye(len(names))[classes]
    table = _finite(name, array[:, None] if array.ndim == 1 else array, 2)
    if len(table) != rows or not (table.std(0) > 0).any():
        raise checks.BadInput(
            f"{name} must have a row for each of the {rows} samples and vary among them, but "
            f"shape {np.shape(values)} came{' and does not vary' if len(table) == rows else ''}."
        )
    return table, classes
