"""A small example of every kind of world; contract tests run over all of them."""

from __future__ import annotations

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
from .sparse_teacher import SparseTeacher
from .token_teacher import TokenTeacher

EXAMPLES: dict[str, World] = {
    "gaussian-process": GaussianProcess(key_dim=3, temperature=0.5, noise_std=0.3),
    "gaussian-process-plane": GaussianProcess(
        key_dim=2, temperature=0.3, noise_std=0.2, kernel="matern52", keys="box"
    ),
    "linear-regression": LinearRegression(key_dim=3, noise_std=0.5),
    "linear-regression-features": LinearRegression(
        key_dim=2,
        noise_std=0.3,
        key_covariance=[[1.0, 0.5], [0.5, 0.4]],
        features=RandomFeatures(2, 8, temperature=0.5),
    ),
    "normal-mean": NormalMean(dim=3, noise_std=[0.5, 1.0, 2.0], prior_std=1.5),
    "normal-mean-full": NormalMean(
        dim=2,
        noise_covariance=[[1.0, 0.6], [0.6, 0.5]],
        prior_covariance=[[2.0, -0.5], [-0.5, 1.0]],
        prior_mean=[1.0, -1.0],
    ),
    "normal-inverse-gamma": NormalInverseGamma(dim=2, freedom=6.0, noise_var=0.5),
    "dirichlet-categorical": DirichletCategorical(classes=3, concentration=[0.5, 1.0, 2.0]),
    "finite-mixture": FiniteMixture(
        means=[[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]], noise_std=1.2, weights=[0.5, 0.3, 0.2]
    ),
    "finite-mixture-categorical": FiniteMixture(
        probabilities=[[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]], weights=[0.6, 0.4]
    ),
    "logistic-regression": LogisticRegression(key_dim=2),
    "nonlinear-gaussian": NonlinearGaussian(),
    "sparse-teacher": SparseTeacher(features=8, attended=2, noise="rademacher"),
    "token-teacher": TokenTeacher(rank=2, noise="uniform"),
    "token-teacher-deep": TokenTeacher(tokens=3, layers=2),
    "auto-regressive": AutoRegressive(coefficient=0.5),
    "drifting": Drifting(drift=2.0),
    "polya-urn": PolyaUrn(classes=3),
    "equicorrelated": Equicorrelated(correlation=-0.1),
}
"""A small example of every world, over which the contract tests run."""
