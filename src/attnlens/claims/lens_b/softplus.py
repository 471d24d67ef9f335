"""B.softplus: nothing hinges on the sharpness of the softplus, up to ReLU.

B's activation is φ(x) = log(1 + e^{τ₀ x})/τ₀. Two parts:

**Distance**, exact. φ − ReLU = log(1 + e^{−τ₀|x|})/τ₀ is largest at x = 0, so

    sup_x |φ(x) − max(x, 0)| = log 2/τ₀.

The grid includes 0, where both sides are one logarithm and one division, each rounded once; the
two sides may differ by a few units of 2⁻⁵², and 4 of them are allowed. Both implementations are
measured, the networks' and (by logaddexp) the worlds'.

**Ratio**, statistical. The log ratio of sample sizes of B.known-attention at p = 16, measured with
teacher and students at τ₀ = 2, 20 and ReLU, is that at τ₀ = 5 to within ± 0.2. Teachers' weights,
inputs, noise and starts are the same for all τ₀, so the differences are paired; a replicate is a
seed.

The control puts 1/τ₀ in place of log 2/τ₀.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.samples import log_sizes, sparse_samples, train_sparse
from attnlens.instruments.inference import episode_keys
from attnlens.networks import softplus
from attnlens.records import Figure, Part, Point, Region, Series
from attnlens.statistics import judge as judge_part
from attnlens.statistics import judge_exactly, mean_reading, t_interval
from attnlens.worlds import SparseTeacher
from attnlens.worlds.sparse_teacher import softplus as by_logaddexp

SHARPNESS = {"2": 2.0, "5": 5.0, "20": 20.0, "relu": math.inf}
REFERENCE = "5"  # the default of networks and worlds
GRID = np.arange(-2000, 2001) / 100  # hundredths, zero among them
ROUNDING = 4 * float(np.finfo(float).eps)
FEATURES, ATTENDED, GOAL = 16, 4, 0.3  # as in B.known-attention, with its grids
BASELINE_SIZES = (16, 32, 64, 128, 256, 512, 1024)
KNOWN_SIZES = (2, 4, 8, 16, 32, 64, 128)
# A paired difference has a standard deviation of 0.2 to 0.35: 32 seeds give ± 0.08 to 0.12, which
# may leave τ₀ = 2 undecided (288 seeds other than these gave −0.118 ± 0.021); the full profile has
# nine times as many.
BLOCKS = {"smoke": (1, 3), "default": (4, 8), "full": (36, 8)}
DIFFERENCE = Region(-0.2, 0.2)
CONTROL = "wrong-constant"


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        yield Work(arm, {"part": "distance"}, (0,), cost=0.1)
    for name in ("5", "relu") if profile == "smoke" else SHARPNESS:
        for seeds in blocks(*BLOCKS[profile]):
            yield Work(
                PREDICTION, {"part": "ratio", "sharpness": name}, seeds, cost=0.1 * len(seeds)
            )


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if parameters["part"] == "distance":
        constant = math.log(2) if arm == PREDICTION else 1.0
        return {"deviation": _deviations(constant)[None], "distance": _distances()[None]}
    return _log_sizes(SHARPNESS[parameters["sharpness"]], seeds)


def _distances() -> np.ndarray:
    """sup |φ − ReLU| over the grid: (implementation, finite τ₀)."""
    x = jnp.asarray(GRID)
    return np.array(
        [
            [np.abs(np.asarray(phi(x, tau)) - np.maximum(GRID, 0)).max() for tau in _finite()]
            for phi in (softplus, by_logaddexp)
        ]
    )


def _deviations(constant: float) -> np.ndarray:
    """|sup − constant/τ₀| relative to constant/τ₀."""
    predicted = constant / np.array(_finite())
    return np.abs(_distances() - predicted) / predicted


def _finite() -> list[float]:
    return [tau for tau in SHARPNESS.values() if math.isfinite(tau)]


def _log_sizes(sharpness: float, seeds: Sequence[int]) -> dict[str, Any]:
    """log n(ε) of both students, one a seed."""
    drawn = SparseTeacher(features=FEATURES, attended=ATTENDED)
    asked = SparseTeacher(features=FEATURES, attended=ATTENDED, sharpness=sharpness)
    plain, attended = sparse_samples(
        drawn, episode_keys(seeds, FEATURES), BASELINE_SIZES[-1], answering=asked
    )
    baseline = train_sparse(plain, seeds, BASELINE_SIZES, sharpness)
    known = train_sparse(attended, seeds, KNOWN_SIZES, sharpness)
    return {
        "log_n_baseline": log_sizes(BASELINE_SIZES, baseline, GOAL),
        "log_n_known": log_sizes(KNOWN_SIZES, known, GOAL),
    }


def _ratios(measured: Sequence[Measured]) -> dict[str, np.ndarray]:
    """Log ratios by sharpness, one a seed."""
    cells = [cell for cell in measured if cell.parameters["part"] == "ratio"]
    return {
        name: np.concatenate(
            [cell.values["log_n_baseline"] - cell.values["log_n_known"] for cell in group]
        )
        for name, group in by(cells, "sharpness").items()
    }


def judge(measured: Sequence[Measured]) -> list[Part]:
    exact = [cell for cell in measured if cell.parameters["part"] == "distance"]
    deviations = np.concatenate([cell.values["deviation"] for cell in exact])
    quantity = "relative deviation of the sup-distance to ReLU from the constant over τ₀"
    parts = [judge_exactly(quantity, deviations, Region(high=ROUNDING))]
    ratios = _ratios(measured)
    for name in ratios.keys() - {REFERENCE}:
        words = "ReLU" if name == "relu" else f"τ₀ = {name}"
        quantity = f"log ratio of n({GOAL}) with {words} minus that with τ₀ = {REFERENCE}"
        parts.append(judge_part(quantity, ratios[name] - ratios[REFERENCE], DIFFERENCE))
    return sorted(parts, key=lambda part: part.quantity)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    ratios = _ratios(arms[PREDICTION])
    points = []
    for name, values in ratios.items():
        reading = mean_reading(values)
        value, high = np.exp(reading.value), np.exp(t_interval(reading)[1])
        at = 100.0 if name == "relu" else SHARPNESS[name]
        points.append(Point(at, float(value), float(high - value)))
    (cell,) = [c for c in arms[PREDICTION] if c.parameters["part"] == "distance"]
    taus = _finite()
    found = zip(taus, cell.values["distance"][0, 0], strict=True)
    distances = tuple(Point(tau, float(distance)) for tau, distance in found)
    return Figure(
        "Samples the baseline needs as a multiple of known attention's, and the distance to ReLU",
        "sharpness τ₀ (ReLU drawn at 100)", "ratio of n(ε); sup-distance",
        (
            Series("n_baseline / n_known", tuple(sorted(points, key=lambda p: p.x))),
            Series("sup |φ − ReLU|", distances, reference=-1.0),
            Series("1/τ₀", tuple(Point(t, 1 / t) for t in taus), control=True),
        ),
    )  # fmt: skip


CLAIM = Claim(
    id="B.softplus",
    title="Nothing hinges on the sharpness of the softplus",
    statement=(
        "The softplus lies within log 2/τ₀ of ReLU, exactly, and what known attention saves in "
        "samples is the same for every sharpness up to ReLU."
    ),
    formula=(
        r"\sup_x\left|\tfrac{1}{\tau_0}\log\left(1+e^{\tau_0 x}\right)-\max(x,0)\right|"
        r"=\frac{\log 2}{\tau_0}"
    ),
    prediction=(
        "The sup-distance to ReLU is log 2/τ₀ to 4 rounding units; the log ratio of n(0.3) at "
        "p = 16 is that at τ₀ = 5 within ± 0.2, for τ₀ = 2, 20 and ReLU."
    ),
    controls={CONTROL: "The constant 1/τ₀ instead of log 2/τ₀."},
    assumptions=(
        "Teacher and students have the same activation (by construction).",
        "The rule for n(ε) is that of B.known-attention.",
    ),
    meaning=(
        "B's smooth activation is a convenience of its proofs: choose ReLU or softplus for other "
        "reasons."
    ),
    source="Lens B, section 2; prediction (19) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
