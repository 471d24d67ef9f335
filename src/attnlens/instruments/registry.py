"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attnlens.attention import softmax
from attnlens.records import Curve, Reading
from attnlens.worlds import LinearRegression, NormalMean

from .inference import inference_error
from .sufficiency import representation
from .transfer import condition_number


def first_token_gap(seed: int = 0) -> Reading:
    """The sufficiency gap of keeping one token of four."""
    return representation(
        lambda tokens: tokens[0], NormalMean(), length=4, episodes=128, probes=("ridge",), seed=seed
    ).gap


def first_token_excess(seed: int = 0) -> Reading:
    """What one token of four holds beside the posterior."""
    return representation(
        lambda tokens: tokens[0], NormalMean(), length=4, episodes=128, probes=("ridge",), seed=seed
    ).excess


def small_condition_number(seed: int = 0) -> Reading:
    """κ of a target that pretraining asks about at half strength."""
    draws = np.random.default_rng(seed)
    latent, noise = draws.standard_normal((2, 60, 2))
    pretraining = latent * [1.0, 0.5] + 0.1 * noise
    return condition_number(latent, pretraining, latent[:, 1], resamples=24, seed=seed).kappa


INSTRUMENTS: dict[str, Callable[..., Reading | Curve]] = {
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "representation-gap": first_token_gap,
    "representation-excess": first_token_excess,
    "condition_number": small_condition_number,
}
