"""How fast ensembles train and stationary points are found, against peers in the same run.

    python -m benchmarks.networks [--torch PYTHON] [--rounds 3] [--quick] [--without-torch]

32 self-attention models (p = t = 16, d_q = d_v = 8, d = 64, n = 512, batch 64, 300 Adam steps) by

    fit           attnlens.networks.fit, one single-threaded worker process a core
    vmap          plain jit(vmap(train)) with optax, one process with all cores
    torch-loop    a plain PyTorch loop over the models, all cores
    torch-stacked PyTorch with stacked parameters, bmm and a foreach optimiser, all cores

PyTorch may live in another environment: --torch names its Python. On a machine that others load,
its threads wait for each other; --torch-threads 1 then favours it. Every peer runs in a process of
its own, and rounds take turns, so that what else the machine does falls on all of them; times are
medians over rounds. The first run of a peer in its process is its compile time, the second counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOKENS, DIM, QUERY, VALUE, HIDDEN = 16, 16, 8, 8, 64
MODELS, SAMPLES, BATCH, STEPS, RATE = 32, 512, 64, 300, 1e-3
SHARPNESS = 5.0
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# Multiplications and additions of a forward pass of one sample: three projections, logits, mixing,
# and the head; a training step costs about three forward passes.
FORWARD = 2 * (
    (2 * QUERY + VALUE) * DIM * TOKENS + TOKENS**2 * (QUERY + VALUE) + HIDDEN * (TOKENS * VALUE + 1)
)
OPERATIONS = 3 * FORWARD * MODELS * BATCH * STEPS


def data():
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(SAMPLES, DIM, TOKENS)).astype("float32")
    return x, random.normal(size=(SAMPLES, 1)).astype("float32")


def twice(train) -> dict[str, float]:
    """Seconds of the first run (with compilation) and of the second."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        train()
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "second": seconds[1]}


def pool():
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"))


def peer_fit() -> dict[str, float]:
    from functools import partial

    from attnlens.networks import SelfAttention, fit

    shape = {"tokens": TOKENS, "token_dim": DIM, "query_dim": QUERY, "value_dim": VALUE}
    make, (x, y) = partial(SelfAttention, hidden=HIDDEN, **shape), data()
    with pool() as workers:
        return twice(
            lambda: fit(
                make, x, y, seeds=range(MODELS), batch=BATCH, steps=STEPS, learning_rate=RATE,
                every=STEPS, block=MODELS // CORES, map=workers.map,
            )
        )  # fmt: skip


def peer_vmap() -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import optax

    x, y = (jnp.asarray(part) for part in data())
    optimiser = optax.adam(RATE)

    def start(key):
        parts = jax.random.split(key, 5)
        shapes = [(QUERY, DIM), (QUERY, DIM), (VALUE, DIM), (HIDDEN, TOKENS * VALUE), (1, HIDDEN)]
        return [jax.random.normal(k, s) / s[1] ** 0.5 for k, s in zip(parts, shapes, strict=True)]

    def model(w, x):
        scores = (w[1] @ x).T @ (w[0] @ x) / QUERY**0.5
        mixed = (w[2] @ x) @ jax.nn.softmax(scores, axis=0)
        return w[4] @ (jax.nn.softplus(SHARPNESS * (w[3] @ mixed.T.ravel())) / SHARPNESS)

    def loss(w, x, y):
        return jnp.mean((jax.vmap(model, (None, 0))(w, x) - y) ** 2)

    def train(key, x, y):
        weights = start(key)

        def step(carry, key):
            weights, state = carry
            rows = jax.random.randint(key, (BATCH,), 0, SAMPLES)
            value, slope = jax.value_and_grad(loss)(weights, x[rows], y[rows])
            update, state = optimiser.update(slope, state)
            return (optax.apply_updates(weights, update), state), value

        begin = (weights, optimiser.init(weights))
        return jax.lax.scan(step, begin, jax.random.split(key, STEPS))

    run = jax.jit(jax.vmap(train, (0, None, None)))
    keys = jax.random.split(jax.random.key(0), MODELS)
    return twice(lambda: jax.block_until_ready(run(keys, x, y)))


