"""Every instrument by name, each with a small subject, for the contract tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from attnlens.attention import softmax
from attnlens.core.readings import Curve, Reading
from attnlens.networks import SelfAttention
from attnlens.worlds import LinearRegression, NormalMean, TokenTeacher

from .inference.calibration import calibration, reference_c2st
from .inference.error import inference_error
from .inference.learned import generalisation
from .landscape.audit import stationarity
from .landscape.hessian import curvature
from .landscape.slices import surface
from .order.exchange import exchangeability
from .order.symmetry import equivariance
from .representation.sufficiency import representation
from .samples.curves import learning_curve
from .samples.guidelines import guidelines
from .transfer.condition import condition_number

ROWS = np.random.default_rng(0).normal(size=(24, 2))


def _baseline_curve(seed: int = 0) -> Curve:
    curves = learning_curve(
        ROWS,
        ROWS[:, 0] * ROWS[:, 1],
        models=["baseline"],
        sizes=(4, 12),
        folds=3,
        seed=seed,
        hidden=4,
        training={"steps": 8},
    )
    return curves["baseline"]


def _attention_effect(seed: int = 0) -> Reading:
    result = guidelines(
        ROWS,
        ROWS[:, 0] * ROWS[:, 1],
        folds=3,
        starts=1,
        seed=seed,
        hidden=4,
        training={"steps": 8},
    )
    return result["attention"].effect


POINT, DATA = np.linspace(-1, 1, 40), np.arange(80.0).reshape(2, 40)


def _bowl(params, data):
    """½ Σ_i a_i w_i² + 0.1 Σ_i w_i⁴, where a is the mean of the data: a small test landscape."""
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
    "tokens": 2,
    "token_dim": 2,
    "query_dim": 1,
    "value_dim": 1,
    "hidden": 2,
}


def _worst_error(**settings) -> Reading:
    networks = {"attention": partial(SelfAttention, **SHAPE)}
    return stationarity(networks, TokenTeacher(**SHAPE), **settings).worst("attention")


def first_token_gap(seed: int = 0) -> Reading:
    """The sufficiency gap of a representation that keeps only the first of four tokens."""
    return representation(
        lambda tokens: tokens[0], NormalMean(), length=4, episodes=128, probes=("ridge",), seed=seed
    ).gap


def first_token_excess(seed: int = 0) -> Reading:
    """The excess content of a representation that keeps only the first of four tokens."""
    return representation(
        lambda tokens: tokens[0], NormalMean(), length=4, episodes=128, probes=("ridge",), seed=seed
    ).excess


def small_condition_number(seed: int = 0) -> Reading:
    """κ of a target that is a latent coordinate whose scale is halved in the pretraining data."""
    random = np.random.default_rng(seed)
    latent, noise = random.standard_normal((2, 60, 2))
    pretraining = latent * [1.0, 0.5] + 0.1 * noise
    return condition_number(latent, pretraining, latent[:, 1], resamples=24, seed=seed).kappa


def exact_coverage(seed: int = 0) -> Curve:
    """Coverage of the credible intervals of a world's exact posterior."""
    return calibration(
        None, NormalMean(dim=2), length=4, episodes=200, draws=19, seed=seed
    ).coverage


def prior_c2st(seed: int = 0) -> Reading:
    """C2ST between samples from the prior and from the posterior given eight tokens."""

    def prior(tokens: Any, count: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=(count, 1))

    return reference_c2st(prior, NormalMean(), length=8, episodes=3, draws=50, seed=seed)


class HasReadings(Protocol):
    """A result with several readings, such as a `Curve`."""

    @property
    def readings(self) -> tuple[Reading, ...]: ...


INSTRUMENTS: dict[str, Callable[..., Reading | HasReadings]] = {
    "generalisation": partial(
        generalisation,
        NormalMean(),
        samples=(16, 32),
        lengths=(4, 8),
        seeds=2,
        test_sequences=64,
        training={"steps": 10, "warmup": 0},
    ),
    "calibration": exact_coverage,
    "reference_c2st": prior_c2st,
    "inference_error": partial(
        inference_error, softmax, LinearRegression(), (8, 16), episodes=8, queries=2
    ),
    "exchangeability": partial(exchangeability, np.sin(np.arange(24.0)).reshape(3, 8) ** 3),
    "equivariance": partial(equivariance, lambda x: x.cumsum(0), np.sin(np.arange(8.0))),
    "representation-gap": first_token_gap,
    "representation-excess": first_token_excess,
    "condition_number": small_condition_number,
    "curvature": partial(_trace, dense=False, probes=4, steps=0, scaled=False),
    "stationarity": partial(_worst_error, samples=64, teachers=2, starts=4, l2=1e-3, tested=200),
    "surface": partial(_lines, dims=1, normalise="none", points=2, draws=3),
    "learning_curve": _baseline_curve,
    "guidelines": _attention_effect,
}
"""Every instrument with a small subject, over which the contract tests run."""
