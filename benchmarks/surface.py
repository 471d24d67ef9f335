"""The loss over a plane through the parameters, against loss-landscapes and a loop in PyTorch.

The loss of the transformer is evaluated at 51 × 51 points along two random filter-normalised
directions, in float32: at width 32 on 512 examples, where arithmetic dominates the cost, and at
width 8 on 32 examples, where the overhead of calls does. At width 32 fewer points are run, and
times are scaled. PyTorch may use its fused attention: it has no second derivative, but a surface
needs none. Errors are relative to the same plane in float64, at the points that each library
documents: start + i·u + j·v for loss-landscapes, with directions that it draws itself.
"""

from __future__ import annotations

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
    operations,
    pytorch,
    torch_model,
    weights,
)

POINTS = 51
FEW = 32  # samples in the loss of the small surface
# From a profile of each part of the computation, on one core.
WHY = (
    "Half of the time is matrix products, at the rate that a core has for large ones, so that no "
    "more than twice this is to be had; softmax and attention's own small products take a third."
)
WHY_SMALL = (
    "About sixty operations per point, each of which costs XLA some microseconds however small it "
    "is; batches of points, each with its own weights, were slower."
)


def surface_attnlens(width: int, samples: int, points: int) -> Run:
    from attnlens import surface

    w, batch = weights(width), data(samples)

    def losses(points: int, precision: str) -> np.ndarray:
        measured: Any = surface(jax_loss, w, batch, points=points, precision=precision)
        return np.array(measured.values)

    def accuracy(answer: np.ndarray) -> dict[str, float]:
        # Compare on a coarser plane over the same span: every `step`-th point.
        parts = next(parts for parts in (4, 5, 1) if (points - 1) % parts == 0)
        step, exact = (points - 1) // parts, losses(parts + 1, "float64")
        return {"relative error": relative_error(answer[::step, ::step], exact)}

    return Run(lambda: losses(points, "float32"), accuracy, (POINTS / points) ** 2)


def filter_normalised(torch: Any, start: dict[str, Any], seed: int) -> dict[str, Any]:
    """A random direction whose rows have the norms of the parameters' rows; zero for biases."""
    draw = torch.Generator().manual_seed(seed)
    moves = {}
    for name, w in start.items():
        d = torch.randn(w.shape, generator=draw)
        if w.ndim > 1:
            d = d * w.norm(dim=1, keepdim=True) / d.norm(dim=1, keepdim=True)
        moves[name] = d if w.ndim > 1 else torch.zeros_like(w)
    return moves


