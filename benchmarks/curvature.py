"""The spectrum of a Hessian and products with it, compared with libraries for PyTorch.

    spectrum   80 Lanczos steps × 10 probes, for a transformer of 19,786 parameters, 512 examples
    product    one product with the same Hessian, also in units of one gradient

All computations are in float32. Peers process one probe after the other, so they run one of ten
probes and their time is multiplied by ten. All contenders run only the first few of the 80 steps,
which all cost the same, and their times are scaled up. The accuracy of the spectrum is measured at
width 8, where the exact spectrum is known, with all 80 steps and 10 probes: the mean |difference|
of quantiles (Wasserstein-1), as a share of the spectrum's range.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.contest import Contender, Growth, Run, Work, relative_error
from benchmarks.transformer import (
    LARGE,
    PEERS,
    SAMPLES,
    SMALL,
    data,
    jax_loss,
    kept,
    operations,
    pytorch,
    torch_model,
    weights,
)

STEPS, PROBES = 80, 10
# The cost of a Hessian product in evaluations of the loss. For a layer y = W x with output gradient
# h: y and g = Wᵀ h are computed once for all directions (SHARED); every direction needs two more
# products for each of y, g and the gradient h xᵀ of W (OWN).
SHARED, OWN = 2, 6
Rule = tuple[np.ndarray, np.ndarray]  # nodes and masses of a quadrature


def distance(rule: Rule, exact: np.ndarray) -> float:
    """Wasserstein-1 distance of Σ m δ_node / Σ m, masses m, to the eigenvalues over their range."""
    nodes, masses = (np.asarray(part, float).ravel() for part in rule)
    nodes, masses = nodes[masses > 0], masses[masses > 0]
    order = np.argsort(nodes)
    reached = np.cumsum(masses[order]) / masses.sum()
    levels = (np.arange(len(exact)) + 0.5) / len(exact)
    places = np.minimum(np.searchsorted(reached, levels), len(nodes) - 1)
    return float(np.mean(np.abs(nodes[order][places] - exact)) / np.ptp(exact))


def exact_spectrum() -> np.ndarray:
    """The eigenvalues of the small transformer's Hessian, in float64."""
    from attnlens.instruments.landscape import spectrum
    from attnlens.instruments.landscape.products import Subject

    subject = Subject(jax_loss, weights(SMALL), data())
    formed = spectrum.matrix(lambda rows: subject.times(rows, width=50), subject.size)
    return np.linalg.eigvalsh(formed)


def density_run(
    density: Callable[[int, int, int], Rule],
    steps: int,
    probes: int,
    truth: Callable[[], np.ndarray] | None = None,
) -> Run:
    def accuracy(_: Any) -> dict[str, float]:
        exact = kept(f"spectrum-{SMALL}", truth)
        return {"distance to the spectrum": distance(density(SMALL, STEPS, PROBES), exact)}

    scale = STEPS * PROBES / (steps * probes)
    return Run(lambda: density(LARGE, steps, probes), accuracy, scale)


def density_attnlens(steps: int, probes: int) -> Run:
    from attnlens.instruments.landscape import spectrum
    from attnlens.instruments.landscape.products import Subject

    def density(width: int, steps: int, probes: int) -> Rule:
        subject = Subject(jax_loss, weights(width), data(), precision="float32")
        quadrature = spectrum.quadrature(
            lambda rows: subject.times(rows, width=probes), subject.size, probes, steps
        )
        return quadrature.nodes, quadrature.weights

    return density_run(density, steps, PROBES, exact_spectrum)


