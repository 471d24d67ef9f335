"""B.flatness: at equal training loss, the minima of attention are flatter than the baseline's.

Our own prediction about the loss landscape that lens B (ICLR 2021 submission) studies
(docs/theory.md, prediction 18). "Flat" must not depend on the parametrisation of a network:
(w_Q, w_K) → (α w_Q, w_K/α) changes no prediction but can make λ_max of the Hessian arbitrarily
large. So with D_w = diag(w) and H the Hessian of the *data* loss, two measures that do not change
under such rescalings are judged, both as log ratios attention : baseline,

    λ_max(D_w H D_w)      and      Σ_i w_i² H_ii = tr(D_w H D_w).

Equal training loss. The baseline is widened to BASELINE_HIDDEN units, at which the median training
losses agree within 10 % (pilot, 24 teachers: attention 0.0097, baselines 0.0128 at 6 units, 0.0111
at 7). `judge` checks this, and leaves the claim undecided if they do not agree. The comparison is
then between networks of 21 and 80 parameters: the baseline needs 80 for the same training loss.

Which points. Descent on the loss alone reaches no minimum: valleys lead to infinity. The points are
therefore stationary points (gradient norm ≤ 1e−8) of the loss plus an ℓ₂ penalty of 1e−4, with no
negative eigenvalue. The curvature is that of the data loss without the penalty; the gradient of the
data loss at these points is 2·10⁻⁴‖w‖, about 1e−3.

Replicates are teachers: the value of a teacher is the mean log over its local minima from two
starts, attention minus baseline on the same data. The control compares attention with itself,
rescaled with α = 10. Both measures must stay the same, so "flatter by a tenth" must be refuted,
while the raw λ_max changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks, example
from attnlens.core.drawing import Figure, Point, Series, Surface, View
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import mean_reading
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.landscape.audit import DescentEnds, descend, training_data
from attnlens.instruments.landscape.hessian import curvature
from attnlens.instruments.landscape.products import Supervised
from attnlens.instruments.landscape.slices import surface
from attnlens.networks import Baseline, SelfAttention
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.worlds import TokenTeacher

TOKENS = TOKEN_DIM = 3
SHAPE: dict[str, Any] = {
    "tokens": TOKENS,
    "token_dim": TOKEN_DIM,
    "query_dim": 1,
    "value_dim": 1,
    "hidden": 3,
}
SAMPLES = 256
BASELINE_HIDDEN = 8
L2 = 1e-4
STARTS = 2
ALPHA = 10.0
LOSS_TOLERANCE = 0.10  # largest relative difference between the median training losses
REGION = Region(high=-0.1)
TEACHERS = {"smoke": 4, "default": 24, "full": 216}
CONTROL_TEACHERS = {"smoke": 4, "default": 8, "full": 72}  # exact up to rounding, so few suffice
TEACHERS_PER_CELL = 2
CONTROL = "rescaled"
ATTENTION = partial(SelfAttention, **SHAPE)
BASELINE = partial(Baseline, features=TOKENS * TOKEN_DIM, hidden=BASELINE_HIDDEN)
INVARIANT = {
    "scaled_largest": "log ratio of λ_max(DHD), attention : baseline",
    "scaled_trace": "log ratio of Σ w²H, attention : baseline",
}
SIDES = {"own": "self-attention", "other": "baseline"}  # prefixes of arrays, and their labels
GRID, SPAN = 31, 1.0  # of the drawn planes: points per axis; largest move, in lengths of a filter
RAW = {"largest": "λ_max", "trace": "trace"}


def plan(profile: Profile) -> Iterable[Work]:
    counts = {PREDICTION: TEACHERS[profile], CONTROL: CONTROL_TEACHERS[profile]}
    for arm, teachers in counts.items():
        for seeds in blocks(teachers // TEACHERS_PER_CELL, TEACHERS_PER_CELL):
            yield Work(arm, {"samples": SAMPLES}, seeds, 1.0 if arm == PREDICTION else 0.3)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Mean log measures of attention ("own") and of the network it is compared with ("other")."""
    rows = [_teacher(arm, seed, parameters["samples"]) for seed in seeds]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return values | (_example(parameters["samples"]) if arm == PREDICTION and 0 in seeds else {})


