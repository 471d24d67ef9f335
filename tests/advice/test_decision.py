"""The decision of `advise`: its rule, what attention adds, and what twice the labels buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

from attnlens.advice import contenders
from attnlens.advice.budget import Effort
from attnlens.advice.questions import decision
from attnlens.advice.questions.decision import ContenderCurve, Contest
from attnlens.advice.trials import Trial
from attnlens.core.checks import BadInput
from attnlens.core.readings import BoundedReading
from attnlens.core.sheets import AnswerOutcome
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import labelled

FOLDS = 8


def contest(means: dict[str, float], std: float = 0.01) -> Contest:
    """A contest in which each contender has exactly the given mean error; the deviations of
    different contenders over the folds are orthogonal."""
    signs = hadamard(FOLDS)[1:]
    errors = {name: means[name] + std * signs[i] for i, name in enumerate(means)}
    return Contest(errors, 800, 1.0, 0.5, "error rate")


def noisy_contest(names: Sequence[str], seed: int) -> Contest:
    """A contest of contenders with equal expected errors and independent noise."""
    noise = 0.01 * np.random.default_rng(seed).normal(size=(len(names), FOLDS))
    return Contest(dict(zip(names, 0.2 + noise, strict=True)), 800, 1.0, 0.5, "error rate")


def test_a_contender_that_is_clearly_better_is_recommended_although_it_costs_more():
    result, answer = decision.decision(contest({"linear": 0.3, "gradient-boosting": 0.1}))
    assert result.model == "gradient-boosting"
    assert [ranked.name for ranked in result.ranking] == ["gradient-boosting", "linear"]
    assert answer.outcome is AnswerOutcome.VALUE
    behind = answer.readings["linear_minus_gradient_boosting"]
    assert behind.interval()[0] > 0.15


def test_of_contenders_that_cannot_be_distinguished_the_cheapest_is_recommended():
    equal = {"transformer": 0.1, "gradient-boosting": 0.1, "linear": 0.1, "mine": 0.1}
    assert decision.decide(contest(equal)).model == "linear"


def test_the_cheapest_of_equals_is_rarely_passed_over():
    """The cheapest contender is not chosen if another is shown to be better. Bonferroni over the
    four others bounds two-sided errors at 5 %, so errors in one direction at 2.5 %; the limit 0.05
    is 3 standard errors of 400 draws above."""
    names = ("linear", "gradient-boosting", "baseline", "self-attention", "transformer")
    chosen = [decision.decide(noisy_contest(names, seed)).model for seed in range(400)]
    assert np.mean([name != "linear" for name in chosen]) < 0.05


def test_nothing_is_recommended_where_no_contender_learns():
    result, answer = decision.decision(contest({"linear": 0.5, "transformer": 0.52}))
    assert not result.learned
    assert answer.outcome is AnswerOutcome.UNKNOWN


def test_a_diverged_contender_is_not_ranked():
    data = contest({"linear": 0.2, "transformer": 0.1})
    data.errors["transformer"][3] = math.nan
    result = decision.decide(data)
    assert [ranked.name for ranked in result.ranking] == ["linear"]
    assert decision.decide(data._replace(errors={"linear": np.full(8, math.nan)})).ranking == ()


@pytest.mark.parametrize(
    ("attention", "outcome"),
    [(0.1, AnswerOutcome.YES), (0.3, AnswerOutcome.NO), (0.2, AnswerOutcome.NO_SIGN)],
)
def test_attention_is_compared_with_the_same_network_without_it(
    attention: float, outcome: AnswerOutcome
):
    means = {contenders.TRANSFORMER: attention, contenders.UNIFORM: 0.2, "linear": 0.01}
    answer = decision.attention_adds(contest(means))
    assert answer.outcome is outcome
    assert answer.readings["difference"].value == pytest.approx(attention - 0.2, abs=0.02)


def test_uniform_attention_is_not_a_contender():
    means = {contenders.TRANSFORMER: 0.2, contenders.UNIFORM: 0.01, "linear": 0.3}
    assert decision.decide(contest(means)).model == contenders.TRANSFORMER


SIZES = (100, 200, 400, 800)


def error_curve(means: np.ndarray, noise: np.ndarray, test_rows: int = 0) -> ContenderCurve:
    return ContenderCurve(SIZES, means * np.exp(noise), (1.0,) * len(SIZES), test_rows)


def test_twice_the_labels_continue_a_power_law():
    noise = 0.01 * np.random.default_rng(0).normal(size=(8, 4))
    answer = decision.twice_the_labels("linear", error_curve(2 * np.array(SIZES) ** -0.5, noise))
    assert answer.outcome is AnswerOutcome.VALUE
    for name, size in (("error_with_twice", 1600), ("error_with_four_times", 3200)):
        expected = answer.readings[name]
        assert isinstance(expected, BoundedReading)
        assert expected.low < 2 * size**-0.5 < expected.high
    assert answer.readings["log_change"].interval()[1] < 0


def test_no_gain_from_twice_the_labels_is_said_where_none_is_shown():
    noise = 0.1 * np.random.default_rng(1).normal(size=(8, 4))
    answer = decision.twice_the_labels("linear", error_curve(np.full(4, 0.2), noise))
    assert answer.outcome is AnswerOutcome.NO_SIGN
    none_wrong = error_curve(np.array([0.2, 0.1, 0.05, 0.0]), noise, 400)
    assert decision.twice_the_labels("linear", none_wrong).outcome is AnswerOutcome.UNKNOWN
    rate = decision.twice_the_labels("linear", error_curve(np.full(4, 0.9), 0.5 * noise, 400))
    assert rate.readings["error_with_twice"].interval()[1] <= 1


def test_estimators_are_fitted_on_rows_and_on_the_mean_of_tokens():
    random = np.random.default_rng(0)
    tokens = random.normal(size=(200, 6, 3))
    data = labelled(tokens, tokens.mean(1)[:, 0])
    model = contenders.linear(data).fit(tokens.reshape(200, -1), data.labels)
    np.testing.assert_allclose(model.predict(tokens.reshape(200, -1)), data.labels, atol=1e-2)
    assert set(contenders.estimators(data, seed=0)) == {"linear", "gradient-boosting"}


def test_the_order_of_cost_keeps_the_users_own_models_last():
    assert contenders.by_cost(["mine", "transformer", "linear"]) == [
        "linear",
        "transformer",
        "mine",
    ]


def test_models_of_the_users_own_are_contenders():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    data = labelled(x, x[:, 0])
    models = contenders.check_own_models({"mine": LinearRegression(), "mean": DummyRegressor()})
    trial = Trial.of(data, Effort(60, 3, 4, 10), 60, 4, 0, {}, models=models)
    # Of these curves of the networks, `contest` uses only the sizes and the errors.
    tables = {"baseline": ((1.0, 0.5),) * 3}
    curves = LearningCurves("", "", (10, 40), 0.5, tables, (1.0, 1.0))
    outcome = trial.contest(curves)
    assert outcome.errors["mine"].max() < 1e-20
    assert outcome.errors["mean"].mean() > 0.9
    assert decision.decide(outcome).ranking[-1].name == "mean"
    curve = trial.error_curve("mine", outcome, curves)
    assert curve.sizes == (5, 10, 20, 40)
    assert curve.errors.max() < 1e-20
    assert curve.test_rows == 0
    # A network that has a learning curve is not trained again.
    assert trial.error_curve("baseline", outcome, curves).sizes == (10, 40)
    broken = Trial.of(data, Effort(60, 3, 4, 10), 60, 4, 0, {}, models={"mine": _Broken()})
    with pytest.raises(BadInput, match="the model 'mine' failed in line"):
        broken.contest(curves)


class _Broken(DummyRegressor):
    def fit(self, X, y, sample_weight=None):
        raise KeyError("no such column")


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([LinearRegression()], "must be a mapping from names"),
        ({"linear": LinearRegression()}, "a name that no other contender has; got 'linear'"),
        ({"mine": LinearRegression}, "got the class LinearRegression"),
        ({"mine": 3}, "must be a scikit-learn estimator"),
    ],
    ids=["list", "taken", "class", "number"],
)
def test_a_model_that_cannot_be_used_raises_one_sentence(models: Any, message: str):
    with pytest.raises(BadInput, match=message):
        contenders.check_own_models(models)
