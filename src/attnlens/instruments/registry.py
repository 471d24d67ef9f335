"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from attnlens.attention import softmax
from attnlens.records import Reading
from attnlens.worlds import LinearRegression, NormalMean

from .exchange import exchangeability
from .inference import inference_error
from .learned import generalisation
from .sufficiency import representation
from .symmetry import equivariance
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


class Several(Protocol):
    """A measurement of several readings, such as a `Curve`."""

    @property
    def readings(self) -> tuple[Reading, ...]: ...


INSTRUMENTS: dict[str, Callable[..., Reading | Several]] = {
    "generalisation": partial(
        generalisation,
        NormalMean(),
        samples=(16, 32),
        lengths=(4, 8),
        seeds=2,
        test_sequences=64,
        training={"steps": 10, "warmup": 0},
    ),
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "exchangeability": partial(exchangeability, np.sin(np.arange(24.0)).reshape(3, 8) ** 3),
    "equivariance": partial(equivariance, lambda x: x.cumsum(0), np.sin(np.arange(8.0))),
    "representation-gap": first_token_gap,
    "representation-excess": first_token_excess,
    "condition_number": small_condition_number,
}
