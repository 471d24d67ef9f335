"""Trained predictors of a hidden value at several lengths, compared with the exact predictor.

Shared by A.trained-approaches-bayes and A.trained-efficiency. Sequences are drawn at the longest
length, and shorter sequences are their first tokens (tokens are exchangeable). So a seed has the
same sequences at every length, which removes noise from slopes. The other tokens are masked, so
that all lengths and both worlds share one compiled program. The setting `reading` is "softmax" for
trained attention; with the other two values only the readout is trained:

"uniform"  attention is frozen at equal weights: the network is given the mean of the values
"cme"      the network is given the output of kernel ridge attention with the kernel and the ridge
           of the world, which is the exact predictive mean
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, trained
from attnlens.networks.reader import ReaderInputs
from attnlens.worlds import GaussianProcess, LinearRegression
from attnlens.worlds.base import ExactWorld, Pairs

from .trained_networks import FITTING, NETWORK, fitting, reader

WORLDS = ("regression", "process")
SETTINGS: dict[str, Any] = {
    "key_dim": 3,
    "noise_std": 0.5,
    "temperature": 0.5,  # temperature of the Gaussian process's kernel
    "reading": "softmax",
    "shuffled": False,
    "test_sequences": 512,
    **NETWORK,
    **FITTING,
}


def world_of(parameters: Mapping[str, Any]) -> ExactWorld:
    """A linear regression with latent weights, or a Gaussian process on the sphere."""
    dim, noise_std = parameters["key_dim"], parameters["noise_std"]
    if parameters["world"] == "process":
        return GaussianProcess(dim, temperature=parameters["temperature"], noise_std=noise_std)
    return LinearRegression(dim, noise_std)


def distances(parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """E(f̂ − f*)² of trained networks, and the exact posterior variance.

    Rows are seeds, columns are lengths.
    """
    world, lengths = world_of(parameters), parameters["length"]
    train, test = (
        draw(world, seeds, parameters[name], max(lengths), part, exact=False)
        for name, part in (("samples", TRAIN), ("test_sequences", TEST))
    )
    if parameters["shuffled"]:
        train = train._replace(target=np.roll(train.target, 1, axis=1))
    make = reader(parameters, key_dim=parameters["key_dim"], query_dim=parameters["key_dim"])
    columns = []
    for length in lengths:
        fitted = trained(
            make,
            _read(parameters, world, train, length),
            seeds,
            (parameters["samples"],),
            **fitting(parameters),
        )
        exact, spread = _exact(world, test.inputs, length)
        inputs = _read(parameters, world, test, length).inputs
        predicted = np.asarray(_predict(fitted.models, inputs), float)
        columns.append((((predicted - exact) ** 2).mean((1, 2)), spread.mean(1)))
    distance, uncertainty = (np.stack(parts, 1) for parts in zip(*columns, strict=True))
    return {"distance": distance, "uncertainty": uncertainty}


def _read(
    parameters: Mapping[str, Any], world: ExactWorld, episodes: Episodes, length: int
) -> Episodes:
    """Episodes of which only the first `length` tokens are used, as inputs for `reading`."""
    inputs = episodes.inputs
    if parameters["reading"] == "softmax":
        mask = np.arange(inputs.key.shape[-2]) < length
        mask = np.broadcast_to(mask, inputs.key.shape[:-1])
        return episodes._replace(inputs=inputs._replace(mask=mask))
    if parameters["reading"] == "uniform":
        read = inputs.value[..., :length, :].mean(-2)
    else:
        read, _ = _exact(world, inputs, length)
    # The read is given as one token: a head's softmax over it is 1 for every key.
    one = ReaderInputs(inputs.query[..., None, :], read[..., None, :], inputs.query)
    return episodes._replace(inputs=one)


def _exact(world: ExactWorld, inputs: ReaderInputs, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The exact predictive mean and the posterior variance, given the first `length` tokens."""
    shape = inputs.query.shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), inputs)
    tokens = Pairs(flat.key[:, :length], flat.value[:, :length])
    mean, spread = _posterior(world, tokens, flat.query[:, None])
    return np.asarray(mean).reshape(*shape, -1), np.asarray(spread).reshape(shape)


@eqx.filter_jit
def _posterior(world: ExactWorld, tokens: Pairs, query: Any) -> tuple[Any, Any]:
    def one(pair: tuple[Pairs, Any]) -> tuple[Any, Any]:
        posterior = world.posterior(pair[0])
        return world.predictive(posterior, pair[1]).mean, world.uncertainty(posterior, pair[1])

    return jax.lax.map(one, (tokens, query))  # sequential, so that LAPACK calls never overlap


@eqx.filter_jit
def _predict(models: Any, inputs: ReaderInputs) -> Any:
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), inputs._replace(mask=None))
    single = single._replace(mask=inputs.mask)
    return jax.vmap(lambda model, own: jax.vmap(model)(own))(models, single)
