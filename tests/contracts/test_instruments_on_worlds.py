"""Every instrument that takes a world, on every registered world and on worlds of a user: readings,
or a refusal of one sentence."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from attnlens.attention import softmax
from attnlens.core.checks import BadInput
from attnlens.instruments.inference.calibration import calibration, reference_c2st
from attnlens.instruments.inference.error import inference_error
from attnlens.instruments.inference.learned import generalisation
from attnlens.instruments.inference.posterior import tightening
from attnlens.instruments.representation.sufficiency import representation
from attnlens.instruments.transfer.condition import condition_number
from attnlens.worlds import (
    EXAMPLES,
    ExactWorld,
    FiniteMixture,
    FromModel,
    GaussianProcess,
    Nuts,
    PairwiseInteraction,
    ReferenceWorld,
    TokenTeacher,
)

# Both posteriors of OWN are log-concave. In pilots the smallest effective sample size of 64
# episodes was above 600.
SMALL = Nuts(chains=8, warmup=200, draws=200, particles=512)
OWN = {
    "own": FromModel(
        dist.Normal(jnp.zeros(2), 1.0).to_event(1),
        lambda z: dist.Normal(z, 1.0).to_event(1),
        nuts=SMALL,
    ),
    "own-keys": FromModel(
        dist.Normal(0.0, 1.0),
        lambda z, k: dist.Normal(z * k[0], 0.5),
        key_dim=1,
        keys=lambda key, count: jax.random.uniform(key, (count, 1), minval=0.5, maxval=1.0),
        nuts=SMALL,
    ),
}
SAMPLED = {name: w for name, w in EXAMPLES.items() if isinstance(w, ReferenceWorld)}
WORLDS = {name: w for name, w in EXAMPLES.items() if name not in SAMPLED}
# The quick tests run one world per kind: further worlds of a kind compile the same programs again.
QUICK = {"gaussian-process", "linear-regression", "normal-mean", "dirichlet-categorical"}
QUICK |= {"finite-mixture", "token-teacher", "auto-regressive"}
QUICK_TO_TRAIN_ON = {"normal-mean", "finite-mixture", "token-teacher"}


def parameters(worlds, quick):
    return [
        pytest.param(world, id=name, marks=[] if name in quick else pytest.mark.slow)
        for name, world in worlds.items()
    ]


def with_small_chains(world):
    return eqx.tree_at(lambda w: w.nuts, world, SMALL, is_leaf=lambda x: isinstance(x, Nuts))


SAMPLED_SMALL = {name: with_small_chains(world) for name, world in SAMPLED.items()}
each_world = pytest.mark.parametrize("world", parameters({**WORLDS, **OWN, **SAMPLED_SMALL}, QUICK))


def has_number_or_reason(reading, world) -> bool:
    """Whether a reading has a number. Only where posteriors of a registered world are sampled, with
    few draws, one of them may fail a check; then the reading says how many did, and what helps."""
    if not reading.status.has_number:
        assert any(isinstance(world, type(sampled)) for sampled in SAMPLED.values())
        assert 0 < reading.failed <= reading.episodes
        assert np.isnan(reading.value)
        assert reading.reason.endswith(".")
        return False
    assert np.isfinite([reading.value, reading.standard_error]).all()
    return True


def refused(world, call) -> bool:
    """Whether `world` has no posterior; then `call` must raise one sentence that says so."""
    if isinstance(world, ExactWorld):
        return False
    with pytest.raises(BadInput, match=r"needs a world with a posterior, .*; got \w+\.$"):
        call()
    return True


def token_mean(tokens):
    return jnp.concatenate([leaf.mean(0) for leaf in jax.tree.leaves(tokens)])


@each_world
def test_representation(world):
    def call():
        return representation(token_mean, world, length=2, episodes=64, probes=("ridge",))

    if refused(world, call):
        return
    result = call()
    for reading in (result.gap, result.excess, result.squared_error):
        assert not has_number_or_reason(reading, world) or reading.status == "ok"
    assert not result.gap.value < 0


@each_world
def test_tightening(world):
    if refused(world, lambda: tightening(world, length=2)):
        return
    result = tightening(world, length=2)
    assert result.mean.shape == result.standard_deviation.shape == (3, len(result.truth))
    statuses = result.statuses or ("ok",) * 3
    for mean, status in zip(result.mean, statuses, strict=True):
        assert np.isfinite(mean).all() == (status == "ok")
    assert not (result.standard_deviation[-1] > result.standard_deviation[0] * 1.5).any()


@each_world
def test_inference_error(world):
    def call():
        settings = {"target": "posterior", "episodes": 4, "queries": 2}
        return inference_error(softmax, world, (2, 8), **settings)

    if refused(world, call):
        return
    curve = call()
    if all(has_number_or_reason(reading, world) for reading in curve.readings):
        assert {reading.status for reading in curve.readings} == {"ok"}
        assert curve.exact[1] < curve.exact[0]


@pytest.mark.parametrize("label", ["next", "latent"])
@pytest.mark.parametrize("world", parameters({**WORLDS, **SAMPLED}, QUICK_TO_TRAIN_ON))
def test_generalisation(world, label):
    def call():
        settings = {"samples": (8,), "lengths": (2,), "seeds": 2, "test_sequences": 4}
        return generalisation(world, label=label, training={"steps": 2}, **settings)

    without_latent = not isinstance(world, ExactWorld) or isinstance(world, GaussianProcess)
    own_network = isinstance(world, (TokenTeacher, PairwiseInteraction))
    if own_network or (label == "latent" and without_latent):
        with pytest.raises(BadInput, match=r"; (use label='next'|give make=.*)\.$"):
            call()
        return
    assert {reading.status for reading in call().readings} == {"ok"}


@pytest.mark.parametrize("world", parameters(WORLDS, QUICK_TO_TRAIN_ON))
def test_calibration(world):
    """Exact posteriors are calibrated. There are 12 worlds, each with a false-positive rate of
    1e-4."""

    def call():
        return calibration(None, world, length=4, episodes=200, draws=19)

    if isinstance(world, GaussianProcess) or not isinstance(world, ExactWorld):
        with pytest.raises(BadInput, match=r"needs a (world|latent) with .*\.$"):
            call()
        return
    result = call()
    assert result.p_value > 1e-4
    assert {reading.status for reading in result.coverage.readings} == {"ok"}


@pytest.mark.parametrize("world", parameters(WORLDS, QUICK_TO_TRAIN_ON))
def test_reference_c2st(world):
    """Two samples from the same posterior: the mean of 3 accuracies on 100 points each has a
    standard error of at most 0.5/√300 = 0.03, and 0.65 is five of them above 0.5."""

    def call():
        return reference_c2st(None, world, length=4, episodes=3, draws=50)

    if isinstance(world, GaussianProcess) or not isinstance(world, ExactWorld):
        with pytest.raises(BadInput, match=r"needs a (world|latent) with .*\.$"):
            call()
        return
    reading = call()
    assert reading.status == "ok"
    assert reading.value < 0.65


@pytest.mark.parametrize("world", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_condition_number(world):
    """The first token of a sequence is the features, the second is the target of pretraining, and
    the third is the downstream target."""
    keys = jax.random.split(jax.random.key(0), 200)
    tokens = jax.vmap(lambda key: world.sample(key, 3).tokens)(keys)
    value = np.asarray(jax.tree.leaves(tokens)[-1], float).reshape(200, 3, -1)
    result = condition_number(value[:, 0], value[:, 1], value[:, 2], resamples=24)
    assert result.kappa.value >= 0
    assert np.isfinite(result.error.value)


def test_a_class_is_a_vector_of_probabilities():
    result = tightening(FiniteMixture(means=[[-1.0], [1.0]]), length=4)
    np.testing.assert_allclose(result.mean.sum(1), 1)
    assert sorted(result.truth) == [0, 1]


def test_keys_of_the_wrong_shape_are_refused():
    world = FromModel(
        dist.Normal(),
        lambda z, k: dist.Normal(z * k[0]),
        key_dim=2,
        keys=lambda key, n: jnp.ones(n),
    )
    with pytest.raises(BadInput, match=r"keys\(random key, count\) must return"):
        world.sample(jax.random.key(0), 4)
