"""Controls of several quantities are judged on the quantities that a profile has."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.claims import Measured, find
from attnlens.runs.judge import control_verdicts

(CLAIM,) = find(["A.desired-parameter"])
GAIN = "trained-gain"  # a control of "slope" and "level"; the level needs 1,024 tokens


def cells(*lengths: int) -> list[Measured]:
    """Temperatures that do not depend on the length."""
    random = np.random.default_rng(0)
    return [
        Measured(
            {"manifold_dim": 2, "length": length, "noise_std": 1.0},
            (0, 1, 2, 3),
            {"temperature": 0.3 * np.exp(0.01 * random.normal(size=4))},
        )
        for length in lengths
    ]


@pytest.mark.parametrize("lengths", [(64, 256), (64, 256, 1024)])
def test_a_control_is_judged_by_the_quantities_that_the_profile_has(lengths: tuple[int, ...]):
    measured = {arm: cells(*lengths) for arm in CLAIM.controls}
    assert control_verdicts(CLAIM, measured, 1)[GAIN].outcome == "refuted"
