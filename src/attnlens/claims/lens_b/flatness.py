"""B.flatness: at equal training loss, attention's minima are flatter than the baseline's.

Lens B ties low sample complexity to flat minima. "Flat" must not depend on how a network is written
down: (w_Q, w_K) → (α w_Q, w_K/α) changes no prediction but moves λ_max of the Hessian as far as one
likes. So with D_w = diag(w) and H the Hessian of the *data* loss, two measures that such rescalings
leave alone are judged, both as log ratios attention : baseline,

    λ_max(D_w H D_w)      and      Σ_i w_i² H_ii = tr(D_w H D_w).

Equal training loss. The baseline is widened to BASELINE_HIDDEN units, at which the median training
losses agree within 10 % (pilot, 24 teachers: attention 0.0097, baselines 0.0128 at 6 units, 0.0111
at 7); the judge checks that they do, and decides nothing if they do not. What is compared is then a
network of 21 parameters with one of 80: that is what the same training loss costs the baseline.

Which points. The loss alone has no minima that a descent reaches: valleys lead to infinity. So the
points are stationary to 1e−8 for the loss plus an ℓ₂ penalty of 1e−4, with no negative eigenvalue,
and the curvature is that of the data loss there, without the penalty. The data loss then still has
a slope of 2·10⁻⁴‖w‖, about 1e−3, at them.

Replicates are teachers: a teacher's number is the mean log over its local minima from two starts,
attention's minus the baseline's on the same data. Control: attention against itself, rescaled with
α = 10. Nothing must change, so "flatter by a tenth" must be refuted, while the raw λ_max moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks, example
from attnlens.instruments.audit import Ends, ends, training_data
from attnlens.instruments.hessian import curvature
from attnlens.instruments.products import Supervised
from attnlens.instruments.slices import surface
from attnlens.networks import Baseline, SelfAttention
from attnlens.networks.parameters import Layout
from attnlens.networks.settings import Recipe
from attnlens.records import Figure, Part, Point, Region, Series, Surface, View
from attnlens.statistics import judge as judge_part
from attnlens.statistics import mean_reading, t_interval
from attnlens.worlds import TokenTeacher

TOKENS = TOKEN_DIM = 3
SHAPE: dict[str, Any] = {
    "tokens": TOKENS, "token_dim": TOKEN_DIM, "query_dim": 1, "value_dim": 1, "hidden": 3,
}  # fmt: skip
SAMPLES = 256
BASELINE_HIDDEN = 8
L2 = 1e-4
STARTS = 2
ALPHA = 10.0
MATCHED = 0.10  # the medians of the training losses may differ by this share
REGION = Region(high=-0.1)
TEACHERS = {"smoke": 4, "default": 24, "full": 216}
CONTROL_TEACHERS = {"smoke": 4, "default": 8, "full": 72}  # nothing is left to chance there
TOGETHER = 2  # teachers a cell
CONTROL = "rescaled"
ATTENTION = partial(SelfAttention, **SHAPE)
BASELINE = partial(Baseline, features=TOKENS * TOKEN_DIM, hidden=BASELINE_HIDDEN)
INVARIANT = {
    "scaled_largest": "log ratio of λ_max(DHD), attention : baseline",
    "scaled_trace": "log ratio of Σ w²H, attention : baseline",
}
SHOWN = {"own": "self-attention", "other": "baseline"}
GRID, SPAN = 31, 1.0  # of the planes that are drawn: filters move by at most their own length
RAW = {"largest": "λ_max", "trace": "trace"}


def plan(profile: Profile) -> Iterable[Work]:
    counts = {PREDICTION: TEACHERS[profile], CONTROL: CONTROL_TEACHERS[profile]}
    for arm, teachers in counts.items():
        for seeds in blocks(teachers // TOGETHER, TOGETHER):
            yield Work(arm, {"samples": SAMPLES}, seeds, 1.0 if arm == PREDICTION else 0.3)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Mean log measures of attention ("own") and of what it is compared with ("other")."""
    rows = [_teacher(arm, seed, parameters["samples"]) for seed in seeds]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return values | (_example(parameters["samples"]) if arm == PREDICTION and 0 in seeds else {})


def _example(samples: int) -> dict[str, Any]:
    """Around the first local minimum of either network, for the first teacher: the density of the
    Hessian's eigenvalues, and the data loss over a random plane. To be looked at, not judged."""
    world, drawn = TokenTeacher(**SHAPE), {}
    data = training_data(world, 0, samples)
    for side, make in zip(SHOWN, (ATTENTION, BASELINE), strict=True):
        found = ends(make, world=world, seed=0, samples=samples, starts=STARTS, l2=L2)
        for vector in found.vectors[found.index == 0][:1]:
            model, loss = Layout.of(Recipe.of(make)).restore(vector), Supervised("squared")
            density = curvature(loss, model, data, dense=True, scaled=False).density
            assert density is not None
            drawn[f"{side}_density"] = np.stack([density.at, density.value])
            plane = surface(loss, model, data, points=GRID, span=SPAN)
            assert isinstance(plane, Surface)
            drawn[f"{side}_plane"] = np.array(plane.values)
    return drawn


