"""Attention against its peers: `python -m benchmarks.attention [--only TEXT] [--rounds N]`.

Every figure is the median of repeats in a process of its own, because peak memory is a property
of a process; the two sides of a ratio take turns, round by round, so that both see the same
machine. Peak memory is what the process's high-water mark rose by once inputs were ready.
Threads are left at their defaults ("both cores") except where a row says one thread: OpenBLAS
with several threads is slow on many small matrices, so SciPy is measured both ways and compared
with at its best. A peer that is not installed is left out and said so. Ratios above 1 mean that
we are faster.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
HEADS, SHORT, LONG, DIM, RIDGE = 64, 256, 4096, 16, 0.1


def draw(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def sphere(count: int, seed: int, dtype: str) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return (points / np.linalg.norm(points, axis=-1, keepdims=True)).astype(dtype)


# ---- softmax: each makes a function without arguments that runs once -------------------------


def softmax_ours(length: int, gradient: bool, peer: bool = False) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from attnlens.attention import softmax

    def theirs(query, key, value):
        parts = (x[None, :, None] for x in (query, key, value))
        return jax.nn.dot_product_attention(*parts)[0, :, 0]

    attend = theirs if peer else softmax
    *inputs, weights = (jnp.asarray(x) for x in draw(*4 * [(length, 64)]))
    if gradient:
        run = jax.jit(jax.grad(lambda parts: jnp.sum(attend(*parts) * weights)))
    else:
        run = jax.jit(lambda parts: attend(*parts))
    return lambda: jax.block_until_ready(run(tuple(inputs)))


def softmax_jax(length: int, gradient: bool) -> Callable[[], Any]:
    return softmax_ours(length, gradient, peer=True)


def softmax_torch(length: int, gradient: bool) -> Callable[[], Any]:
    import torch  # pyright: ignore[reportMissingImports]

    attend: Any = torch.nn.functional.scaled_dot_product_attention  # so that `*inputs` passes
    drawn = [torch.tensor(x)[None, None] for x in draw(*4 * [(length, 64)])]
    *inputs, weights = drawn
    if not gradient:
        with torch.no_grad():
            return lambda: attend(*inputs)
    for part in inputs:
        part.requires_grad_()
    return lambda: torch.autograd.grad((attend(*inputs) * weights).sum(), inputs)


# ---- CME ---------------------------------------------------------------------------------------


def cme_ours(heads: int, length: int, dtype: str) -> Callable[[], Any]:
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    from attnlens.attention import cme

    inputs = [jax.numpy.asarray(x) for x in draw(*3 * [(heads, length, DIM)], dtype=dtype)]
    run = jax.jit(lambda *parts: cme(*parts, ridge=RIDGE, temperature=4.0))
    return lambda: jax.block_until_ready(run(*inputs))


def cme_scipy(heads: int, length: int, dtype: str) -> Callable[[], Any]:
    import scipy.linalg

    query, key, value = draw(*3 * [(heads, length, DIM)], dtype=dtype)
    ridge = np.asarray(RIDGE, dtype) * np.eye(length, dtype=dtype)

    def kernel(a, b):
        squared = np.sum(a * a, -1)[:, None] + np.sum(b * b, -1)[None] - 2 * a @ b.T
        return np.exp(np.maximum(squared, 0) / np.asarray(-8, dtype))

    def one(q, k, v):
        factor = scipy.linalg.cho_factor(kernel(k, k) + ridge, lower=True, overwrite_a=True)
        return kernel(q, k) @ scipy.linalg.cho_solve(factor, v)

    return lambda: [one(*parts) for parts in zip(query, key, value, strict=True)]


def cholesky_scipy(length: int, dtype: str) -> Callable[[], Any]:
    import scipy.linalg

    (points,) = draw((length, length), dtype=dtype)
    matrix = np.asfortranarray(points @ points.T / length + np.eye(length, dtype=dtype))
    return lambda: scipy.linalg.cholesky(matrix, lower=True)


def cme_long(length: int, queries: int, method: str, dtype: str) -> Callable[[], Any]:
    """On the sphere, a smooth function with noise; the result carries its residual."""
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    import jax.numpy as jnp

    from attnlens.attention import cme

    query, key = sphere(queries, 1, dtype), sphere(length, 2, dtype)
    noise = 0.3 * np.random.default_rng(3).normal(size=(length, 1))
    value = (np.sin(4 * key[:, :1]) * key[:, 1:2] + noise).astype(dtype)
    settings = {"ridge": 0.09, "temperature": 0.5, "method": method, "return_info": True}
    run = jax.jit(lambda *parts: cme(*parts, **settings))
    return lambda: jax.block_until_ready(run(*map(jnp.asarray, (query, key, value))))


MAKERS = {
    f.__name__: f
    for f in (
        softmax_ours,
        softmax_jax,
        softmax_torch,
        cme_ours,
        cme_scipy,
        cholesky_scipy,
        cme_long,
    )
}


# ---- measuring ---------------------------------------------------------------------------------


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(maker: str, arguments: list[Any], repeats: int, save: str | None) -> dict[str, Any]:
    """In this process: the first call (which compiles) apart, then the median of the others."""
    run = MAKERS[maker](*arguments)
    before = peak_megabytes()
    start = time.perf_counter()
    result = run()
    first = time.perf_counter() - start
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    found: dict[str, Any] = {
        "seconds": statistics.median(seconds or [first]),
        "peak": peak_megabytes() - before,
    }
    found["whole"] = peak_megabytes()
    if maker == "cme_long":
        found["info"] = str(result.info)
        if save:
            np.save(save, np.asarray(result.mean))
    return found


def apart(
    maker: str, *arguments: Any, repeats: int = 7, threads: str = "all", save: str | None = None
) -> dict[str, Any]:
    """`measure` in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ONE_THREAD}
    if threads == "one":
        environment |= ONE_THREAD
    order = json.dumps([maker, list(arguments), repeats, save])
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.attention", "--measure", order],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    return json.loads(run.stdout.splitlines()[-1])


