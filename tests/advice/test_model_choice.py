"""The choice of a model from curves with known n(ε), without training anything."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

from attnlens.advice.budget import Effort
from attnlens.advice.label_budget import MOST_SCORES, affordable_rows
from attnlens.advice.questions.labels import (
    Goal,
    ModelChoice,
    default_goal,
    fewest_labels,
    gain_of_labels,
    label_ratio,
    labels_needed,
    more_labels,
)
from attnlens.advice.trials import Trial, trivial_error
from attnlens.core.readings import BoundedReading
from attnlens.core.sheets import Answer, AnswerOutcome
from attnlens.core.status import Status
from attnlens.instruments import learning_curve
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import labelled

SIZES = (16, 64, 256, 1024)
FOLDS = 8
TRIVIAL = 1.0  # the relative squared error of predicting the mean


def curves(noise: float = 0.01, seed: int = 1, **laws: tuple[float, float]) -> LearningCurves:
    """Curves with errors scale · n^(−exponent); `laws` gives (scale, exponent) per model. The noise
    of each fold has one part that all models share and one part of its own."""
    random = np.random.default_rng(seed)
    n = np.array(SIZES, float)
    shared = random.normal(size=(FOLDS, 1))
    errors = {
        name.replace("_", "-"): scale
        * n**-exponent
        * np.exp(noise * (shared + random.normal(size=(FOLDS, len(n)))))
        for name, (scale, exponent) in laws.items()
    }
    return LearningCurves(
        "made up",
        "relative squared error",
        SIZES,
        0.5,
        {name: tuple(map(tuple, own.tolist())) for name, own in errors.items()},
        (1.0,) * len(n),
    )


def choose(measured: LearningCurves, error: float | None) -> tuple[ModelChoice, Answer]:
    """The choice and the answer for the given error or, if it is None, for the default goal of
    `advise`."""
    goal = default_goal(measured, TRIVIAL) if error is None else Goal(error)
    return fewest_labels(measured, goal, TRIVIAL)


def test_the_winner_and_its_ratio_are_those_of_the_laws():
    # For ε = 0.25 the baseline, n^(−1/4), needs 4⁴ = 256 labels, and attention, 2 n^(−1/2), needs
    # 8² = 64.
    measured = curves(baseline=(1, 0.25), self_attention=(2, 0.5), multi_layer=(1, 0.2))
    choice, answer = choose(measured, 0.25)
    assert answer.known
    assert answer.answer.startswith("self-attention; baseline needs")
    ratio = answer.readings["baseline_over_self_attention"]
    assert isinstance(ratio, BoundedReading)
    assert ratio.low < 256 / 64 < ratio.high
    assert choice.model == "self-attention"
    assert "labels for error 0.25 (as requested)" in answer.evidence


def test_equal_models_are_not_told_apart_and_the_simplest_is_taken():
    equal = {"baseline": (1, 0.3), "self_attention": (1, 0.3), "multi_layer": (1, 0.3)}
    wrong = 0
    for seed in range(10):
        choice, answer = choose(curves(0.2, seed, **equal), None)
        assert answer.known == (answer.outcome is not AnswerOutcome.UNKNOWN)
        wrong += answer.known or choice.model != "baseline"
    # Each choice is wrong with probability at most 0.05, so more than 3 of 10 are wrong with
    # probability 0.001.
    assert wrong <= 3


def test_a_beaten_model_is_named_even_if_the_other_two_are_not_told_apart():
    # For ε = 0.25 the baseline needs 1,024 labels and self-attention 4^(10/3) = 102.
    measured = curves(0.05, baseline=(1, 0.2), self_attention=(1, 0.3), multi_layer=(1, 0.3))
    choice, answer = choose(measured, 0.25)
    assert answer.known
    assert choice.model == "self-attention"
    assert answer.answer.startswith("self-attention; baseline needs")
    assert "self-attention and multi-layer cannot be distinguished" in answer.answer


def test_among_models_of_the_user_none_is_called_the_simplest():
    measured = curves(0.05, forest=(1, 0.3), ridge=(1, 0.3), mean=(1, 0.2))
    _, answer = choose(measured, 0.25)
    assert answer.known
    assert answer.answer.startswith(
        ("forest and ridge; mean needs", "ridge and forest; mean needs")
    )
    assert answer.answer.endswith("cannot be distinguished; take the simplest of them")


def test_a_better_baseline_is_recommended():
    measured = curves(baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, answer = choose(measured, None)
    assert answer.known
    assert choice.model == "baseline"
    assert "1.5 times what baseline reaches" in answer.evidence


def test_models_that_learn_nothing_give_no_winner():
    measured = curves(0.05, baseline=(1, 0), self_attention=(1.02, 0), multi_layer=(1.01, 0))
    choice, answer = choose(measured, None)
    assert not answer.known
    assert not choice.learned
    assert "ignores the inputs" in answer.answer
    assert not more_labels(choice, None, 1200).known


def test_no_more_labels_are_needed_where_those_at_hand_are_enough():
    measured = curves(baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, _ = choose(measured, 0.1)
    answer = more_labels(choice, 0.1, 1200)  # n(0.1) = 100
    assert answer.known
    assert answer.answer.startswith("none for error 0.1")
    labels = answer.readings["labels"]
    assert isinstance(labels, BoundedReading)
    assert labels.low < 100 < labels.high


def test_more_labels_are_counted_beyond_those_at_hand():
    measured = curves(0.001, baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, _ = choose(measured, 0.02)  # n(0.02) = 2500, beyond the largest size
    answer = more_labels(choice, 0.02, 1100)
    assert answer.known
    labels = answer.readings["labels"]
    assert isinstance(labels, BoundedReading)
    assert labels.low < 2500 < labels.high < 2 * 2500
    assert labels.low < labels.value < labels.high


def test_an_error_below_the_floor_is_not_promised():
    flat = curves(0.001, baseline=(0.3, 0.0), self_attention=(0.4, 0.0), multi_layer=(0.5, 0.0))
    choice, _ = choose(flat, 0.1)
    answer = more_labels(choice, 0.1, 1200)
    assert not answer.known
    assert "if it is ever reached" in answer.answer
    assert answer.outcome is AnswerOutcome.VALUE


@pytest.mark.parametrize(
    ("none_wrong", "words"),
    [(True, "none: no test row was wrong"), (False, "none: one test row was wrong, and half")],
)
def test_an_error_that_cannot_be_halved_needs_no_more_labels(none_wrong: bool, words: str):
    measured = dataclasses.replace(
        curves(baseline=(1, 0.5)),
        test_rows=30,  # the error with 1,024 labels is 1/32
        none_wrong={"baseline": (False, False, False, none_wrong)},
    )
    choice = ModelChoice("baseline", True, measured)
    assert more_labels(choice, None, 1200).answer.startswith(words)


@pytest.mark.parametrize(
    ("models", "attends"),
    [
        (None, True),
        (["baseline", "known-attention"], False),
        (["baseline", "multi-layer"], True),
        ({"mine": "self-attention"}, True),
        ({"attention": "baseline"}, False),  # the name that the user gave decides nothing
        ({"attention": LinearRegression()}, False),
        ({"mine": lambda key: None}, True),
    ],
)
def test_attention_is_recognised_by_the_model_and_not_by_its_name(models, attends: bool):
    data = labelled(np.zeros((20, 200)), np.arange(20.0), "regression")
    few = affordable_rows(data, models, 10_000) == MOST_SCORES // 200**2
    assert few == attends


@pytest.mark.parametrize("classes", [2, 3])
def test_ignoring_the_inputs_errs_on_all_but_the_commonest_class(classes: int):
    y = np.array([0] * 60 + [*range(classes)] * 20)
    random = np.random.default_rng(0)
    data = labelled(random.normal(size=(len(y), 2)), y)
    trial = Trial.of(data, Effort(len(y), 4, 4, 10), len(y), 4, 0, {})
    assert trial.trivial == trivial_error(data)
    assert trial.trivial == pytest.approx(1 - (60 + 20) / len(y), abs=1e-15)


def test_a_model_with_a_smaller_error_is_taken_where_ratios_decide_nothing():
    """The curves cross: both models reach ε with few labels, and with all labels one of them has a
    far smaller error."""
    measured = curves(0.02, baseline=(0.50, 0.05), self_attention=(0.62, 0.12))
    goal = Goal(0.45)  # reached with 8.2 and 14.4 labels, fewer than the smallest size
    choice, answer = fewest_labels(measured, goal, 1.0)
    assert choice.model == "self-attention"
    assert answer.known
    assert answer.readings["baseline_more_error"].interval()[0] > 0


def test_a_ratio_is_called_at_least_its_lower_bound():
    # In most draws the flat curve of the baseline stays far above ε = 0.3, but not in all.
    measured = curves(0.3, 3, baseline=(0.6, 0.0), self_attention=(1, 0.3))
    for error in (0.2, 0.25, 0.3):
        ratio = measured.ratio("baseline", "self-attention", error)
        answer = label_ratio(
            dataclasses.replace(measured, target_error=error), "baseline", "self-attention"
        )
        if ratio.status is Status.AT_LEAST:
            assert str(ratio) == f"at least {ratio.low:,.3g}"
            assert answer.known == (ratio.low > 1)
            break
    else:
        raise AssertionError("no ratio is a bound")


def test_a_model_at_chance_did_not_train_and_has_no_ratio():
    measured = curves(0.02, baseline=(1, 0.3), multi_layer=(1.0, 0.0))
    choice, answer = choose(measured, 0.3)
    assert choice.model == "baseline"
    assert "did not train: multi-layer" in answer.answer
    assert not any("multi_layer_over" in name for name in answer.readings)
    needed = labels_needed(measured, "multi-layer", measured.samples()["multi-layer"], TRIVIAL)
    assert not needed.known
    assert "did not train" in needed.answer


def test_error_rates_with_more_labels_stay_below_one():
    measured = dataclasses.replace(
        curves(0.8, baseline=(0.9, 0.01)), quantity="error rate", test_rows=500
    )
    _, later = measured.more_labels(10_000)["baseline"]
    assert later.high <= 1
    assert later.low < later.high


def test_the_target_error_is_that_of_the_best_model():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    models = {"linear": LinearRegression(), "mean": DummyRegressor()}
    result = learning_curve(x, x[:, 0] + 0.3 * random.normal(size=60), models=models, folds=4)
    best = min(reading.value for reading in result["linear"].readings)
    assert result.target_error == pytest.approx(1.1 * best, rel=1e-12)


def test_a_back_test_extrapolates_a_law_and_misses_a_plateau():
    measured = curves(0.0, baseline=(1, 0.5))
    expected, last = measured.back_test()["baseline"]
    # The law of the sizes 16, 64 and 256 has the last error 1024^(−1/2). Three sizes do not exclude
    # a floor, so the forecast lies above it, but below the error at the last size but one.
    assert expected.low < last.value < expected.value < expected.high < 2 * last.value
    noisy = curves(0.02, baseline=(1, 0.5))
    flat = {
        "baseline": tuple((*row[:-1], row[-2]) for row in noisy.errors["baseline"])
    }  # no change from 256 to 1,024 labels
    expected, last = dataclasses.replace(noisy, errors=flat).back_test()["baseline"]
    assert expected.high < last.value
    answer = gain_of_labels(noisy, 1024)
    assert "back-test, 1,024 labels from fewer: baseline 0.03" in answer.evidence
    assert "baseline_back_test" in answer.readings
    assert (
        dataclasses.replace(
            noisy,
            sizes=SIZES[:2],
            errors={"baseline": tuple(row[:2] for row in noisy.errors["baseline"])},
            inflation=(1.0, 1.0),
        ).back_test()
        == {}
    )
