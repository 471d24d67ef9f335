"""The transformer that all contenders of the curvature and surface benchmarks use.

It has two layers, 4 heads, 16 tokens of 16 numbers, 10 classes, and a feed-forward layer 2.5 times
as wide as the rest: 19,786 parameters at width 32, and 1,498 at width 8, where the whole spectrum
is computed. Parameters and data come from the same seeds; JAX and PyTorch run the same arithmetic
(`forward`). Attention is written out, because second derivatives are needed; PyTorch's fused
attention, which has no second derivative, is used only with `fused`.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import CORES

TOKENS, DIM, CLASSES, SAMPLES, LAYERS, HEADS = 16, 16, 10, 512, 2, 4
LARGE, SMALL = 32, 8  # hidden widths of the two networks that are measured
PEERS = "peers-torch"


def data(samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(SAMPLES, TOKENS, DIM)).astype("float32")
    return x[:samples], random.integers(0, CLASSES, SAMPLES)[:samples]


def weights(width: int) -> dict[str, np.ndarray]:
    """The parameters, the same for all contenders; matrices have the shape (out, in)."""
    random, inner = np.random.default_rng(1), 5 * width // 2
    shapes: dict[str, tuple[int, ...]] = {"embed": (width, DIM), "embed_bias": (width,)}
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "output"):
            shapes[f"{name}_{layer}"] = (width, width)
            shapes[f"{name}_bias_{layer}"] = (width,)
        shapes[f"up_{layer}"], shapes[f"up_bias_{layer}"] = (inner, width), (inner,)
        shapes[f"down_{layer}"], shapes[f"down_bias_{layer}"] = (width, inner), (width,)
    shapes["head"], shapes["head_bias"] = (CLASSES, width), (CLASSES,)
    return {
        name: (random.normal(size=shape) / math.sqrt(shape[-1])).astype("float32")
        if len(shape) > 1
        else 0.1 * random.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def operations(width: int, samples: int) -> float:
    """The number of multiplications and additions in the matrix products of one loss."""
    inner = 5 * width // 2
    token = DIM * width + LAYERS * (4 * width**2 + 2 * width * inner + 2 * TOKENS * width)
    return 2.0 * samples * (TOKENS * token + CLASSES * width)


def forward(library: Any, attend: Any, w: Any, x: Any) -> Any:
    """Logits (samples, classes); the same arithmetic in JAX's NumPy and in PyTorch."""
    rows = x @ w["embed"].T + w["embed_bias"]
    samples, width = x.shape[0], w["embed"].shape[0]
    shape = (samples, TOKENS, HEADS, width // HEADS)
    for layer in range(LAYERS):
        parts = [
            (rows @ w[f"{name}_{layer}"].T + w[f"{name}_bias_{layer}"]).reshape(shape)
            for name in ("query", "key", "value")
        ]
        mixed = attend(*(library.swapaxes(part, 1, 2) for part in parts))
        mixed = library.swapaxes(mixed, 1, 2).reshape(samples, TOKENS, width)
        rows = rows + mixed @ w[f"output_{layer}"].T + w[f"output_bias_{layer}"]
        inner = library.tanh(rows @ w[f"up_{layer}"].T + w[f"up_bias_{layer}"])
        rows = rows + inner @ w[f"down_{layer}"].T + w[f"down_bias_{layer}"]
    return rows.mean(1) @ w["head"].T + w["head_bias"]


def by_hand(library: Any, softmax: Callable[[Any], Any]) -> Callable[..., Any]:
    def attend(query: Any, key: Any, value: Any) -> Any:
        logits = query @ library.swapaxes(key, 2, 3) / math.sqrt(query.shape[-1])
        return softmax(logits) @ value

    return attend


def jax_loss(w: Any, batch: Any) -> Any:
    """The mean cross-entropy in JAX."""
    import jax
    import jax.numpy as jnp

    with jax.numpy_rank_promotion("allow"):
        logits = forward(jnp, by_hand(jnp, jax.nn.softmax), w, batch[0])
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch[1][:, None], axis=1)
    return -jnp.mean(picked)


def pytorch() -> Any:
    """PyTorch with the number of threads of the contest: one, or one per core."""
    import torch  # pyright: ignore[reportMissingImports] (an optional package)

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", CORES)))
    torch.manual_seed(0)
    return torch


def torch_model(width: int, samples: int = SAMPLES, fused: bool = False) -> Any:
    """(module, (inputs, targets)); `fused` uses PyTorch's own attention."""
    torch = pytorch()
    attend = by_hand(torch, lambda a: torch.softmax(a, -1))
    if fused:
        attend = torch.nn.functional.scaled_dot_product_attention

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, array in weights(width).items():
                self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(array)))

        def forward(self, x: Any) -> Any:
            return forward(torch, attend, dict(self.named_parameters()), x)

    x, y = data(samples)
    return Transformer(), (torch.from_numpy(x), torch.from_numpy(y))


def kept(name: str, compute: Callable[[], np.ndarray] | None = None) -> np.ndarray:
    """A reference result that the first contender computes and the later ones read from a file."""
    place = Path(os.environ.get("BENCH_SCRATCH") or tempfile.gettempdir()) / f"{name}.npy"
    if not place.exists():
        if compute is None:
            raise LookupError(f"attnlens runs first and leaves {name}, but did not")
        np.save(place, compute())
    return np.load(place)
