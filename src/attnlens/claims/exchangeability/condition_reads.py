"""The linear reads of A.condition-number: exact moments, excess risks, and the least-squares fit.

The docstring of `condition_number` defines the symbols.
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
    """R_i for every i: the variance of the residual, weighted by the questions' i-th coordinate."""
    moment = query_moment(parameters)
    unknown = 1 - 1 / read_energy(parameters)  # C_ii
    return parameters["noise_std"] ** 2 + unknown * (moment.sum() + 2 * moment)


def row_factor(parameters: Mapping[str, Any]) -> float:
    """R: the mean of R_1 and R_m, weighted by the shares of their directions in κ²."""
    rows, weak = row_variances(parameters), query_moment(parameters)[-1]
    return float((weak * rows[0] + rows[-1]) / (1 + weak))


def residual_factor(parameters: Mapping[str, Any]) -> float:
    """h: the factor in the law that comes from residuals with a variance that depends on q."""
    return row_factor(parameters) / float(row_variances(parameters).mean())


def excesses(parameters: Mapping[str, Any], error: np.ndarray) -> dict[str, np.ndarray]:
    """The exact pretraining and downstream excess risks for errors D of W, (seeds, m, m)."""
    energy = read_energy(parameters)
    pretraining = energy * np.einsum("i,sij->s", query_moment(parameters), error**2)
    downstream = energy * np.sum(np.einsum("sij,i->sj", error, target(parameters)) ** 2, -1)
    return {"pretraining": pretraining, "downstream": downstream}


def learned_reads(parameters: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """For every seed, the W that minimises Σ (v − qᵀ W s)²; if not unique, that of least norm."""
    dim, moment = parameters["dim"], query_moment(parameters)
    keys = episode_keys(seeds, round(1e6 * moment[-1]))  # each ε has sequences of its own
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
    """XᵀX and Xᵀy of the regression of hidden values y on the entries of q sᵀ (rows of X).

    Samples are drawn in float32 and summed in float64. `sizes` are (sequences, tokens, dimensions).
    """
    count, _, dim = sizes

    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        tokens, query, value = pairs(key, spread, noise_std, sizes)[:3]
        read = jnp.mean(tokens[..., :dim] * tokens[..., dim:], 1)
        design = (query[:, :, None] * read[:, None, :]).reshape(count, -1).astype(jnp.float64)
        return design.T @ design, design.T @ value.astype(jnp.float64)

    return jax.lax.map(one, keys)
