"""Training: against a plain loop, over sample sizes, with every option, and when it goes wrong."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlens.checks import BadInput
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
    fit,
)
from attnlens.networks.parameters import Layout
from attnlens.networks.settings import Recipe
from attnlens.networks.training import entropy
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


def test_a_plain_loop_gives_the_same():
    fitted = fit(
        MAKE, X, Y, seeds=(3,), samples=(20,), steps=10, l2=0.01, clip=0.1, schedule="cosine",
        every=4, **PRECISE,
    )  # fmt: skip
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
    # Ten Adam steps: each divides by the root of squared gradients, so a rounding error ε in a
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
        (0, 8, 0.0), (0, 8, 0.1), (0, 32, 0.0), (0, 32, 0.1), (1, 8, 0.0),
    ]  # fmt: skip
    changed = Y.copy()
    changed[8:] = 1e9
    again = fit(MAKE, X, changed, seeds=(0, 1), samples=(8, 32), l2=(0.0, 0.1), steps=30, **PRECISE)
    assert same(fitted.vectors[:2], again.vectors[:2])
    assert not same(fitted.vectors[2], again.vectors[2])


def test_a_member_alone_agrees_with_itself_in_an_ensemble():
    # Stated bound: 1e-9 relative to the largest weight, float64, 100 Adam steps in batches of 8.
    # Programs of another width sum in another order, ε a step, and Adam's division amplifies it.
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
            make, inputs, target, seeds=seeds, samples=sizes, steps=20, data_per_seed=True,
            test=(inputs, target),
        )  # fmt: skip
        assert len(fitted) == 128
        assert np.isfinite(fitted.test_loss).all()
    assert compilations() - before <= 8


def test_a_seed_can_have_its_own_data():
    inputs, targets = np.stack([X, X[::-1]]), np.stack([Y, 2 * Y[::-1]])
    settings = {"samples": (8,), "steps": 30, **PRECISE}
    both = fit(MAKE, inputs, targets, seeds=(4, 5), data_per_seed=True, **settings)
    single = fit(MAKE, inputs[1], targets[1], seeds=(5,), **settings)
    # As for a member alone, above.
    np.testing.assert_allclose(both.vectors[1], single.vectors[0], rtol=0, atol=1e-9)


def test_a_diverging_member_stops_and_leaves_the_others_as_they_were():
    settings = {"seeds": (0, 1), "steps": 40, "every": 10, "optimiser": "sgd", **PRECISE}
    # λ₂ = 1e30 and rate 0.05: w ← (1 − 1e29) w, and the loss, of fourth order in w, passes 1e308
    # within three steps.
    wild = fit(MAKE, X, Y, l2=(0.0, 1e30), **settings)
    tame = fit(MAKE, X, Y, l2=(0.0, 1e-30), **settings)
    assert wild.status == ("finished", "diverged", "finished", "diverged")
    assert same(wild.vectors[[0, 2]], tame.vectors[[0, 2]])
    assert same(wild.train[[0, 2]], tame.train[[0, 2]])
    assert np.isfinite(wild.vectors).all()
    assert wild.steps.tolist()[0] == 40
    assert 0 < wild.steps[1] < 20
    assert np.isnan(wild.train[1, 2:]).all()


def test_infinite_data_are_a_divergence_of_those_who_see_them():
    bad = Y.copy()
    bad[20] = math.nan
    fitted = fit(MAKE, X, bad, samples=(16, 32), steps=30, **PRECISE)
    assert fitted.status == ("finished", "diverged")
    assert fitted.steps.tolist() == [30, 0]


def test_early_stopping_returns_the_best_on_validation():
    # 4 noisy samples of 8: the network fits them, and validation gets worse again.
    fitted = fit(
        partial(Baseline, features=4, hidden=16), X, Y, samples=(8, 12), validation=0.5, patience=3,
        steps=2000, every=20, seeds=(0, 1), **PRECISE,
    )  # fmt: skip
    assert set(fitted.status) == {"stopped early"}
    for i in range(4):
        column = int(np.nanargmin(fitted.validation[i]))
        assert fitted.best_step[i] == fitted.at[column]
        assert fitted.steps[i] == fitted.at[column + 3]
        held_out = slice(fitted.members[i].samples // 2, fitted.members[i].samples)
        error = float(np.mean((outputs(fitted, i, X[held_out]) - Y[held_out]) ** 2))
        # The same mean of at most 6 squares of order one, in another order.
        assert error == pytest.approx(fitted.validation[i, column], rel=100 * EPS)


def test_validation_and_test_data_can_be_given():
    fitted = fit(
        MAKE, X[:16], Y[:16], validation=(X[16:24], Y[16:24]), test=(X[24:], Y[24:]), steps=40,
        every=10, **PRECISE,
    )  # fmt: skip
    best = int(np.argmin(fitted.validation[0]))
    assert fitted.test_loss[0] == fitted.test[0, best]
    error = float(np.mean((outputs(fitted, 0, X[24:]) - Y[24:]) ** 2))
    assert fitted.test_loss[0] == pytest.approx(error, rel=100 * EPS)


def test_gates_stay_above_zero_and_the_penalty_closes_those_that_do_not_matter():
    make = lambda key: Gated(MAKE(key), shape=(4,))  # noqa: E731
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
    # With a warm-up of 1e9 steps the penalty is below 60/1e9 of itself; 60 steps move weights by
    # 0.05 each at most, and by how much the penalty's gradient, 1e-7, turns Adam's direction.
    assert mean_entropy(late.vectors[1]) == pytest.approx(plain, abs=1e-3)
    uniform = make(jax.random.key(0))
    zero = jax.tree.map(jnp.zeros_like, uniform)
    found = entropy(zero, jnp.asarray(x), None, jnp.asarray(32.0))
    assert float(found) == pytest.approx(math.log(2), rel=4 * EPS)  # uniform over two tokens
    with pytest.raises(BadInput, match="entropy needs a network with attention"):
        fit(MAKE, X, Y, entropy=0.1, steps=5)


def test_classification():
    label = (Y[:, 0] > 0).astype(float)
    settings = {"steps": 300, **PRECISE}
    logistic = fit(MAKE, X, label[:, None], loss="logistic", **settings)
    assert logistic.train[0, -1] < 0.3 < math.log(2) < logistic.train[0, 0] + 0.2
    softmax = fit(
        partial(Baseline, features=4, hidden=3, outputs=2), X, label.astype(int), loss="softmax",
        **settings,
    )  # fmt: skip
    assert softmax.train[0, -1] < 0.3


def hide_one(key, tokens, target):
    hidden = jnp.arange(4) == jax.random.randint(key, (), 0, 4)
    return Tokens(tokens.values, None, hidden), Hidden(target.tokens, hidden)


def test_masked_prediction_with_other_tokens_hidden_at_each_step():
    # Tokens of a sequence are all equal, so what is hidden can be read off the others.
    x = np.repeat(random.normal(size=(64, 1, 1)), 4, axis=1)
    never = np.zeros((64, 4), bool)
    make = partial(Encoder, token_dim=1, outputs=1, head="masked", width=8, heads=1, layers=1)
    fitted = fit(
        make, Tokens(x, None, never), Hidden(x, never), loss="masked-squared", transform=hide_one,
        steps=300, learning_rate=0.01, batch=32,
    )  # fmt: skip
    # Guessing the mean, zero, costs the variance of about one.
    assert fitted.train[0, -1] < 0.1 < 0.2 < fitted.train[0, 0]


def test_learning_rates_rise_and_fall():
    from attnlens.networks.settings import Settings

    def rates(schedule, warmup):
        settings = Settings(
            "squared", 10, None, 1.0, schedule, warmup, "adam", None, 0, False, False, 0.0, None, 5,
            "float64", None,
        )  # fmt: skip
        return [float(settings.rate()(step)) for step in range(11)]

    assert rates("constant", 0) == [1.0] * 11
    np.testing.assert_allclose(rates("linear", 0), np.linspace(1, 0, 11), atol=1e-7)
    np.testing.assert_allclose(rates("cosine", 5)[:5], np.arange(5) / 5, atol=1e-7)
    expected = 0.5 * (1 + np.cos(np.pi * np.arange(6) / 5))
    np.testing.assert_allclose(rates("cosine", 5)[5:], expected, atol=1e-7)  # optax: float32
    assert rates(lambda step: 2.0 * step, 0)[3] == 6.0


@pytest.mark.parametrize(
    ("changes", "says"),
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
        ({"validation": 1.5}, "between 0 and 1"),
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
def test_bad_input_gets_one_sentence(changes: dict, says: str):
    given = {"make": MAKE, "inputs": X, "targets": Y, "steps": 5, **changes}
    with pytest.raises(BadInput, match=says):
        fit(given.pop("make"), given.pop("inputs"), given.pop("targets"), **given)