def _example(samples: int) -> dict[str, Any]:
    """An example to be drawn, not judged, at the first local minimum of each network for the first
    teacher: the density of the Hessian's eigenvalues, and the data loss over a random plane."""
    world, arrays = TokenTeacher(**SHAPE), {}
    data = training_data(world, 0, samples)
    for side, make in zip(SIDES, (ATTENTION, BASELINE), strict=True):
        search = descend(make, world=world, seed=0, samples=samples, starts=STARTS, l2=L2)
        for vector in search.vectors[search.index == 0][:1]:
            model, loss = Layout.of(Recipe.of(make)).restore(vector), Supervised("squared")
            density = curvature(loss, model, data, dense=True, scaled=False).density
            assert density is not None
            arrays[f"{side}_density"] = np.stack([density.at, density.value])
            plane = surface(loss, model, data, points=GRID, span=SPAN)
            assert isinstance(plane, Surface)
            arrays[f"{side}_plane"] = np.array(plane.values)
    return arrays


def _teacher(arm: str, seed: int, samples: int) -> dict[str, Any]:
    world = TokenTeacher(**SHAPE)
    search = partial(descend, world=world, seed=seed, samples=samples, starts=STARTS, l2=L2)
    data = training_data(world, seed, samples)
    own = search(ATTENTION)
    measured = {f"own_{k}": v for k, v in _measures(ATTENTION, own, data).items()}
    if arm == PREDICTION:
        other = _measures(BASELINE, search(BASELINE), data)
    else:
        other = _measures(ATTENTION, own, data, rescale)
    return {**measured, **{f"other_{k}": v for k, v in other.items()}}


def rescale(model: Any) -> Any:
    """The same function with weights (α w_Q, w_K/α)."""
    parts = (ALPHA * model.layer.query, model.layer.key / ALPHA)
    return eqx.tree_at(lambda m: (m.layer.query, m.layer.key), model, parts)


def _measures(make: Any, search: DescentEnds, data: Any, change: Any = None) -> dict[str, Any]:
    """Mean logs over the local minima, and the training loss of each start."""
    restore = Layout.of(Recipe.of(make)).restore
    logs: dict[str, list[float]] = {name: [] for name in (*INVARIANT, *RAW)}
    for vector in search.vectors[search.index == 0]:
        model = restore(vector) if change is None else change(restore(vector))
        reading = curvature(Supervised("squared"), model, data, steps=0, dense=True)
        assert reading.scaled_largest is not None
        assert reading.scaled_trace is not None
        values = (
            reading.scaled_largest.value,
            reading.scaled_trace.value,
            reading.largest,
            reading.trace.value,
        )
        for name, value in zip(logs, values, strict=True):
            logs[name].append(math.log(value))
    means = {name: float(np.mean(values)) for name, values in logs.items()}
    return {**means, "loss": search.loss, "minima": int(np.sum(search.index == 0))}


def judge(measured: Sequence[Measured]) -> list[Part]:
    medians = [
        float(np.median(np.concatenate([cell.values[f"{side}_loss"] for cell in measured])))
        for side in ("other", "own")
    ]
    ratio = medians[0] / medians[1]
    comparable = abs(ratio - 1) <= LOSS_TOLERANCE
    parts = []
    for name, label in INVARIANT.items():
        part = judge_part(f"{label} (n = {SAMPLES})", _log_ratios(measured, name), REGION)
        if not comparable:
            quantity = f"{part.quantity}, not comparable: training losses stand {ratio:.2f} to 1"
            part = replace(part, quantity=quantity, p_support=1.0, p_refute=1.0)
        parts.append(part)
    return parts


