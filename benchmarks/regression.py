"""Speed regressions: speed relative to plain reference implementations that do not change.

Every case has a computation of attnlens and a plain implementation of the same computation, which
is never changed. Both are timed in turns in one single-threaded process, and the ratio

    plain seconds / our seconds,   the median over pairs of neighbouring runs,

is compared with the ratio stored in regression.json for the same processor. Both runs of a pair see
the same load of the machine, so the ratio varies far less than the seconds. The command fails if
the ratio of a case is below two thirds of the stored one in each of three tries: a real slowdown
shows in every try, a disturbance does not.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Run, apart

KEPT = Path(__file__).with_name("regression.json")
LEAST = 2 / 3  # the smallest share of the stored ratio that passes
TRIES = 3
BUDGET = 4.0  # seconds of timing per case
PAIRS = 5  # the smallest number of pairs of timings per case
STEPS = 300  # training steps
Pair = tuple[Callable[[], Any], Callable[[], Any]]  # (attnlens, plain)


def _draw(*shapes: tuple[int, ...]) -> list[Any]:
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    import jax

    run = jax.jit(function)
    return lambda: jax.block_until_ready(run(*arguments))


def softmax_forward() -> Pair:
    """Softmax attention, 2,048 tokens. Plain: the logits of all pairs at once."""
    import jax

    from attnlens.attention import softmax

    parts = _draw(*3 * [(2048, 64)])

    def plain(query: Any, key: Any, value: Any) -> Any:
        return jax.nn.softmax(query @ key.T / 8.0) @ value

    return _compiled(softmax, *parts), _compiled(plain, *parts)


def cme_heads() -> Pair:
    """CME attention, 16 heads of 128 tokens. Plain: one Cholesky solve per head."""
    import jax
    import jax.numpy as jnp

    from attnlens.attention import cme

    parts = _draw(*3 * [(16, 128, 16)])

    def gram(a: Any, b: Any) -> Any:
        return jnp.exp(-jnp.sum((a[:, None] - b[None, :]) ** 2, -1) / 8.0)

    def one(query: Any, key: Any, value: Any) -> Any:
        factor = jax.scipy.linalg.cho_factor(gram(key, key) + 0.1 * jnp.eye(len(key)))
        return gram(query, key) @ jax.scipy.linalg.cho_solve(factor, value)

    ours = partial(cme, ridge=0.1, temperature=4.0)
    return _compiled(ours, *parts), _compiled(jax.vmap(one), *parts)


def hessian_products() -> Pair:
    """Ten Hessian products of a small network. Plain: one product after the other."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    from attnlens.instruments.landscape.products import Subject

    x, first, second = _draw((2048, 32), (32, 64), (64, 1))
    rows = np.random.default_rng(1).normal(size=(10, first.size + second.size)).astype("float32")

    def loss(w: Any, batch: Any) -> Any:
        return jnp.mean((jnp.tanh(batch @ w[0]) @ w[1] - 1.0) ** 2)

    subject = Subject(loss, (first, second), x, precision="float32")
    flat, unravel = ravel_pytree((first, second))
    # Pass the point and the data as arguments: XLA would fold captured arrays as constants.
    gradient = jax.grad(lambda vector, x: loss(unravel(vector), x))
    product = jax.jit(lambda at, x, row: jax.jvp(lambda w: gradient(w, x), (at,), (row,))[1])
    return (
        lambda: subject.times(rows, width=10),
        lambda: [jax.block_until_ready(product(flat, x, row)) for row in rows],
    )


