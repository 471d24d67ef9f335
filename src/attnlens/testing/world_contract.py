"""The contract of a world: pure sampling and, in an exact world, closed forms that agree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.worlds.base import ExactWorld, Pairs, World
from attnlens.worlds.model import ReferenceWorld

from .requirement import require

LENGTH, QUERIES = 6, 3
# Two correct algorithms in float64 differ by about the condition number of the posterior's system
# times 2.2e-16. This allows condition numbers of up to about 1e7.
ROUNDING = 1e-9


def check_world(world: World) -> None:
    """Check a world: sampling is a pure function of the key, in the precision of the process.

    In an exact world with closed forms, the order of tokens must not matter, a masked token must
    count as absent, and updates one by one must equal one update.

    >>> from attnlens.worlds import NormalMean
    >>> check_world(NormalMean(dim=2))
    """
    require(isinstance(world, World), f"a world is a World; got {type(world).__name__}")
    with jax.enable_x64(True):
        _check_sampling(world)
        if isinstance(world, ExactWorld) and not isinstance(world, ReferenceWorld):
            _check_closed_forms(world)
    with jax.enable_x64(False):
        leaves = jax.tree.leaves(world.sample(jax.random.key(0), 2, 1).tokens)
        single = all(leaf.dtype == jnp.float32 for leaf in leaves)
        require(single, f"{_name(world)} draws float32 where that is the default")


def _check_sampling(world: World) -> None:
    first, again, other = (
        jax.tree.leaves(world.sample(jax.random.key(seed), LENGTH, QUERIES).tokens)
        for seed in (0, 0, 1)
    )
    require(_equal(first, again), f"{_name(world)} draws the same tokens from the same key")
    require(not _equal(first, other), f"{_name(world)} draws other tokens from another key")
    for leaf in first:
        require(leaf.shape[0] == LENGTH, f"the tokens of {_name(world)} have shape (length, …)")
        require(
            leaf.dtype == jnp.float64, f"{_name(world)} draws float64 where that is the default"
        )
        require(np.isfinite(leaf).all(), f"{_name(world)} draws finite tokens")
    episode = world.sample(jax.random.key(0), LENGTH, QUERIES)
    if isinstance(episode.tokens, Pairs):
        query, answer = episode.query, episode.answer
        shaped = query is not None and answer is not None and len(query) == len(answer) == QUERIES
        require(shaped, f"{_name(world)} has a query and an answer for each of the queries")
    empty = jax.tree.leaves(world.sample(jax.random.key(0), 0).tokens)
    require(all(leaf.shape[0] == 0 for leaf in empty), f"{_name(world)} can draw no tokens at all")


def _check_closed_forms(world: ExactWorld) -> None:
    episode = world.sample(jax.random.key(0), LENGTH, QUERIES)
    tokens, query = episode.tokens, episode.query
    whole = _answers(world, tokens, None, query)
    order = jnp.array([3, 0, 5, 1, 4, 2])
    permuted = _answers(world, _rows(tokens, order), None, query)
    require(_close(permuted, whole), f"the order of tokens does not matter to {_name(world)}")
    keep = jnp.array([True, True, False, True, False, True])
    masked = _answers(world, tokens, keep, query)
    shorter = _answers(world, _rows(tokens, np.flatnonzero(keep)), None, query)
    require(_close(masked, shorter), f"a masked token of {_name(world)} counts as absent")
    require(not _close(shorter, whole), f"the tokens of {_name(world)} change its predictions")
    posterior = world.prior()
    for start, stop in ((0, 1), (1, 3), (3, LENGTH)):
        posterior = world.update(posterior, _rows(tokens, slice(start, stop)))
    law = world.predictive(posterior, query)
    require(
        _close((law.mean, law.var), whole[:2]), f"updates of {_name(world)} add up to one update"
    )


def _name(world: World) -> str:
    return type(world).__name__


def _answers(world: ExactWorld, tokens: Any, mask: Any, query: Any) -> tuple[Any, ...]:
    law = world.predict(tokens, query, mask)
    return law.mean, law.var, world.log_evidence(tokens, mask)


def _rows(tokens: Any, where: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[where], tokens)


def _equal(left: list[Any], right: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def _close(left: Any, right: Any) -> bool:
    """Whether arrays are equal up to rounding, relative to one plus their largest entries."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(
        np.allclose(a, b, rtol=0, atol=ROUNDING * (1 + np.max(np.abs(b), initial=0)))
        for a, b in pairs
    )
