"""The worlds against their peers, side by side in one run.

    python -m benchmarks.worlds gp [--torch-python PATH] [--repeats 7]
    python -m benchmarks.worlds nuts [--repeats 3]

gp     the posterior mean at 16 queries of 256 episodes of 256 tokens, float64, on both cores:
       attnlens in two single-threaded processes, a loop over scikit-learn's regressor with a fixed
       kernel, and PyTorch's batched Cholesky (in an interpreter of its own: torch pins libraries),
       both with threads of their own and in two single-threaded processes, whichever is better
nuts   64 episodes of the logistic world: one vmapped run against 64 separate ones

Contenders are processes that have loaded their data and compiled; the clock runs from "go" until
the last of them says "done". Repeats alternate between contenders, so that whatever else the
machine does falls on all alike, and medians are reported, with ratios to attnlens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

EPISODES, LENGTH, QUERIES, CORES = 256, 256, 16, 2
TEMPERATURE, NOISE_STD = 0.5, 0.3
ROOT = Path(__file__).parent.parent

# -- contenders: each loads its share of the data and returns what to time -------------------------


def attnlens_gp(data: Any, share: slice) -> Callable[[], np.ndarray]:
    import jax
    import jax.numpy as jnp

    from attnlens.worlds import GaussianProcess, Pairs

    world = GaussianProcess(data["key"].shape[-1], TEMPERATURE, NOISE_STD)
    key, value, query = (jnp.asarray(data[name][share]) for name in ("key", "value", "query"))

    @jax.jit
    def predict(key: Any, value: Any, query: Any) -> Any:
        def one(episode: Any) -> Any:
            return world.predict(Pairs(episode[0], episode[1]), episode[2]).mean

        # One episode at a time: its matrix stays in the cache, and a core is full with one.
        return jax.lax.map(one, (key, value, query))

    return lambda: np.asarray(predict(key, value, query))


def sklearn_gp(data: Any, share: slice) -> Callable[[], np.ndarray]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    settings: dict[str, Any] = {"alpha": NOISE_STD**2, "optimizer": None}

    def predict() -> np.ndarray:
        rows = zip(data["key"][share], data["value"][share], data["query"][share], strict=True)
        return np.stack(
            [
                GaussianProcessRegressor(RBF(TEMPERATURE**0.5), **settings)
                .fit(key, value[:, 0])
                .predict(query)
                for key, value, query in rows
            ]
        )[..., None]

    return predict


def torch_gp(data: Any, share: slice) -> Callable[[], np.ndarray]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", CORES)))
    names = ("key", "value", "query")
    key, value, query = (torch.from_numpy(data[name][share]) for name in names)
    ridge = NOISE_STD**2 * torch.eye(LENGTH, dtype=torch.float64)

    def kernel(left: Any, right: Any) -> Any:
        # Keys are on the sphere: the same kernel as a product, the fastest way to write it.
        return ((left @ right.mT - 1) / TEMPERATURE).exp_()

    def predict() -> np.ndarray:
        with torch.no_grad():
            root = torch.linalg.cholesky(kernel(key, key) + ridge)
            return (kernel(query, key) @ torch.cholesky_solve(value, root)).numpy()

    return predict


CONTENDERS = {"attnlens": attnlens_gp, "scikit-learn": sklearn_gp, "torch": torch_gp}
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def contend(name: str, folder: Path, part: int, parts: int) -> None:
    """A contender's process: load, warm up, then one prediction a line of input."""
    data = np.load(folder / "data.npz")
    data = {key: data[key] for key in data.files}
    size = EPISODES // parts
    predict = CONTENDERS[name](data, slice(part * size, (part + 1) * size))
    np.save(folder / f"{name}-{part}.npy", predict())
    predict()
    print("ready", flush=True)
    for _ in sys.stdin:
        predict()
        print("done", flush=True)


