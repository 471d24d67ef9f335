"""How fast curvature and surfaces are measured, against peers in the same run.

    python -m benchmarks.landscape [--torch PYTHON] [--rounds 3] [--quick] [--without-torch]

A transformer of 19,786 parameters (2 layers, width 32, 4 heads, 16 tokens) on 512 examples:

    density   80 Lanczos steps × 10 probes of its Hessian: `curvature`'s quadrature, against
              hessian-eigenthings' `spectral_density` and curvlinops' `fast_lanczos`
    surface   51 × 51 points, two random filter-normalised directions, against loss-landscapes'
              `random_plane`; and of the transformer at width 8 on 32 examples
    product   one product with the Hessian, in gradients

Everything in float32, one thread a process. Accuracy of the densities is measured where the exact
spectrum can be had, on the same transformer at width 8 (1,498 parameters): the distance between
the quadrature and the eigenvalues is the mean |difference| of quantiles (Wasserstein-1), as a share
of the spectrum's range. PyTorch and its packages (torch==2.13.0, hessian-eigenthings,
curvlinops-for-pytorch, loss-landscapes) may live in another environment: --torch names its Python.
Peers run in processes of their own and take turns; times are medians over rounds, and the first
call, which compiles, is shown apart.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOKENS, DIM, CLASSES, SAMPLES, LAYERS, HEADS = 16, 16, 10, 512, 2, 4
STEPS, PROBES, POINTS = 80, 10, 51
LARGE, SMALL = 32, 8  # widths; the feed-forward layer is 2.5 times as wide
FEW = 32  # samples of the small surface, where overhead counts
# The quick form takes fewer Lanczos steps of the large transformer and fewer points, and scales.
QUICK = bool(os.environ.get("LANDSCAPE_QUICK"))
LARGE_STEPS, PLANE = (8, 17) if QUICK else (STEPS, POINTS)
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def data():
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(SAMPLES, TOKENS, DIM)).astype("float32")
    return x, random.integers(0, CLASSES, SAMPLES)


def weights(width: int):
    """The same starting parameters for everybody: (name, array), matrices as (out, in)."""
    import numpy as np

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


def forward(library: Any, softmax: Any, tanh: Any, w: Any, x: Any) -> Any:
    """Logits (samples, classes); the same arithmetic in NumPy-like JAX and in PyTorch."""
    rows, heads = x @ w["embed"].T + w["embed_bias"], HEADS
    samples, width = x.shape[0], w["embed"].shape[0]
    shape = (samples, TOKENS, heads, width // heads)
    for layer in range(LAYERS):
        parts = [
            (rows @ w[f"{name}_{layer}"].T + w[f"{name}_bias_{layer}"]).reshape(shape)
            for name in ("query", "key", "value")
        ]
        query, key, value = (library.swapaxes(part, 1, 2) for part in parts)
        logits = query @ library.swapaxes(key, 2, 3) / math.sqrt(width // heads)
        mixed = library.swapaxes(softmax(logits) @ value, 1, 2).reshape(samples, TOKENS, width)
        rows = rows + mixed @ w[f"output_{layer}"].T + w[f"output_bias_{layer}"]
        inner = tanh(rows @ w[f"up_{layer}"].T + w[f"up_bias_{layer}"])
        rows = rows + inner @ w[f"down_{layer}"].T + w[f"down_bias_{layer}"]
    return rows.mean(1) @ w["head"].T + w["head_bias"]


def jax_loss(w: Any, batch: Any) -> Any:
    import jax
    import jax.numpy as jnp

    with jax.numpy_rank_promotion("allow"):
        logits = forward(jnp, lambda a: jax.nn.softmax(a, -1), jnp.tanh, w, batch[0])
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch[1][:, None], axis=1)
    return -jnp.mean(picked)


def timed(run: Any, repeats: int = 2, scale: float = 1.0) -> dict[str, float]:
    """Seconds of the first call (with compilation) and of the last, and its processor seconds.

    On a machine that others load, the processor's seconds say more than the clock's.
    """
    clock, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        run()
        clock.append(scale * (time.perf_counter() - start))
        processor.append(scale * (time.process_time() - used))
    return {"first": clock[0], "second": clock[-1], "processor": processor[-1]}


def distance(nodes: Any, masses: Any, eigenvalues: Any) -> float:
    """Wasserstein-1 between Σ m δ_node / Σ m and the eigenvalues, over the spectrum's range."""
    import numpy as np

    order = np.argsort(nodes)
    nodes, masses = np.asarray(nodes)[order], np.asarray(masses)[order]
    levels = (np.arange(len(eigenvalues)) + 0.5) / len(eigenvalues)
    reached = np.cumsum(masses) / np.sum(masses)
    quantiles = nodes[np.minimum(np.searchsorted(reached, levels), len(nodes) - 1)]
    exact = np.sort(eigenvalues)
    return float(np.mean(np.abs(quantiles - exact)) / np.ptp(exact))


