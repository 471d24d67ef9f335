"""Records queries, keys, values and weights inside the attention layers of `transformers`.

Most architectures of that library call one function, chosen by name, for

    weights = softmax(scaling · Q Kᵀ + mask),   output = weights V

after positions have been applied to queries and keys (rotary embeddings); some architectures add a
bias by position (T5). `recorded_attention`, registered under the name "attnlens", calls the
architecture's own eager version of this function and records queries, keys, values and weights. An
architecture that computes attention in another way (DeBERTa) does not call it; its weights are
taken from the model's outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

NAME = "attnlens"
# Tolerance in float32 of the comparison of recorded weights with the softmax of scaled products of
# queries and keys. Logits up to 100 have rounding errors of 1e−5, and so have weights, which are at
# most one.
ROUNDING = 1e-4


@dataclass(frozen=True)
class AttentionCall:
    """Tensors of one call of an attention layer.

    query, key and value have the shape (inputs, heads, tokens, dim), weights (inputs, heads, query,
    key). `plain` says whether the weights are the softmax of scaling · Q Kᵀ over the keys that are
    not masked, with no other term such as a position bias.
    """

    query: Any
    key: Any
    value: Any
    weights: Any
    scaling: float
    plain: bool


_open: list[list[AttentionCall]] = []  # one list per open `recording_calls`, the innermost last


def recorded_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
) -> tuple[Any, Any]:
    """Call the architecture's own eager attention, and record its tensors.

    Keys and values that several heads share (grouped-query attention) are recorded once per head.
    """
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
    """Whether the weights are the softmax of scaling · Q Kᵀ over the keys with nonzero weight.

    Only the last query of the first input is checked.
    """
    import torch

    if weights.shape[-1] != key.shape[-2]:  # there is a learned sink in addition to the keys
        return False
    row = weights[0, :, -1:]
    logits = torch.matmul(query[0, :, -1:], key[0].transpose(-1, -2)) * scaling
    expected = torch.softmax(logits.masked_fill(row == 0, -torch.inf), dim=-1)
    return bool((expected - row).abs().max() < ROUNDING)


def register() -> str:
    """Register `recorded_attention` with `transformers`, and return its name there."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(NAME, recorded_attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    return NAME


@contextmanager
def recording_calls() -> Iterator[list[AttentionCall]]:
    """Context manager: yields a list to which each attention call inside the context is added."""
    calls: list[AttentionCall] = []
    _open.append(calls)
    try:
        yield calls
    finally:
        _open.pop()