def density_matfree(steps: int, probes: int, together: bool = False) -> Run:
    """What a user would write with matfree's Lanczos; NumPy solves the small eigenproblems."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree
    from matfree import decomp

    def rules(steps: int) -> Any:
        lanczos = decomp.tridiag_sym(steps, materialize=True, reortho="full")

        @jax.jit
        def run(signs: Any, w: Any, batch: Any) -> Any:
            vector, restore = ravel_pytree(w)

            def product(direction: Any, batch: Any) -> Any:
                slope = jax.grad(lambda v: jax_loss(restore(v), batch))
                return jax.jvp(slope, (vector,), (direction,))[1]

            one = lambda start: lanczos(product, start, batch).J_small  # noqa: E731 (a formula in one line)
            return jax.vmap(one)(signs) if together else jax.lax.map(one, signs)

        return run

    programs = {count: rules(count) for count in {steps, STEPS}}

    def density(width: int, steps: int, probes: int) -> Rule:
        w = {name: jnp.asarray(array) for name, array in weights(width).items()}
        size = sum(array.size for array in w.values())
        signs = np.random.default_rng(0).integers(0, 2, size=(probes, size)) * 2.0 - 1.0
        batch = tuple(map(jnp.asarray, data()))
        matrices = np.asarray(programs[steps](jnp.asarray(signs, "float32"), w, batch), float)
        values, vectors = np.linalg.eigh(matrices)
        return values, vectors[:, 0] ** 2

    return density_run(density, steps, PROBES if together else probes)


def density_eigenthings(steps: int, probes: int) -> Run:
    import hessian_eigenthings as things  # pyright: ignore[reportMissingImports] (an optional package)
    from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports] (an optional package)

    def density(width: int, steps: int, probes: int) -> Rule:
        model, batch = torch_model(width)
        operator = things.HessianOperator(model, [batch], things.supervised_loss(cross_entropy))
        estimate = things.spectral_density(operator, num_runs=probes, lanczos_steps=steps)
        return np.nan_to_num(estimate.raw_eigenvalues.numpy()), estimate.raw_weights.numpy()

    return density_run(density, steps, probes)


def curvlinops_hessian(width: int) -> Any:
    from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports] (an optional package)

    model, batch = torch_model(width)
    criterion, parameters = pytorch().nn.CrossEntropyLoss(), list(model.parameters())
    return HessianLinearOperator(model, criterion, parameters, [batch], check_deterministic=False)


def density_curvlinops(steps: int, probes: int) -> Run:
    from curvlinops.papyan2020traces.spectrum import (  # pyright: ignore[reportMissingImports] (an optional package)
        fast_lanczos,
    )

    def density(width: int, steps: int, probes: int) -> Rule:
        operator = curvlinops_hessian(width)
        rules = [fast_lanczos(operator, steps) for _ in range(probes)]
        nodes = np.concatenate([values.numpy() for values, _ in rules])
        return nodes, np.concatenate([vectors[0].numpy() ** 2 for _, vectors in rules])

    return density_run(density, steps, probes)


def density_pyhessian(steps: int, probes: int) -> Run:
    from pyhessian import hessian  # pyright: ignore[reportMissingImports] (an optional package)
    from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports] (an optional package)

    def density(width: int, steps: int, probes: int) -> Rule:
        model, batch = torch_model(width)
        estimator = hessian(model, cross_entropy, data=batch, cuda=False)
        try:
            nodes, masses = estimator.density(steps, probes)
        except RuntimeError as error:  # PyTorch's message about removed functions has many lines
            raise RuntimeError(str(error).splitlines()[0]) from None
        return np.real(nodes), np.real(masses)

    return density_run(density, steps, probes)


# -- one product -----------------------------------------------------------------------------------


def median_seconds(call: Callable[[], Any], repeats: int = 7) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def product_run(
    product: Callable[[], np.ndarray],
    gradient: Callable[[], Any],
    width: int,
    truth: Callable[[], np.ndarray] | None = None,
    more: Callable[[float], dict[str, float]] = lambda gradient: {},
) -> Run:
    def accuracy(answer: np.ndarray) -> dict[str, float]:
        exact, slope = kept(f"product-{width}", truth), median_seconds(gradient)
        return {
            "relative error": relative_error(answer, exact),
            "gradients": median_seconds(product) / slope,
            **more(slope),
        }

    return Run(product, accuracy)


def direction(size: int, count: int = 1) -> np.ndarray:
    """Random directions (count, size), with parameters in the order of `weights`."""
    return np.random.default_rng(0).normal(size=(count, size)).astype("float32")


def product_attnlens(width: int = LARGE, chunk: int | None = None, judged: bool = True) -> Run:
    from attnlens.instruments.landscape.products import Subject

    def subject_in(precision: str) -> Subject:
        # JAX sorts a dictionary by its keys, PyTorch keeps its order; both keep that of a list.
        names, arrays = zip(*weights(width).items(), strict=True)

        def loss(w: Any, batch: Any) -> Any:
            return jax_loss(dict(zip(names, w, strict=True)), batch)

        return Subject(loss, list(arrays), data(), precision=precision, chunk=chunk)

    subject = subject_in("float32")
    rows = direction(subject.size, PROBES)
    if not judged:
        return Run(lambda: subject.times(rows[0]))
    return product_run(
        lambda: subject.times(rows[0]),
        subject.value_and_gradient,
        width,
        lambda: subject_in("float64").times(rows[0].astype(float)),
        lambda slope: {
            "gradients, of ten together": median_seconds(
                lambda: subject.times(rows, width=PROBES), 3
            )
            / PROBES
            / slope
        },
    )


def product_torch(width: int = LARGE) -> Run:
    """The derivative of ⟨gradient, direction⟩, as PyTorch users write it."""
    torch = pytorch()
    model, (x, y) = torch_model(width)
    parameters = list(model.parameters())
    along = torch.from_numpy(direction(sum(p.numel() for p in parameters))[0])
    parts = [
        part.reshape(p.shape)
        for p, part in zip(parameters, along.split([p.numel() for p in parameters]), strict=True)
    ]

    def gradient(graph: bool = False) -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        return torch.autograd.grad(loss, parameters, create_graph=graph)

    def product() -> np.ndarray:
        products = torch.autograd.grad(gradient(True), parameters, grad_outputs=parts)
        return torch.cat([part.ravel() for part in products]).numpy()

    return product_run(product, gradient, width)


def product_curvlinops(width: int = LARGE) -> Run:
    torch, operator = pytorch(), curvlinops_hessian(width)
    model, (x, y) = torch_model(width)
    along = torch.from_numpy(direction(operator.shape[0])[0])

    def gradient() -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        return torch.autograd.grad(loss, list(model.parameters()))

    return product_run(lambda: (operator @ along).detach().numpy(), gradient, width)


DENSITY = "benchmarks.curvature:density_"
PRODUCT = "benchmarks.curvature:product_"

WHY = (
    "attnlens computes with one thread per process, and a run keeps every core busy with a process "
    "of its own; rows with all threads, and matfree by hand, had both cores here."
)

WORKS = [
    Work(
        name="Hessian spectrum",
        group="landscape",
        task="Stochastic Lanczos quadrature, 80 steps × 10 probes, of a transformer with 19,786 "
        "parameters on 512 examples; peers run one probe of ten, and times are scaled. The "
        "distance is to the exact spectrum at 1,498 parameters.",
        contenders=[
            Contender("attnlens", DENSITY + "attnlens", threads="one"),
            Contender("hessian-eigenthings (one thread)", DENSITY + "eigenthings", PEERS, "one"),
            Contender("hessian-eigenthings (all threads)", DENSITY + "eigenthings", PEERS),
            Contender("curvlinops (one thread)", DENSITY + "curvlinops", PEERS, "one"),
            Contender("curvlinops (all threads)", DENSITY + "curvlinops", PEERS),
            Contender("matfree by hand (in turn)", DENSITY + "matfree"),
            Contender(
                "matfree by hand (together)", DENSITY + "matfree", setting={"together": True}
            ),
            Contender("PyHessian", DENSITY + "pyhessian", PEERS),
        ],
        setting={"steps": 3, "probes": 1},
        quick={"steps": 2},
        repeats=3,
        aims={"hessian-eigenthings": 2, "curvlinops": 2, "matfree by hand": 2, "PyHessian": 2},
        operations=STEPS * (SHARED + OWN * PROBES) * operations(LARGE, SAMPLES),
        limit="matmul float32",
        why=WHY,
    ),
    Work(
        name="Hessian product",
        group="landscape",
        task="One product with the Hessian of the same transformer; its cost in gradients beside.",
        contenders=[
            Contender("attnlens", PRODUCT + "attnlens", threads="one"),
            Contender("PyTorch (one thread)", PRODUCT + "torch", PEERS, "one"),
            Contender("PyTorch (all threads)", PRODUCT + "torch", PEERS),
            Contender("curvlinops (one thread)", PRODUCT + "curvlinops", PEERS, "one"),
            Contender("curvlinops (all threads)", PRODUCT + "curvlinops", PEERS),
        ],
        quick={},
        operations=(SHARED + OWN) * operations(LARGE, SAMPLES),
        limit="matmul float32",
        why=WHY,
    ),
]

GROWTH = [
    Growth(
        name="Hessian product over the width",
        make=PRODUCT + "attnlens",
        sizes=(16, 32, 64, 128),
        setting={"chunk": SAMPLES, "judged": False},
        time=2.0,
        memory=1.0,
        argument="width",
        task="Parameters grow with the square of the width, what is held between layers with the "
        "width; all 512 examples at once.",
        threads="one",
    ),
]
