"""A small example of every kind of world; contract tests run over all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .base import World
from .controls import AutoRegressive, Drifting, Equicorrelated, PolyaUrn
from .dirichlet_categorical import DirichletCategorical
from .features import RandomFeatures
from .finite_mixture import FiniteMixture
from .gaussian_process import GaussianProcess
from .linear_regression import LinearRegression
from .logistic_regression import LogisticRegression
from .nonlinear_gaussian import NonlinearGaussian
from .normal_inverse_gamma import NormalInverseGamma
from .normal_mean import NormalMean
from .pairwise_interaction import PairwiseInteraction
from .sparse_boolean import SparseAnd
from .sparse_teacher import SparseTeacher
from .token_teacher import TokenTeacher

EXAMPLE_SETTINGS: dict[str, tuple[Callable[..., World], dict[str, Any]]] = {
    "gaussian-process": (GaussianProcess, {"key_dim": 3, "temperature": 0.5, "noise_std": 0.3}),
    "gaussian-process-plane": (
        GaussianProcess,
        {"key_dim": 2, "temperature": 0.3, "noise_std": 0.2, "kernel": "matern52", "keys": "box"},
    ),
    "linear-regression": (LinearRegression, {"key_dim": 3, "noise_std": 0.5}),
    "linear-regression-features": (
        LinearRegression,
        {
            "key_dim": 2,
            "noise_std": 0.3,
            "key_covariance": [[1.0, 0.5], [0.5, 0.4]],
            "features": {"key_dim": 2, "count": 8, "temperature": 0.5},
        },
    ),
    "normal-mean": (NormalMean, {"dim": 3, "noise_std": [0.5, 1.0, 2.0], "prior_std": 1.5}),
    "normal-mean-full": (
        NormalMean,
        {
            "dim": 2,
            "noise_covariance": [[1.0, 0.6], [0.6, 0.5]],
            "prior_covariance": [[2.0, -0.5], [-0.5, 1.0]],
            "prior_mean": [1.0, -1.0],
        },
    ),
    "normal-inverse-gamma": (NormalInverseGamma, {"dim": 2, "freedom": 6.0, "noise_var": 0.5}),
    "dirichlet-categorical": (
        DirichletCategorical,
        {"classes": 3, "concentration": [0.5, 1.0, 2.0]},
    ),
    "finite-mixture": (
        FiniteMixture,
        {
            "means": [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]],
            "noise_std": 1.2,
            "weights": [0.5, 0.3, 0.2],
        },
    ),
    "finite-mixture-categorical": (
        FiniteMixture,
        {"probabilities": [[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]], "weights": [0.6, 0.4]},
    ),
    "logistic-regression": (LogisticRegression, {"key_dim": 2}),
    "nonlinear-gaussian": (NonlinearGaussian, {}),
    "sparse-and": (SparseAnd, {"bits": 8, "relevant": 2}),
    "sparse-teacher": (SparseTeacher, {"features": 8, "attended": 2, "noise": "rademacher"}),
    "token-teacher": (TokenTeacher, {"rank": 2, "noise": "uniform"}),
    "token-teacher-deep": (TokenTeacher, {"tokens": 3, "layers": 2}),
    "pairwise-interaction": (PairwiseInteraction, {"tokens": 3, "terms": 8}),
    "auto-regressive": (AutoRegressive, {"coefficient": 0.5}),
    "drifting": (Drifting, {"drift": 2.0}),
    "polya-urn": (PolyaUrn, {"classes": 3}),
    "equicorrelated": (Equicorrelated, {"correlation": -0.1}),
}
"""Class and arguments of an example of every world; those of features are in a mapping."""


def build(name: str) -> World:
    """Build the example with this name from its settings."""
    world, arguments = EXAMPLE_SETTINGS[name]
    features = arguments.get("features")
    if isinstance(features, dict):
        arguments = {**arguments, "features": RandomFeatures(**features)}
    return world(**arguments)


def settings_of(name: str) -> dict[str, Any]:
    """Everything that decides what an example draws: its class and all of its arguments.

    >>> settings_of("polya-urn")
    {'world': 'PolyaUrn', 'classes': 3, 'concentration': 1.0}
    """
    world, arguments = EXAMPLE_SETTINGS[name]
    declared = inspect.signature(world).parameters.values()
    # `nuts` says how a posterior is sampled, and does not change what is drawn.
    defaults = {one.name: one.default for one in declared if one.name != "nuts"}
    return {"world": world.__name__, **defaults, **arguments}


EXAMPLES: dict[str, World] = {name: build(name) for name in EXAMPLE_SETTINGS}
"""A small example of every world, over which the contract tests run."""
