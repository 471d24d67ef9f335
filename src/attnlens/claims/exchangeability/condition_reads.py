"""The linear reads of A.condition-number: exact moments, excess risks, and how they are learned.

The symbols are those of the docstring of `condition_number`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens.worlds.seeding import episode_keys

from .condition_encoder import pairs, target, weakness


def query_moment(parameters: Mapping[str, Any]) -> np.ndarray:
    """The diagonal of Σ, the second moment of the hidden keys."""
    weak = weakness(parameters["kappa"], parameters["last_direction_queried"])
    return np.array([1.0] * (parameters["dim"] - 1) + [weak**2])


def read_energy(parameters: Mapping[str, Any]) -> float:
    """The factor e in E s sᵀ = e I."""
    return 1 + (parameters["dim"] + 1 + parameters["noise_std"] ** 2) / parameters["length"]


def row_variances(parameters: Mapping[str, Any]) -> np.ndarray:
    """R_i: the variance of the residual, weighted by the questions about direction i."""
    moment = query_moment(parameters)
    unknown = 1 - 1 / read_energy(parameters)  # C_ii
    return parameters["noise_std"] ** 2 + unknown * (moment.sum() + 2 * moment)


def row_factor(parameters: Mapping[str, Any]) -> float:
    """R: the variances of the two directions of the target, weighted by their share of κ²."""
    rows, weak = row_variances(parameters), query_moment(parameters)[-1]
    return float((weak * rows[0] + rows[-1]) / (1 + weak))


def residual_factor(parameters: Mapping[str, Any]) -> float:
    """h: how the variance of the residual, which depends on the question, changes the law."""
    return row_factor(parameters) / float(row_variances(parameters).mean())


def excesses(parameters: Mapping[str, Any], error: np.ndarray) -> dict[str, np.ndarray]:
    """The exact excess risks of weights with the errors D (seeds, m, m)."""
    energy = read_energy(parameters)
    pretraining = energy * np.einsum("i,sij->s", query_moment(parameters), error**2)
    downstream = energy * np.sum(np.einsum("sij,i->sj", error, target(parameters)) ** 2, -1)
    return {"pretraining": pretraining, "downstream": downstream}


def learned_reads(parameters: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """The W of every seed that minimises Σ (v − qᵀ W s)²; of several the one of least norm."""
    dim, moment = parameters["dim"], query_moment(parameters)
    keys = episode_keys(seeds, round(1e6 * moment[-1]))  # different worlds draw other sequences
    sizes = (parameters["sequences"], parameters["length"], dim)
    gram, products = normal_equations(keys, np.sqrt(moment), parameters["noise_std"], sizes)
    inverse = np.linalg.pinv(np.asarray(gram), hermitian=True)
    return np.einsum("sij,sj->si", inverse, np.asarray(products)).reshape(-1, dim, dim)


@partial(jax.jit, static_argnames="sizes")
def normal_equations(
    keys: Key[Array, " seeds"],
    spread: Float[Array, " dim"],
    noise_std: float,
    sizes: tuple[int, int, int],
) -> tuple[Float[Array, "seeds parameters parameters"], Float[Array, "seeds parameters"]]:
    """XᵀX and Xᵀy of the regression of hidden values on q sᵀ, drawn in float32, summed in float64.

    `sizes` are the numbers of sequences, tokens and dimensions.
    """
    count, _, dim = sizes

    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        tokens, query, value = pairs(key, spread, noise_std, sizes)[:3]
        read = jnp.mean(tokens[..., :dim] * tokens[..., dim:], 1)
        design = (query[:, :, None] * read[:, None, :]).reshape(count, -1).astype(jnp.float64)
        return design.T @ design, design.T @ value.astype(jnp.float64)

    return jax.lax.map(one, keys)
