"""Every instrument by name, with a small subject of its own: the contract tests run over all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attnlens.attention import softmax
from attnlens.networks import SelfAttention
from attnlens.records import Curve, Reading
from attnlens.worlds import LinearRegression, TokenTeacher

from .audit import stationarity
from .hessian import curvature
from .inference import inference_error
from .slices import surface

POINT, DATA = np.linspace(-1, 1, 40), np.arange(80.0).reshape(2, 40)


def _bowl(params, data):
    """½ Σ_i a_i w_i² + 0.1 Σ_i w_i⁴, a the mean of the data: the smallest landscape of all."""
    return (0.5 * data.mean(0) @ params**2) + 0.1 * (params**4).sum()


def _trace(**settings) -> Reading:
    return curvature(
        _bowl, np.linspace(-1, 1, 40), np.arange(80.0).reshape(2, 40), **settings
    ).trace


def _lines(**settings) -> Curve:
    curve = surface(_bowl, POINT, DATA, **settings)
    assert isinstance(curve, Curve)
    return curve


SHAPE: dict[str, Any] = {
    "tokens": 2, "token_dim": 2, "query_dim": 1, "value_dim": 1, "hidden": 2,
}  # fmt: skip


def _worst(**settings) -> Reading:
    networks = {"attention": partial(SelfAttention, **SHAPE)}
    return stationarity(networks, TokenTeacher(**SHAPE), **settings).worst("attention")


INSTRUMENTS: dict[str, Callable[..., Reading | Curve]] = {
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "curvature": partial(_trace, dense=False, probes=4, steps=0, scaled=False),
    "stationarity": partial(_worst, samples=64, teachers=2, starts=4, l2=1e-3, tested=200),
    "surface": partial(_lines, dims=1, normalise="none", points=2, draws=3),
}
