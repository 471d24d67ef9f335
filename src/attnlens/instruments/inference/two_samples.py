"""C2ST: can a classifier tell two samples apart?

C2ST is the accuracy, on held-out points, of a classifier that is trained to tell the samples apart:
½ if both samples come from the same distribution, 1 if the samples do not overlap (Lopez-Paz and
Oquab, Revisiting classifier two-sample tests, 2017). A weak classifier may miss a difference, so a
value near ½ does not prove that the distributions are equal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from attnlens.core import arrays, checks
from attnlens.core.readings import Reading
from attnlens.core.status import Status

FOLDS = 5


def c2st(first: Any, second: Any, *, classifier: Any = None, seed: int = 0) -> Reading:
    """The accuracy with which a classifier tells two samples (points, dim) apart.

    If one sample is larger, only its first points are used, so that guessing has accuracy ½.
    `classifier` is a scikit-learn classifier, by default gradient-boosted trees. The standard error
    is that of a share of the held-out points.

    >>> random = np.random.default_rng(0)
    >>> apart = c2st(random.normal(size=(200, 1)), random.normal(size=(200, 1)) + 9)
    >>> apart.value > 0.99
    True
    """
    from sklearn.base import clone  # imported here because it is slow
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    samples = [arrays.numbers("the samples", sample) for sample in (first, second)]
    samples = [sample[:, None] if sample.ndim == 1 else sample for sample in samples]
    size = min(map(len, samples))
    if any(sample.ndim != 2 for sample in samples) or size < 2 * FOLDS:
        raise checks.BadInput(
            f"the samples must be arrays (points, dim) of at least {2 * FOLDS} points; got shapes "
            f"{samples[0].shape} and {samples[1].shape}."
        )
    if samples[0].shape[1] != samples[1].shape[1]:
        raise checks.BadInput(
            f"the samples must have one dimension; got {samples[0].shape[1]} and "
            f"{samples[1].shape[1]}."
        )
    points = np.concatenate([sample[:size] for sample in samples])
    if not np.isfinite(points).all():
        return Reading(math.nan, math.nan, 2 * size, Status.NOT_FINITE)
    labels = np.repeat([0, 1], size)
    seed = checks.seed_number("seed", seed)
    if classifier is None:
        classifier = HistGradientBoostingClassifier(
            max_iter=40, max_leaf_nodes=8, random_state=seed
        )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1, "openmp"):  # the trees are too small for several threads
        named = np.asarray(cross_val_predict(clone(classifier), points, labels, cv=folds))
    accuracy = float(np.mean(named == labels))
    # Laplace's rule of succession gives an error above zero even if the accuracy is 1.
    smooth = (accuracy * 2 * size + 1) / (2 * size + 2)
    return Reading(accuracy, math.sqrt(smooth * (1 - smooth) / (2 * size)), 2 * size)
