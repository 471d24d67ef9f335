"""Softmax and kernel attention against PyTorch, JAX's own function and KeOps, from 256 tokens up.

    softmax   Σ_j e^{q·k_j/√d} v_j / Σ_j e^{q·k_j/√d}                  d = 64, float32
    kernel    Σ_j e^{−‖q−k_j‖²/2τ} v_j / Σ_j e^{−‖q−k_j‖²/2τ}          d = 8, τ = √8, float32

PyTorch and JAX have no function for kernel attention, but it equals softmax attention with one more
feature, which they compute here: −‖q−k‖²/2τ = (q, 1)·(k, −‖k‖²/2)/τ − ‖q‖²/2τ, and the last term is
the same for every key. KeOps gets the formula in the form of its documentation. Errors are relative
to the formula in float64: for outputs at the first 64 queries, for gradients everywhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import HERE, Contender, Growth, Run, Work, relative_error

WIDTH, NARROW, CHECKED = 64, 8, 64  # features of softmax and kernel attention; checked queries
TEMPERATURE = NARROW**0.5
TORCH = "peers-torch"
SELF = "benchmarks.attention"


def draw(heads: int, queries: int, length: int, width: int) -> list[np.ndarray]:
    """Random query, key and value, and random weights: a loss is Σ weights·output."""
    random = np.random.default_rng(0)
    return [
        random.normal(size=(heads, count, width)).astype("float32")
        for count in (queries, length, length, queries)
    ]


# ---- exact values ------------------------------------------------------------------------------


def exact(query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float) -> np.ndarray:
    """Softmax attention in float64: (..., queries, features)."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    logits = query @ np.swapaxes(key, -1, -2) / scale
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights @ value / weights.sum(-1, keepdims=True)