def peer_torch_loop() -> dict[str, float]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(int(os.environ.get("TORCH_THREADS", CORES)))
    x, y = (torch.from_numpy(part) for part in data())

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query = torch.nn.Linear(DIM, QUERY, bias=False)
            self.key = torch.nn.Linear(DIM, QUERY, bias=False)
            self.value = torch.nn.Linear(DIM, VALUE, bias=False)
            self.first = torch.nn.Linear(TOKENS * VALUE, HIDDEN, bias=False)
            self.second = torch.nn.Linear(HIDDEN, 1, bias=False)

        def forward(self, x):  # tokens along the second axis
            scores = self.query(x) @ self.key(x).transpose(1, 2) / QUERY**0.5
            mixed = torch.softmax(scores, -1) @ self.value(x)
            hidden = torch.nn.functional.softplus(self.first(mixed.flatten(1)), beta=SHARPNESS)
            return self.second(hidden)

    tokens = x.transpose(1, 2).contiguous()

    def train():
        for seed in range(MODELS):
            torch.manual_seed(seed)
            net = Net()
            optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
            for _ in range(STEPS):
                rows = torch.randint(0, SAMPLES, (BATCH,))
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(net(tokens[rows]), y[rows]).backward()
                optimiser.step()

    return twice(train)


def peer_torch_stacked() -> dict[str, float]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(int(os.environ.get("TORCH_THREADS", CORES)))
    x, y = (torch.from_numpy(part) for part in data())
    tokens = x.transpose(1, 2).contiguous()

    def train():
        torch.manual_seed(0)
        shapes = [(DIM, QUERY), (DIM, QUERY), (DIM, VALUE), (TOKENS * VALUE, HIDDEN), (HIDDEN, 1)]
        w = [(torch.randn(MODELS, *s) / s[0] ** 0.5).requires_grad_() for s in shapes]
        optimiser = torch.optim.Adam(w, lr=RATE, foreach=True)
        for _ in range(STEPS):
            rows = torch.randint(0, SAMPLES, (MODELS, BATCH))
            batch, target = tokens[rows], y[rows]
            flat = batch.reshape(MODELS, BATCH * TOKENS, DIM)
            query, key, value = (
                torch.bmm(flat, part).reshape(MODELS * BATCH, TOKENS, -1) for part in w[:3]
            )
            scores = torch.bmm(query, key.transpose(1, 2)) / QUERY**0.5
            mixed = torch.bmm(torch.softmax(scores, -1), value).reshape(MODELS, BATCH, -1)
            hidden = torch.nn.functional.softplus(torch.bmm(mixed, w[3]), beta=SHARPNESS)
            error = (torch.bmm(hidden, w[4]) - target) ** 2
            optimiser.zero_grad()
            error.mean((1, 2)).sum().backward()
            optimiser.step()

    return twice(train)


def multiply(seconds: float) -> float:
    """Single-precision matrix multiplications of this process, in operations a second."""
    import numpy as np

    a = np.random.default_rng(0).normal(size=(1024, 1024)).astype("float32")
    np.matmul(a, a)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        np.matmul(a, a)
        done += 1
    return done * 2 * 1024**3 / (time.perf_counter() - start)


def peer_multiply() -> dict[str, float]:
    """All cores at once, one single-threaded process each."""
    with pool() as workers:
        list(workers.map(multiply, [0.1] * CORES))
        rates = list(workers.map(multiply, [2.0] * CORES))
    return {"first": 0.0, "second": sum(rates)}


def peer_grid() -> dict[str, float]:
    """The sample-complexity grid: 4 models × 8 sample sizes × 16 seeds; counts compilations."""
    from functools import partial

    import jax.monitoring
    import numpy as np

    from attnlens.networks import (
        Attended,
        Baseline,
        KnownAttention,
        MultiLayerSelfAttention,
        SelfAttention,
        fit,
    )

    compiled = 0

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        nonlocal compiled
        compiled += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    random, n = np.random.default_rng(0), 512
    flat, tokens = random.normal(size=(16, n, 16)), random.normal(size=(16, n, 4, 4))
    y = random.normal(size=(16, n, 1))
    shape = {"tokens": 4, "token_dim": 4, "hidden": 8}
    start = time.perf_counter()
    for make, x in (
        (partial(Baseline, features=16, hidden=8), flat),
        (partial(KnownAttention, features=16, hidden=8), Attended(flat, np.abs(flat))),
        (partial(SelfAttention, **shape), tokens),
        (partial(MultiLayerSelfAttention, **shape), tokens),
    ):
        fit(
            make, x, y, seeds=range(16), samples=(4, 8, 16, 32, 64, 128, 256, 512), batch=32,
            steps=200, data_per_seed=True, test=(x, y),
        )  # fmt: skip
    return {"first": float(compiled), "second": time.perf_counter() - start}


