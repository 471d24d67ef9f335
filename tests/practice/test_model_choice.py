"""The choice of a model from curves whose n(ε) are known, without training anything."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.instruments.labelled import labelled
from attnlens.instruments.learning import LearningCurves
from attnlens.practice.budget import Effort
from attnlens.practice.model_choice import judged, more_labels
from attnlens.practice.trials import Trial

SIZES = (16, 64, 256, 1024)
FOLDS = 8


def trial(total: int = 1200) -> Trial:
    random = np.random.default_rng(0)
    data = labelled(random.normal(size=(1200, 2)), random.normal(size=1200))
    return Trial.of(data, Effort(1200, FOLDS, 4, 10), total, 4, 0, {})


def curves(noise: float = 0.01, seed: int = 1, **laws: tuple[float, float]) -> LearningCurves:
    """Errors scale · n^(−exponent), each fold off by `noise`, common to all models and its own."""
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
        "made up", "relative squared error", SIZES, 0.5,
        {name: tuple(map(tuple, own.tolist())) for name, own in errors.items()}, (1.0,) * len(n),
    )  # fmt: skip


def test_the_winner_and_its_ratio_are_those_of_the_laws():
    # ε = 0.25: baseline 1 · n^(−1/4) needs 4⁴ = 256, attention 1 · n^(−1/2) needs 4² = 16.
    made = curves(baseline=(1, 0.25), self_attention=(2, 0.5), multi_layer=(1, 0.2))
    choice, answer = judged(trial(), made, 0.25)
    assert answer.known
    assert answer.answer.startswith("self-attention; baseline needs")
    ratio = answer.readings["baseline_over_self_attention"]
    assert ratio.details["low"] < 256 / 64 < ratio.details["high"]
    assert choice.model == "self-attention"
    assert "labels for error 0.25 (as asked)" in answer.evidence


def test_equal_models_are_not_told_apart_and_the_simplest_is_taken():
    equal = {"baseline": (1, 0.3), "self_attention": (1, 0.3), "multi_layer": (1, 0.3)}
    wrong = 0
    for seed in range(10):
        choice, answer = judged(trial(), curves(0.2, seed, **equal), None)
        assert answer.known or answer.answer.startswith("not enough data to say")
        wrong += answer.known or choice.model != "baseline"
    # Each is wrong with probability 0.05 at most, so more than 3 of 10 are with 0.001.
    assert wrong <= 3


def test_what_is_shown_counts_even_if_two_are_not_told_apart():
    # ε = 0.25: 1,024 labels against 4^(10/3) = 102.
    made = curves(0.05, baseline=(1, 0.2), self_attention=(1, 0.3), multi_layer=(1, 0.3))
    choice, answer = judged(trial(), made, 0.25)
    assert answer.known
    assert choice.model == "self-attention"
    assert answer.answer.startswith("self-attention; baseline needs")
    assert "self-attention and multi-layer are not told apart" in answer.answer


def test_a_better_baseline_is_recommended():
    made = curves(baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, answer = judged(trial(), made, None)
    assert answer.known
    assert choice.model == "baseline"
    assert "1.5 times what baseline reaches" in answer.evidence


def test_nothing_learned_gives_no_winner():
    made = curves(0.05, baseline=(1, 0), self_attention=(1.02, 0), multi_layer=(1.01, 0))
    choice, answer = judged(trial(), made, None)
    assert not answer.known
    assert not choice.learned
    assert "ignores the inputs" in answer.answer
    assert not more_labels(trial(), choice, None).known


def test_labels_that_are_there_already_are_enough():
    made = curves(baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, _ = judged(trial(), made, 0.1)
    answer = more_labels(trial(), choice, 0.1)  # n = 100
    assert answer.known
    assert answer.answer.startswith("none for error 0.1")
    labels = answer.readings["labels"]
    assert labels.details["low"] < 100 < labels.details["high"]


def test_more_labels_are_counted_beyond_those_at_hand():
    made = curves(0.001, baseline=(1, 0.5), self_attention=(1, 0.3), multi_layer=(1, 0.2))
    choice, _ = judged(trial(total=1100), made, 0.02)  # n = 2500, beyond the largest size
    answer = more_labels(trial(total=1100), choice, 0.02)
    assert answer.known
    low, high = (answer.readings["labels"].details[end] for end in ("low", "high"))
    assert low <= 2500 * 1.1
    assert high >= 2500 / 1.1
    assert answer.answer.startswith("about 1,40")


def test_an_error_below_the_floor_is_not_promised():
    flat = curves(0.001, baseline=(0.3, 0.0), self_attention=(0.4, 0.0), multi_layer=(0.5, 0.0))
    choice, _ = judged(trial(), flat, 0.1)
    answer = more_labels(trial(), choice, 0.1)
    assert not answer.known
    assert "if it is ever reached" in answer.answer
    assert "not enough" not in answer.answer


@pytest.mark.parametrize("classes", [2, 3])
def test_ignoring_the_inputs_costs_all_but_the_commonest_class(classes: int):
    y = np.array([0] * 60 + [*range(classes)] * 20)
    random = np.random.default_rng(0)
    data = labelled(random.normal(size=(len(y), 2)), y)
    made = Trial.of(data, Effort(len(y), 4, 4, 10), len(y), 4, 0, {})
    assert made.trivial == pytest.approx(1 - (60 + 20) / len(y), abs=1e-15)