def exact_spectrum() -> Any:
    """The eigenvalues of the small transformer's Hessian, in float64; computed once and kept."""
    import numpy as np

    kept = Path(os.environ["LANDSCAPE_EXACT"])
    if not kept.exists():
        from attnlens.instruments import spectrum
        from attnlens.instruments.products import Subject

        subject = Subject(jax_loss, weights(SMALL), data())
        formed = spectrum.matrix(lambda rows: subject.times(rows, width=50), subject.size)
        np.save(kept, np.linalg.eigvalsh(formed))
    return np.load(kept)


def large(density: Any) -> dict[str, float]:
    return timed(lambda: density(LARGE, LARGE_STEPS), scale=STEPS / LARGE_STEPS)


def peer_attnlens() -> dict[str, float]:
    from attnlens.instruments import spectrum
    from attnlens.instruments.products import Subject

    def density(width: int, steps: int = STEPS) -> Any:
        subject = Subject(jax_loss, weights(width), data(), precision="float32")
        return spectrum.quadrature(
            lambda rows: subject.times(rows, width=PROBES), subject.size, PROBES, steps
        )

    rule = density(SMALL)
    error = distance(rule.nodes.ravel(), rule.weights.ravel(), exact_spectrum())
    return {**large(density), "distance": error}


def peer_surface() -> dict[str, float]:
    return surface_of(LARGE, SAMPLES, PLANE)


def peer_surface_small() -> dict[str, float]:
    return surface_of(SMALL, FEW, POINTS)


def surface_of(width: int, samples: int, points: int) -> dict[str, float]:
    from attnlens import surface

    w, batch = weights(width), tuple(part[:samples] for part in data())
    scale = (POINTS / points) ** 2
    return timed(
        lambda: surface(jax_loss, w, batch, points=points, precision="float32"), scale=scale
    )


def peer_product() -> dict[str, float]:
    """Seconds of a gradient, and of a product: alone, and one of ten together."""
    import numpy as np

    from attnlens.instruments.products import Subject

    subject = Subject(jax_loss, weights(LARGE), data(), precision="float32")
    rows = np.random.default_rng(0).normal(size=(PROBES, subject.size))

    def median(run: Any) -> float:
        run()
        times = []
        for _ in range(10):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return {
        "gradient": median(subject.value_and_gradient),
        "alone": median(lambda: subject.times(rows[0])),
        "together": median(lambda: subject.times(rows, width=PROBES)) / PROBES,
        "parameters": float(subject.size),
    }


def torch_model(width: int) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)

    class Transformer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, array in weights(width).items():
                self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(array)))

        def forward(self, x):
            return forward(
                torch, lambda a: torch.softmax(a, -1), torch.tanh, dict(self.named_parameters()), x
            )

    x, y = data()
    return Transformer(), (torch.from_numpy(x), torch.from_numpy(y))


def peer_eigenthings() -> dict[str, float]:
    from hessian_eigenthings import (  # pyright: ignore[reportMissingImports]
        HessianOperator,
        spectral_density,
        supervised_loss,
    )
    from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports]

    def density(width: int, steps: int = STEPS) -> Any:
        model, batch = torch_model(width)
        operator = HessianOperator(model, [batch], supervised_loss(cross_entropy))
        return spectral_density(operator, num_runs=PROBES, lanczos_steps=steps)

    found = density(SMALL)
    nodes, masses = found.raw_eigenvalues.numpy().ravel(), found.raw_weights.numpy().ravel()
    kept = masses > 0
    error = distance(nodes[kept], masses[kept], exact_spectrum())
    return {**large(density), "distance": error}


