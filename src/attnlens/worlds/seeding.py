"""Random keys of episodes, derived from seeds or from the episode's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, UInt32


def episode_keys(seeds: Sequence[int], *labels: int) -> Key[Array, " episodes"]:
    """One random key per seed; different `labels` (length, dimension) give independent episodes."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    for label in labels:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, label)
    return keys


def tokens_key(seed: int, tokens: Any, mask: Bool[Array, " length"]) -> Key[Array, ""]:
    """A random key that is computed from the values of the tokens, also in traced code.

    Tokens with other values give another key. The order of tokens and the values of masked tokens
    do not matter, so the same posterior gets the same key however its tokens are arranged.

    >>> rows, all_of_them = jnp.arange(6.0).reshape(3, 2), jnp.ones(3, bool)
    >>> key = jax.random.key_data(tokens_key(0, rows, all_of_them))
    >>> bool((key == jax.random.key_data(tokens_key(0, rows[::-1], all_of_them))).all())
    True
    """
    total = jnp.zeros(mask.shape, jnp.uint32)
    for part, leaf in enumerate(jax.tree.leaves(tokens)):
        # Adding 0 turns −0 into 0, so that both give the same key.
        rows = leaf.reshape(leaf.shape[0], -1) + jnp.zeros((), leaf.dtype)
        words = jax.lax.bitcast_convert_type(rows, jnp.uint32).reshape(leaf.shape[0], -1)
        places = jnp.arange(1, words.shape[1] + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B1)
        mixed = _mix(words ^ _mix(places + jnp.uint32(part))[None])
        total = total + jnp.sum(mixed, 1, dtype=jnp.uint32)
    rows_hash = jnp.where(mask, _mix(total), jnp.uint32(0))
    key = jax.random.fold_in(jax.random.key(seed), jnp.sum(mask, dtype=jnp.uint32))
    return jax.random.fold_in(key, jnp.sum(rows_hash, dtype=jnp.uint32))


def _mix(words: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """The finaliser of MurmurHash3: every bit of a word changes half of the bits of the result."""
    words = (words ^ (words >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> jnp.uint32(16))
