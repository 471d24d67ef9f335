"""Samples of teachers and n(ε): attended inputs, censoring, paired answers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.claims.teacher_student import (
    log_sizes,
    sparse_samples,
    teacher_samples,
)
from attnlens.networks import Attended, KnownAttention
from attnlens.worlds import SparseTeacher
from attnlens.worlds.seeding import episode_keys

WORLD = SparseTeacher(features=6, attended=2)
KEYS = episode_keys((0, 1), 6)
PADDED_FEATURES = 8


@pytest.fixture(scope="module")
def samples():
    return sparse_samples(WORLD, KEYS, 20, 512, PADDED_FEATURES)


def test_known_attention_is_the_baseline_on_attended_inputs(samples):
    plain, attended = samples
    model = KnownAttention(jax.random.key(0), features=PADDED_FEATURES, hidden=3)
    x = plain.inputs[0, 0]
    f = np.divide(attended.inputs[0, 0], x, out=np.zeros_like(x), where=x != 0)
    # x ⊙ (x ⊙ f / x) is x ⊙ f up to two roundings.
    expected = np.asarray(model(Attended(jnp.asarray(x), jnp.asarray(f))))
    output = np.asarray(model.body(jnp.asarray(attended.inputs[0, 0])))
    assert output == pytest.approx(expected, rel=1e-12)
    assert (np.count_nonzero(attended.inputs, axis=-1) == 2).all()
    assert not plain.inputs[:, :, 6:].any()


def test_an_answering_world_keeps_teachers_inputs_and_noise():
    relu = SparseTeacher(features=6, attended=2, sharpness=math.inf)
    before, after = (teacher_samples(WORLD, KEYS, 20, 512, answering=w) for w in (None, relu))
    assert (before.inputs == after.inputs).all()
    direct = relu.sample(KEYS[0], 20, 512)
    # The noise is added and subtracted once: a few rounding units of numbers of order one.
    assert after.targets[0] == pytest.approx(np.asarray(direct.tokens.value), abs=1e-14)
    assert after.answers[0] == pytest.approx(np.asarray(direct.answer), abs=1e-14)


def test_censored_sizes_are_the_ends_of_the_grid():
    sizes = (10, 100, 1000)
    errors = np.array([[1.0, 0.1, 0.01], [0.9, 0.8, 0.7], [0.2, 0.1, 0.05]])
    expected = [10 / 0.3, 1000, 10]  # the first falls as 10/n
    assert np.exp(log_sizes(sizes, errors, 0.3)) == pytest.approx(expected, rel=1e-12)