def peer_curvlinops() -> dict[str, float]:
    import numpy as np
    import torch  # pyright: ignore[reportMissingImports]
    from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports]
    from curvlinops.papyan2020traces.spectrum import (  # pyright: ignore[reportMissingImports]
        fast_lanczos,
    )

    def density(width: int, steps: int = STEPS) -> Any:
        model, batch = torch_model(width)
        parameters = list(model.parameters())
        try:
            operator = HessianLinearOperator(
                model, torch.nn.CrossEntropyLoss(), parameters, [batch],
                check_deterministic=False,
            )  # fmt: skip
        except (TypeError, ValueError):  # later versions name the parameters
            named = dict(model.named_parameters())
            operator = HessianLinearOperator(
                model, torch.nn.CrossEntropyLoss(), named, [batch], check_deterministic=False
            )
        rules = [fast_lanczos(operator, steps) for _ in range(PROBES)]
        return [(values.numpy(), vectors[0].numpy() ** 2) for values, vectors in rules]

    torch.manual_seed(0)
    found = density(SMALL)
    nodes, masses = (np.concatenate(part) for part in zip(*found, strict=True))
    error = distance(nodes, masses, exact_spectrum())
    return {**large(density), "distance": error}


def peer_plane() -> dict[str, float]:
    return plane_of(LARGE, SAMPLES, PLANE)


def peer_plane_small() -> dict[str, float]:
    return plane_of(SMALL, FEW, POINTS)


def plane_of(width: int, samples: int, points: int) -> dict[str, float]:
    import loss_landscapes  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from loss_landscapes.metrics import Loss  # pyright: ignore[reportMissingImports]

    model, (x, y) = torch_model(width)
    metric = Loss(torch.nn.functional.cross_entropy, x[:samples], y[:samples])
    with torch.no_grad():
        return timed(
            lambda: loss_landscapes.random_plane(
                model, metric, distance=1, steps=points, normalization="filter", deepcopy_model=True
            ),
            scale=(POINTS / points) ** 2,
        )


PEERS = {name.removeprefix("peer_"): run for name, run in globals().items() if name[:5] == "peer_"}
OURS = ("attnlens", "surface", "surface_small", "product")
THEIRS = ("eigenthings", "curvlinops", "plane", "plane_small")
PAIRS = {
    "attnlens": ("eigenthings", "curvlinops"),
    "surface": ("plane",),
    "surface_small": ("plane_small",),
}


def measure(name: str, python: str) -> dict[str, float]:
    root = Path(__file__).resolve().parent.parent
    command = [python, str(Path(__file__).resolve()), "--peer", name]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(root / "src")}
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
    parser.add_argument("--torch", default=sys.executable, help="the Python that has the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, scaled")
    parser.add_argument("--without-torch", action="store_true", help="leave the peers out")
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(PEERS[given.peer]()))
        return
    if given.quick:
        os.environ["LANDSCAPE_QUICK"] = "1"
    os.environ["LANDSCAPE_EXACT"] = str(Path(tempfile.mkdtemp()) / "exact.npy")
    names = [*OURS, *(() if given.without_torch else THEIRS)]
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(1 if given.quick else given.rounds):
        for name in names:
            rows[name].append(measure(name, sys.executable if name in OURS else given.torch))

    def median(name: str, number: str) -> float:
        return statistics.median(row[number] for row in rows[name])

    print(f"medians of {len(rows['attnlens'])} rounds, load {os.getloadavg()[0]:.1f}")
    for ours, peers in PAIRS.items():
        own, used = median(ours, "second"), median(ours, "processor")
        extra = f"distance {median(ours, 'distance'):.2e}, " if ours == "attnlens" else ""
        print(f"{ours:13} {own:8.2f} s ({extra}first call {median(ours, 'first'):.2f} s)")
        for peer in (peer for peer in peers if peer in rows):
            seconds, theirs = median(peer, "second"), median(peer, "processor")
            said = f", distance {median(peer, 'distance'):.2e}" if ours == "attnlens" else ""
            print(
                f"{peer:13} {seconds:8.2f} s = {seconds / own:.2f} × ours "
                f"(processor time {theirs / used:.2f} ×){said}"
            )
    gradient = median("product", "gradient")
    print(
        f"one Hessian product: {median('product', 'alone') / gradient:.2f} gradients alone, "
        f"{median('product', 'together') / gradient:.2f} among {PROBES} together"
    )


if __name__ == "__main__":
    main()
