"""Transferability scores from the literature, reported with the condition number.

    LogME     max over α, β of log p(y | F) / n,   y = F w + N(0, 1/β),  w ~ N(0, I/α)
              (You, Liu, Wang and Long, LogME, ICML 2021)
    H-score   tr( Cov(f)⁻¹ Cov(E[f | y]) )         f features, y classes
              (Bao et al., An Information-Theoretic Approach to Transferability, ICIP 2019)
    LEEP      mean log Σ_s P̂(y | s) θ_s(x),        θ_s(x) the source model's class probabilities
              (Nguyen et al., LEEP, ICML 2020); s are source classes, and P̂ for a row is estimated
              from the other rows (`left_out_leep`)

For all three, higher is better. Rows are samples.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attnlens.core import arrays, checks

from .kappa import whitened

Table = Float[np.ndarray, "samples _columns"]


def log_me(features: Table, targets: Float[np.ndarray, "samples _outputs"]) -> float:
    """Return the log evidence of a linear model per sample, averaged over target columns."""
    features, targets = _table("features", features), _table("targets", targets)
    if len(features) != len(targets) or not targets.size:
        raise checks.BadInput(
            f"targets must have one row per row of features, and a column; got shapes "
            f"{targets.shape} and {features.shape}."
        )
    left, singular, _ = np.linalg.svd(features, full_matrices=False)
    squares = singular**2
    projections = (left.T @ targets).T
    return float(
        np.mean(
            [
                _evidence(squares, along, float(column @ column), len(features))
                for along, column in zip(projections, targets.T, strict=True)
            ]
        )
    )


def _evidence(squares: np.ndarray, along: np.ndarray, energy: float, rows: int) -> float:
    """Return max over α, β of (log evidence)/n, by MacKay's fixed point in the singular basis of F.

    squares: the squared singular values s_j² of F. along: the coordinates u_j of y along the left
    singular vectors. energy: ‖y‖². rows: n.

    With γ = Σ β s²/(α + β s²) and the posterior mean m: α = γ/‖m‖², β = (n − γ)/‖F m − y‖²
    (Bishop, Pattern Recognition and Machine Learning, 2006, section 3.5). With λ = α/β

        m_j = s_j u_j/(λ + s_j²),   ‖F m − y‖² = ‖y‖² − Σ u_j² + Σ (λ u_j/(λ + s_j²))²
    """
    tiny = np.finfo(float).tiny
    outside = max(energy - float(along @ along), 0.0)
    alpha = beta = 1.0
    for _ in range(1000):
        ratio = alpha / beta
        weight = float((squares * along**2 / (ratio + squares) ** 2).sum())
        residual = outside + float(((ratio * along / (ratio + squares)) ** 2).sum())
        used = float((squares / (ratio + squares)).sum())
        # For a perfect fit, or for a target that the features do not explain at all, α or β would
        # be infinite. The bounds on them are so large that they do not change a ranking.
        new_alpha = used / max(weight, 1e-12 * energy / max(float(squares.sum()), tiny), tiny)
        new_beta = (rows - used) / max(residual, 1e-12 * energy, tiny)
        done = abs(new_alpha * beta / (alpha * new_beta) - 1) < 1e-10
        alpha, beta = new_alpha, new_beta
        if done:
            break
    ratio = alpha / beta
    weight = float((squares * along**2 / (ratio + squares) ** 2).sum())
    residual = outside + float(((ratio * along / (ratio + squares)) ** 2).sum())
    evidence = rows * math.log(beta) - beta * residual - alpha * weight
    evidence -= float(np.log1p(squares * beta / alpha).sum()) + rows * math.log(2 * math.pi)
    return evidence / (2 * rows)


def h_score(features: Table, classes: Int[np.ndarray, " samples"]) -> float:
    """Return the variance between classes in units of the features' covariance.

    It is at most about the number of features. In white features w (Cov = I, mean zero) the score
    is Σ_c p_c ‖μ_c‖², where p_c is the share of class c and μ_c the mean of its rows. With class
    means from the same rows, the score would be too large by (classes − 1) · features/n even if
    features and classes are independent. So every row w_i is multiplied by the mean of the *other*
    rows of its class, "m_c without i":

        mean over i of  (1 − 1/n) ⟨m_c without i, w_i⟩ + ‖w_i‖²/n

    The mean of this over all orders of the labels is exactly zero, because the mean of all rows
    without i is −w_i/(n − 1). If the features are a function of the class, the score is the number
    of independent feature directions. A class with a single row contributes nothing.
    """
    white = whitened(_table("features", features))
    classes = _class_labels(classes, len(white))
    count = len(white)
    _, numbers, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    sums = np.eye(len(sizes))[numbers].T @ white
    squares = (white**2).sum(1)
    others = ((sums[numbers] * white).sum(1) - squares) / np.maximum(sizes[numbers] - 1, 1)
    rows = np.where(sizes[numbers] > 1, (1 - 1 / count) * others + squares / count, 0.0)
    return float(rows.mean())


def leep(source: Table, classes: Int[np.ndarray, " samples"]) -> float:
    """Return LEEP, the mean log likelihood of labels given the source model's classes (≤ 0)."""
    source = _probabilities(source)
    classes = _class_labels(classes, len(source))
    _, numbers = np.unique(classes, return_inverse=True)
    joint = np.eye(numbers.max() + 1)[numbers].T @ source  # (class, source class)
    conditional = joint / np.maximum(joint.sum(0), np.finfo(float).tiny)
    return float(np.log((conditional[numbers] * source).sum(-1)).mean())