def exact_gradient(parts: list[np.ndarray], rows: int = 512) -> list[np.ndarray]:
    """Gradients of Σ weights·output with respect to query, key and value: one head, float64."""
    query, key, value, cotangent = (np.asarray(x[0], np.float64) for x in parts)
    scale = query.shape[-1] ** 0.5
    d_query, d_key, d_value = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    for start in range(0, len(query), rows):
        block = slice(start, start + rows)
        logits = query[block] @ key.T / scale
        weights = np.exp(logits - logits.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        pulled = cotangent[block] @ value.T
        scores = weights * (pulled - (weights * pulled).sum(1, keepdims=True)) / scale
        d_query[block] = scores @ key
        d_key += scores.T @ query[block]
        d_value += weights.T @ cotangent[block]
    return [d_query, d_key, d_value]


def judge(parts: list[np.ndarray], gradient: bool) -> Callable[[Any], Mapping[str, float]]:
    """A function that returns the relative error of softmax attention, or of its gradients."""

    def accuracy(answer: Any) -> dict[str, float]:
        if gradient:
            result, truth = [np.asarray(x).ravel() for x in answer], exact_gradient(parts)
            joined = (np.concatenate([x.ravel() for x in side]) for side in (result, truth))
            return {"relative error": relative_error(*joined)}
        query, key, value, _ = parts
        result = np.asarray(answer).reshape(query.shape)[:, :CHECKED]
        return {
            "relative error": relative_error(result, exact(query[:, :CHECKED], key, value, 8.0))
        }

    return accuracy


# ---- softmax -----------------------------------------------------------------------------------


def softmax(length: int, heads: int = 1, gradient: bool = False, settled: bool = False) -> Run:
    from attnlens.attention import softmax

    return _in_jax(softmax, length, heads, gradient, settled)


def softmax_jax(length: int, heads: int = 1, gradient: bool = False) -> Run:
    import jax
    import jax.numpy as jnp

    def attend(query: Any, key: Any, value: Any) -> Any:
        # `dot_product_attention` takes arrays (batch, tokens, heads, features).
        parts = (jnp.swapaxes(x, 0, 1)[None] for x in (query, key, value))
        return jnp.swapaxes(jax.nn.dot_product_attention(*parts)[0], 0, 1)

    return _in_jax(attend, length, heads, gradient)


def _in_jax(
    attend: Callable[..., Any], length: int, heads: int, gradient: bool, settled: bool = False
) -> Run:
    import jax
    import jax.numpy as jnp

    parts = draw(heads, length, length, WIDTH)
    *inputs, weights = (jnp.asarray(x) for x in parts)
    if gradient:
        run = jax.jit(jax.grad(lambda parts: jnp.sum(attend(*parts) * weights)))
    else:
        run = jax.jit(lambda parts: attend(*parts))

    if settled:
        run = settle(run, tuple(inputs))
    return Run(lambda: jax.block_until_ready(run(tuple(inputs))), judge(parts, gradient))


def softmax_torch(length: int, heads: int = 1, gradient: bool = False) -> Run:
    import torch  # pyright: ignore[reportMissingImports] (an optional package)

    attend: Any = torch.nn.functional.scaled_dot_product_attention
    parts = draw(heads, length, length, WIDTH)
    *inputs, weights = (torch.from_numpy(x)[None] for x in parts)  # (1, heads, tokens, features)
    if not gradient:
        return Run(lambda: attend(*inputs), judge(parts, False))
    for part in inputs:
        part.requires_grad_()

    def call() -> Any:
        return torch.autograd.grad((attend(*inputs) * weights).sum(), inputs)

    return Run(call, judge(parts, True))


def softmax_keops(length: int, heads: int = 1, gradient: bool = False) -> Run:
    import torch  # pyright: ignore[reportMissingImports] (an optional package)
    from pykeops.torch import LazyTensor  # pyright: ignore[reportMissingImports] (an optional package)

    parts = draw(heads, length, length, WIDTH)
    query, key, value, weights = (torch.from_numpy(x) for x in parts)

    def attend(query: Any, key: Any, value: Any) -> Any:
        products = (LazyTensor(query[:, :, None, :]) | LazyTensor(key[:, None, :, :])) / 8.0
        return products.sumsoftmaxweight(LazyTensor(value[:, None, :, :]), dim=2)

    if not gradient:
        return Run(lambda: attend(query, key, value), judge(parts, False))
    inputs = [x.requires_grad_() for x in (query, key, value)]

    def call() -> Any:
        return torch.autograd.grad((attend(*inputs).reshape(weights.shape) * weights).sum(), inputs)

    return Run(call, judge(parts, True))


# ---- kernel attention --------------------------------------------------------------------------


def _points(length: int, queries: int | None) -> tuple[list[np.ndarray], float]:
    """query (m, d), key and value (n, d), and the factor n/m: the full work has n queries."""
    count = min(queries or length, length)
    query, key, value, _ = (x[0] for x in draw(1, count, length, NARROW))
    return [query, key, value], length / count


def _judge_kernel(parts: list[np.ndarray]) -> Callable[[Any], Mapping[str, float]]:
    def accuracy(answer: Any) -> dict[str, float]:
        query, key, value = (np.asarray(x, np.float64) for x in parts)
        truth = exact(*with_one_more(query[:CHECKED], key), value, TEMPERATURE)
        result = np.asarray(answer).reshape(query.shape)[:CHECKED]
        return {"relative error": relative_error(result, truth)}

    return accuracy


def with_one_more(query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(q, 1) and (k, −‖k‖²/2): their products are −‖q−k‖²/2 plus a term that all keys share."""
    ones = np.ones_like(query[:, :1])
    halves = -0.5 * np.sum(key**2, 1, keepdims=True)
    return np.concatenate([query, ones], 1), np.concatenate([key, halves], 1)


def _as_softmax(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Inputs of `with_one_more`, and values padded by a column of zeros to the width of keys: JAX
    needs equal widths, and PyTorch is faster with them."""
    query, key, value = parts
    zeros = np.zeros_like(value[:, :1])
    return [*with_one_more(query, key), np.concatenate([value, zeros], 1)]


def kernel(length: int, queries: int | None = None, settled: bool = False) -> Run:
    import jax
    import jax.numpy as jnp

    from attnlens.attention import kernel

    parts, scale = _points(length, queries)
    inputs = [jnp.asarray(x) for x in parts]
    run = jax.jit(lambda *parts: kernel(*parts, temperature=TEMPERATURE))

    if settled:
        run = settle(run, *inputs)
    return Run(lambda: jax.block_until_ready(run(*inputs)), _judge_kernel(parts), scale)


def kernel_jax(length: int, queries: int | None = None) -> Run:
    import jax
    import jax.numpy as jnp

    parts, scale = _points(length, queries)
    inputs = [jnp.asarray(x)[None, :, None] for x in _as_softmax(parts)]
    run = jax.jit(
        lambda *parts: jax.nn.dot_product_attention(*parts, scale=1 / TEMPERATURE)[..., :NARROW]
    )
    return Run(lambda: jax.block_until_ready(run(*inputs)), _judge_kernel(parts), scale)


def kernel_torch(length: int, queries: int | None = None) -> Run:
    import torch  # pyright: ignore[reportMissingImports] (an optional package)

    attend: Any = torch.nn.functional.scaled_dot_product_attention
    parts, scale = _points(length, queries)
    inputs = [torch.from_numpy(x)[None, None] for x in _as_softmax(parts)]
    return Run(
        lambda: attend(*inputs, scale=1 / TEMPERATURE)[..., :NARROW], _judge_kernel(parts), scale
    )


def kernel_keops(length: int, queries: int | None = None) -> Run:
    import torch  # pyright: ignore[reportMissingImports] (an optional package)
    from pykeops.torch import LazyTensor  # pyright: ignore[reportMissingImports] (an optional package)

    parts, scale = _points(length, queries)
    query, key, value = (torch.from_numpy(x) for x in parts)

    def call() -> Any:
        squared = ((LazyTensor(query[:, None, :]) - LazyTensor(key[None, :, :])) ** 2).sum(-1)
        weights = (-squared / (2 * TEMPERATURE)).exp()
        return (weights @ value) / weights.sum(1)

    return Run(call, _judge_kernel(parts), scale)


def settle(function: Any, *inputs: Any) -> Callable[..., Any]:
    """Compile the function for these inputs and reset the peak memory of the process, so that
    memory is measured without compilation."""
    ready = function.lower(*inputs).compile()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # returns the compiler's free memory to the system
    mark = Path("/proc/self/clear_refs")
    if mark.exists():
        mark.write_text("5")  # resets the peak to the present memory
    return ready


# ---- the table ---------------------------------------------------------------------------------


def _sides(kind: str) -> list[Contender]:
    names = {
        "jax": "jax.nn.dot_product_attention",
        "torch": "PyTorch scaled_dot_product_attention",
        "keops": "KeOps",
    }
    sides = [Contender("attnlens", f"{SELF}:{kind}")]
    for peer, name in names.items():
        home = HERE if peer == "jax" else TORCH
        sides.append(Contender(name, f"{SELF}:{kind}_{peer}", home))
    return sides


def _softmax_works() -> list[Work]:
    works = []
    for length, heads in ((256, 16), (1024, 4), (4096, 1), (16384, 1)):
        of = f"{heads} heads of {length:,}" if heads > 1 else f"{length:,} tokens"
        works.append(
            Work(
                f"softmax attention, {of}",
                "attention",
                f"{of} (queries and keys), {WIDTH} features, float32, forward",
                _sides("softmax"),
                {"length": length, "heads": heads},
                quick={} if length == 1024 else None,
                repeats=5 if length < 10_000 else 2,
                aims={"PyTorch scaled_dot_product_attention": 1.0} if length == 4096 else {},
                operations=4.0 * heads * length**2 * WIDTH,
                limit="matmul float32",
            )
        )
    works.append(
        Work(
            "softmax attention, gradient, 4,096 tokens",
            "attention",
            f"gradient to queries, keys and values, {WIDTH} features, float32",
            _sides("softmax"),
            {"length": 4096, "gradient": True},
            quick={"length": 1024},
            aims={"PyTorch scaled_dot_product_attention": 1.0},
            operations=12.0 * 4096**2 * WIDTH,  # two products forward, four backward
            limit="matmul float32",
            why="The forward pass is a kernel of our own, but the backward pass is a program of "
            "XLA, so that it can be differentiated again: it writes every block of scores to "
            "memory and reads it several times, where PyTorch keeps it in the cache.",
        )
    )
    return works


def _kernel_works() -> list[Work]:
    works = []
    for length, queries in ((1024, None), (4096, None), (16384, None), (65536, 8192)):
        part = f"; {queries:,} of the queries are run, and scaled" if queries else ""
        works.append(
            Work(
                f"kernel attention, {length:,} tokens",
                "attention",
                f"Nadaraya–Watson with a Gaussian kernel, {NARROW} features, float32{part}",
                _sides("kernel"),
                {"length": length, "queries": queries},
                quick={} if length == 4096 else None,
                repeats=5 if length < 10_000 else 2,
            )
        )
    return works


WORKS = [*_softmax_works(), *_kernel_works()]

# Memory is measured without compilation (`settle`). Tiles have a fixed size, so memory must grow
# linearly with the length.
GROWTH = [
    Growth(
        "softmax attention, forward",
        f"{SELF}:softmax",
        (4096, 8192, 16384, 32768),
        {"settled": True},
        time=2,
        memory=1,
    ),
    Growth(
        "softmax attention, gradient",
        f"{SELF}:softmax",
        (4096, 8192, 16384, 32768),
        {"gradient": True, "settled": True},
        time=2,
        memory=1,
        repeats=1,
    ),
    Growth(
        "kernel attention",
        f"{SELF}:kernel",
        (8192, 16384, 32768, 65536),
        {"settled": True},
        time=2,
        memory=1,
        repeats=1,
    ),
]
