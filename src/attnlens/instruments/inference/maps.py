"""Attention maps: the attention weights of an example, one panel per head.

Attention is linear in its values, A(Q, K, V) = W(Q, K) V, so the output for the identity as values
is the matrix of weights: W = A(Q, K, I). This works for every operator. For softmax attention, row
q of W sums to one: it is the distribution of query q over tokens (Vaswani et al., 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.core import arrays, checks
from attnlens.core.drawing import Map
from attnlens.instruments.layers.torch_recording import is_torch_module, record_torch_module
from attnlens.networks.encoder import Encoder
from attnlens.networks.reader import Reader
from attnlens.networks.self_attention import MultiLayerSelfAttention, SelfAttention

NETWORKS = (Encoder, Reader, SelfAttention, MultiLayerSelfAttention)


def attention_maps(
    subject: Any, example: Any = None, *, names: Sequence[str] = (), query_names: Sequence[str] = ()
) -> Map:
    """The attention weights of one example as panels, one per head and layer.

    subject: a network of `attnlens.networks`; or a PyTorch module (a model of `transformers`, or
        one with `torch.nn.MultiheadAttention`); or the weights of any model, as an array (queries,
        tokens), (heads, queries, tokens) or (layers, heads, queries, tokens).
    example: the input of the network or module; for a module also a tuple of inputs or a mapping
        from names to inputs. Not given with an array of weights.
    names: the names of the tokens.
    query_names: the names of the queries; by default the names of the tokens, if there are as many
        queries as tokens.

    >>> print(attention_maps(np.array([[0.75, 0.25], [0.5, 0.5]]), names=["cat", "sat"]))
    Attention weights
    weights: 2 × 2, largest 0.75 (cat → cat)
    """
    layers = _layers(subject, example)
    panels = []
    for number, heads in enumerate(layers, 1):
        for head, weights in enumerate(heads, 1):
            words = [f"layer {number}"] if len(layers) > 1 else []
            words += [f"head {head}"] if len(heads) > 1 else []
            panels.append((", ".join(words) or "weights", weights))
    queries, tokens = panels[0][1].shape
    if isinstance(subject, Reader):  # it has one query per head, so each head is drawn as a row
        panels = [("weights", np.concatenate([weights for _, weights in panels]))]
        query_names, queries = (
            [f"head {i + 1}" for i in range(len(panels[0][1]))],
            len(panels[0][1]),
        )
    labels = _names("names", names, tokens)
    query_labels = _names(
        "query_names", query_names or (labels if queries == tokens else ()), queries
    )
    return Map(
        "Attention weights",
        "token looked at",
        "head" if isinstance(subject, Reader) else "query",
        tuple((name, tuple(tuple(map(float, row)) for row in w)) for name, w in panels),
        labels,
        query_labels,
    )


def _layers(subject: Any, example: Any) -> list[np.ndarray]:
    """Return the weights (heads, queries, tokens), one array per layer."""
    if isinstance(subject, NETWORKS):  # trained networks hold NumPy arrays; JAX arrays are needed
        subject, example = jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf,
            (subject, example),
        )
    if isinstance(subject, SelfAttention | MultiLayerSelfAttention):
        # The method `attention` of these networks returns weights with queries as columns.
        return [np.asarray(a, float).T[None] for a in subject.attention(example)]
    if isinstance(subject, Encoder):
        return [np.asarray(weights, float) for weights in subject.attention(example)]
    if isinstance(subject, Reader):
        return [np.asarray(subject.attention(example), float)[:, None]]
    if is_torch_module(subject) and example is not None:
        return _torch_layers(subject, example)
    weights = arrays.numbers("the weights", subject) if example is None else np.empty(0)
    if not 2 <= weights.ndim <= 4 or not weights.size or not np.isfinite(weights).all():
        raise checks.BadInput(
            f"give a network ({', '.join(kind.__name__ for kind in NETWORKS)}) or a PyTorch module "
            f"with an example, or finite weights of 2 to 4 dimensions, (queries, tokens) last; got "
            f"{type(subject).__name__} of {weights.ndim} dimensions."
        )
    return list(weights.reshape((1,) * (4 - weights.ndim) + weights.shape))


def _torch_layers(module: Any, example: Any) -> list[np.ndarray]:
    """Return the weights of every attention layer of a PyTorch module for one example."""
    layers = record_torch_module(module, example).weights
    if not layers:
        raise checks.BadInput(
            f"{type(module).__name__} gives no attention weights: it has no "
            f"torch.nn.MultiheadAttention and is no model of transformers that returns them."
        )
    shapes = sorted({weights.shape for weights in layers})
    if len(shapes) > 1 or shapes[0][0] != 1:
        raise checks.BadInput(
            f"attention maps show one example whose layers have the same tokens; the weights of "
            f"{type(module).__name__} are {' and '.join(map(str, shapes))}."
        )
    return [np.asarray(weights[0], float) for weights in layers]


def _names(argument: str, names: Sequence[str], count: int) -> tuple[str, ...]:
    if len(names) not in (0, count):
        raise checks.BadInput(f"{argument} must be {count} names; got {len(names)}.")
    return tuple(map(str, names))
