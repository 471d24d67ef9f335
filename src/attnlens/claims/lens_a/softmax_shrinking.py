"""A.softmax-shrinking: with a temperature that falls with length, softmax attention finds the mean.

Our formalisation of claim (b) of lens A for softmax attention as it would be tuned. With keys
uniform on the sphere S^m and v = ⟨z, k⟩ + N(0, σ²), z ~ N(0, I), a small temperature τ leaves

    bias      (1 − A(1/τ))·⟨z, q⟩ ≈ (m/2) τ ⟨z, q⟩          (von Mises–Fisher mean, large 1/τ)
    variance  σ² E κ² / (L (E κ)²) ≈ σ² area(S^m) / (L (4πτ)^(m/2))

With E⟨z, q⟩² = 1 the mean squared error is a τ² + b τ^(−m/2)/L, a = m²/4, b = σ² area/(4π)^(m/2).
Its minimum over τ is at 2 a τ = (m/2) b τ^(−m/2−1)/L, so

    τ = c·L^(−2/(m+4)),   c = [σ² area(S^m) / (m (4π)^(m/2))]^(2/(m+4))

and the root-mean-square error is then of the order L^(−2/(m+4)) too.

Replicates: as in `softmax_smoothed`, the mean square over a block before the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from attnlens.attention.softmax import softmax
from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work
from attnlens.claims.rates import grid, judge_slopes, lines
from attnlens.instruments.inference import episode_keys, errors
from attnlens.records import Figure, Part, Region
from attnlens.worlds import LinearRegression

# Much noise: the schedule then starts at temperatures of order one, and the variance, not the
# lumpiness of few keys near the query, decides the error at every length.
NOISE_STD = 2.0
QUERIES = 16
EPISODES = 32
LENGTHS = {"smoke": (64, 1024), "default": (64, 256, 1024, 4096), "full": (64, 256, 1024, 4096)}
DIMS = {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)}
BLOCKS = {"smoke": 16, "default": 32, "full": 288}
CONTROL_BLOCKS = {"smoke": 8, "default": 8, "full": 72}
# The three predicted slopes, −0.40, −0.33 and −0.29, lie 0.05 apart at the closest: half of that
# tells them from one another.
MARGIN = 0.025
CONTROL = "fixed-temperature"
FIXED = 1.0  # at 0.1 the variance still dominates here and the error falls at the rate by accident


def rate(m: int) -> float:
    """The predicted slope of log RMSE in log L."""
    return -2 / (m + 4)


def schedule(m: int, length: int, noise_std: float) -> float:
    """The best temperature for keys on S^m, as derived above."""
    area = 2 * math.pi ** ((m + 1) / 2) / math.gamma((m + 1) / 2)
    constant = noise_std**2 * area / (m * (4 * math.pi) ** (m / 2))
    return (constant / length) ** (2 / (m + 4))


def plan(profile: Profile) -> Iterable[Work]:
    counts = {PREDICTION: BLOCKS[profile], CONTROL: CONTROL_BLOCKS[profile]}
    return grid(counts, DIMS[profile], LENGTHS[profile], lambda _: EPISODES, lambda n: 5e-7 * n)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared distance of softmax attention to m(q, z), one a seed."""
    m, length = parameters["manifold_dim"], parameters["length"]
    world = LinearRegression(key_dim=m + 1, noise_std=NOISE_STD)
    # A traced temperature: prediction and control share one compiled program.
    temperature = schedule(m, length, NOISE_STD) if arm == PREDICTION else FIXED
    operator = jax.tree_util.Partial(softmax, temperature=jnp.asarray(temperature))
    measured = errors(operator, world, episode_keys(seeds, m, length), length, QUERIES)
    return {"squared": measured.squared}


def judge(measured: Sequence[Measured]) -> list[Part]:
    def region(m: int) -> Region:
        return Region(rate(m) - MARGIN, rate(m) + MARGIN)

    return judge_slopes(measured, "slope of the error in length", region)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "shrinking τ", CONTROL: f"τ = {FIXED:g}"}
    return Figure(
        "Distance of softmax attention to the conditional mean, over length",
        "tokens L", "root-mean-square distance", tuple(lines(arms, names, rate)),
    )  # fmt: skip


CLAIM = Claim(
    id="A.softmax-shrinking",
    title="Softmax attention finds the mean when its temperature falls with length",
    statement=(
        "With a temperature that falls with the length at the right rate, softmax attention "
        "converges to the conditional mean, at a rate that depends on the dimension of the keys."
    ),
    formula=(
        r"\tau_L = c\,L^{-2/(m+4)} \quad\Rightarrow\quad "
        r"\sqrt{\mathbb{E}\left(\mathrm{SM}_{\tau_L}(q)-m(q,z)\right)^2} \propto L^{-2/(m+4)}"
    ),
    prediction=(
        "The log–log slope of the root-mean-square distance to the conditional mean is "
        "−2/(m+4) ± 0.025 for keys on spheres of dimension m = 1, 2 and 3."
    ),
    controls={CONTROL: "The temperature stays at 1."},
    assumptions=(
        "Keys are uniform on the sphere and values linear in the key plus noise (by construction).",
        "The schedule's constant uses the known noise level; another constant keeps the rate.",
    ),
    meaning=(
        "The temperature must fall with the context, and the more dimensions the keys spread over, "
        "the less a longer context buys: keys should be low-dimensional."
    ),
    source="Lens A, claim (b); prediction (5) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
