"""C2ST of samples whose best accuracy is known."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.instruments import c2st


def test_equal_laws_and_shifted_ones():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 400, 2))
    equal = c2st(first, second)
    assert abs(equal.value - 0.5) < 4.5 * equal.standard_error  # false positives: 1 in 1.5e5
    # Samples that are uniform on (0, 1) and on (½, 1½): the best classifier is right for ¾ of the
    # points.
    apart = c2st(random.uniform(size=400), 0.5 + random.uniform(size=400))
    assert 0.6 < apart.value < 0.75 + 4.5 * apart.standard_error
    assert equal.count == apart.count == 800


def test_samples_that_cannot_be_compared():
    rows = np.zeros((20, 2))
    assert c2st(rows, rows * np.nan).status == "an output is not finite"
    for other in (np.zeros((20, 3)), np.zeros((4, 2)), np.zeros((20, 2, 1))):
        with pytest.raises(BadInput, match="the samples must"):
            c2st(rows, other)
