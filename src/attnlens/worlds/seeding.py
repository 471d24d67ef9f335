"""Random keys of episodes, derived from seeds."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key


def episode_keys(seeds: Sequence[int], *labels: int) -> Key[Array, " episodes"]:
    """One random key per seed; different `labels` (length, dimension) give independent episodes."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    for label in labels:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, label)
    return keys