def _log_ratios(measured: Sequence[Measured], name: str) -> np.ndarray:
    return np.concatenate(
        [cell.values[f"own_{name}"] - cell.values[f"other_{name}"] for cell in measured]
    )


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """Log ratios of λ_max(DHD), Σ w²H, the raw λ_max and the raw trace, from left to right."""
    series = []
    for arm, measured in arms.items():
        points = []
        for place, name in enumerate((*INVARIANT, *RAW), 1):
            points.append(mean_reading(_log_ratios(measured, name)).point(place))
        label = "attention : baseline" if arm == PREDICTION else "attention : itself, rescaled"
        series.append(Series(label, tuple(points), control=arm != PREDICTION))
    return Figure(
        "Curvature at local minima of equal training loss",
        "",
        "log ratio (below 0: attention is flatter)",
        tuple(series),
        log_x=False,
        log_y=False,
        names=("λ_max(DHD)", "Σ w²H", "raw λ_max", "raw trace"),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[View]:
    """The spectral density at one minimum of each network, and the loss around it."""
    series, planes = [], []
    axis = tuple(float(x) for x in np.linspace(-SPAN, SPAN, GRID))
    for side, name in SIDES.items():
        density = example(arms[PREDICTION], f"{side}_density")
        plane = example(arms[PREDICTION], f"{side}_plane")
        if density is None or plane is None:
            continue
        eigenvalue, value = density
        # Cut at a thousandth of the maximum: smaller values are only the tails of the smoothing.
        clipped = np.maximum(value, 1e-3 * value.max())[::2]
        pairs = zip(eigenvalue[::2], clipped, strict=True)
        points = tuple(Point(float(x), float(y)) for x, y in pairs)
        series.append(Series(name, points, curve=True))
        rows = tuple(tuple(map(float, row)) for row in plane)
        labels = ("random direction 1", "random direction 2")
        planes.append(Surface(f"data loss of {name}", *labels, axis, axis, rows))
    if not series:
        return []
    title = "Spectral density of the Hessian at one local minimum of each network"
    return [Figure(title, "eigenvalue", "density", tuple(series), log_x=False), *planes]


CLAIM = Claim(
    id="B.flatness",
    title="The minima of attention are flatter",
    statement=(
        "At equal training loss the local minima of a self-attention network are flatter than "
        "those of a plain network, by measures that do not change when the weights are rescaled."
    ),
    formula=(
        r"\log\frac{\lambda_{\max}(D_w H D_w)_{\mathrm{attention}}}"
        r"{\lambda_{\max}(D_w H D_w)_{\mathrm{baseline}}} \le -0.1,\qquad "
        r"\log\frac{\sum_i w_i^2 H_{ii}\,_{\mathrm{attention}}}"
        r"{\sum_i w_i^2 H_{ii}\,_{\mathrm{baseline}}} \le -0.1"
    ),
    prediction=(
        f"At n = {SAMPLES}, with training losses within 10 %, the mean log ratios attention "
        f": baseline of λ_max(DHD) and of Σ w²H are both at most -0.1."
    ),
    controls={CONTROL: "Attention against itself with (w_Q, w_K) → (10 w_Q, w_K/10)."},
    assumptions=(
        "Student and teacher have the same shape (by construction).",
        f"The baseline, {BASELINE_HIDDEN} units wide, reaches the same median training loss "
        "(checked before anything is decided).",
        f"Points are minima of the loss with an ℓ₂ penalty of {L2:g}; H is the Hessian of the data "
        "loss alone (by construction).",
    ),
    meaning=(
        "Judge flatness only by measures that do not change when the weights are rescaled: the raw "
        "largest eigenvalue can be made arbitrarily large without changing the function."
    ),
    source=(
        "Our own prediction (docs/theory.md, prediction 18); lens B (ICLR 2021 submission) studies "
        "the loss landscape but states nothing about flatness in the parts that we use."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
