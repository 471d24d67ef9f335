"""B.flatness: at equal training loss, the minima of attention are flatter than the baseline's.

Our own prediction about the loss landscape that lens B (ICLR 2021 submission) studies
(docs/theory.md, prediction 18). "Flat" must not depend on the parametrisation of a network:
(w_Q, w_K) → (α w_Q, w_K/α) changes no prediction but can make λ_max of the Hessian arbitrarily
large. So with D_w = diag(w) and H the Hessian of the *data* loss, two measures that do not change
under such rescalings are judged, both as log ratios attention : baseline,

    λ_max(D_w H D_w)      and      Σ_i w_i² H_ii = tr(D_w H D_w).

Equal training loss. The baseline is widened to 8 units, at which the median training
losses agree within 10 % (pilot, 24 teachers: attention 0.0097, baselines 0.0128 at 6 units, 0.0111
at 7). The rule checks this, and leaves the claim undecided if they do not agree. The comparison is
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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Meaning,
    Measured,
    Origin,
    example,
)
from attnlens.claims.estimates import pooled
from attnlens.claims.figures import mean_point
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import token_teacher
from attnlens.core.drawing import Figure, Point, Series, Surface, View
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.landscape.audit import DescentEnds, training_data
from attnlens.instruments.landscape.hessian import curvature
from attnlens.instruments.landscape.products import Supervised
from attnlens.instruments.landscape.slices import surface
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe

from .landscape import SETTINGS, attention, baseline, search

CONTROL = "rescaled"
INVARIANT = ("scaled_largest", "scaled_trace")
RAW = ("largest", "trace")
SIDES = {"own": "self-attention", "other": "baseline"}  # prefixes of arrays, and their labels
GRID = Grid(
    settings={
        **SETTINGS,
        "baseline_hidden": 8,
        "samples": 256,
        "starts": 2,
        "compared_with": "baseline",
        "alpha": 10.0,  # of the control: (α w_Q, w_K/α)
        # The drawn planes: points per axis, and the largest move in lengths of a filter.
        "plane_points": 31,
        "plane_span": 1.0,
    },
    arm_settings={CONTROL: {"compared_with": "itself, rescaled"}},
    blocks={
        PREDICTION: {"smoke": 2, "default": 12, "full": 108},
        CONTROL: {"smoke": 2, "default": 4, "full": 36},  # exact up to rounding, so few suffice
    },
    seeds_per_block=2,
    cost=lambda parameters, seeds: 1.0 if parameters["compared_with"] == "baseline" else 0.3,
)


def log_ratios(cell: Measured, measure: str) -> np.ndarray:
    return cell.values[f"own_{measure}"] - cell.values[f"other_{measure}"]


class RuleAtEqualLoss(Rule):
    """Leaves the claim undecided where the median training losses are not equal."""

    tolerance = 0.10  # largest relative difference between the median training losses

    def __call__(self, measured: Sequence[Measured]) -> list[Part]:
        parts = super().__call__(measured)
        other, own = (np.median(pooled(f"{side}_loss")(measured)) for side in ("other", "own"))
        ratio = float(other) / float(own)
        if abs(ratio - 1) <= self.tolerance:
            return parts
        words = f"not comparable: training losses stand {ratio:.2f} to 1"
        return [
            replace(part, quantity=f"{part.quantity}, {words}", p_support=1.0, p_refute=1.0)
            for part in parts
        ]


RULE = RuleAtEqualLoss(
    Quantity(
        "largest",
        "log ratio of λ_max(DHD), attention : baseline (n = {samples})",
        pooled(partial(log_ratios, measure="scaled_largest")),
        Region(high=-0.1),
    ),
    Quantity(
        "trace",
        "log ratio of Σ w²H, attention : baseline (n = {samples})",
        pooled(partial(log_ratios, measure="scaled_trace")),
        Region(high=-0.1),
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Mean log measures of attention ("own") and of the network it is compared with ("other")."""
    rows = [_teacher(seed, parameters) for seed in seeds]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return values | (_example(parameters) if arm == PREDICTION and 0 in seeds else {})


def _data(seed: int, parameters: Mapping[str, Any]) -> Any:
    samples, tested = parameters["samples"], parameters["test_samples"]
    return training_data(token_teacher(parameters), seed, samples, tested)