def _teacher(arm: str, seed: int, samples: int) -> dict[str, Any]:
    world = TokenTeacher(**SHAPE)
    search = partial(ends, world=world, seed=seed, samples=samples, starts=STARTS, l2=L2)
    data = training_data(world, seed, samples)
    own = search(ATTENTION)
    measured = {f"own_{k}": v for k, v in _measures(ATTENTION, own, data).items()}
    if arm == PREDICTION:
        other = _measures(BASELINE, search(BASELINE), data)
    else:
        other = _measures(ATTENTION, own, data, rescale)
    return {**measured, **{f"other_{k}": v for k, v in other.items()}}


def rescale(model: Any) -> Any:
    """The same function: (α w_Q, w_K/α)."""
    parts = (ALPHA * model.layer.query, model.layer.key / ALPHA)
    return eqx.tree_at(lambda m: (m.layer.query, m.layer.key), model, parts)


def _measures(make: Any, found: Ends, data: Any, change: Any = None) -> dict[str, Any]:
    """Mean logs over the local minima, and the training loss of each start."""
    restore = Layout.of(Recipe.of(make)).restore
    logs: dict[str, list[float]] = {name: [] for name in (*INVARIANT, *RAW)}
    for vector in found.vectors[found.index == 0]:
        model = restore(vector) if change is None else change(restore(vector))
        bent = curvature(Supervised("squared"), model, data, steps=0, dense=True)
        assert bent.scaled_largest is not None
        assert bent.scaled_trace is not None
        values = (
            bent.scaled_largest.value,
            bent.scaled_trace.value,
            bent.largest,
            bent.trace.value,
        )
        for name, value in zip(logs, values, strict=True):
            logs[name].append(math.log(value))
    means = {name: float(np.mean(each)) for name, each in logs.items()}
    return {**means, "loss": found.loss, "minima": int(np.sum(found.index == 0))}


def judge(measured: Sequence[Measured]) -> list[Part]:
    medians = [
        float(np.median(np.concatenate([cell.values[f"{side}_loss"] for cell in measured])))
        for side in ("other", "own")
    ]
    ratio = medians[0] / medians[1]
    matched = abs(ratio - 1) <= MATCHED
    parts = []
    for name, words in INVARIANT.items():
        part = judge_part(f"{words} (n = {SAMPLES})", _log_ratios(measured, name), REGION)
        if not matched:
            said = f"{part.quantity}, not comparable: training losses stand {ratio:.2f} to 1"
            part = replace(part, quantity=said, p_support=1.0, p_refute=1.0)
        parts.append(part)
    return parts


def _log_ratios(measured: Sequence[Measured], name: str) -> np.ndarray:
    return np.concatenate(
        [cell.values[f"own_{name}"] - cell.values[f"other_{name}"] for cell in measured]
    )


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """Log ratios: 1 λ_max(DHD), 2 Σ w²H, 3 the raw λ_max, 4 the raw trace."""
    series = []
    for arm, measured in arms.items():
        points = []
        for place, name in enumerate((*INVARIANT, *RAW), 1):
            reading = mean_reading(_log_ratios(measured, name))
            points.append(Point(place, reading.value, t_interval(reading)[1] - reading.value))
        words = "attention : baseline" if arm == PREDICTION else "attention : itself, rescaled"
        series.append(Series(words, tuple(points), control=arm != PREDICTION))
    return Figure(
        "Curvature at local minima of equal training loss",
        "", "log ratio (below 0: attention is flatter)", tuple(series), log_x=False, log_y=False,
        names=("λ_max(DHD)", "Σ w²H", "raw λ_max", "raw trace"),
    )  # fmt: skip


def views(arms: Mapping[str, Sequence[Measured]]) -> list[View]:
    """The spectral density at one minimum of each network, and the loss around it."""
    series, planes = [], []
    axis = tuple(float(x) for x in np.linspace(-SPAN, SPAN, GRID))
    for side, name in SHOWN.items():
        density = example(arms[PREDICTION], f"{side}_density")
        plane = example(arms[PREDICTION], f"{side}_plane")
        if density is None or plane is None:
            continue
        at, value = density
        # Down to a thousandth of the highest: below that are the tails of the smoothing.
        points = tuple(
            Point(float(x), float(y))
            for x, y in zip(at[::2], value[::2], strict=True)
            if y > 1e-3 * value.max()
        )
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
    title="Attention's minima are flatter",
    statement=(
        "At equal training loss the local minima of a self-attention network are flatter than "
        "those of a plain network, by measures that rescaling the weights cannot change."
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
        f"Points are minima of the loss with an ℓ₂ penalty of {L2:g}; H is the data loss's alone "
        "(by construction).",
    ),
    meaning=(
        "Judge flatness only by measures that a rescaling of the weights leaves alone: the raw "
        "largest eigenvalue of the same function can be made as large as one likes."
    ),
    source="Lens B, on flat minima; prediction (18) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
