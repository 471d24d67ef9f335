"""Shared by the claims about trained networks: how they are made and trained, as parameters.

The settings are parameters of every cell, so each claim puts them into its `Grid`, with its own
values where they differ, and `measure` reads them back.

The excess risk of a trained network is a generalisation, an approximation and an optimisation
error. The claims about the first two need the *minimiser* of the empirical risk: with a fixed
number of gradient steps a network is farther from it the larger n is, and the slope of its gap is
that of the budget. `minimise` descends with second-order steps until the gradient vanishes; a
small penalty λ₂‖w‖², the same at every n, closes the valleys along which an unpenalised risk falls
for ever (without it the gradient norm stayed above 1e−3 after 300 steps).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.instruments.inference.learned import TRAINING
from attnlens.networks.reader import Reader
from attnlens.training import newton
from attnlens.training.data import Data
from attnlens.training.settings import Recipe

# One attention layer with a small output network (`attnlens.networks.reader`).
NETWORK = {"heads": 2, "head_dim": 4, "hidden": 16, "sharpness": 5.0}
# `TRAINING` has the steps, the batch and the learning rate, with the reasons.
FITTING = {**TRAINING, "optimiser": "adam", "loss": "squared", "dtype": "float32"}
# Of a descent to the minimum: the gradient norm to reach, and at most so many steps. In pilots 9 of
# 10 descents with n ≥ 512 took fewer than 60 steps; one that is cut off has a risk within 1e−4 of
# its minimum, a hundredth of the gaps that are measured.
DESCENT = {"gradient_norm": 1e-6, "descent_steps": 100}


def reader(parameters: Mapping[str, Any], **sizes: int) -> partial[Reader]:
    """The attention network of a cell, without its random key; `sizes` are those of the tokens."""
    return partial(Reader, **{name: parameters[name] for name in NETWORK}, **sizes)


def fitting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that a cell sets."""
    return {name: parameters[name] for name in FITTING}


class Minima(NamedTuple):
    """Where descents ended: parameters (starts, size) and the penalised risk there."""

    vectors: np.ndarray
    risk: np.ndarray


def minimise(
    make: Any, starts: np.ndarray, inputs: Any, target: Any, parameters: Mapping[str, Any]
) -> Minima:
    """The minima of mean squared error + λ₂‖w‖² below these starts, on one data set."""
    minima = newton.search(
        _problem(make, parameters),
        None,
        np.asarray(starts, np.float64),
        _double(inputs, target),
        None,
        np.float64(parameters["l2"]),
    )
    return Minima(np.asarray(minima.vector), np.asarray(minima.loss))


def risk(make: Any, vector: np.ndarray, inputs: Any, target: Any, l2: float = 0.0) -> float:
    """Mean squared error + λ₂‖w‖² of a network, in float64."""
    problem = _problem(make, {"gradient_norm": 1.0, "descent_steps": 1})
    at = np.asarray(vector, np.float64)
    return float(_risk(problem, at, _double(inputs, target), np.float64(l2)))


@partial(jax.jit, static_argnums=0)
def _risk(problem: newton.Problem, vector: Any, data: Data, l2: Any) -> Any:
    return problem.objective(data, l2).value(vector)


def two_sample_gap(
    make: Any, start: np.ndarray, samples: tuple[Any, Any], parameters: Mapping[str, Any]
) -> float:
    """The generalisation gap of the minimiser, from two independent samples A and B of n sequences.

    With f_A and f_B the minimisers below one start that depends on neither sample,

        gap = ½ { [R_B(f_A) − R_B(f_B)] + [R_A(f_B) − R_A(f_A)] }

    has the mean of R(f_A) − R_A(f_A), because each sample is a test sample for the other network.
    Both brackets are positive at the minima (up to the penalty), and the noise of the labels
    cancels: no test sequences are needed, and the logarithm exists for every seed.
    """
    vectors = [minimise(make, start[None], x, y, parameters).vectors[0] for x, y in samples]
    risks = [[risk(make, vector, x, y) for x, y in samples] for vector in vectors]
    return 0.5 * (risks[0][1] - risks[1][1] + risks[1][0] - risks[0][0])


def _problem(make: Any, parameters: Mapping[str, Any]) -> newton.Problem:
    tolerance, steps = parameters["gradient_norm"], parameters["descent_steps"]
    return newton.Problem(Recipe.of(make), "squared", tolerance, steps, saddles=False, dense=True)


def _double(inputs: Any, target: Any) -> Data:
    return Data(*jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (inputs, target)))
