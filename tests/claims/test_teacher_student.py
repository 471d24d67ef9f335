"""Samples drawn from teachers and sample sizes n(ε): attended inputs, censoring, paired answers."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.sample_complexity import known_attention
from attnlens.claims.sample_complexity.global_attention import Masked
from attnlens.claims.teacher_student import (
    Samples,
    best_candidate,
    log_sample_size,
    log_size_ratio,
    log_sizes,
    sparse_samples,
    teacher_samples,
)
from attnlens.claims.token_students import mean_tokens
from attnlens.networks import Attended, Baseline, KnownAttention, MultiLayerSelfAttention
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
    # Up to two roundings, x ⊙ (x ⊙ f / x) equals x ⊙ f.
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
    # The noise is added once and subtracted once, which costs a few rounding units of numbers of
    # order one.
    assert after.targets[0] == pytest.approx(np.asarray(direct.tokens.value), abs=1e-14)
    assert after.answers[0] == pytest.approx(np.asarray(direct.answer), abs=1e-14)


def test_censored_sizes_are_the_ends_of_the_grid():
    sizes = (10, 100, 1000)
    errors = np.array([[1.0, 0.1, 0.01], [0.9, 0.8, 0.7], [0.2, 0.1, 0.05]])
    expected = [10 / 0.3, 1000, 10]  # the first curve is 10/n
    assert np.exp(log_sizes(sizes, errors, 0.3)) == pytest.approx(expected, rel=1e-12)


def test_the_support_alone_keeps_inputs_and_drops_weights(samples):
    plain, attended = samples
    _, supported = sparse_samples(WORLD, KEYS, 20, 512, PADDED_FEATURES, support=True)
    kept = attended.inputs != 0
    assert (supported.inputs == np.where(kept, plain.inputs, 0)).all()
    assert (supported.targets == plain.targets).all()


SIZES = [16, 64, 256, 1024]


def curves(scale: np.ndarray) -> np.ndarray:
    """Errors `scale`/n, for which n(ε) = scale/ε exactly, because curves are interpolated as power
    laws."""
    return scale[..., None] / np.array(SIZES)


def test_the_ratio_of_sample_sizes_is_that_of_the_curves():
    scale = np.array([20.0, 30.0, 40.0])
    cell = Measured(
        {"sizes": SIZES, "goal": 0.5},
        (0, 1, 2),
        {"slow": curves(4 * scale), "fast": curves(scale)},
    )
    ratios = log_size_ratio("slow", "fast", ("sizes", "sizes"))([cell])
    # Without censored values the pseudo-values equal the values, up to the tolerance of the fit.
    assert ratios == pytest.approx(np.full(3, math.log(4)), abs=1e-9)
    other = log_sample_size("fast", "sizes", goal=0.25)([cell])
    assert other == pytest.approx(np.log(scale / 0.25), abs=1e-9)


def test_curves_that_hardly_ever_cross_have_the_ends_of_the_grid():
    cell = Measured({"sizes": SIZES, "goal": 0.5}, (0, 1), {"never": np.full((2, 4), 0.9)})
    assert log_sample_size("never", "sizes")([cell]) == pytest.approx(np.log([1024.0, 1024.0]))


def test_the_rule_of_known_attention_measures_the_growth_with_features():
    features = np.array([8.0, 16.0, 32.0])
    scale = np.random.default_rng(0).uniform(2, 3, size=(6, 1)) * features
    parameters = {
        "baseline_sizes": SIZES,
        "known_sizes": SIZES,
        "goal": 0.4,
        "features": [8, 16, 32],
    }
    for known, slope in ((np.repeat(scale[:, :1], 3, 1), 1.0), (scale, 0.0)):
        values = {"baseline": curves(scale), "known": curves(known)}
        slopes = known_attention.slope([Measured(parameters, tuple(range(6)), values)])
        assert slopes == pytest.approx(np.full(6, slope), abs=1e-8)


def test_attention_to_mean_tokens_is_uniform_in_every_layer():
    random = np.random.default_rng(1)
    tokens = Samples(random.normal(size=(1, 2, 3, 4)), *np.zeros((3, 1, 2, 3, 4)))
    model = MultiLayerSelfAttention(jax.random.key(0), tokens=4, token_dim=3, hidden=2)
    inputs = mean_tokens(tokens).inputs[0, 0]
    for weights in model.attention(jnp.asarray(inputs)):
        assert np.asarray(weights) == pytest.approx(np.full((4, 4), 0.25), abs=1e-12)
    assert inputs.mean(1) == pytest.approx(tokens.inputs[0, 0].mean(1), rel=1e-12)


def test_a_mask_starts_as_the_baseline():
    shape = {"features": 5, "hidden": 3, "sharpness": 5.0}
    models = (make(jax.random.key(2), **shape) for make in (Masked, Baseline))
    x = jnp.arange(5.0)
    masked, plain = (np.asarray(model(x)) for model in models)
    assert masked == pytest.approx(plain, rel=1e-12)


def test_the_candidate_that_held_out_rows_prefer_is_chosen(samples):
    plain, _ = samples
    useless = plain._replace(inputs=0 * plain.inputs, fresh=0 * plain.fresh)
    make = partial(Baseline, features=PADDED_FEATURES, hidden=3)
    training = {"steps": 200, "learning_rate": 0.05, "validation": 0.5, "l2": (1e-3, 1e-2)}
    both, alone = (
        best_candidate([(make, view) for view in views], (0, 1), (20,), **training)
        for views in ((useless, plain), (useless,))
    )
    assert both.shape == (2, 1)
    # A network whose inputs are all zero is a constant, and the relative error of a constant is at
    # least one.
    assert (alone >= 1).all()
    assert (both < 1).all()
