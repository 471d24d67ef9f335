"""Kernel ridge regression (CME attention) against SciPy, scikit-learn, PyTorch and GPyTorch.

Every contender computes both kernel matrices (of keys, and of queries and keys) from the same
points in the same precision. `benchmarks.ridge` defines the problems and their exact solutions:
64 heads of 256 tokens, one head of 4,096, and 8,192 to 65,536 tokens on the sphere, which attnlens
solves by iteration. The Gaussian-process world does the same work by `GaussianProcess.predict`:
256 episodes of 256 tokens, 16 queries each.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attention import settle
from benchmarks.contest import CORES, HERE, ONE_THREAD, Contender, Growth, Run, Work
from benchmarks.ridge import Array, Problem, affordable, judge, problem, solve

SELF, TORCH = "benchmarks.kernels", "peers-torch"


# ---- makers: each solves all heads of the problem ----------------------------------------------


def attnlens(
    kind: str, heads: int, length: int, dtype: str, method: str = "auto", settled: bool = False
) -> Run:
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    from attnlens.attention import cme

    task = problem(kind, heads, length, dtype)
    inputs = [jax.numpy.asarray(x if heads > 1 else x[0]) for x in task[:3]]
    scales = {"ridge": task.ridge, "temperature": task.temperature, "method": method}
    run = jax.jit(lambda *parts: cme(*parts, **scales))

    if settled:
        run = settle(run, *inputs)
    return Run(lambda: jax.block_until_ready(run(*inputs)), judge(task, kind))


def scipy(kind: str, heads: int, length: int, dtype: str) -> Run:
    affordable(length, dtype)
    task = problem(kind, heads, length, dtype)
    return Run(lambda: np.stack([solve(*x, task) for x in task.heads()]), judge(task, kind))


def ridge(kind: str, heads: int, length: int, dtype: str) -> Run:
    from sklearn.kernel_ridge import KernelRidge

    task = problem(kind, heads, length, dtype)
    scales: dict[str, Any] = {"alpha": task.ridge, "gamma": 0.5 / task.temperature}

    def call() -> Array:
        rows = task.heads()
        return np.stack(
            [KernelRidge(kernel="rbf", **scales).fit(k, v).predict(q) for q, k, v in rows]
        )

    return Run(call, judge(task, kind))


def process(task: Problem) -> Callable[[], Array]:
    """scikit-learn's Gaussian process with a fixed kernel, one head after the other."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    settings: dict[str, Any] = {"alpha": task.ridge, "optimizer": None}

    def one(query: Array, key: Array, value: Array) -> Array:
        model = GaussianProcessRegressor(RBF(task.temperature**0.5), **settings)
        return np.reshape(model.fit(key, value).predict(query), (len(query), -1))

    return lambda: np.stack([one(*head) for head in task.heads()])


def regressor(kind: str, heads: int, length: int, dtype: str) -> Run:
    task = problem(kind, heads, length, dtype)
    return Run(process(task), judge(task, kind))


def batched(task: Problem) -> Callable[[], Array]:
    """PyTorch's batched Cholesky factorisation; kernel matrices are computed in place."""
    import torch  # pyright: ignore[reportMissingImports] (an optional package)

    query, key, value = (torch.from_numpy(x) for x in task[:3])

    def kernel(left: Any, right: Any) -> Any:
        norms = (left**2).sum(-1)[..., :, None] + (right**2).sum(-1)[..., None, :]
        squared = torch.baddbmm(norms, left, right.mT, alpha=-2).clamp_(min=0)
        return squared.mul_(-0.5 / task.temperature).exp_()

    def call() -> Array:
        matrix = kernel(key, key)
        matrix.diagonal(dim1=-2, dim2=-1).add_(task.ridge)
        weights = torch.cholesky_solve(value, torch.linalg.cholesky(matrix))
        return (kernel(query, key) @ weights).numpy()

    return call


def torch(kind: str, heads: int, length: int, dtype: str) -> Run:
    affordable(length, dtype)
    task = problem(kind, heads, length, dtype)
    return Run(batched(task), judge(task, kind))


