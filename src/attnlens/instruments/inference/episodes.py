"""Episodes as training data: L input tokens, and a label that depends on the latent.

    "next"     the next token (if tokens have keys: the value of the next token, given its key):
               self-supervised learning, which needs no labels
    "latent"   the latent itself, as a supervised label

The best prediction from the L tokens X is known exactly: f*(X) = E[label | X]. Let m be the label
without its noise: the conditional mean of the next token given the latent, or the latent itself.
The mean squared distance between m and f*(X) is known exactly, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from attnlens.core import checks
from attnlens.networks.reader import ReaderInputs
from attnlens.worlds.base import ExactWorld, Pairs, World
from attnlens.worlds.model import over_episodes

from .latents import latent_moments, latent_vector, require_vector

LABELS = ("next", "latent")
CHUNK = 256  # episodes per call of the compiled program


class Episodes(NamedTuple):
    """Episodes as NumPy arrays with any leading axes."""

    inputs: ReaderInputs
    target: Any  # (..., dim): the label
    exact: Any  # (..., dim): f*(X), the exact conditional mean of the label
    uncertainty: Any  # (...): E[mean over dim of (m − f*(X))² | X]


def episodes(
    world: World, keys: Key[Array, "..."], length: int, label: str = "next", exact: bool = True
) -> Episodes:
    """Draw one episode per key, in JAX's default precision (float64 under x64).

    With `exact=False`, f* and the uncertainty are NaN. They need a world with a posterior, and can
    cost more than the rest of the computation.

    >>> from attnlens.worlds import NormalMean
    >>> drawn = episodes(NormalMean(dim=2), jax.random.split(jax.random.key(0), (3, 4)), length=5)
    >>> drawn.inputs.value.shape, drawn.target.shape, drawn.uncertainty.shape
    ((3, 4, 5, 2), (3, 4, 2), (3, 4))
    """
    checks.whole("length", length, at_least=1)
    checks.one_of("label", label, LABELS)
    if label == "latent":
        require_vector(world)
    flat = keys.reshape(-1)
    # The last chunk overlaps the one before it: chunks of one size need one compiled program.
    size = min(CHUNK, len(flat))
    starts = [min(i, len(flat) - size) for i in range(0, len(flat), size)]
    chunks = []
    for i, start in enumerate(starts):
        drawn = jax.tree.map(
            np.asarray, _draw(world, flat[start : start + size], length, label, exact)
        )
        chunks.append(jax.tree.map(lambda leaf, skip=i * size - start: leaf[skip:], drawn))
    return jax.tree.map(
        lambda *parts: np.concatenate(parts).reshape(*keys.shape, *parts[0].shape[1:]), *chunks
    )


@eqx.filter_jit
def _draw(
    world: World, keys: Key[Array, " episodes"], length: int, label: str, exact: bool
) -> Episodes:
    def one(key: Key[Array, ""]) -> Episodes:
        episode = world.sample(key, length + 1)
        tokens = episode.tokens
        if isinstance(tokens, Pairs):
            seen: Any = Pairs(tokens.key[:-1], tokens.value[:-1])
            inputs = ReaderInputs(seen.key, seen.value, tokens.key[-1] if label == "next" else None)
            target = tokens.value[-1]
        else:
            seen = tokens[:-1]
            inputs, target = ReaderInputs(seen, seen), tokens[-1]
        target = latent_vector(world, episode.latent) if label == "latent" else target
        if not exact:
            unknown = jnp.full_like(target, jnp.nan)
            return Episodes(inputs, target, unknown, jnp.mean(unknown))
        assert isinstance(world, ExactWorld), "exact=True needs a world with a posterior"
        posterior = world.posterior(seen)
        if label == "latent":
            mean, var = latent_moments(posterior)
            return Episodes(inputs, target, mean, var.mean())
        query = None if inputs.query is None else inputs.query[None]
        mean = world.predictive(posterior, query).mean
        spread = world.uncertainty(posterior, query) / target.size
        return Episodes(inputs, target, mean.reshape(target.shape), spread)

    return over_episodes(world, one, keys)
