"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attnlens.attention import softmax
from attnlens.records import Curve, Reading
from attnlens.worlds import LinearRegression

from .advice import guidelines
from .inference import inference_error
from .learning import learning_curve

ROWS = np.random.default_rng(0).normal(size=(24, 2))


def _baseline_curve(seed: int = 0) -> Curve:
    curves = learning_curve(
        ROWS, ROWS[:, 0] * ROWS[:, 1], models=["baseline"], sizes=(4, 12), folds=3, seed=seed,
        hidden=4, training={"steps": 8},
    )  # fmt: skip
    return curves["baseline"]


def _attention_effect(seed: int = 0) -> Reading:
    found = guidelines(
        ROWS, ROWS[:, 0] * ROWS[:, 1], folds=3, starts=1, seed=seed, hidden=4,
        training={"steps": 8},
    )  # fmt: skip
    return found["attention"].effect


INSTRUMENTS: dict[str, Callable[..., Reading | Curve]] = {
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "learning_curve": _baseline_curve,
    "guidelines": _attention_effect,
}
