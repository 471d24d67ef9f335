"""Shared by the claims about trained networks: settings of networks and training, and minimisers.

The settings are parameters of every cell: each claim puts them into its `Grid`, possibly with other
values, and its `measure` reads them from the cell's parameters.

The excess risk of a trained network is the sum of a generalisation, an approximation and an
optimisation error. The claims about the first two need the *minimiser* of the empirical risk: after
a fixed number of gradient steps, a network is farther from the minimiser the larger n is, and the
slope of its gap is that of the training budget. `minimise` descends with second-order steps until
the gradient vanishes. A small penalty λ₂‖w‖², the same at every n, removes the valleys along which
the risk without a penalty falls for ever (there the gradient norm was still above 1e−3 after 300
steps).
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
# `TRAINING` has the steps, the batch and the learning rate, and explains them.
FITTING = {**TRAINING, "optimiser": "adam", "loss": "squared", "dtype": "float32"}
# Settings of `minimise`: the gradient norm at which a descent ends, and the maximal number of
# steps. In pilots 9 of 10 descents with n ≥ 512 took fewer than 60 steps. A descent that ends at
# the maximal number has a risk within 1e−4 of its minimum, a hundredth of the measured gaps.
DESCENT = {"gradient_norm": 1e-6, "descent_steps": 100}


def reader(parameters: Mapping[str, Any], **sizes: int) -> partial[Reader]:
    """The constructor of a cell's attention network; it takes a random key.

    `sizes` are the dimensions of keys, values, queries and outputs.
    """
    return partial(Reader, **{name: parameters[name] for name in NETWORK}, **sizes)


def fitting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The training settings of a cell, as arguments of `fit`."""
    return {name: parameters[name] for name in FITTING}


class Minima(NamedTuple):
    """The ends of descents: parameters (starts, number of parameters), and the penalised risk."""

    vectors: np.ndarray
    risk: np.ndarray


def minimise(
    make: Any, starts: np.ndarray, inputs: Any, target: Any, parameters: Mapping[str, Any]
) -> Minima:
    """The minima of mean squared error + λ₂‖w‖² that descents from `starts` reach, on one data set.

    `starts` has one row of parameters per descent.
    """
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
    """The mean squared error + λ₂‖w‖² of the network with parameters `vector`, in float64."""
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

    f_A and f_B are the minima of the risks R_A and R_B that descents from `start` reach; the start
    depends on neither sample. Then

        gap = ½ { [R_B(f_A) − R_B(f_B)] + [R_A(f_B) − R_A(f_A)] }

    has the mean of R(f_A) − R_A(f_A), because each sample is a test sample for the other network.
    R is the expected risk. Both brackets are positive at the minima (up to the penalty), and the
    noise of the labels cancels. So no test sequences are needed, and the logarithm of the gap
    exists for every seed.
    """
    vectors = [minimise(make, start[None], x, y, parameters).vectors[0] for x, y in samples]
    risks = [[risk(make, vector, x, y) for x, y in samples] for vector in vectors]
    return 0.5 * (risks[0][1] - risks[1][1] + risks[1][0] - risks[0][0])


def _problem(make: Any, parameters: Mapping[str, Any]) -> newton.Problem:
    tolerance, steps = parameters["gradient_norm"], parameters["descent_steps"]
    return newton.Problem(Recipe.of(make), "squared", tolerance, steps, saddles=False, dense=True)


def _double(inputs: Any, target: Any) -> Data:
    return Data(*jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (inputs, target)))