def left_out_leep(source: Table, classes: Int[np.ndarray, " samples"]) -> float:
    """Return LEEP with P̂(y | s) estimated for each row from all *other* rows.

    If P̂ were estimated from all rows, it would contain the label that it predicts, and a source of
    pure noise would get a higher score than a constant source. Without row i, the estimate is

        P̂₋ᵢ(y | s) = (Σ_{j≠i, y_j = y} θ_s(x_j) + p₋ᵢ(y)) / (Σ_{j≠i} θ_s(x_j) + 1)

    The added p₋ᵢ(y) and 1 act as one more row, with the classes in proportion to their frequency;
    they keep P̂ defined if no other row has source class s. p₋ᵢ(y) is ((number of other rows of
    class y) + 1/classes)/n.
    """
    source = _probabilities(source)
    classes = _class_labels(classes, len(source))
    names, numbers = np.unique(classes, return_inverse=True)
    members = np.eye(len(names))[numbers]
    joint = (members.T @ source)[numbers] - source  # (row, source class); leaves out the row itself
    others = (members.sum(0)[numbers] - 1 + 1 / len(names)) / len(source)
    conditional = (joint + others[:, None]) / (source.sum(0) - source + 1)
    return float(np.log((conditional * source).sum(-1)).mean())


def _table(name: str, values: Any) -> np.ndarray:
    """Check `values` and return them as finite float64 numbers (samples, columns)."""
    table = arrays.finite_numbers(name, values)
    if table.ndim != 2 or not len(table):
        raise checks.BadInput(
            f"{name} must be an array (samples, columns) with at least one sample; got shape "
            f"{table.shape}."
        )
    return table


def _class_labels(values: Any, samples: int) -> np.ndarray:
    """Check `values` and return them as class labels, one per sample and none missing."""
    labels = arrays.labels("classes", values)
    if labels.shape != (samples,):
        raise checks.BadInput(
            f"classes must hold one label for each of {samples} samples; got shape {labels.shape}."
        )
    return labels


def _probabilities(source: Any) -> np.ndarray:
    source = _table("source", source)
    if (source < 0).any() or not np.allclose(source.sum(-1), 1):
        raise checks.BadInput(
            "source must hold one row of probabilities per sample, each with the sum 1; "
            "give the softmax of the source model's outputs."
        )
    return source
