"""`equivariance`: a deviation of rounding size for models with the symmetry, and of order one for
models without it."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import equivariance
from attnlens.attention import softmax
from attnlens.core.checks import BadInput

TOKENS = np.random.default_rng(0).normal(size=(12, 3))
EPSILON = np.finfo(float).eps


def attend(x):
    x = jnp.asarray(x)
    return softmax(x, x, x)


def test_attention_is_equivariant_to_rounding():
    reading = equivariance(attend, TOKENS)
    # The output is a weighted mean of 12 tokens, added in another order: at most 12 roundings of
    # numbers below the largest output, and as many for the sum of the weights.
    assert 0 < reading.value < 24 * EPSILON
    assert reading.mean <= reading.value
    assert reading.count == 32


def test_pooling_is_invariant_and_positional_encoding_is_not():
    assert equivariance(lambda x: attend(x).mean(0), TOKENS, invariant=True).value < 50 * EPSILON
    positions = np.random.default_rng(1).normal(size=TOKENS.shape)
    assert equivariance(lambda x: attend(x + positions), TOKENS).value > 0.1
    assert equivariance(lambda x: x[0], TOKENS, invariant=True).value > 0.1


def test_the_deviation_equals_a_known_value():
    # For f(x) = x + position and x = 0 the deviation is the largest difference of positions, 3,
    # divided by the largest position, 4.
    positions = np.array([1.0, 2.0, 4.0])
    reading = equivariance(lambda x: x + positions, np.zeros(3), permutations=64)
    assert reading.value == 3 / 4


def test_float32_subjects_in_a_float32_process_are_measured_in_float64():
    with jax.enable_x64(False):
        assert equivariance(attend, TOKENS).value < 24 * EPSILON
        assert equivariance(attend, TOKENS.astype("float32")).value > EPSILON


def test_a_function_that_modifies_its_input_cannot_change_the_tokens():
    def in_place(x):
        x += 1
        return x

    before = TOKENS.copy()
    equivariance(in_place, TOKENS)
    np.testing.assert_array_equal(TOKENS, before)


@pytest.mark.parametrize(
    ("apply", "tokens", "settings", "message"),
    [
        (attend, np.zeros((1, 3)), {}, "at least two tokens"),
        (attend, np.zeros(()), {}, "at least two tokens"),
        (partial(np.mean, axis=0), TOKENS, {}, "use invariant=True"),
        (np.zeros_like, TOKENS, {}, "which must be finite and above 0; got 0.0"),
        (lambda x: x * np.nan, TOKENS, {}, "above 0; got nan"),
        (attend, TOKENS, {"permutations": 1}, "permutations must be a whole number of at least 2"),
        (attend, TOKENS, {"seed": -1}, "seed must be"),
    ],
)
def test_bad_input_raises_one_sentence(apply, tokens, settings, message: str):
    with pytest.raises(BadInput, match=message):
        equivariance(apply, tokens, **settings)
