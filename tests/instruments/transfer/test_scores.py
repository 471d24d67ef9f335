"""LogME, H-score and LEEP where their value is known, or where another library computes it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from sklearn.linear_model import BayesianRidge

from attnlens.core.checks import BadInput
from attnlens.instruments.transfer.scores import h_score, leep, left_out_leep, log_me

RNG = np.random.default_rng(4)
FEATURES = RNG.standard_normal((60, 4)) @ np.diag([2.0, 1.0, 0.5, 0.1])
TARGET = FEATURES @ [1.0, -1.0, 0.5, 2.0] + 0.7 * RNG.standard_normal(60)
CLASSES = np.array([0, 1, 2] * 20)


def evidence(alpha: float, beta: float) -> float:
    """log N(y; 0, F Fᵀ/α + I/β) over n, directly from the definition."""
    covariance: Any = FEATURES @ FEATURES.T / alpha + np.eye(60) / beta
    return float(scipy.stats.multivariate_normal.logpdf(TARGET, None, covariance)) / 60


def test_log_me_is_the_largest_evidence():
    score = log_me(FEATURES, TARGET[:, None])
    best = scipy.optimize.minimize(
        lambda logs: -evidence(*np.exp(logs)),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12},
    )
    assert score == pytest.approx(-best.fun, abs=1e-9)


def test_log_me_agrees_with_scikit_learn():
    model = BayesianRidge(
        alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, fit_intercept=False, tol=1e-12, max_iter=5000
    ).fit(FEATURES, TARGET)
    expected = evidence(float(model.lambda_), float(model.alpha_))
    assert log_me(FEATURES, TARGET[:, None]) == pytest.approx(expected, abs=1e-9)


def test_log_me_averages_over_targets_and_is_larger_for_features_that_explain():
    both = np.column_stack([TARGET, RNG.standard_normal(60)])
    single = [log_me(FEATURES, both[:, [i]]) for i in (0, 1)]
    assert log_me(FEATURES, both) == pytest.approx(np.mean(single), rel=1e-12)
    assert single[0] > log_me(RNG.standard_normal((60, 4)), TARGET[:, None])


def test_log_me_of_a_perfect_fit_is_finite():
    assert math.isfinite(log_me(FEATURES, FEATURES[:, :1]))


def test_h_score_of_class_indicators_is_the_number_of_classes_minus_one():
    # All variance lies between classes, in as many directions as the indicators span: two.
    assert h_score(np.eye(3)[CLASSES], CLASSES) == pytest.approx(2, abs=1e-12)


def test_h_score_of_two_normals_has_the_closed_form():
    """For equal classes with means ± μ and noise 1, the covariance is 1 + μ² and that between
    classes is μ²; the score is μ²/(1 + μ²)."""
    labels = RNG.integers(2, size=100_000)
    features = (2 * labels - 1)[:, None] * 1.5 + RNG.standard_normal((100_000, 1))
    # Standard error about 1/√n = 0.003.
    assert h_score(features, labels) == pytest.approx(1.5**2 / (1 + 1.5**2), abs=0.015)


def test_h_score_does_not_depend_on_the_basis_of_the_features():
    turn = RNG.standard_normal((4, 4))
    assert h_score(FEATURES @ turn, CLASSES) == pytest.approx(h_score(FEATURES, CLASSES), rel=1e-9)


def test_leep_is_zero_for_a_perfect_source_and_minus_the_entropy_for_a_constant_one():
    assert leep(np.eye(3)[CLASSES], CLASSES) == pytest.approx(0, abs=1e-12)
    assert leep(np.eye(6)[CLASSES + 3], CLASSES) == pytest.approx(0, abs=1e-12)
    uniform = np.full((60, 5), 0.2)
    assert leep(uniform, CLASSES) == pytest.approx(-math.log(3), rel=1e-12)


def test_leep_equals_the_value_by_hand():
    """There is one sample of class a with θ = (0.8, 0.2) and one of class b with (0.4, 0.6). So
    P̂(a | 1) = 0.8/1.2 and P̂(a | 2) = 0.2/0.8; class a has 0.8·2/3 + 0.2·1/4 and b 0.4·1/3 +
    0.6·3/4."""
    source = np.array([[0.8, 0.2], [0.4, 0.6]])
    by_hand = (math.log(0.8 * 2 / 3 + 0.2 / 4) + math.log(0.4 / 3 + 0.6 * 3 / 4)) / 2
    assert leep(source, np.array([7, 9])) == pytest.approx(by_hand, rel=1e-14)


def test_leep_rejects_rows_that_are_not_probabilities():
    with pytest.raises(BadInput, match="one row of probabilities per sample"):
        leep(np.ones((60, 3)), CLASSES)


def test_h_score_of_noise_is_zero_on_average():
    """If class means came from the same rows, the mean score would be (classes − 1) · features/n =
    1.2 of 2 here."""
    random = np.random.default_rng(0)
    features = random.standard_normal((60, 36))
    scores = [h_score(features, random.permutation(np.arange(60) % 3)) for _ in range(400)]
    # The mean over all orders of the labels is exactly zero; the bound is 4 standard errors of 400
    # orders.
    assert abs(np.mean(scores)) < 4 * np.std(scores) / 20


def test_h_score_and_its_rank_rule_do_not_depend_on_units():
    units = 10.0 ** np.linspace(-150, 150, FEATURES.shape[1])
    assert h_score(FEATURES * units, CLASSES) == pytest.approx(h_score(FEATURES, CLASSES), rel=1e-9)


def test_left_out_leep_equals_a_loop_over_the_other_rows():
    random = np.random.default_rng(4)
    source, labels = random.dirichlet(np.ones(4), 30), np.arange(30) % 3
    logs = []
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        share = ((labels[rest] == labels[i]).sum() + 1 / 3) / 30
        mass = source[rest[labels[rest] == labels[i]]].sum(0)
        conditional = (mass + share) / (source[rest].sum(0) + 1)
        logs.append(math.log(conditional @ source[i]))
    assert left_out_leep(source, labels) == pytest.approx(np.mean(logs), rel=1e-12)


def test_leep_of_a_source_of_noise_is_not_above_that_of_a_constant_one():
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    left_out, same_rows = np.array(
        [
            (left_out_leep(source, labels), leep(source, labels))
            for source in random.dirichlet(np.full(5, 0.3), (200, 60))
        ]
    ).T
    constant = -math.log(3)
    assert left_out.mean() < constant
    assert same_rows.mean() > constant + 8 * same_rows.std() / math.sqrt(200)
    # The score of a source that knows the class is far above both.
    assert left_out_leep(np.eye(3)[labels], labels) > constant + 1
