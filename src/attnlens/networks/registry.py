"""Small ready-made networks, one of each kind and head: contract tests run over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from .dense import Attended, Baseline, Gated, KnownAttention
from .encoder import Encoder, Tokens
from .feature_transformer import FeatureTransformer
from .losses import Hidden
from .reader import Reader, ReaderInputs
from .self_attention import MultiLayerSelfAttention, SelfAttention


class Example(NamedTuple):
    """How to make a network, its loss, and how to draw one sample for it."""

    make: Callable[[Key[Array, ""]], Any]
    loss: str
    sample: Callable[[Key[Array, ""]], tuple[Any, Any]]


def numbers(shape: tuple[int, ...], key: Key[Array, ""]) -> tuple[Array, Array]:
    x = jax.random.normal(key, shape)
    return x, jnp.tanh(jnp.sum(x, keepdims=True)).reshape(1)


def attended(key: Key[Array, ""]) -> tuple[Attended, Array]:
    x, y = numbers((6,), key)
    return Attended(x, jax.nn.softmax(x)), y


def binary(shape: tuple[int, ...], key: Key[Array, ""]) -> tuple[Array, Array]:
    x, y = numbers(shape, key)
    return x, (y > 0).astype(x.dtype)


def classes(shape: tuple[int, ...], key: Key[Array, ""]) -> tuple[Array, Array]:
    x, y = numbers(shape, key)
    return x, jnp.where(y[0] > 0.5, 2, jnp.where(y[0] > -0.5, 1, 0))


def latent(key: Key[Array, ""]) -> tuple[Array, Array]:
    x = jax.random.normal(key, (5, 3))
    return x, jnp.mean(x[:, :2], 0)


def masked(key: Key[Array, ""]) -> tuple[Tokens, Hidden]:
    x = jax.random.normal(key, (5, 3))
    hidden = jnp.arange(5) == jax.random.randint(key, (), 0, 5)
    return Tokens(x, None, hidden), Hidden(x, hidden)


def with_query(key: Key[Array, ""]) -> tuple[ReaderInputs, Array]:
    x, y = numbers((5, 3), key)
    return ReaderInputs(x, x[:, :1], x[0]), y


def pooled(key: Key[Array, ""]) -> tuple[ReaderInputs, Array]:
    x, y = classes((5, 3), key)
    return ReaderInputs(x, x), y


def gated(key: Key[Array, ""]) -> Gated:
    return Gated(Baseline(key, features=6, hidden=4), shape=(6,))


TOKENS: dict[str, int] = {"tokens": 4, "token_dim": 3, "query_dim": 2, "hidden": 4}
ENCODER: dict[str, int] = {"token_dim": 3, "width": 8, "heads": 2, "layers": 1}

NETWORKS: dict[str, Example] = {
    "baseline": Example(partial(Baseline, features=6, hidden=4), "squared", partial(numbers, (6,))),
    "baseline-relu": Example(
        partial(Baseline, features=6, hidden=4, sharpness=math.inf),
        "squared",
        partial(numbers, (6,)),
    ),
    "baseline-logistic": Example(
        partial(Baseline, features=6, hidden=4), "logistic", partial(binary, (6,))
    ),
    "baseline-gated": Example(gated, "squared", partial(numbers, (6,))),
    "known-attention": Example(partial(KnownAttention, features=6, hidden=4), "squared", attended),
    "self-attention": Example(
        partial(SelfAttention, value_dim=2, **TOKENS), "squared", partial(numbers, (3, 4))
    ),
    "self-attention-softmax": Example(
        partial(SelfAttention, value_dim=2, outputs=3, **TOKENS),
        "softmax",
        partial(classes, (3, 4)),
    ),
    "multi-layer-self-attention": Example(
        partial(MultiLayerSelfAttention, layers=2, **TOKENS), "squared", partial(numbers, (3, 4))
    ),
    "multi-layer-self-attention-logistic": Example(
        partial(MultiLayerSelfAttention, layers=2, **TOKENS), "logistic", partial(binary, (3, 4))
    ),
    "feature-transformer": Example(
        partial(FeatureTransformer, features=6, width=8, heads=2, layers=1),
        "squared",
        partial(numbers, (6,)),
    ),
    "feature-transformer-uniform": Example(
        partial(FeatureTransformer, features=5, token_dim=3, outputs=3, uniform_attention=True),
        "softmax",
        partial(classes, (5, 3)),
    ),
    "reader": Example(partial(Reader, key_dim=3, query_dim=3, hidden=4), "squared", with_query),
    "reader-pooling": Example(
        partial(Reader, key_dim=3, value_dim=3, outputs=3, heads=2, hidden=4), "softmax", pooled
    ),
    "encoder-labels": Example(
        partial(Encoder, outputs=1, **ENCODER), "squared", partial(numbers, (5, 3))
    ),
    "encoder-cme": Example(
        partial(Encoder, outputs=3, operator="cme", **ENCODER), "softmax", partial(classes, (5, 3))
    ),
    "encoder-masked": Example(
        partial(Encoder, outputs=3, head="masked", **ENCODER), "masked-squared", masked
    ),
    "encoder-posterior": Example(
        partial(Encoder, outputs=2, head="posterior", **ENCODER), "gaussian", latent
    ),
    "encoder-mixture": Example(
        partial(Encoder, outputs=2, head="mixture", components=2, **ENCODER), "mixture", latent
    ),
    "encoder-positions": Example(
        partial(Encoder, outputs=1, positions=True, max_length=5, **ENCODER),
        "squared",
        partial(numbers, (5, 3)),
    ),
}
"""A small example of every network, over which the contract tests run."""
