"""Values and matrices of an objective that are summed over chunks of samples equal those of
automatic differentiation."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.networks import Baseline
from attnlens.training.data import Data
from attnlens.training.objective import ROWS, Objective
from attnlens.training.settings import Recipe

random = np.random.default_rng(0)
RECIPE = Recipe.of(partial(Baseline, features=3, hidden=2, outputs=2))


@pytest.mark.parametrize("samples", [5, ROWS + 1])  # one chunk, and two with a sample of weight 0
def test_chunks_of_samples_sum_to_the_matrices_of_the_whole(samples: int):
    data = Data(*(jnp.asarray(random.normal(size=(samples, k))) for k in (3, 2)))
    objective = Objective(RECIPE, "squared", data, 0.1)
    vector = jnp.asarray(random.normal(size=objective.layout.size))

    def outputs(w):
        return jax.vmap(objective.layout.restore(w))(data.inputs)

    def value(w):
        mean = jnp.mean((outputs(w) - data.targets) ** 2, axis=1).mean()
        return mean + 0.1 * jnp.sum(w**2)

    jacobian = np.asarray(jax.jacfwd(outputs)(vector)).reshape(-1, vector.size)
    # The loss of a sample is the mean over its two outputs, so its Hessian in the outputs is ℓ'' =
    # I.
    gauss = jacobian.T @ jacobian / samples + 0.2 * np.eye(vector.size)
    result = objective.with_gauss_newton(vector)
    expected = (value(vector), jax.grad(value)(vector), gauss)
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(objective.hessian(vector), jax.hessian(value)(vector), atol=1e-12)
