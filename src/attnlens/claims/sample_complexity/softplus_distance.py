"""B.softplus-distance: the softplus of lens B is within log 2/τ₀ of ReLU, to rounding.

Our formalisation of lens B (ICLR 2021 submission), section 3, whose activation is the softplus
φ(x) = log(1 + e^{τ₀ x})/τ₀ (docs/theory.md, prediction 19). φ − ReLU = log(1 + e^{−τ₀|x|})/τ₀ is
largest at x = 0, so

    sup_x |φ(x) − max(x, 0)| = log 2/τ₀.

This holds by algebra: it is an exact check, and no evidence. The grid includes 0, where each side
is one logarithm and one division, each rounded once. So the two sides may differ by a few units of
2⁻⁵², and 4 units are allowed. Two implementations are checked: that of the networks, and that of
the worlds (with logaddexp). The control compares with 1/τ₀ instead of log 2/τ₀.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.sample_complexity.statements import SOFTPLUS_LIMIT, cite
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.networks import softplus
from attnlens.worlds.sparse_teacher import softplus as by_logaddexp

CONTROL = "wrong-constant"
ROUNDING_UNITS = 4
GRID = Grid(
    settings={
        "sharpnesses": [0.2, 2.0, 5.0, 20.0],
        "constant": math.log(2),
        # The points are x = −20, −19.99, …, 20; 0 is one of them.
        "largest": 20,
        "points_per_unit": 100,
        "rounding_units": ROUNDING_UNITS,
    },
    arm_settings={CONTROL: {"constant": 1.0}},
    blocks={PREDICTION: 1, CONTROL: 1},
    seeds_per_block=1,
    cost=lambda parameters, seeds: 0.1,
)
RULE = Rule(
    Quantity(
        "distance",
        "relative deviation of the sup-distance to ReLU from the constant over τ₀",
        pooled("deviation"),
        lambda units: Region(high=units * float(np.finfo(float).eps)),
        per=("rounding_units",),
        exact=True,
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest |φ − ReLU| over the points, and its relative deviation from the prediction.

    Both have the shape (1, implementation, τ₀).
    """
    per_unit, taus = parameters["points_per_unit"], parameters["sharpnesses"]
    last = parameters["largest"] * per_unit
    x = np.arange(-last, last + 1) / per_unit
    relu = np.maximum(x, 0)
    distances = np.array(
        [
            [np.abs(np.asarray(phi(jnp.asarray(x), tau)) - relu).max() for tau in taus]
            for phi in (softplus, by_logaddexp)
        ]
    )
    predicted = parameters["constant"] / np.array(taus)
    deviations = np.abs(distances - predicted) / predicted
    return {"deviation": deviations[None], "distance": distances[None]}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    (cell,) = arms[PREDICTION]
    taus = cell.parameters["sharpnesses"]
    pairs = zip(taus, cell.values["distance"][0, 0], strict=True)
    return Figure(
        "Largest distance of the softplus to ReLU",
        "sharpness τ₀",
        "sup-distance",
        (
            Series("sup |φ − ReLU|", tuple(Point(t, float(d)) for t, d in pairs), reference=-1.0),
            Series("1/τ₀", tuple(Point(t, 1 / t) for t in taus), control=True),
        ),
    )


CLAIM = Claim(
    id="B.softplus-distance",
    title="The softplus is within log 2/τ₀ of ReLU",
    statement="The largest distance between softplus and ReLU is exactly log 2/τ₀.",
    formula=(
        r"\sup_x\left|\tfrac{1}{\tau_0}\log\left(1+e^{\tau_0 x}\right)-\max(x,0)\right|"
        r"=\frac{\log 2}{\tau_0}"
    ),
    prediction=(
        "The sup-distance to ReLU is log 2/τ₀ to $rounding_units rounding units, for "
        "τ₀ = $sharpnesses."
    ),
    controls={CONTROL: Control("The constant 1/τ₀ instead of log 2/τ₀.")},
    assumptions=(
        Assumption(
            "The largest distance is at the origin, which the grid contains", Check.BY_CONSTRUCTION
        ),
    ),
    meaning=Meaning(
        supported="The softplus of lens B is ReLU up to log 2/τ₀, as its formula says.",
        refuted="An implementation of the softplus is wrong, or loses digits.",
        undecided="The softplus was not compared with ReLU.",
    ),
    source=cite("section 3 (softplus activation)", "prediction 19"),
    attribution=SOFTPLUS_LIMIT,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
    exact=True,
)
