"""Attention of PyTorch modules: maps of one example, and inspection without a folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnlens
from attnlens.core import BadInput
from attnlens.instruments.layers.torch_recording import record_torch_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
nn = torch.nn


def encoder(batch_first: bool = True) -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def test_maps_of_a_torch_encoder_are_the_weights_that_torch_returns():
    module, tokens = encoder(), torch.randn(1, 5, 8)
    shown = attnlens.attention_maps(module, tokens)
    assert [name for name, _ in shown.panels] == [
        f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2)
    ]
    with torch.no_grad():
        first = module.layers[0].self_attn
        expected = first(tokens, tokens, tokens, average_attn_weights=False)[1][0].numpy()
        plain = module(tokens)
    assert np.abs(np.array([rows for _, rows in shown.panels[:2]]) - expected).max() < 1e-6
    # No hooks remain on the module, and PyTorch uses its fast path again.
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert torch.backends.mha.get_fastpath_enabled()
    result = record_torch_module(module, tokens)
    assert np.abs(result.hidden[-1] - plain.numpy()).max() < 1e-5
    assert np.abs(result.hidden[0] - tokens.numpy()).max() == 0


def test_tokens_may_come_first():
    tokens = torch.randn(1, 5, 8)
    one = record_torch_module(encoder(), tokens)
    other = record_torch_module(encoder(batch_first=False), tokens.swapaxes(0, 1))
    for name in ("hidden", "weights"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            assert np.abs(a - b).max() < 1e-6


def test_an_encoder_of_torch_is_inspected():
    inputs = np.random.default_rng(0).normal(size=(6, 12, 8))
    result = attnlens.inspect(encoder(), inputs)
    assert result["order"].at == (0, 1, 2)
    # The encoder has no positions, so a mean over tokens does not depend on their order; the rest
    # is float32 rounding, squared.
    assert max(reading.value for reading in result["order"].by_layer) < 1e-9
    assert [len(row) for row in result["effective tokens"].by_head] == [2, 2]


def test_a_model_of_transformers_that_is_in_memory_is_inspected():
    pytest.importorskip("transformers")
    from small_transformers import make_model

    model = make_model("gpt2")
    before = model.config._attn_implementation
    numbers = np.random.default_rng(0).integers(5, 24, size=(6, 12))
    result = attnlens.inspect(model.eval(), numbers, causal=True)
    assert result["effective tokens"].at == (1, 2)
    assert result["order"].by_layer[2].value > 0
    shown = attnlens.attention_maps(model, {"input_ids": numbers[:1]})
    assert not np.triu(shown.panels[0][1], 1).any()
    assert model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Linear(8, 8).eval(), "gives no attention weights"),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), r"module\.eval\(\)"),
    ],
    ids=["linear", "training"],
)
def test_modules_without_maps_are_one_sentence(module: Any, says: str):
    with pytest.raises(BadInput, match=says):
        attnlens.attention_maps(module, torch.randn(1, 5, 8))
    with pytest.raises(BadInput, match="one example"):
        attnlens.attention_maps(encoder(), torch.randn(2, 5, 8))


def test_a_module_by_name_takes_sequences(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    (tmp_path / "made_here.py").write_text(
        "import torch\n"
        "def make():\n"
        "    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
        "    return torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(4, 6, 8))
    assert "effective tokens" in attnlens.inspect("made_here:make", inputs)
    with pytest.raises(BadInput, match="--sequences"):
        attnlens.inspect("made_here:make")
