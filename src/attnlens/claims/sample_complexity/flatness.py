"""B.flatness: at equal training loss, the minima of attention are flatter than the baseline's.

Our own prediction about the loss landscape that lens B (ICLR 2021 submission) studies
(docs/theory.md, prediction 18). "Flat" must not depend on the parametrisation of a network:
(w_Q, w_K) → (α w_Q, w_K/α) changes no prediction but can make λ_max of the Hessian arbitrarily
large. So two measures are judged that do not change under such rescalings. With D_w = diag(w) and H
the Hessian of the *data* loss, they are the log ratios attention : baseline of

    λ_max(D_w H D_w)      and      Σ_i w_i² H_ii = tr(D_w H D_w).

*Which networks and data are compared.* On data that only attention can represent, the baseline
would have to be widened until the training losses agree: 21 parameters of attention against 80 of
the baseline, which then fits noise. Such a comparison measures which network can represent the
data; on data without attention its sign turns around. A control that compares attention with a
rescaled copy of itself would be useless, because both measures agree there by algebra.

So each network is at its best minimum on data that it can represent, and both have 14 parameters
(three tokens of dimension 2, d_q = d_v = 1, two units). The two data sets are paired: they have the
same teacher's weights, inputs and noise, and answers of variance one; the teacher's attention is
a(x) for the attention network and the identity for the baseline. Both training losses are then
σ² (1 − P/n), with P parameters and the same noise. The claim is undecided if they differ by more
than 5 % for a teacher.

*Why it should be refuted.* A network that is a product of more factors has more directions in which
a relative change of the weights changes its answer. If the residuals are small, H ≈ 2 E ∇f ∇fᵀ and
tr(DHD) ≈ 2 E Σ_i (w_i ∂_i f)². The value path is one more layer than the baseline has, and changes
of w_Q and w_K also change the attention.

*Which points.* Descent on the loss alone reaches no minimum: valleys lead to infinity. The points
are therefore stationary points (gradient norm ≤ 1e−8) of the loss plus an ℓ₂ penalty of 1e−5, with
no negative eigenvalue. Of the descents from two random starts and from the teacher's own
parameters, the one with the lowest training loss is used. The curvature is that of the data loss
without the penalty.

*Controls.* Negative: attention that is known and not trained, a two-layer network on x a(x), is
compared with the baseline. It has the data of attention, but not w_Q, w_K and w_V; the rule must be
refuted. Positive: the same network is compared with trained attention, on the same data. It has
fewer factors, so it must be flatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from attnlens.claims.cells import Measured, example, stacked
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.figures import mean_point
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series, Surface, View
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.landscape.hessian import curvature
from attnlens.instruments.landscape.products import Supervised
from attnlens.instruments.landscape.slices import surface
from attnlens.networks.layout import Layout
from attnlens.training.objective import Objective

from .landscape import SETTINGS, best, descents, seconds, student, task

NEGATIVE, POSITIVE = "known-attention", "known-against-trained"
INVARIANT = ("scaled_largest", "scaled_trace")
RAW = ("largest", "trace")
SIDES = {"own": "self-attention", "other": "baseline"}  # prefixes of arrays, and their labels
LABELS = {
    PREDICTION: "attention : baseline",
    NEGATIVE: "known attention : baseline",
    POSITIVE: "known attention : attention",
}
GRID = Grid(
    settings={
        **SETTINGS,
        "token_dim": 2,
        "teacher_hidden": 2,
        "hidden": 2,
        # A tenth of the penalty of the other claims: at 1e−4 the penalty alone made the training
        # losses of the two networks differ by 7 % for a teacher with a large w₂.
        "l2": 1e-5,
        # Large enough for equal training losses: those of the two networks of one teacher differ by
        # about √(4 P)/n at random, 0.7 % with P = 14 parameters.
        "samples": 1024,
        "starts": 2,
        "compared_with": "baseline",
        "loss_margin": 0.05,  # largest relative difference of training losses for one teacher
        # Planes of the loss in figures: points per axis, and the largest step in units of the norm
        # of a filter.
        "plane_points": 31,
        "plane_span": 1.0,
    },
    arm_settings={
        NEGATIVE: {"student": "known-attention"},
        POSITIVE: {"student": "known-attention", "compared_with": "attention"},
    },
    blocks={
        PREDICTION: {"smoke": 1, "default": 8, "full": 72},
        # Its log ratio is near 0 with a standard deviation of 0.3, and must be distinguished from
        # −0.1.
        NEGATIVE: {"smoke": 1, "default": 24, "full": 72},
        POSITIVE: {"smoke": 1, "default": 4, "full": 36},
    },
    seeds_per_block=4,
    cost=lambda parameters, seeds: 3 * seconds(parameters, seeds),
    pilot=range(1000),
)


def log_ratios(cell: Measured, measure: str) -> np.ndarray:
    return cell.values[f"own_{measure}"] - cell.values[f"other_{measure}"]


class RuleAtEqualLoss(Rule):
    """A rule that leaves every part undecided if the training losses of a teacher differ too much.

    "Too much" is more than `loss_margin`.
    """

    def __call__(self, measured: Sequence[Measured]) -> list[Part]:
        parts = super().__call__(measured)
        ratio = pooled(partial(log_ratios, measure="loss"))(measured)
        farthest = float(np.abs(ratio).max())
        if farthest <= math.log1p(measured[0].parameters["loss_margin"]):
            return parts
        words = f"not comparable: training losses differ by up to {math.expm1(farthest):.0%}"
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
        power=Power(effect=0.48, std=0.35),  # pilot of 16 teachers
    ),
    Quantity(
        "trace",
        "log ratio of Σ w²H, attention : baseline (n = {samples})",
        pooled(partial(log_ratios, measure="scaled_trace")),
        Region(high=-0.1),
        power=Power(effect=0.47, std=0.35),
    ),
)


def sides(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of the cell for each of the two networks, with data that it can represent."""
    kind = parameters["compared_with"]
    other = {**parameters, "student": kind, "attend": kind != "baseline"}
    return {"own": dict(parameters), "other": other}


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The logarithms of the measures and of the training loss, for both networks, per teacher."""
    rows = [
        {
            f"{side}_{name}": value
            for side, own in sides(parameters).items()
            for name, value in _measures(own, seed).items()
        }
        for seed in seeds
    ]
    first = GRID.pilot.stop in seeds
    return stacked(rows) | (_example(parameters) if arm == PREDICTION and first else {})


def _best(parameters: Mapping[str, Any], seed: int) -> tuple[np.ndarray, float]:
    ends = descents(parameters, seed, parameters["starts"], from_teacher=True)
    place = best(ends)
    return ends.vectors[place], float(ends.loss[place])


def _measures(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    vector, loss = _best(parameters, seed)
    with jax.enable_x64(True):
        at = task(parameters, seed)
        matrix = np.asarray(_hessian(at.recipe, vector, at.data))
    scaled = vector[:, None] * matrix * vector
    values = {
        "scaled_largest": np.linalg.eigvalsh(scaled)[-1],
        "scaled_trace": np.trace(scaled),
        "largest": np.linalg.eigvalsh(matrix)[-1],
        "trace": np.trace(matrix),
        "loss": loss,
    }
    return {name: math.log(value) for name, value in values.items()}


@partial(jax.jit, static_argnums=0)
def _hessian(recipe: Any, vector: Any, data: Any) -> Any:
    """The Hessian of the data loss."""
    return Objective(recipe, "squared", data, 0.0).hessian(vector)


def _example(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An example for figures, which is not judged, for the first teacher.

    It has the density of the Hessian's eigenvalues and the data loss over a random plane, for both
    networks.
    """
    arrays = {}
    for side, own in sides(parameters).items():
        vector, _ = _best(own, GRID.pilot.stop)
        with jax.enable_x64(True):
            data = tuple(task(own, GRID.pilot.stop).data)
        model, loss = Layout.of(student(own)).restore(vector), Supervised("squared")
        density = curvature(loss, model, data, dense=True, scaled=False).density
        assert density is not None
        arrays[f"{side}_density"] = np.stack([density.at, density.value])
        points, span = parameters["plane_points"], parameters["plane_span"]
        plane = surface(loss, model, data, points=points, span=span)
        assert isinstance(plane, Surface)
        arrays[f"{side}_plane"] = np.array(plane.values)
    return arrays


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of the log ratios of λ_max(DHD), Σ w²H, the raw λ_max and the raw trace."""
    series = []
    for arm, measured in arms.items():
        points = [
            mean_point(place, pooled(partial(log_ratios, measure=name))(measured))
            for place, name in enumerate((*INVARIANT, *RAW), 1)
        ]
        series.append(Series(LABELS[arm], tuple(points), control=arm != PREDICTION))
    return Figure(
        "Curvature at the best minima, at equal training loss and size",
        "",
        "log ratio (below 0: the first is flatter)",
        tuple(series),
        log_x=False,
        log_y=False,
        names=("λ_max(DHD)", "Σ w²H", "raw λ_max", "raw trace"),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[View]:
    """Figures of the spectral density at one minimum of each network, and of the loss around it."""
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
        # Densities below a thousandth of the maximum are only tails of the smoothing kernel.
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
        "At equal training loss and with as many parameters, the minima of a self-attention "
        "network are flatter than those of a plain network, by measures that do not change when "
        "the weights are rescaled."
    ),
    formula=(
        r"\log\frac{\lambda_{\max}(D_w H D_w)_{\mathrm{attention}}}"
        r"{\lambda_{\max}(D_w H D_w)_{\mathrm{baseline}}} \le $largest_high,\qquad "
        r"\log\frac{\sum_i w_i^2 H_{ii}\,_{\mathrm{attention}}}"
        r"{\sum_i w_i^2 H_{ii}\,_{\mathrm{baseline}}} \le $trace_high"
    ),
    prediction=(
        "At n = $samples, with as many parameters and with training losses that differ by at most "
        "a share of $loss_margin for every teacher, the mean log ratios attention : baseline are "
        "$largest for λ_max(DHD) and $trace for Σ w²H."
    ),
    controls={
        NEGATIVE: Control(
            "Attention is known and not trained: a two-layer network on x a(x).",
            quantities=("largest", "trace"),
        ),
        POSITIVE: Control(
            "Positive: known attention in place of trained attention, against trained attention "
            "on the same data.",
            expected="supported",
            quantities=("largest", "trace"),
        ),
    },
    assumptions=(
        Assumption("Each network can represent its data", Check.BY_CONSTRUCTION),
        Assumption("The networks have as many parameters", Check.CHECKED),
        Assumption(
            "The training losses of every teacher are equal, before anything is decided",
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
    attribution=FINDING,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
)
