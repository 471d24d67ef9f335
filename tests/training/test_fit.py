"""`fit` compared with a plain training loop, over sample sizes, with every option, and its
failures."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import (
    Attended,
    Baseline,
    Encoder,
    Gated,
    Hidden,
    KnownAttention,
    MultiLayerSelfAttention,
    SelfAttention,
    Tokens,
    TrainingSettings,
    fit,
)
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.training.steps import entropy
from counting import compilations

EPS = np.finfo(float).eps
MAKE = partial(Baseline, features=4, hidden=3)
random = np.random.default_rng(0)
X = random.normal(size=(32, 4))
Y = np.tanh(X @ np.array([1.0, -1.0, 0.5, 0.0]))[:, None] + 0.1 * random.normal(size=(32, 1))
PRECISE = {"dtype": "float64", "learning_rate": 0.05}


def outputs(fitted, index, inputs) -> np.ndarray:
    model = jax.tree.map(jnp.asarray, fitted.model(index))
    return np.asarray(jax.vmap(model)(jnp.asarray(inputs)))


def same(first, other) -> bool:
    return np.array_equal(first, other, equal_nan=True)


def test_fit_agrees_with_a_plain_training_loop():
    fitted = fit(
        MAKE,
        X,
        Y,
        seeds=(3,),
        samples=(20,),
        steps=10,
        l2=0.01,
        clip=0.1,
        schedule="cosine",
        every=4,
        **PRECISE,
    )
    optimiser = optax.chain(
        optax.clip_by_global_norm(0.1), optax.adam(optax.cosine_decay_schedule(0.05, 10))
    )

    def objective(model):
        penalty = 0.01 * (jnp.sum(model.first**2) + jnp.sum(model.second**2))
        error = jnp.mean((jax.vmap(model)(jnp.asarray(X[:20])) - jnp.asarray(Y[:20])) ** 2)
        return error + penalty, error

    @jax.jit
    def step(model, state):
        (_, error), gradient = jax.value_and_grad(objective, has_aux=True)(model)
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(gradient, state)
        return jax.tree.map(jnp.add, model, update), state, error

    model: Any = MAKE(jax.random.key(3))
    state, errors = optimiser.init(model), []
    for _ in range(10):
        model, state, error = step(model, state)
        errors.append(float(error))
    expected = np.concatenate([np.ravel(model.first), np.ravel(model.second)])
    # Each of ten Adam steps divides by the root of squared gradients, so a rounding error ε in a
    # gradient moves a weight by about rate·ε·(sum of steps); 1e4 ε leaves room for small gradients.
    np.testing.assert_allclose(fitted.vectors[0], expected, rtol=0, atol=1e4 * EPS)
    assert fitted.at.tolist() == [4, 8, 10]
    means = [np.mean(errors[:4]), np.mean(errors[4:8]), np.mean(errors[8:])]
    np.testing.assert_allclose(fitted.train[0], means, rtol=1e4 * EPS)
    assert fitted.status == ("finished",)
    expected = jax.vmap(model)(jnp.asarray(X))
    np.testing.assert_allclose(outputs(fitted, 0, X), expected, atol=1e5 * EPS)
    assert fitted.models.first.shape == (1, 3, 4)


def test_members_are_all_combinations_and_a_sample_size_is_the_first_rows():
    fitted = fit(MAKE, X, Y, seeds=(0, 1), samples=(8, 32), l2=(0.0, 0.1), steps=30, **PRECISE)
    assert [m[:3] for m in fitted.members[:5]] == [
        (0, 8, 0.0),
        (0, 8, 0.1),
        (0, 32, 0.0),
        (0, 32, 0.1),
        (1, 8, 0.0),
    ]
    changed = Y.copy()
    changed[8:] = 1e9
    again = fit(MAKE, X, changed, seeds=(0, 1), samples=(8, 32), l2=(0.0, 0.1), steps=30, **PRECISE)
    assert same(fitted.vectors[:2], again.vectors[:2])
    assert not same(fitted.vectors[2], again.vectors[2])


def test_a_member_alone_agrees_with_itself_in_an_ensemble():
    # The documented bound is 1e-9 relative to the largest weight, for float64 and 100 Adam steps in
    # batches of 8. Programs of another width add in another order, an error of ε per step, which
    # the division in Adam amplifies.
    settings = {"samples": (16, 32), "batch": 8, "steps": 100, **PRECISE}
    together = fit(MAKE, X, Y, seeds=range(8), **settings)
    alone = fit(MAKE, X, Y, seeds=(5,), block=1, **settings)
    for i, j in ((0, 10), (1, 11)):
        assert together.members[j] == alone.members[i]
        scale = np.max(np.abs(alone.vectors[i]))
        assert np.max(np.abs(alone.vectors[i] - together.vectors[j])) < 1e-9 * scale


def test_one_compilation_serves_every_sample_size_seed_and_penalty():
    before = compilations()
    fit(MAKE, X, Y, seeds=(0, 1), samples=(8, 16), l2=0.1, batch=4, steps=7)
    assert compilations() - before == 2  # one program draws the parameters, one takes steps
    before = compilations()
    fit(MAKE, X, Y, seeds=(9, 4), samples=(5, 32), l2=0.3, batch=4, steps=7)
    fit(partial(Baseline, hidden=3, features=4), X, Y, seeds=(2, 3, 5, 7), batch=4, steps=7)
    assert compilations() - before == 0


@pytest.mark.slow
def test_the_grid_of_sample_complexity_compiles_at_most_eight_programs():
    # 4 models × 8 sample sizes × 16 seeds, each seed with its own data and test set.
    n, sizes, seeds = 64, (4, 8, 12, 16, 24, 32, 48, 64), range(16)
    flat, tokens = random.normal(size=(16, n, 4)), random.normal(size=(16, n, 3, 4))
    target = random.normal(size=(16, n, 1))
    shape = {"tokens": 4, "token_dim": 3, "hidden": 4}
    cases = [
        (partial(Baseline, features=4, hidden=4), flat),
        (partial(KnownAttention, features=4, hidden=4), Attended(flat, np.abs(flat))),
        (partial(SelfAttention, **shape), tokens),
        (partial(MultiLayerSelfAttention, **shape), tokens),
    ]
    before = compilations()
    for make, inputs in cases:
        fitted = fit(
            make,
            inputs,
            target,
            seeds=seeds,
            samples=sizes,
            steps=20,
            data_per_seed=True,
            test=(inputs, target),
        )
        assert len(fitted) == 128
        assert np.isfinite(fitted.test_loss).all()
    assert compilations() - before <= 8


def test_each_seed_can_have_its_own_data():
    inputs, targets = np.stack([X, X[::-1]]), np.stack([Y, 2 * Y[::-1]])
    settings = {"samples": (8,), "steps": 30, **PRECISE}
    both = fit(MAKE, inputs, targets, seeds=(4, 5), data_per_seed=True, **settings)
    single = fit(MAKE, inputs[1], targets[1], seeds=(5,), **settings)
    # The bound is that of `test_a_member_alone_agrees_with_itself_in_an_ensemble`.
    np.testing.assert_allclose(both.vectors[1], single.vectors[0], rtol=0, atol=1e-9)


def test_a_diverging_member_stops_and_does_not_change_the_others():
    settings = {"seeds": (0, 1), "steps": 40, "every": 10, "optimiser": "sgd", **PRECISE}
    # With λ₂ = 1e30 and rate 0.05, w ← (1 − 1e29) w. The loss is of fourth order in w and exceeds
    # 1e308 within three steps.
    wild = fit(MAKE, X, Y, l2=(0.0, 1e30), **settings)
    tame = fit(MAKE, X, Y, l2=(0.0, 1e-30), **settings)
    assert wild.status == ("finished", "diverged", "finished", "diverged")
    assert same(wild.vectors[[0, 2]], tame.vectors[[0, 2]])
    assert same(wild.train[[0, 2]], tame.train[[0, 2]])
    assert np.isfinite(wild.vectors).all()
    assert wild.steps.tolist()[0] == 40
    assert 0 < wild.steps[1] < 20
    assert np.isnan(wild.train[1, 2:]).all()


def test_members_that_train_on_nan_diverge_and_the_others_do_not():
    bad = Y.copy()
    bad[20] = math.nan
    fitted = fit(MAKE, X, bad, samples=(16, 32), steps=30, **PRECISE)
    assert fitted.status == ("finished", "diverged")
    assert fitted.steps.tolist() == [30, 0]


def test_early_stopping_returns_the_parameters_with_the_lowest_validation_loss():
    # With 4 to 6 noisy samples the network fits the noise, and the validation loss rises again.
    fitted = fit(
        partial(Baseline, features=4, hidden=16),
        X,
        Y,
        samples=(8, 12),
        validation=0.5,
        patience=3,
        steps=2000,
        every=20,
        seeds=(0, 1),
        **PRECISE,
    )
    assert set(fitted.status) == {"stopped early"}
    for i in range(4):
        column = int(np.nanargmin(fitted.validation[i]))
        assert fitted.best_step[i] == fitted.at[column]
        assert fitted.steps[i] == fitted.at[column + 3]
        held_out = slice(fitted.members[i].samples // 2, fitted.members[i].samples)
        error = float(np.mean((outputs(fitted, i, X[held_out]) - Y[held_out]) ** 2))
        # Both are the mean of at most 6 squares of order one, added in different orders.
        assert error == pytest.approx(fitted.validation[i, column], rel=100 * EPS)


def test_validation_and_test_data_can_be_given():
    fitted = fit(
        MAKE,
        X[:16],
        Y[:16],
        validation=(X[16:24], Y[16:24]),
        test=(X[24:], Y[24:]),
        steps=40,
        every=10,
        **PRECISE,
    )
    best = int(np.argmin(fitted.validation[0]))
    assert fitted.test_loss[0] == fitted.test[0, best]
    error = float(np.mean((outputs(fitted, 0, X[24:]) - Y[24:]) ** 2))
    assert fitted.test_loss[0] == pytest.approx(error, rel=100 * EPS)


def test_gates_stay_at_least_zero_and_the_penalty_closes_gates_of_irrelevant_features():
    make = lambda key: Gated(MAKE(key), shape=(4,))  # noqa: E731 (a formula in one line)
    y = X[:, :1]  # only the first feature matters
    fitted = fit(make, X, y, l1_gates=(0.0, 0.1), l2=1e-3, steps=1500, **PRECISE)
    free, penalised = (fitted.model(i).gates for i in (0, 1))
    assert np.min(free) >= 0
    assert penalised[0] > 0
    assert penalised[1:].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(BadInput, match="needs a network with input gates"):
        fit(MAKE, X, Y, l1_gates=0.1, steps=5)


@pytest.mark.slow
def test_the_entropy_penalty_sharpens_attention_after_its_warm_up():
    make = partial(SelfAttention, tokens=2, token_dim=2, hidden=2)
    x = X.reshape(32, 2, 2)
    shared = {"steps": 60, "every": 60, **PRECISE}
    fitted = fit(make, x, Y, entropy=(0.0, 1.0), **shared)
    late = fit(make, x, Y, entropy=(0.0, 1.0), entropy_warmup=10**9, **shared)

    def mean_entropy(vector):
        model = Layout.of(Recipe.of(make)).restore(jnp.asarray(vector))
        return float(entropy(model, jnp.asarray(x), None, jnp.asarray(32.0)))

    plain, sharp = map(mean_entropy, fitted.vectors)
    assert sharp < 0.7 * plain
    # With a warm-up of 1e9 steps the penalty stays below 60/1e9 of its full strength. 60 steps move
    # weights by at most 0.05 each, and the gradient of the penalty, about 1e-7, hardly changes the
    # direction of Adam.
    assert mean_entropy(late.vectors[1]) == pytest.approx(plain, abs=1e-3)
    zero = jax.tree.map(jnp.zeros_like, make(jax.random.key(0)))
    value = entropy(zero, jnp.asarray(x), None, jnp.asarray(32.0))
    assert float(value) == pytest.approx(math.log(2), rel=4 * EPS)  # uniform over two tokens
    with pytest.raises(BadInput, match="entropy needs a network with attention"):
        fit(MAKE, X, Y, entropy=0.1, steps=5)


def test_logistic_and_softmax_losses_learn_a_classification():
    label = (Y[:, 0] > 0).astype(float)
    settings = {"steps": 300, **PRECISE}
    logistic = fit(MAKE, X, label[:, None], loss="logistic", **settings)
    assert logistic.train[0, -1] < 0.3 < math.log(2) < logistic.train[0, 0] + 0.2
    softmax = fit(
        partial(Baseline, features=4, hidden=3, outputs=2),
        X,
        label.astype(int),
        loss="softmax",
        **settings,
    )
    assert softmax.train[0, -1] < 0.3


def hide_one(key, tokens, target):
    hidden = jnp.arange(4) == jax.random.randint(key, (), 0, 4)
    return Tokens(tokens.values, None, hidden), Hidden(target.tokens, hidden)


def test_masked_prediction_learns_when_each_step_hides_other_tokens():
    # All tokens of a sequence are equal, so the others determine the hidden one.
    x = np.repeat(random.normal(size=(64, 1, 1)), 4, axis=1)
    never = np.zeros((64, 4), bool)
    make = partial(Encoder, token_dim=1, outputs=1, head="masked", width=8, heads=1, layers=1)
    fitted = fit(
        make,
        Tokens(x, None, never),
        Hidden(x, never),
        loss="masked-squared",
        transform=hide_one,
        steps=300,
        learning_rate=0.01,
        batch=32,
    )
    # Predicting the mean, zero, has a loss equal to the variance of about one.
    assert fitted.train[0, -1] < 0.1 < 0.2 < fitted.train[0, 0]


def test_learning_rate_schedules_have_their_closed_forms():
    def rates(schedule, warmup):
        settings = TrainingSettings(
            steps=10, learning_rate=1.0, schedule=schedule, warmup=warmup, dtype="float64"
        )
        rate = settings.complete().rate()
        return [float(rate(step)) for step in range(11)]

    assert rates("constant", 0) == [1.0] * 11
    np.testing.assert_allclose(rates("linear", 0), np.linspace(1, 0, 11), atol=1e-7)
    np.testing.assert_allclose(rates("cosine", 5)[:5], np.arange(5) / 5, atol=1e-7)
    expected = 0.5 * (1 + np.cos(np.pi * np.arange(6) / 5))
    np.testing.assert_allclose(rates("cosine", 5)[5:], expected, atol=1e-7)  # float32 in optax
    assert rates(lambda step: 2.0 * step, 0)[3] == 6.0


def test_settings_as_one_object_are_the_same_as_keywords():
    keywords = {"steps": 12, "batch": 4, "learning_rate": 0.05, "schedule": "linear", "warmup": 2}
    by_keywords = fit(MAKE, X, Y, seeds=(0, 1), **keywords)
    settings = TrainingSettings(**keywords)
    assert same(by_keywords.vectors, fit(MAKE, X, Y, seeds=(0, 1), settings=settings).vectors)
    # A keyword changes one field of the object.
    longer = TrainingSettings(**{**keywords, "steps": 30})
    changed = fit(MAKE, X, Y, seeds=(0, 1), settings=longer, steps=12)
    assert same(by_keywords.vectors, changed.vectors)
    assert same(by_keywords.at, changed.at)


def test_the_defaults_of_the_settings_are_those_of_fit():
    # By default 1000 steps have twenty evaluations; the other defaults are those that `fit`
    # documents.
    complete = TrainingSettings().complete()
    assert (complete.loss, complete.steps, complete.batch) == ("squared", 1000, None)
    assert (complete.learning_rate, complete.optimiser, complete.clip) == (0.01, "adam", None)
    assert (complete.schedule, complete.warmup, complete.every) == ("constant", 0, 50)
    assert (complete.dtype, complete.patience, complete.transform) == ("float32", None, None)


def test_an_unknown_keyword_is_refused_by_name():
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword argument 'stepz'"):
        fit(MAKE, X, Y, stepz=5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"samples": (33,)}, "samples must be from 1 to the 32 rows"),
        ({"samples": ()}, "at least one entry"),
        ({"loss": "cubed"}, "loss must be one of"),
        ({"schedule": "zigzag"}, "schedule must be one of constant"),
        ({"optimiser": "magic"}, "optimiser must be one of adam"),
        ({"dtype": "float16"}, "dtype must be one of float32"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0"),
        ({"l2": -1.0}, "l2 must be numbers of at least 0"),
        ({"clip": 0.0}, "clip must be"),
        ({"patience": 3}, "patience needs validation"),
        ({"validation": 1.5}, "must be at least 0 and below 1; got 1.5"),
        ({"validation": 0.9, "samples": (1,)}, "leaves no sample"),
        ({"warmup": 5}, "warmup must be shorter than the 5 steps"),
        ({"targets": Y[:5]}, "equally many samples"),
        ({"targets": Y[:, 0]}, "must fit together"),
        ({"inputs": X[:, :2]}, "must fit together"),
        (
            {"data_per_seed": True, "inputs": X[None], "targets": Y[None], "seeds": (0, 1)},
            "one data set for each of the 2 seeds",
        ),
        ({"seeds": (1, 1)}, "seeds must differ"),
        ({"make": 3}, "make must be a function of a random key"),
        ({"block": 0}, "block must be"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    arguments = {"make": MAKE, "inputs": X, "targets": Y, "steps": 5, **changes}
    make, inputs, targets = (arguments.pop(name) for name in ("make", "inputs", "targets"))
    with pytest.raises(BadInput, match=message):
        fit(make, inputs, targets, **arguments)