def _example(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An example to be drawn, not judged, at the first local minimum of each network for the first
    teacher: the density of the Hessian's eigenvalues, and the data loss over a random plane."""
    data, arrays = _data(0, parameters), {}
    for side, network in zip(SIDES, (attention, baseline), strict=True):
        make = network(parameters)
        ends = search(make, parameters, 0)
        for vector in ends.vectors[ends.index == 0][:1]:
            model, loss = Layout.of(Recipe.of(make)).restore(vector), Supervised("squared")
            density = curvature(loss, model, data, dense=True, scaled=False).density
            assert density is not None
            arrays[f"{side}_density"] = np.stack([density.at, density.value])
            points, span = parameters["plane_points"], parameters["plane_span"]
            plane = surface(loss, model, data, points=points, span=span)
            assert isinstance(plane, Surface)
            arrays[f"{side}_plane"] = np.array(plane.values)
    return arrays


def _teacher(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    data, make = _data(seed, parameters), attention(parameters)
    ends = search(make, parameters, seed)
    own = _measures(make, ends, data)
    if parameters["compared_with"] == "baseline":
        make = baseline(parameters)
        other = _measures(make, search(make, parameters, seed), data)
    else:
        other = _measures(make, ends, data, partial(rescale, alpha=parameters["alpha"]))
    return {f"{side}_{k}": v for side, m in (("own", own), ("other", other)) for k, v in m.items()}


def rescale(model: Any, alpha: float) -> Any:
    """The same function with weights (α w_Q, w_K/α)."""
    parts = (alpha * model.layer.query, model.layer.key / alpha)
    return eqx.tree_at(lambda m: (m.layer.query, m.layer.key), model, parts)


def _measures(make: Any, ends: DescentEnds, data: Any, change: Any = None) -> dict[str, Any]:
    """Mean logs over the local minima, and the training loss of each start."""
    restore = Layout.of(Recipe.of(make)).restore
    logs: dict[str, list[float]] = {name: [] for name in (*INVARIANT, *RAW)}
    for vector in ends.vectors[ends.index == 0]:
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
    return {**means, "loss": ends.loss, "minima": int(np.sum(ends.index == 0))}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """Log ratios of λ_max(DHD), Σ w²H, the raw λ_max and the raw trace, from left to right."""
    series = []
    for arm, measured in arms.items():
        points = [
            mean_point(place, pooled(partial(log_ratios, measure=name))(measured))
            for place, name in enumerate((*INVARIANT, *RAW), 1)
        ]
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
    setting = arms[PREDICTION][0].parameters
    span = setting["plane_span"]
    axis = tuple(float(x) for x in np.linspace(-span, span, setting["plane_points"]))
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
        r"{\lambda_{\max}(D_w H D_w)_{\mathrm{baseline}}} \le $largest_high,\qquad "
        r"\log\frac{\sum_i w_i^2 H_{ii}\,_{\mathrm{attention}}}"
        r"{\sum_i w_i^2 H_{ii}\,_{\mathrm{baseline}}} \le $trace_high"
    ),
    prediction=(
        f"At n = $samples, with training losses within {RULE.tolerance:.0%}, the mean log ratios "
        "attention : baseline are $largest for λ_max(DHD) and $trace for Σ w²H."
    ),
    controls={
        CONTROL: Control(
            "Attention against itself with (w_Q, w_K) → ($alpha w_Q, w_K/$alpha).",
            quantities=("largest", "trace"),
        )
    },
    assumptions=(
        Assumption("Student and teacher have the same shape", Check.BY_CONSTRUCTION),
        Assumption(
            "The widened baseline reaches the same median training loss, before anything is "
            "decided",
            Check.CHECKED,
        ),
        Assumption(
            "Points are minima of the loss with an ℓ₂ penalty; H is the Hessian of the data loss "
            "alone",
            Check.BY_CONSTRUCTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "Judge flatness only by measures that do not change when the weights are rescaled: the "
            "raw largest eigenvalue can be made arbitrarily large without changing the function."
        ),
        refuted=(
            "The minima of attention are not flatter by measures that do not change when the "
            "weights are rescaled: do not explain an advantage of attention by flat minima."
        ),
        undecided=(
            "Whether the minima of attention are flatter is open, or the training losses are not "
            "equal: do not compare the flatness of these networks."
        ),
    ),
    source=(
        "Our own prediction (docs/theory.md, prediction 18); lens B (ICLR 2021 submission) studies "
        "the loss landscape but states nothing about flatness in the parts that we use."
    ),
    attribution=Attribution(Origin.FINDING),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
)
