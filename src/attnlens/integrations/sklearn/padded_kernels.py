"""Kernel matrices of rows in float64, compiled for a few shapes only.

Each new shape costs a compilation. So the number of keys is padded with copies, and features are
padded with zeros, which changes neither distances nor products.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jaxtyping import Array

from attnlens.core import kernels

from .weighted_rows import bucket, padded

KEYS = (64, 4)  # the number m of keys is padded to `bucket(m, *KEYS)`
FEATURES = (8, 2)  # the number p of features is padded to `bucket(p, *FEATURES)`


def pad_features(rows: np.ndarray) -> np.ndarray:
    features = rows.shape[1]
    return np.pad(rows, ((0, 0), (0, bucket(features, *FEATURES) - features)))


def pad_keys(keys: np.ndarray) -> np.ndarray:
    return pad_features(padded(keys, bucket(len(keys), *KEYS)))


def gram(kernel: str, keys: np.ndarray, temperature: float) -> np.ndarray:
    """The kernel matrix κ(K, K), without the padding."""
    count = len(keys)
    with jax.enable_x64(True):
        return np.asarray(_gram(kernel, pad_keys(keys), np.float64(temperature)))[:count, :count]


def cross_and_prior(
    kernel: str, keys: np.ndarray, queries: np.ndarray, temperature: float
) -> tuple[Array, Array]:
    """κ(q, K) and κ(q, q) for each query q; keys and queries are padded already."""
    return _cross_and_prior(kernel, keys, queries, np.float64(temperature))


@partial(jax.jit, static_argnames="kernel")
def _gram(kernel: str, keys: Array, temperature: Array) -> Array:
    return kernels.KERNELS[kernel](keys, keys, temperature)


@partial(jax.jit, static_argnames="kernel")
def _cross_and_prior(
    kernel: str, keys: Array, queries: Array, temperature: Array
) -> tuple[Array, Array]:
    kappa = kernels.KERNELS[kernel]
    prior = jax.vmap(lambda query: kappa(query[None], query[None], temperature)[0, 0])
    return kappa(queries, keys, temperature), prior(queries)