def surface_functional(width: int, samples: int, points: int, fused: bool = False) -> Run:
    """A loop over the plane with `torch.func.functional_call`."""
    torch = pytorch()
    model, (x, y) = torch_model(width, samples, fused)
    start = {name: p.detach() for name, p in model.named_parameters()}
    u, v = (filter_normalised(torch, start, seed) for seed in (0, 1))
    axis = np.linspace(-1, 1, points)

    def loss(a: float, b: float, dtype: Any = torch.float32) -> float:
        w = {name: (p + a * u[name] + b * v[name]).to(dtype) for name, p in start.items()}
        outputs = torch.func.functional_call(model, w, (x.to(dtype),))
        return torch.nn.functional.cross_entropy(outputs, y).item()

    @torch.no_grad()
    def plane() -> np.ndarray:
        return np.array([[loss(a, b) for a in axis] for b in axis])

    @torch.no_grad()
    def accuracy(answer: np.ndarray) -> dict[str, float]:
        rows = (0, points // 2)
        exact = [[loss(a, axis[b], torch.float64) for a in axis] for b in rows]
        return {"relative error": relative_error(answer[list(rows)], exact)}

    return Run(plane, accuracy, (POINTS / points) ** 2)


def surface_landscapes(width: int, samples: int, points: int, fused: bool = False) -> Run:
    import loss_landscapes  # pyright: ignore[reportMissingImports] (an optional package)
    from loss_landscapes.metrics import Loss  # pyright: ignore[reportMissingImports] (an optional package)

    torch = pytorch()
    model, (x, y) = torch_model(width, samples, fused)
    cross_entropy = torch.nn.functional.cross_entropy
    metric = Loss(cross_entropy, x, y)

    @torch.no_grad()
    def plane() -> np.ndarray:
        return loss_landscapes.random_plane(
            model, metric, distance=1, steps=points, normalization="filter", deepcopy_model=True
        )

    class Kept(Loss):
        """Returns the parameters at which it is evaluated instead of the loss."""

        def __init__(self) -> None:
            self.corners: list[Any] = []

        def __call__(self, wrapper: Any) -> float:
            self.corners.append(
                [p.detach().double().clone() for p in wrapper.modules[0].parameters()]
            )
            return 0.0

    @torch.no_grad()
    def accuracy(_: np.ndarray) -> dict[str, float]:
        # Three points determine the plane. Directions are drawn from PyTorch's generator, so the
        # same seed gives the same plane.
        few, seed = 6, 7
        torch.manual_seed(seed)
        walked = Kept()
        random_plane = loss_landscapes.random_plane
        random_plane(model, walked, steps=few, normalization="filter", deepcopy_model=True)
        torch.manual_seed(seed)
        answer = random_plane(model, metric, steps=few, normalization="filter", deepcopy_model=True)
        first, second, later = walked.corners[0], walked.corners[1], walked.corners[2 * few]
        names = [name for name, _ in model.named_parameters()]

        def loss(i: int, j: int) -> float:
            moved = {
                name: a + j * (b - a) + i / 2 * (c - a)
                for name, a, b, c in zip(names, first, second, later, strict=True)
            }
            outputs = torch.func.functional_call(model, moved, (x.double(),))
            return cross_entropy(outputs, y).item()

        exact = [[loss(i, j) for j in range(few)] for i in range(few)]
        return {"relative error": relative_error(answer, exact)}

    return Run(plane, accuracy, (POINTS / points) ** 2)


MAKE = "benchmarks.surface:surface_"


def contenders(ours: int, theirs: int) -> list[Contender]:
    """The contenders; attnlens runs `ours` points per side, peers run `theirs`.

    attnlens runs more points, because its calls have a larger fixed cost.
    """
    contenders = [Contender("attnlens", MAKE + "attnlens", threads="one", setting={"points": ours})]
    for name, make in (
        ("loss-landscapes", MAKE + "landscapes"),
        ("torch.func.functional_call", MAKE + "functional"),
    ):
        contenders += [
            Contender(
                f"{name} (plain attention, one thread)",
                make,
                PEERS,
                "one",
                {"points": theirs, "fused": False},
            ),
            Contender(
                f"{name} (fused attention, one thread)",
                make,
                PEERS,
                "one",
                {"points": theirs, "fused": True},
            ),
            Contender(
                f"{name} (fused attention, all threads)",
                make,
                PEERS,
                "all",
                {"points": theirs, "fused": True},
            ),
        ]
    return contenders


WORKS = [
    Work(
        name="Loss surface",
        group="landscape",
        task="51 × 51 points of a transformer with 19,786 parameters on 512 examples; 16 × 16 are "
        "run, 6 × 6 of the peers', and scaled.",
        contenders=contenders(16, 6),
        setting={"width": LARGE, "samples": SAMPLES},
        quick={},
        repeats=2,
        aims={"loss-landscapes": 10},
        operations=POINTS**2 * operations(LARGE, SAMPLES),
        limit="matmul float32",
        why=WHY,
    ),
    Work(
        name="Loss surface, small",
        group="landscape",
        task="51 × 51 points of a transformer with 1,498 parameters on 32 examples; 17 × 17 of the "
        "peers' are run and scaled.",
        contenders=contenders(51, 17),
        setting={"width": SMALL, "samples": FEW},
        quick={},
        repeats=3,
        aims={"loss-landscapes": 10},
        operations=POINTS**2 * operations(SMALL, FEW),
        limit="matmul float32",
        why=WHY_SMALL,
    ),
]

GROWTH = [
    Growth(
        name="Loss surface over its points",
        make=MAKE + "attnlens",
        sizes=(11, 21, 41, 81),
        setting={"width": SMALL, "samples": FEW},
        time=2.0,
        memory=0.0,
        argument="points",
        task="Points along each axis; 64 of them are computed in one call, so that memory stays.",
        threads="one",
    ),
]