def training() -> Pair:
    """Training of 16 self-attention models, 300 Adam steps each. Plain: jit(vmap(scan))."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    from attnlens.networks import SelfAttention, fit

    shape: dict[str, Any] = {
        "tokens": 16,
        "token_dim": 16,
        "query_dim": 8,
        "value_dim": 8,
        "hidden": 32,
    }
    make = partial(SelfAttention, **shape)
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 16, 16)).astype("float32")
    y = random.normal(size=(256, 1)).astype("float32")
    optimiser = optax.adam(1e-3)

    def train(key: Any) -> Any:
        model = make(key)
        arrays, static = eqx.partition(model, eqx.is_inexact_array)

        def loss(arrays: Any, index: Any) -> Any:
            network = eqx.combine(arrays, static)
            return jnp.mean((jax.vmap(network)(jnp.asarray(x)[index]) - jnp.asarray(y)[index]) ** 2)

        def step(state: Any, key: Any) -> Any:
            arrays, memory = state
            index = jax.random.choice(key, len(x), (64,), replace=False)
            moves, memory = optimiser.update(jax.grad(loss)(arrays, index), memory)
            return (optax.apply_updates(arrays, moves), memory), None

        start = (arrays, optimiser.init(arrays))
        return jax.lax.scan(step, start, jax.random.split(key, STEPS))[0][0]

    keys = jax.random.split(jax.random.key(0), 16)
    plain = jax.jit(jax.vmap(train))
    return (
        lambda: fit(make, x, y, seeds=range(16), steps=STEPS, batch=64),
        lambda: jax.block_until_ready(plain(keys)),
    )


def exchangeability_batch() -> Pair:
    """Permutation test, 16 sequences of 128 tokens, 200 permutations. Plain: NumPy, one statistic
    at a time."""
    from attnlens import exchangeability

    x = np.random.default_rng(0).normal(size=(16, 128))

    def plain() -> Any:
        random = np.random.default_rng(0)
        orders = random.permuted(np.tile(np.arange(128), (200, 16, 1)), axis=-1)
        rows = np.take_along_axis(np.broadcast_to(x, orders.shape), orders, -1)
        halves = rows[..., :64].mean(-1) - rows[..., 64:].mean(-1)
        lags = (rows[..., 1:] * rows[..., :-1]).sum(-1)
        scales = rows[..., :64].var(-1) - rows[..., 64:].var(-1)
        return [np.abs(statistic).mean(-1) for statistic in (halves, lags, scales)]

    return lambda: exchangeability(x, permutations=200, wealth=False), plain


CASES = {
    case.__name__: case
    for case in (
        softmax_forward,
        cme_heads,
        hessian_products,
        training,
        exchangeability_batch,
    )
}


def pairs(case: str) -> Run:
    """A maker for `contest` that returns the ratio of a case as its accuracy."""
    ours, plain = CASES[case]()
    for implementation in (ours, plain):  # compile, and import modules used first here
        implementation()
        implementation()

    def call() -> float:
        ratios, began = [], time.perf_counter()
        while len(ratios) < PAIRS or time.perf_counter() - began < BUDGET:
            own, other = _seconds(ours), _seconds(plain)
            ratios.append(other / own)
        return statistics.median(ratios)

    return Run(call, lambda value: {"ratio": value})


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def processor() -> str:
    """Name, family, model and a hash of the instruction sets, as many processors share a name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    fields = dict(line.split("\t", 1) for line in lines if "\t" in line)
    parts = [fields.get(name, "").strip(": \t") for name in ("model name", "cpu family", "model")]
    flags = " ".join(sorted(fields.get("flags", "").split()))
    return " ".join([*parts, hashlib.sha256(flags.encode()).hexdigest()[:12]])


def main(write: bool = False) -> int:
    # The ratio depends on the processor: native code that is faster on one may be slower on
    # another. Ratios are stored per processor and compared on the same processor only.
    stored: dict[str, dict[str, float]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    here = processor()
    references = {} if write else stored.get(here, {})
    ratios, slow = {}, []
    for case in CASES:
        reference, best = references.get(case, 0.0), 0.0
        for _ in range(TRIES):
            best = max(best, ratio(case))
            if best >= LEAST * reference and not write:
                break
        ratios[case] = round(best, 3)
        good = best >= LEAST * reference
        slow += [] if good else [case]
        before = f"; stored {reference:.2f}" if reference else ""
        print(
            f"{case:24} {best:7.2f} × as fast as the plain implementation{before}"
            f"{'' if good else ': more than a third slower than before'}",
            flush=True,
        )
    if write:
        KEPT.write_text(json.dumps({**stored, here: ratios}, indent=1) + "\n")
    elif not references:
        print(f"No ratios are stored for this processor ({here}): nothing was compared.")
        print("Store them with: python -m benchmarks regression --write")
    return 1 if slow else 0


def ratio(case: str) -> float:
    make, setting = "benchmarks.regression:pairs", {"case": case}
    return apart(make, setting, sys.executable, "one", repeats=0)["accuracy"]["ratio"]
