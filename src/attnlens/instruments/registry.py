"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attnlens.attention import softmax
from attnlens.records import Curve, Reading
from attnlens.worlds import LinearRegression

from .exchange import exchangeability
from .inference import inference_error
from .symmetry import equivariance

INSTRUMENTS: dict[str, Callable[..., Reading | Curve]] = {
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "exchangeability": partial(exchangeability, np.sin(np.arange(24.0)).reshape(3, 8) ** 3),
    "equivariance": partial(equivariance, lambda x: x.cumsum(0), np.sin(np.arange(8.0))),
}
