"""Hidden states and attention weights of a PyTorch module, without changes to its code.

    models of `transformers`        their outputs `hidden_states` and `attentions`
    torch.nn.TransformerEncoderLayer   input of the first layer, output of every layer (hooks)
    torch.nn.MultiheadAttention     its weights, which a hook requests

Torch is imported only if a module is given.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlens.core import checks


@dataclass
class TorchRecording:
    """What a PyTorch module computed.

    output: the output of the module.
    hidden: arrays (inputs, tokens, width): the input of the first layer, then each layer's output.
    weights: one array (inputs, heads, queries, tokens) per attention layer.
    """

    output: Any = None
    hidden: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)


def is_torch_module(subject: Any) -> bool:
    """Whether `subject` is a `torch.nn.Module`; torch is not imported.

    >>> is_torch_module(len)
    False
    """
    kinds = type(subject).__mro__
    return any(
        kind.__module__.startswith("torch.nn") and kind.__name__ == "Module" for kind in kinds
    )


def record_torch_module(module: Any, inputs: Any) -> TorchRecording:
    """Run a module without gradients and record it.

    `inputs` is one array, a tuple of arrays, or a mapping from argument names to arrays.
    """
    import torch

    if module.training:
        raise checks.BadInput(
            f"{type(module).__name__} is in training mode, in which dropout changes attention; "
            f"call module.eval() first."
        )
    names = dict(inputs) if isinstance(inputs, Mapping) else {}
    places = () if names else inputs if isinstance(inputs, tuple) else (inputs,)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    arguments = [_tensor(torch, part, dtype) for part in places]
    keywords = {name: _tensor(torch, part, dtype) for name, part in names.items()}
    recording = TorchRecording()
    with torch.inference_mode(), _hooks(torch, module, recording), _eager(module) as options:
        recording.output = module(*arguments, **keywords, **options)
    if options:
        for name, stored in (
            ("hidden_states", recording.hidden),
            ("attentions", recording.weights),
        ):
            tensors = recording.output.get(name) or ()
            stored[:] = [_array(part) for part in tensors if part is not None]
    return recording


def _tensor(torch: Any, value: Any, dtype: Any) -> Any:
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


@contextlib.contextmanager
def _eager(module: Any) -> Iterator[dict[str, bool]]:
    """Yield the arguments with which a model of `transformers` returns hidden states and weights.

    Inside the context the model uses its "eager" attention, because fused kernels return no
    weights. For other modules no arguments are needed.
    """
    if not hasattr(module, "set_attn_implementation"):
        yield {}
        return
    before = module.config._attn_implementation
    module.set_attn_implementation("eager")
    try:
        yield {"output_hidden_states": True, "output_attentions": True, "return_dict": True}
    finally:
        module.set_attn_implementation(before)


@contextlib.contextmanager
def _hooks(torch: Any, module: Any, recording: TorchRecording) -> Iterator[None]:
    """Record layers and attention by hooks, with torch's fused layers off, which skip hooks."""

    def ask(attention: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        bound = inspect.signature(type(attention).forward).bind(attention, *arguments, **keywords)
        bound.arguments |= {"need_weights": True, "average_attn_weights": False}
        return (), {name: value for name, value in bound.arguments.items() if name != "self"}

    def keep_weights(attention: Any, arguments: Any, output: Any) -> None:
        weights = _array(output[1])
        recording.weights.append(weights[None] if weights.ndim == 3 else weights)

    def keep_states(layer: Any, arguments: Any, output: Any) -> None:
        first = layer.self_attn.batch_first
        for tensor in (arguments[0], output) if not recording.hidden else (output,):
            states = _array(tensor)
            states = (
                states[None] if states.ndim == 2 else states if first else states.swapaxes(0, 1)
            )
            recording.hidden.append(states)

    handles = []
    for part in module.modules():
        if isinstance(part, torch.nn.MultiheadAttention):
            handles += [
                part.register_forward_pre_hook(ask, with_kwargs=True),
                part.register_forward_hook(keep_weights),
            ]
        elif isinstance(part, torch.nn.TransformerEncoderLayer):
            handles.append(part.register_forward_hook(keep_states))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
