"""The limits of this machine: rates of matrix products, of memory transfer and of factorisation.

Computations in the table are compared with one of these rates. A limit is the rate of the fastest
call, because no computation should exceed it; the work is large enough (about a second) to use all
cores.

    matmul     2 n³ operations: NumPy's BLAS or XLA's, whichever is faster here
    cholesky   n³/3 operations: LAPACK's potrf through SciPy
    bandwidth  c = a + s·b, the triad of STREAM (McCalpin, 1995), by XLA on all cores; 24 bytes per
               element, counted as in STREAM: without what the cache fetches before it writes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.contest import Contender, Run


def matmul(size: int = 4096, dtype: str = "float32") -> Run:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", dtype == "float64")
    random = np.random.default_rng(0)
    left, right = (random.normal(size=(size, size)).astype(dtype) for _ in range(2))
    on_device = [jnp.asarray(x) for x in (left, right)]
    product = jax.jit(jnp.matmul)
    return best_of(
        [lambda: left @ right, lambda: jax.block_until_ready(product(*on_device))], 2.0 * size**3
    )


def cholesky(size: int = 8192, dtype: str = "float32") -> Run:
    import scipy.linalg

    random = np.random.default_rng(0)
    points = random.normal(size=(size, size // 8)).astype(dtype)
    matrix = np.asfortranarray(points @ points.T / size + np.eye(size, dtype=dtype))

    def factor() -> Any:
        return scipy.linalg.cholesky(matrix, lower=True, check_finite=False)

    return best_of([factor], size**3 / 3)


def bandwidth(size: int = 2**26) -> Run:
    """The triad on three arrays of half a gigabyte each, far larger than any cache."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    left, right = (jnp.full(size, x, "float64") for x in (1.0, 2.0))
    # The result is written into a donated array, so that no new pages are allocated.
    triad = jax.jit(lambda out, a, b: a + 3.0 * b, donate_argnums=0, keep_unused=True)
    kept = [jnp.zeros(size, "float64")]

    def call() -> Any:
        kept[0] = jax.block_until_ready(triad(kept[0], left, right))
        return kept[0]

    return best_of([call], 24.0 * size)


def best_of(calls: list[Callable[[], Any]], work: float) -> Run:
    """A `Run` whose call runs all functions; its rate is that of the fastest function so far."""
    seconds: list[float] = []

    def run() -> None:
        for call in calls:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)

    return Run(run, lambda _: {"rate": work / min(seconds)})


LIMITS: dict[str, Contender] = {
    f"{name} {dtype}": Contender(
        f"{name} {dtype}", f"benchmarks.limits:{name}", setting={"dtype": dtype}
    )
    for name in ("matmul", "cholesky")
    for dtype in ("float32", "float64")
} | {"bandwidth": Contender("bandwidth", "benchmarks.limits:bandwidth")}