class Contender:
    """One or more processes of the same kind that share the episodes."""

    def __init__(self, name: str, folder: Path, parts: int, python: str):
        threads = f"{parts} processes" if parts > 1 else "its own threads"
        self.name = f"{name}, {threads}"
        environment = {**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
        if parts > 1:
            environment.update(ONE_THREAD)
        else:
            for variable in ONE_THREAD:
                environment.pop(variable, None)
        self.processes = [
            subprocess.Popen(
                [python, "-m", "benchmarks.worlds", "contend", name, str(folder), str(part),
                 str(parts)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
            )
            for part in range(parts)
        ]  # fmt: skip
        self.wait("ready")
        saved = [np.load(folder / f"{name}-{part}.npy") for part in range(parts)]
        self.prediction = np.concatenate(saved)

    def wait(self, word: str) -> None:
        for process in self.processes:
            assert process.stdout
            if process.stdout.readline().strip() != word:
                raise SystemExit(f"{self.name} ended before it was {word}")

    def seconds(self) -> float:
        start = time.perf_counter()
        for process in self.processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        self.wait("done")
        return time.perf_counter() - start

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin
            process.stdin.close()
            process.wait()


def gp(torch_python: str, repeats: int) -> None:
    draws = np.random.default_rng(0)
    points = draws.standard_normal((EPISODES, LENGTH + QUERIES, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    value = draws.standard_normal((EPISODES, LENGTH, 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", key=points[:, :LENGTH], query=points[:, LENGTH:], value=value)
        rivals = [Contender("attnlens", folder, CORES, sys.executable)]
        rivals += [Contender("scikit-learn", folder, parts, sys.executable) for parts in (1, CORES)]
        if subprocess.run([torch_python, "-c", "import torch"], capture_output=True).returncode:
            print("torch is not installed there: left out (see --torch-python)")
        else:
            rivals += [Contender("torch", folder, parts, torch_python) for parts in (1, CORES)]
        times: dict[str, list[float]] = {rival.name: [] for rival in rivals}
        for _ in range(repeats):
            for rival in rivals:
                times[rival.name].append(rival.seconds())
        exact = rivals[1].prediction
        agreement = {r.name: float(np.abs(r.prediction - exact).max()) for r in rivals}
        for rival in rivals:
            rival.close()
    print(f"{EPISODES} episodes of {LENGTH} tokens, {QUERIES} queries, float64, mean only")
    report(times, rivals[0].name)
    print("largest difference to scikit-learn:", {k: f"{v:.1e}" for k, v in agreement.items()})


def nuts(repeats: int) -> None:
    os.environ.update(ONE_THREAD, JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu")
    import equinox as eqx
    import jax

    from attnlens.worlds import LogisticRegression, Nuts

    world, episodes = LogisticRegression(key_dim=2, nuts=Nuts(chains=4)), 64
    keys = jax.random.split(jax.random.key(0), episodes)
    tokens = jax.vmap(lambda key: world.sample(key, 16).tokens)(keys)
    rows = [jax.tree.map(lambda leaf, i=i: leaf[i], tokens) for i in range(episodes)]

    def mean(tokens: Any) -> Any:
        posterior = world.posterior(tokens)
        return posterior.mean, posterior.ok

    together = eqx.filter_jit(jax.vmap(mean))
    alone = eqx.filter_jit(mean)
    timed: dict[str, Callable[[], Any]] = {
        "one vmapped run": lambda: together(tokens),
        "64 runs of our compiled function": lambda: [jax.block_until_ready(alone(r)) for r in rows],
    }
    compiling = {}
    for name, run in timed.items():
        start = time.perf_counter()
        jax.block_until_ready(run())
        compiling[name] = time.perf_counter() - start
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, run in timed.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    print("64 episodes of 16 tokens, 4 chains, 500 + 500 steps, one thread; compilation excluded")
    report(times, "one vmapped run")
    print("first call, with compilation:", {k: f"{v:.1f} s" for k, v in compiling.items()})
    print("converged in the vmapped run:", int(together(tokens)[1].sum()), "of", episodes)

    kept, few, whole = sampler(), 4, compiling["one vmapped run"]
    makers = {"a new NumPyro sampler an episode": sampler, "one NumPyro sampler": lambda: kept}
    for name, make in makers.items():
        spent = []
        for row in rows[:few]:
            start = time.perf_counter()
            plain(make(), row)
            spent.append(time.perf_counter() - start)
        each = statistics.median(spent[1:])  # the first run of a kept sampler compiles
        print(
            f"{name}: {each:.2f} s an episode (median of {few - 1}), so about {64 * each:.0f} s "
            f"for 64: {64 * each / whole:.1f} times the vmapped run with its compilation, "
            f"{64 * each / statistics.median(times['one vmapped run']):.1f} times it without"
        )


def sampler() -> Any:
    """The logistic world as one would write it in NumPyro."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(key: Any, value: Any) -> None:
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 2.0).to_event(1))
        numpyro.sample("value", dist.Bernoulli(logits=key @ weights), obs=value[:, 0])

    return MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=500, num_samples=500, num_chains=4,
        chain_method="vectorized", progress_bar=False, jit_model_args=True,
    )  # fmt: skip


def plain(sampler: Any, tokens: Any) -> Any:
    """One episode's run, its draws waited for."""
    import jax

    sampler.run(jax.random.key(0), tokens.key, tokens.value)
    return jax.block_until_ready(sampler.get_samples())


def report(times: dict[str, list[float]], ours: str) -> None:
    """Medians, spread, and how many times as long each takes as ours."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        spread = f"{min(values):.3f} to {max(values):.3f}"
        ratio = medians[name] / medians[ours]
        print(f"{name:>34}  {medians[name]:8.3f} s  ({spread})  {ratio:6.2f}×")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["gp", "nuts", "contend"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args(arguments)
    if chosen.what == "contend":
        name, folder, part, parts = chosen.rest
        contend(name, Path(folder), int(part), int(parts))
    elif chosen.what == "gp":
        gp(chosen.torch_python, chosen.repeats)
    else:
        nuts(chosen.repeats)


if __name__ == "__main__":
    main()