def peer_stationary() -> dict[str, float]:
    """A 60-parameter self-attention model from 64 starts, n = 256, l2 = 1e-4, two workers."""
    from functools import partial

    import jax
    import numpy as np

    from attnlens.networks import SelfAttention, stationary_points

    shape = {"tokens": 4, "token_dim": 4, "query_dim": 2, "value_dim": 1, "hidden": 8}
    make = partial(SelfAttention, **shape)
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 4, 4)).astype("float32")
    clean = np.asarray(jax.jit(jax.vmap(make(jax.random.key(100))))(x))
    y = clean + 0.1 * random.normal(size=(512, 1))
    kept = []

    def search():
        found = stationary_points(
            make, x[:256], y[:256], l2=1e-4, starts=64, test=(x[256:], y[256:]), map=workers.map
        )
        kept.append(found)

    with pool() as workers:
        seconds = twice(search)
    found = kept[-1]
    return {
        **seconds, "share": found.converged_share, "points": len(found.points),
        "minima": len(found.minima),
        "worst": max(point.gradient_norm for point in found.points),
    }  # fmt: skip


PEERS = {name.removeprefix("peer_"): run for name, run in globals().items() if name[:5] == "peer_"}
SINGLE = {"fit", "multiply", "grid", "stationary"}  # one thread a process


def measure(name: str, python: str) -> dict[str, float]:
    environment = {**os.environ, **(ONE_THREAD if name in SINGLE else {})}
    here = Path(__file__).resolve()
    command = [python, str(here), "--peer", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
    print(f"  {name}: {numbers} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--torch", default=sys.executable, help="the Python that has torch 2.13.0")
    parser.add_argument("--torch-threads", type=int, default=CORES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="leave PyTorch's plain loop out")
    parser.add_argument("--without-torch", action="store_true", help="leave PyTorch out")
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(PEERS[given.peer]()))
        return
    os.environ["TORCH_THREADS"] = str(given.torch_threads)
    pythons = {"fit": sys.executable, "vmap": sys.executable}
    if not given.without_torch:
        pythons["torch_stacked"] = given.torch
        if not given.quick:
            pythons["torch_loop"] = given.torch
    times: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    rates = []
    for _ in range(given.rounds):
        for name, python in pythons.items():
            times[name].append(measure(name, python))
        rates.append(measure("multiply", sys.executable)["second"])
    load = os.getloadavg()[0]
    print(f"{MODELS} models on {CORES} cores, medians of {given.rounds} rounds; load {load:.1f}")
    ours = statistics.median(row["second"] for row in times["fit"])
    for name, rows in times.items():
        second = statistics.median(row["second"] for row in rows)
        first = statistics.median(row["first"] for row in rows)
        print(
            f"{name:14} {second:7.2f} s, {second / ours:5.2f} × fit's "
            f"(first run {max(first - second, 0):.1f} s longer: compilation and start)"
        )
    rate = statistics.median(rates)
    print(
        f"fit: {OPERATIONS / ours / 1e9:.1f} GFLOP/s of {rate / 1e9:.0f} in matrix "
        f"multiplication: {100 * OPERATIONS / ours / rate:.0f} %"
    )
    grid = measure("grid", sys.executable)
    print(f"grid of 512 members: {grid['first']:.0f} programs compiled, {grid['second']:.1f} s")
    found = measure("stationary", sys.executable)
    print(
        f"stationary points: 64 starts in {found['second']:.1f} s (first {found['first']:.1f} s), "
        f"{100 * found['share']:.0f} % converged to {found['points']:.0f} points, "
        f"{found['minima']:.0f} of them minima, largest gradient norm {found['worst']:.0e}"
    )


if __name__ == "__main__":
    main()
