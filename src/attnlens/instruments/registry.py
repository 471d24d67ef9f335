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
from .symmetry import equivariance


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
}