def gpytorch(
    kind: str, heads: int, length: int, dtype: str, tolerance: float | None, keops: bool = False
) -> Run:
    """An exact Gaussian process of GPyTorch: by Cholesky (`tolerance` None), or by conjugate
    gradients to a relative `tolerance` (GPyTorch's default is 0.01). Each column of values is one
    output."""
    import gpytorch as gp  # pyright: ignore[reportMissingImports] (an optional package)
    import torch  # pyright: ignore[reportMissingImports] (an optional package)

    if not keops:
        affordable(length, dtype)
    task = problem(kind, heads, length, dtype)
    query, key, value = (torch.from_numpy(x) for x in task[:3])
    if heads == 1:
        query, key, value = query[0], key[0], value[0]
    settings = gp.settings
    chosen = [
        settings.skip_posterior_variances(True),
        settings.max_cholesky_size(10**9 if tolerance is None else 800),
        settings.eval_cg_tolerance(tolerance or 0.01),
    ]
    kernels: Any = gp.kernels
    kernel = (kernels.keops if keops else kernels).RBFKernel().to(query)
    kernel.lengthscale = torch.tensor(task.temperature**0.5, dtype=query.dtype)
    noise = torch.tensor(task.ridge, dtype=query.dtype)
    several = value.shape[-1] > 1

    class Exact(gp.models.ExactGP):
        def __init__(self, likelihood: Any):
            super().__init__(key, value[..., 0], likelihood)
            self.mean, self.kernel = gp.means.ZeroMean(), kernel

        def forward(self, x: Any) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    def predict() -> Any:
        if several:  # a model has one output; linear operators share a factor
            return kernel(query, key) @ kernel(key).add_diagonal(noise).solve(value)
        likelihood = gp.likelihoods.GaussianLikelihood().to(query)
        likelihood.noise = noise
        # A new model for each call: a model caches its solution.
        return Exact(likelihood).to(query).eval()(query).mean

    def call() -> Array:
        with torch.no_grad(), contextlib.ExitStack() as stack:
            for setting in chosen:
                stack.enter_context(setting)
            return predict().numpy()

    return Run(call, judge(task, kind))


# ---- the Gaussian-process world, on all cores --------------------------------------------------


