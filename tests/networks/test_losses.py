"""Losses against numbers computed by hand."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import LOSSES, Hidden
from attnlens.networks.losses import named

EPS = np.finfo(float).eps


@pytest.mark.parametrize(
    ("name", "outputs", "target", "expected"),
    [
        ("squared", [1.0, 2.0], jnp.array([0.0, 4.0]), (1 + 4) / 2),
        ("logistic", [math.log(3)], jnp.array([1.0]), math.log(4 / 3)),  # σ(log 3) = 3/4
        ("logistic", [math.log(3)], jnp.array([0.0]), math.log(4)),
        ("softmax", [0.0, math.log(2), 0.0], jnp.array(1), math.log(2)),  # p = 2/(1 + 2 + 1)
        # Mean 1, variance v = 4, target 4: ½ (log 4 + 9/4 + log 2π).
        (
            "gaussian",
            [[1.0], [math.log(4)]],
            jnp.array([4.0]),
            0.5 * (math.log(4) + 9 / 4 + math.log(2 * math.pi)),
        ),
        # Only the hidden token counts: (1 + 9)/2. The other one may have any error.
        (
            "masked-squared",
            [[7.0, 7.0], [1.0, 3.0]],
            Hidden(jnp.array([[0.0, 0.0], [0.0, 0.0]]), jnp.array([False, True])),
            5.0,
        ),
        (
            "masked-squared",
            [[7.0, 7.0], [1.0, 3.0]],
            Hidden(jnp.zeros((2, 2)), jnp.array([[False, False], [False, True]])),
            9.0,
        ),
        (
            "masked-softmax",
            [[0.0, 0.0], [0.0, math.log(3)]],
            Hidden(jnp.array([0, 1]), jnp.array([True, True])),
            (math.log(2) + math.log(4 / 3)) / 2,
        ),
    ],
)
def test_losses_have_the_values_worked_out_by_hand(name: str, outputs, target, expected: float):
    assert float(LOSSES[name](jnp.array(outputs), target)) == pytest.approx(expected, rel=8 * EPS)


def test_the_logistic_loss_of_a_certain_answer_is_zero_to_rounding():
    # log(1 + e^50) − 50 = e^(−50), a difference of two numbers of 50: known to 50 ε.
    value = float(LOSSES["logistic"](jnp.array([50.0]), jnp.array([1.0])))
    assert value == pytest.approx(math.exp(-50), abs=50 * EPS)


def test_a_loss_by_name_or_as_a_function():
    assert named("squared") is LOSSES["squared"]
    assert named(LOSSES["softmax"]) is LOSSES["softmax"]
    with pytest.raises(BadInput, match="loss must be one of squared"):
        named("cubed")
