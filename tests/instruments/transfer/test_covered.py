"""Targets that pretraining covers are not said to be outside of what it covers."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.instruments.transfer.kappa import estimate


@pytest.mark.parametrize("unrelated", [1, 5])
@pytest.mark.parametrize("weak", [1.0, 0.3, 0.1])
def test_unrelated_features_do_not_make_kappa_infinite(unrelated: int, weak: float):
    """Features that are independent of all targets lie outside of what pretraining covers, but no
    part of the downstream target does. κ is infinite with probability 0.001 per data set: more than
    2 of 40 have a probability of 1e-5. Without them, κ changes by no more than a tenth: each
    feature removes about one of the 300 rows' degrees of freedom."""
    infinite, ratios = 0, []
    for seed in range(40):
        random = np.random.default_rng(7000 + seed)
        latent = random.normal(size=(300, 3))
        pretraining = latent * [1, 1, weak] + 0.1 * random.normal(size=(300, 3))
        downstream = latent @ [[1], [1], [2]] + 0.1 * random.normal(size=(300, 1))
        features = np.hstack([latent, random.normal(size=(300, unrelated))])
        found = estimate(features, pretraining, downstream).kappa
        infinite += bool(np.isinf(found))
        ratios.append(found / estimate(latent, pretraining, downstream).kappa)
    assert infinite <= 2
    assert np.median(ratios) == pytest.approx(1, abs=0.1)


def test_errors_of_classes_that_are_correlated_do_not_make_kappa_infinite():
    """The errors of the columns of two classes are each other's negative, so the directions that
    pretraining covers are tilted twice as much as by independent errors. κ is infinite with
    probability 0.001 per data set: more than 3 of 200 have a probability of 6e-5. If errors counted
    as independent, 0.1 of the data sets would be."""
    infinite = 0
    for seed in range(200):
        random = np.random.default_rng([12, seed])
        latent, unrelated = random.normal(size=(300, 1)), random.normal(size=(300, 6))
        label = latent + random.normal(size=(300, 1)) > 0
        classes = np.hstack([label, ~label]).astype(float)
        downstream = latent + 0.1 * random.normal(size=(300, 1))
        found = estimate(np.hstack([latent, unrelated]), classes, downstream).kappa
        infinite += bool(np.isinf(found))
    assert infinite <= 3
