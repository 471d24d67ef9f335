"""Records queries, keys, values and weights inside the attention layers of `transformers`.

Most architectures of that library call one function, chosen by name, for

    weights = softmax(scaling · Q Kᵀ + mask),   output = weights V

after positions have been applied to queries and keys (rotary embeddings); some add a bias by
position (T5). Under the name `attnlens` the function below calls the architecture's own plain
version and keeps all four. An architecture with attention of its own (DeBERTa) does not call it;
its weights are taken from the model's outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

NAME = "attnlens"
# Largest difference between the weights and the softmax of products of queries and keys, in
# float32: logits up to 100 are rounded by 1e−5, and so are weights, which are at most one.
ROUNDING = 1e-4


@dataclass(frozen=True)
class AttentionCall:
    """Tensors of one call, (inputs, heads, tokens, dim) and (inputs, heads, query, key).

    plain: whether the weights are the softmax of products of queries and keys, with nothing added
    but the exclusion of keys.
    """

    query: Any
    key: Any
    value: Any
    weights: Any
    scaling: float
    plain: bool


_open: list[list[AttentionCall]] = []  # the lists that are being filled, innermost last


def recorded_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
) -> tuple[Any, Any]:
    """The attention of the module's own file; keys that several heads share are repeated."""
    own = sys.modules[type(module).__module__].eager_attention_forward
    output, weights = own(module, query, key, value, attention_mask, **settings)
    if _open:
        shared = query.shape[1] // key.shape[1]
        if shared > 1:
            key, value = (part.repeat_interleave(shared, dim=1) for part in (key, value))
        scaling = settings.get("scaling")
        scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        plain = _is_plain(query, key, weights, scaling)
        _open[-1].append(AttentionCall(query, key, value, weights, scaling, plain))
    return output, weights


def _is_plain(query: Any, key: Any, weights: Any, scaling: float) -> bool:
    """Whether the weights of a query, the last of the first input, are the softmax over the keys
    that they do not exclude."""
    import torch

    if weights.shape[-1] != key.shape[-2]:  # a sink of its own, beside the keys
        return False
    row = weights[0, :, -1:]
    logits = torch.matmul(query[0, :, -1:], key[0].transpose(-1, -2)) * scaling
    expected = torch.softmax(logits.masked_fill(row == 0, -torch.inf), dim=-1)
    return bool((expected - row).abs().max() < ROUNDING)


def register() -> str:
    """Make the function known to `transformers` and return its name."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(NAME, recorded_attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    return NAME


@contextmanager
def recording_calls() -> Iterator[list[AttentionCall]]:
    """The calls of the attention function in the order of the layers, filled while this is open."""
    calls: list[AttentionCall] = []
    _open.append(calls)
    try:
        yield calls
    finally:
        _open.pop()
