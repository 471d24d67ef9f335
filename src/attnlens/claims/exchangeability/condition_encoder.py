"""The trained masked encoder of A.condition-number, and the sequences that it is trained on.

Tokens are pairs (k, v) with v = ⟨z, k⟩ + noise. The encoder maps them to ẑ(X), an estimate of z.
It is trained to predict the hidden value ⟨z, q⟩ + noise as ⟨q, ẑ(X)⟩. The last coordinate of the
hidden keys q is smaller than the others by the factor ε, which determines the condition number κ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attnlens.networks.reader import Reader, ReaderInputs
from attnlens.training.trainer import fit
from attnlens.worlds.seeding import episode_keys


def weakness(kappa: float, queried: bool = True) -> float:
    """The ε for which κ² = (1 + 1/ε²)/2; 0 if no query has a component in the last direction."""
    return 1 / math.sqrt(2 * kappa**2 - 1) if queried else 0.0


def target(parameters: Mapping[str, Any]) -> np.ndarray:
    """The head c (a unit vector) of the downstream target ⟨c, z⟩."""
    directions = np.eye(parameters["dim"])[parameters["target"]]
    return directions.sum(0) / math.sqrt(len(directions))


def pairs(key: Any, spread: Any, noise_std: Any, sizes: tuple[int, int, int]) -> tuple[Any, ...]:
    """Draw n sequences in float32: tokens (k, v), hidden keys, hidden values and latents.

    `spread` are the standard deviations of the coordinates of hidden keys; `sizes` are (n, length,
    dim).
    """
    count, length, dim = sizes
    normal = partial(jax.random.normal, dtype=jnp.float32)
    parts = jax.random.split(key, 5)
    latent = normal(parts[0], (count, dim))
    keys = normal(parts[1], (count, length, dim))
    noise, hidden_noise = normal(parts[2], (count, length)), normal(parts[3], (count,))
    noise_std = jnp.asarray(noise_std, jnp.float32)
    values = jnp.einsum("nld,nd->nl", keys, latent) + noise_std * noise
    query = normal(parts[4], (count, dim)) * jnp.asarray(spread, jnp.float32)[None]
    hidden = jnp.sum(query * latent, 1) + noise_std * hidden_noise
    return jnp.concatenate([keys, values[..., None]], -1), query, hidden, latent


class MaskedReader(eqx.Module):
    """The masked encoder: ẑ(X) is a linear map of the reads of softmax heads.

    The output is ⟨q, ẑ(X)⟩.
    """

    reader: Reader

    def __init__(self, key: Any, *, dim: int, heads: int, head_dim: int):
        self.reader = Reader(
            key, key_dim=dim, outputs=dim, heads=heads, head_dim=head_dim, hidden=0
        )

    def latent(self, inputs: ReaderInputs) -> Float[Array, " dim"]:
        return self.reader(ReaderInputs(inputs.key, inputs.value))

    def __call__(self, inputs: ReaderInputs) -> Float[Array, " 1"]:
        return jnp.sum(inputs.query * self.latent(inputs), keepdims=True)


def encoder_risks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """The downstream risk minus that of the reference network (trained at κ = 1), (seed, κ)."""
    tests = [sequences(parameters, seed, parameters["test_sequences"], 1.0, 0) for seed in seeds]
    best = risks(parameters, seeds, tests, 1.0, parameters["reference_sequences"])
    columns = [
        risks(parameters, seeds, tests, weakness(kappa), parameters["sequences"])
        for kappa in parameters["kappas"]
    ]
    return np.stack(columns, axis=1) - best[:, None]


def risks(
    parameters: Mapping[str, Any], seeds: Sequence[int], tests: Any, weak: float, count: int
) -> np.ndarray:
    """Train one network per seed; return E(⟨c, ẑ(X)⟩ − ⟨c, z⟩)² on the test sequences, per seed.

    `weak` is ε, and `count` the number of training sequences.
    """
    part = 1 + round(1e6 * weak) + count
    drawn = [sequences(parameters, seed, count, weak, part) for seed in seeds]
    inputs = jax.tree.map(lambda *leaves: np.stack(leaves), *[inputs for inputs, _, _ in drawn])
    sizes = {name: parameters[name] for name in ("dim", "heads", "head_dim")}
    fitted = fit(
        partial(MaskedReader, **sizes),
        inputs,
        np.stack([hidden for _, hidden, _ in drawn]),
        seeds=seeds,
        data_per_seed=True,
        block=len(seeds),
        **parameters["training"],
    )
    head = target(parameters)
    errors = [
        (np.asarray(_latents(fitted.model(i), inputs), float) - latent) @ head
        for i, (inputs, _, latent) in enumerate(tests)
    ]
    return np.mean(np.square(errors), axis=1)


@jax.jit
def _latents(model: MaskedReader, inputs: ReaderInputs) -> Any:
    return jax.vmap(model.latent)(inputs)


def sequences(
    parameters: Mapping[str, Any], seed: int, count: int, weak: float, part: int
) -> tuple[ReaderInputs, np.ndarray, np.ndarray]:
    """Inputs, hidden values (n, 1) and latents of `count` sequences.

    `weak` is ε; `part` selects the random numbers of a seed.
    """
    dim = parameters["dim"]
    spread = np.array([1.0] * (dim - 1) + [weak])
    sizes = (count, parameters["length"], dim)
    key = episode_keys([seed], part)[0]
    drawn = _pairs(key, spread, parameters["noise_std"], sizes)
    tokens, query, hidden, latent = (np.asarray(array) for array in drawn)
    return ReaderInputs(tokens[..., :dim], tokens[..., dim:], query), hidden[:, None], latent


_pairs = jax.jit(pairs, static_argnames="sizes")
