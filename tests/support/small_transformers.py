"""Small models of `transformers` with random weights, their folders, and a model whose heads are
known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "hat", "red", "blue", "big")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
LLAMA = {**SHAPE, "num_key_value_heads": 1}
SMALL = {"vocab_size": 24, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": SHAPE,
    "roberta": SHAPE,
    "albert": {**SHAPE, "embedding_size": 8},
    "distilbert": {
        **SMALL,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 24,
        "max_position_embeddings": 64,
    },
    "deberta-v2": {**SHAPE, "relative_attention": True, "pos_att_type": ["c2p"]},
    "gpt2": {**SMALL, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "llama": LLAMA,
    "qwen2": LLAMA,
    "t5": {
        **SMALL,
        "d_model": 16,
        "num_layers": 2,
        "num_heads": 2,
        "d_kv": 8,
        "d_ff": 24,
        "decoder_start_token_id": 0,
    },
    "vit": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "image_size": 16,
        "patch_size": 4,
    },
}
# Architectures that lack something that others have. They are not in CONFIGS, which lists the
# architectures that are said to be tested.
UNUSUAL: dict[str, dict[str, Any]] = {
    "esm": SHAPE,
    "gptj": {**SMALL, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "rotary_dim": 4},
    "longformer": {**SHAPE, "attention_window": [8, 8]},
    "fnet": SHAPE,
    "swin": {"image_size": 16, "patch_size": 4, "embed_dim": 8, "depths": [1, 1]}
    | {"num_heads": [2, 2], "window_size": 2},
}


def tokenizer(words: Sequence[str] = WORDS) -> Any:
    """A tokenizer with one token per word, which adds [CLS] before and [SEP] after a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate((*SPECIAL, *words))}
    inner = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def make_model(kind: str, **changes: Any) -> Any:
    """A model with random weights, large enough for attention to differ between tokens."""
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    settings = {**(CONFIGS | UNUSUAL)[kind], **changes}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name.lower():
                parameter.normal_(std=0.4)
    return model


def save(model: Any, folder: Path, words: Sequence[str] = WORDS) -> Path:
    """Write a folder as `save_pretrained` does, with a tokenizer unless the model reads images;
    return its path."""
    model.save_pretrained(folder)
    if hasattr(model.config, "image_size"):
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3}))
    else:
        tokenizer(words).save_pretrained(folder)
    return folder


def texts(count: int = 12, words: Sequence[str] = WORDS, seed: int = 0) -> list[str]:
    """Texts of 26 to 30 random words."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, random.integers(26, 31))) for _ in range(count)]


def induction_gpt2() -> Any:
    """A GPT-2 with two layers of two heads whose functions are known.

    A row of the width holds the token (24), its position (64) and the previous token (24), each
    one-hot. Head 1 of layer 1 attends to the previous position and writes the token found there
    into the third part. Head 1 of layer 2 attends to tokens whose third part is the present token:
    induction. The second head of each layer has zero queries, so it attends uniformly to the tokens
    that it can see.
    """
    import torch
    from transformers import GPT2Config, GPT2Model

    tokens, positions, sharp = 24, 64, 40.0
    width = 128  # 24 + 64 + 24, and 16 unused; two heads of 64
    config = GPT2Config(
        n_embd=width,
        n_layer=2,
        n_head=2,
        n_inner=4,
        vocab_size=tokens,
        n_positions=positions,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    )
    model: Any = GPT2Model(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" not in name:
                parameter.zero_()
        model.wte.weight[:, :tokens] = torch.eye(tokens)
        model.wpe.weight[:, tokens : tokens + positions] = torch.eye(positions)
        third = tokens + positions
        for layer, (query, key) in enumerate(((tokens, tokens), (0, third))):
            attention = model.h[layer].attn
            count = positions if layer == 0 else tokens
            move = torch.roll(torch.eye(positions), -1, 1) if layer == 0 else torch.eye(tokens)
            attention.c_attn.weight[query : query + count, :count] = sharp * move
            attention.c_attn.weight[key : key + count, width : width + count] = torch.eye(count)
        value = model.h[0].attn.c_attn.weight[:, 2 * width :]
        value[:tokens, :tokens] = torch.eye(tokens)
        model.h[0].attn.c_proj.weight[:tokens, third : third + tokens] = torch.eye(tokens)
    return model