def world(task: Problem) -> Callable[[], Array]:
    """attnlens, one episode at a time, so that the kernel matrix stays in the cache."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    from attnlens.worlds import GaussianProcess, Pairs

    law = GaussianProcess(task.key.shape[-1], task.temperature, task.ridge**0.5)
    inputs = tuple(jnp.asarray(x) for x in task[:3])
    run = jax.jit(
        lambda parts: jax.lax.map(lambda x: law.predict(Pairs(x[1], x[2]), x[0]).mean, parts)
    )
    return lambda: np.asarray(run(inputs))


SOLVERS = {"world": world, "process": process, "batched": batched}


def episodes(solver: str, heads: int, length: int, processes: int) -> Run:
    """All episodes, distributed over single-threaded processes, or in one process with threads."""
    task = problem("world", heads, length, "float64")
    if processes == 1:
        return Run(SOLVERS[solver](task), judge(task, "world"))
    os.environ.update(ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    pipes = []
    for index in range(processes):
        here, there = context.Pipe()
        share = (there, solver, heads, length, index, processes)
        context.Process(target=_serve, args=share, daemon=True).start()
        pipes.append(here)
    for pipe in pipes:
        pipe.recv()  # the process has loaded its episodes

    def call() -> Array:
        for pipe in pipes:
            pipe.send(True)
        whole = np.empty((heads, 16, 1))
        for index, pipe in enumerate(pipes):
            whole[index::processes] = pipe.recv()
        return whole

    return Run(call, judge(task, "world"))


def _serve(pipe: Any, solver: str, heads: int, length: int, index: int, parts: int) -> None:
    run = SOLVERS[solver](problem("world", heads, length, "float64").part(index, parts))
    pipe.send(True)
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        pipe.send(run())


# ---- the table ---------------------------------------------------------------------------------


def _both_ways(name: str, make: str, home: str = HERE) -> list[Contender]:
    """A contender with one thread and with all threads, which are slower for small matrices."""
    return [
        Contender(f"{name} ({threads})", f"{SELF}:{make}", home, threads.split()[0])
        for threads in ("one thread", "all threads")
    ]


def _contender(name: str, make: str, home: str = HERE, **setting: Any) -> Contender:
    return Contender(name, f"{SELF}:{make}", home, setting=setting)


def _heads_works() -> list[Work]:
    works = []
    for dtype, aim in (("float32", 3.0), ("float64", 1.5)):
        works.append(
            Work(
                f"CME attention, 64 heads of 256, {dtype}",
                "kernel ridge",
                f"64 kernel ridge regressions of 256 tokens, 16 features, 16 values, {dtype}",
                [
                    _contender("attnlens", "attnlens"),
                    *_both_ways("SciPy cho_solve", "scipy"),
                    *_both_ways("scikit-learn KernelRidge", "ridge"),
                    *_both_ways("PyTorch cholesky_solve, batched", "torch", TORCH),
                    _contender("GPyTorch Cholesky", "gpytorch", TORCH, tolerance=None),
                ],
                {"kind": "heads", "heads": 64, "length": 256, "dtype": dtype},
                quick={"heads": 16} if dtype == "float32" else None,
                aims={"SciPy cho_solve": aim},
                operations=64 * 256**3 / 3,
                limit=f"cholesky {dtype}",
            )
        )
    for dtype in ("float32", "float64"):
        doubles = [_contender("scikit-learn GaussianProcessRegressor", "regressor")]
        works.append(
            Work(
                f"CME attention, 4,096 tokens, {dtype}",
                "kernel ridge",
                f"one kernel ridge regression of 4,096 tokens, 16 features, 16 values, {dtype}",
                [
                    _contender("attnlens", "attnlens"),
                    _contender("SciPy cho_solve", "scipy"),
                    _contender("scikit-learn KernelRidge", "ridge"),
                    *(doubles if dtype == "float64" else []),
                    _contender("PyTorch cholesky_solve", "torch", TORCH),
                    _contender("GPyTorch Cholesky", "gpytorch", TORCH, tolerance=None),
                    _contender("GPyTorch CG to 1 %", "gpytorch", TORCH, tolerance=0.01),
                ],
                {"kind": "heads", "heads": 1, "length": 4096, "dtype": dtype},
                quick={"length": 1024} if dtype == "float64" else None,
                repeats=3,
                aims={f"cholesky {dtype}": 0.6},
                operations=4096**3 / 3,
                limit=f"cholesky {dtype}",
            )
        )
    return works


def _long_works() -> list[Work]:
    shared = {"kind": "sphere", "heads": 1}
    return [
        Work(
            "CME attention, 8,192 tokens, iterative",
            "kernel ridge",
            "8,192 tokens on the sphere, 256 queries, one value, float64; attnlens iterates to a "
            "relative residual of 1e-8 without the matrix",
            [
                _contender("attnlens", "attnlens", method="iterative"),
                _contender("SciPy cho_solve", "scipy"),
                _contender("PyTorch cholesky_solve", "torch", TORCH),
                _contender("GPyTorch Cholesky", "gpytorch", TORCH, tolerance=None),
                _contender("GPyTorch CG to 1 %", "gpytorch", TORCH, tolerance=0.01),
                _contender("GPyTorch CG to 1e-8", "gpytorch", TORCH, tolerance=1e-8),
            ],
            shared | {"length": 8192, "dtype": "float64"},
            quick={"length": 2048},
            repeats=1,
        ),
        Work(
            "CME attention, 16,384 tokens, iterative",
            "kernel ridge",
            "16,384 tokens on the sphere, 256 queries, one value, float32; attnlens iterates to a "
            "relative residual of 6e-4 without the matrix, GPyTorch to its own tolerance",
            [
                _contender("attnlens", "attnlens", method="iterative"),
                _contender("SciPy cho_solve", "scipy"),
                _contender("GPyTorch CG to 1 %", "gpytorch", TORCH, tolerance=0.01),
                _contender(
                    "GPyTorch CG to 1 % with KeOps", "gpytorch", TORCH, tolerance=0.01, keops=True
                ),
            ],
            shared | {"length": 16384, "dtype": "float32"},
            repeats=1,
        ),
        Work(
            "CME attention, 65,536 tokens, iterative",
            "kernel ridge",
            "the same with 65,536 tokens, to 1.2e-3; the matrix would take 17 GB. GPyTorch with "
            "KeOps could and would take minutes (see 16,384 tokens). Times include compilation",
            [
                _contender("attnlens", "attnlens", method="iterative"),
                _contender("SciPy cho_solve", "scipy"),
                _contender("GPyTorch CG to 1 %", "gpytorch", TORCH, tolerance=0.01),
            ],
            shared | {"length": 65536, "dtype": "float32"},
            repeats=0,
        ),
    ]


def _world_work() -> Work:
    variants = [("1", "its own threads"), (str(CORES), f"{CORES} processes")]

    def both(name: str, solver: str, home: str = HERE) -> list[Contender]:
        return [
            _contender(f"{name} ({task})", "episodes", home, solver=solver, processes=int(count))
            for count, task in variants
        ]

    return Work(
        "Gaussian-process world, 256 episodes",
        "kernel ridge",
        f"the posterior mean at 16 queries of 256 episodes of 256 tokens, float64; attnlens in "
        f"{CORES} processes of one thread, the others so or with threads of their own",
        [
            _contender("attnlens", "episodes", solver="world", processes=CORES),
            *both("scikit-learn GaussianProcessRegressor", "process"),
            *both("PyTorch cholesky_solve, batched", "batched", TORCH),
            _contender(
                "GPyTorch Cholesky",
                "gpytorch",
                TORCH,
                kind="world",
                dtype="float64",
                tolerance=None,
            ),
        ],
        {"heads": 256, "length": 256},
        quick={"heads": 64},
        aims={
            "scikit-learn GaussianProcessRegressor": 3.0,
            "PyTorch cholesky_solve, batched": 1.0,
        },
        operations=256 * 256**3 / 3,
        limit="cholesky float64",
    )


WORKS = [*_heads_works(), *_long_works(), _world_work()]

GROWTH = [
    Growth(
        "CME attention, Cholesky",
        f"{SELF}:attnlens",
        (1024, 2048, 4096, 8192),
        {"kind": "heads", "heads": 1, "dtype": "float32", "method": "cholesky", "settled": True},
        time=3,
        memory=2,
    ),
    Growth(
        "CME attention, iterative",
        f"{SELF}:attnlens",
        (8192, 16384, 32768, 49152),
        {"kind": "sphere", "heads": 1, "dtype": "float32", "method": "iterative", "settled": True},
        time=2,
        memory=1,
        repeats=1,
    ),
]
