"""B.softplus: the activation of sharpness τ₀ is within log 2/τ₀ of ReLU, and no closer.

Lens B's networks use φ(x) = log(1 + e^{τ₀ x})/τ₀ and speak of ReLU networks as τ₀ → ∞. The distance
is known exactly: φ(x) − max(x, 0) = log(1 + e^{−τ₀|x|})/τ₀ on both sides of 0, one even function
that falls in |x|, so

    sup_x |φ(x) − ReLU(x)| = log 2/τ₀,   at x = 0.

Rounding: at x = 0 the program computes log1p(1)/τ₀, with at most one unit in the last place for
log1p and half a one for the division; log 2/τ₀ here has two halves. Away from 0, x + s − x loses
ε(x + s), where the distance has fallen by x/2 already. So the ratio is 1 to 4 ε.

This is the exact part of prediction (19). That results are stable in τ₀ up to ReLU is a statement
about a measured ratio and is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work
from attnlens.networks.activation import softplus
from attnlens.records import Figure, Part, Point, Region, Series
from attnlens.statistics import judge_exactly

SHARPNESS = {
    "smoke": (1.0, 5.0),
    "default": (0.5, 1.0, 2.0, 5.0, 20.0, 100.0),
    "full": tuple(float(2.0**k) for k in range(-4, 13)),
}
POINTS = 100_001  # odd and symmetric: x = 0 is one of them
REACH = 50.0  # in units of 1/τ₀; e^(−50) is far below ε
EPSILON = float(np.finfo(float).eps)
WITHIN = Region(high=4 * EPSILON)
CONTROL = "one-over-sharpness"
CONSTANT = {PREDICTION: float(np.log(2)), CONTROL: 1.0}


def plan(profile: Profile) -> Iterable[Work]:
    for arm in CONSTANT:
        for sharpness in SHARPNESS[profile]:
            yield Work(arm, {"sharpness": sharpness}, (0,), 0.05)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest distance on the grid, that of NumPy's logaddexp, and what is predicted."""
    sharpness = parameters["sharpness"]
    half = np.linspace(0, REACH / sharpness, POINTS // 2 + 1)
    x = np.concatenate([-half[:0:-1], half])
    ours = np.asarray(softplus(jnp.asarray(x), sharpness)) - np.maximum(x, 0)
    other = np.logaddexp(0, sharpness * x) / sharpness - np.maximum(x, 0)
    predicted = CONSTANT[arm] / sharpness
    return {
        "distance": np.array([np.abs(ours).max()]),
        "error": np.array([abs(np.abs(ours).max() / predicted - 1)]),
        "logaddexp": np.array([abs(np.abs(other).max() / predicted - 1)]),
    }


def judge(measured: Sequence[Measured]) -> list[Part]:
    names = {"error": "the library's softplus", "logaddexp": "NumPy's logaddexp"}
    return [
        judge_exactly(
            f"sup |φ - ReLU| over its predicted value, minus 1, by {words}",
            np.concatenate([cell.values[name] for cell in measured]), WITHIN,
        )
        for name, words in names.items()
    ]  # fmt: skip


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    cells = arms[PREDICTION]
    rows = sorted((c.parameters["sharpness"], float(c.values["distance"][0])) for c in cells)
    series = [Series("measured", tuple(Point(t, d) for t, d in rows), slope=-1.0)]
    for arm, words in ((PREDICTION, "log 2/τ₀"), (CONTROL, "1/τ₀")):
        points = tuple(Point(t, CONSTANT[arm] / t) for t, _ in rows)
        series.append(Series(words, points, control=arm == CONTROL, line=True))
    return Figure("Distance of softplus from ReLU", "sharpness τ₀", "sup |φ - ReLU|", tuple(series))


CLAIM = Claim(
    id="B.softplus",
    title="Softplus is within log 2/τ₀ of ReLU",
    statement=(
        "The smooth activation of the theory differs from ReLU by at most log 2/τ₀, and by exactly "
        "that at zero."
    ),
    formula=(
        r"\sup_x\left|\frac{1}{\tau_0}\log\left(1+e^{\tau_0 x}\right)-\max(x,0)\right|"
        r"=\frac{\log 2}{\tau_0}"
    ),
    prediction="The largest distance on a grid that holds 0 is log 2/τ₀ to 4 ε, at every τ₀.",
    controls={CONTROL: "The constant 1/τ₀ in place of log 2/τ₀."},
    assumptions=("The grid holds x = 0, where the distance is largest (by construction).",),
    meaning=(
        "A softplus network of sharpness 20 is a ReLU network to 0.035 at each unit: choose τ₀ for "
        "smoothness, not for accuracy."
    ),
    source="Lens B, section 2; the exact part of prediction (19) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
