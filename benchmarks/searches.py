"""Whole experiments that no peer offers: a grid of sample sizes, and a search for stationary
points. The table shows their results in the column of accuracy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import Contender, Run, Work
from benchmarks.networks import pool

MAKE = "benchmarks.searches:"


def grid(steps: int = 200) -> Run:
    """Train 4 models × 8 sample sizes × 16 seeds; the "accuracy" is the number of compilations."""
    import jax.monitoring

    from attnlens import networks
    from attnlens.networks import SelfAttention, fit

    compiled = 0

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        nonlocal compiled
        compiled += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    random, n = np.random.default_rng(0), 512
    flat, tokens = random.normal(size=(16, n, 16)), random.normal(size=(16, n, 4, 4))
    y = random.normal(size=(16, n, 1))
    shape = {"tokens": 4, "token_dim": 4, "hidden": 8}

    def call() -> None:
        for make, x in (
            (partial(networks.Baseline, features=16, hidden=8), flat),
            (
                partial(networks.KnownAttention, features=16, hidden=8),
                networks.Attended(flat, np.abs(flat)),
            ),
            (partial(SelfAttention, **shape), tokens),
            (partial(networks.MultiLayerSelfAttention, **shape), tokens),
        ):
            fit(
                make,
                x,
                y,
                seeds=range(16),
                samples=(4, 8, 16, 32, 64, 128, 256, 512),
                batch=32,
                steps=steps,
                data_per_seed=True,
                test=(x, y),
            )

    return Run(call, lambda _: {"programs compiled": compiled}, 200 / steps)


def stationary(starts: int = 64) -> Run:
    """Stationary points of a 60-parameter self-attention model with 256 samples and l2 = 1e-4,
    one worker per core."""
    import jax

    from attnlens.networks import SelfAttention, stationary_points

    shape = {"tokens": 4, "token_dim": 4, "query_dim": 2, "value_dim": 1, "hidden": 8}
    make = partial(SelfAttention, **shape)
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 4, 4)).astype("float32")
    clean = np.asarray(jax.jit(jax.vmap(make(jax.random.key(100))))(x))
    y = clean + 0.1 * random.normal(size=(512, 1))
    workers = pool()

    def call() -> Any:
        return stationary_points(
            make,
            x[:256],
            y[:256],
            l2=1e-4,
            starts=starts,
            test=(x[256:], y[256:]),
            map=workers.map,
        )

    def accuracy(result: Any) -> dict[str, float]:
        return {
            "converged share": result.converged_share,
            "points": len(result.points),
            "minima": len(result.minima),
            "largest gradient norm": max(point.gradient_norm for point in result.points),
        }

    return Run(call, accuracy)


WORKS = [
    Work(
        name="Grid of sample sizes",
        group="training",
        task="4 models × 8 sample sizes × 16 seeds: 512 networks of 200 steps. No peer does it.",
        contenders=[Contender("attnlens", MAKE + "grid", threads="one")],
        quick={"steps": 50},
        repeats=1,
    ),
    Work(
        name="Stationary points",
        group="training",
        task="Saddle-free Newton from 64 starts of a 60-parameter network. No peer does it.",
        contenders=[Contender("attnlens", MAKE + "stationary", threads="one")],
        quick={"starts": 8},
        repeats=1,
    ),
]
