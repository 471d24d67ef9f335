"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attnlens.attention import softmax
from attnlens.records import Curve, Reading
from attnlens.worlds import LinearRegression

from .inference import inference_error

INSTRUMENTS: dict[str, Callable[..., Reading | Curve]] = {
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
}