def compare(title: str, sides: dict[str, dict[str, Any]], rounds: int) -> dict[str, dict[str, Any]]:
    """Each side in turn, `rounds` times; the first side is ours. Prints a row a side."""
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            options = {k: v for k, v in side.items() if k not in ("maker", "arguments")}
            seen[name].append(apart(side["maker"], *side["arguments"], **options))
    merged = {
        name: {
            "seconds": statistics.median(r["seconds"] for r in runs),
            "spread": [min(r["seconds"] for r in runs), max(r["seconds"] for r in runs)],
            "peak": max(r["peak"] for r in runs),
            "whole": max(r["whole"] for r in runs),
            "info": runs[-1].get("info", ""),
        }
        for name, runs in seen.items()
    }
    ours = next(iter(merged.values()))
    print(f"\n{title}")
    print(
        f"  {'':34}{'median s':>10}{'min–max over rounds':>22}{'peak MB':>9}{'time ×':>8}"
        f"{'memory ×':>10}"
    )
    for name, row in merged.items():
        low, high = row["spread"]
        time_ratio, memory_ratio = (
            row["seconds"] / ours["seconds"],
            row["peak"] / max(ours["peak"], 1),
        )
        print(
            f"  {name:34}{row['seconds']:10.4f}{f'{low:.4f}–{high:.4f}':>22}{row['peak']:9.0f}"
            f"{time_ratio:8.2f}{memory_ratio:10.1f}",
            flush=True,
        )
    return merged


def side(maker: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    return {"maker": maker, "arguments": arguments, **options}


def softmax_tables(rounds: int) -> None:
    torch = importlib.util.find_spec("torch") is not None
    if not torch:
        print("PyTorch is not installed (extra `torch`): its rows are left out.")
    for gradient in (False, True):
        sides = {
            "ours": side("softmax_ours", LONG, gradient),
            "jax.nn.dot_product_attention": side("softmax_jax", LONG, gradient),
        }
        if torch:
            sides["torch scaled_dot_product_attention"] = side("softmax_torch", LONG, gradient)
        part = "gradient" if gradient else "forward"
        compare(f"softmax, {LONG} queries and keys, d = 64, float32, {part}", sides, rounds)
    sides = {
        "ours": side("softmax_ours", 16384, True, repeats=3),
        "jax.nn.dot_product_attention": side("softmax_jax", 16384, True, repeats=3),
    }
    compare("softmax, 16384 queries and keys, d = 64, float32, gradient", sides, 1)


def heads_tables(rounds: int) -> None:
    for dtype in ("float32", "float64"):
        arguments = (HEADS, SHORT, dtype)
        compare(
            f"CME, {HEADS} heads of {SHORT}, kernel built on both sides, {dtype}",
            {
                "ours": side("cme_ours", *arguments),
                "ours, one thread": side("cme_ours", *arguments, threads="one"),
                "SciPy loop": side("cme_scipy", *arguments),
                "SciPy loop, one thread": side("cme_scipy", *arguments, threads="one"),
            },
            rounds,
        )


def long_tables(rounds: int) -> None:
    for dtype in ("float32", "float64"):
        rows = compare(
            f"CME, one head of {LONG}, {dtype}",
            {
                "ours": side("cme_ours", 1, LONG, dtype, repeats=3),
                "SciPy": side("cme_scipy", 1, LONG, dtype, repeats=3),
                "LAPACK Cholesky alone (SciPy)": side("cholesky_scipy", LONG, dtype, repeats=3),
            },
            rounds,
        )
        work = LONG**3 / 3 / 1e9
        rate, best = (
            work / rows[name]["seconds"] for name in ("ours", "LAPACK Cholesky alone (SciPy)")
        )
        print(
            f"  all of ours counted as one Cholesky: {rate:.0f} GFLOP/s; LAPACK's own: {best:.0f} "
            f"({rate / best:.0%})"
        )


def iterative_tables(rounds: int) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        files = {m: str(Path(folder) / f"{m}.npy") for m in ("iterative", "cholesky")}
        rows = compare(
            "CME, 8192 tokens on the sphere, 256 queries, float64",
            {
                m: side("cme_long", 8192, 256, m, "float64", repeats=1, save=f)
                for m, f in files.items()
            },
            1,
        )
        got, wanted = (np.load(files[m]) for m in ("iterative", "cholesky"))
    error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    print(f"  relative error against Cholesky: {error:.1e}")
    print(f"  {rows['iterative']['info']}")


def longest_tables(rounds: int) -> None:
    for dtype in ("float32", "float64"):
        rows = compare(
            f"CME, 65536 tokens on the sphere, 256 queries, {dtype} (time includes compiling)",
            {"iterative": side("cme_long", 65536, 256, "iterative", dtype, repeats=0)},
            1,
        )
        print(f"  {rows['iterative']['info']}  whole process: {rows['iterative']['whole']:.0f} MB")


TABLES = {
    "softmax": softmax_tables,
    "heads": heads_tables,
    "long": long_tables,
    "iterative": iterative_tables,
    "longest": longest_tables,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(TABLES), help="one table instead of all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        maker, arguments, repeats, save = json.loads(options.measure)
        print(json.dumps(measure(maker, arguments, repeats, save)))
        return
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores; load before the start {load:.1f} (well above 0: others were "
        f"computing too)"
    )
    for name, table in TABLES.items():
        if options.only in (None, name):
            table(options.rounds)


if __name__ == "__main__":
    main()
