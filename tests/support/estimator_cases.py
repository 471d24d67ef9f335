"""Data and estimators for tests of the scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlens import AttentionClassifier, AttentionRegressor, KernelAttentionRegressor

EPS = np.finfo(float).eps
random = np.random.default_rng(0)
X = random.normal(size=(40, 3))
Y = X[:, 0] * X[:, 1] + 0.1 * random.normal(size=40)
COLOURS = np.where(Y > 0, "red", "blue")
NEW = random.normal(size=(12, 3))
COUNTS = random.integers(0, 4, size=40)
QUICK: dict[str, Any] = {"steps": 20}
KERNEL = KernelAttentionRegressor(ridge=0.1, temperature=2.0)
ALL = [AttentionClassifier(**QUICK), AttentionRegressor(**QUICK), KERNEL]


def labels(estimator: Any) -> np.ndarray:
    return COLOURS if isinstance(estimator, AttentionClassifier) else Y


def answers(estimator: Any, inputs: Any) -> list[np.ndarray]:
    """The predictions of an estimator by all of its methods."""
    if isinstance(estimator, AttentionClassifier):
        return [estimator.decision_function(inputs), estimator.predict_proba(inputs)]
    if isinstance(estimator, KernelAttentionRegressor):
        return [*estimator.predict(inputs, return_std=True)]
    return [estimator.predict(inputs)]


def bound(ridge: float, count: int) -> float:
    """A bound on the relative error of a Cholesky solve, about n ε cond(A) (Higham, Accuracy and
    Stability, 2002, section 10.1), where cond(A) ≤ (n + λ)/λ for κ(k, k) = 1."""
    return count * EPS * (count + ridge) / ridge
