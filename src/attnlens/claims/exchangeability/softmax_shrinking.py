"""A.softmax-shrinking: with a falling temperature softmax attention converges to the mean.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) for softmax attention whose
temperature is tuned to the length (docs/theory.md, prediction 5). With keys uniform on the sphere
S^m and v = ⟨z, k⟩ + N(0, σ²), z ~ N(0, I), a small temperature τ gives

    bias      (1 − A(1/τ))·⟨z, q⟩ ≈ (m/2) τ ⟨z, q⟩          (von Mises–Fisher mean, large 1/τ)
    variance  σ² E κ² / (L (E κ)²) ≈ σ² area(S^m) / (L (4πτ)^(m/2))

With E⟨z, q⟩² = 1 the mean squared error is a τ² + b τ^(−m/2)/L, a = m²/4, b = σ² area/(4π)^(m/2).
Its minimum over τ is at 2 a τ = (m/2) b τ^(−m/2−1)/L, so

    τ = c·L^(−2/(m+4)),   c = [σ² area(S^m) / (m (4π)^(m/2))]^(2/(m+4))

and the root-mean-square error is then of the order L^(−2/(m+4)) too.

A replicate is the mean square over a block of episodes; the logarithm is taken afterwards, as in
A.softmax-smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from attnlens.attention.softmax import softmax
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.error import errors
from attnlens.worlds import LinearRegression
from attnlens.worlds.seeding import episode_keys

CONTROL = "fixed-temperature"
LENGTHS = (64, 256, 1024, 4096)
GRID = Grid(
    settings={
        # Large: the schedule then starts at temperatures of order one, and at every length the
        # noise determines the error, not the uneven spacing of the few keys near the query.
        "noise_std": 2.0,
        # At 0.1 the variance would still dominate at these lengths, and the error of the control
        # would fall at the predicted rate by accident.
        "control_temperature": 1.0,
        "queries": 16,
    },
    axes={
        "manifold_dim": {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)},
        "length": {"smoke": (64, 1024), "default": LENGTHS, "full": LENGTHS},
    },
    blocks={
        PREDICTION: {"smoke": 16, "default": 32, "full": 288},
        CONTROL: {"smoke": 8, "default": 8, "full": 72},
    },
    seeds_per_block=32,
    cost=lambda parameters, seeds: 0.005 + seeds * 5e-7 * parameters["length"],
)
# The three predicted slopes are −0.40, −0.33 and −0.29. The closest two are 0.05 apart, so a margin
# of half of that separates them.
MARGIN = 0.025


def rate(m: int) -> float:
    """The predicted slope of log RMSE in log L."""
    return -2 / (m + 4)


ERROR = ScalingLaw("squared", "length", replicate="block", root=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the error in length (keys on a sphere of dimension m = {manifold_dim}, L {span})",
        ERROR.slopes,
        lambda m: Region(rate(m) - MARGIN, rate(m) + MARGIN),
        per=("manifold_dim",),
    )
)


def schedule(m: int, length: int, noise_std: float) -> float:
    """The best temperature τ for keys on S^m, as derived above."""
    area = 2 * math.pi ** ((m + 1) / 2) / math.gamma((m + 1) / 2)
    constant = noise_std**2 * area / (m * (4 * math.pi) ** (m / 2))
    return (constant / length) ** (2 / (m + 4))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared distance of softmax attention to m(q, z), one per seed."""
    m, length, noise_std = (parameters[n] for n in ("manifold_dim", "length", "noise_std"))
    world = LinearRegression(key_dim=m + 1, noise_std=noise_std)
    falling = arm == PREDICTION
    temperature = schedule(m, length, noise_std) if falling else parameters["control_temperature"]
    # A traced temperature: prediction and control share one compiled program.
    operator = jax.tree_util.Partial(softmax, temperature=jnp.asarray(temperature))
    keys = episode_keys(seeds, m, length)
    return {"squared": errors(operator, world, keys, length, parameters["queries"]).squared}


FIGURE = Lines(
    "Distance of softmax attention to the conditional mean, over length",
    "tokens L",
    "root-mean-square distance",
    ERROR,
    {
        PREDICTION: "shrinking τ, m = {manifold_dim}",
        CONTROL: "τ = {control_temperature:g}, m = {manifold_dim}",
    },
    per=("manifold_dim",),
    reference=rate,
)


CLAIM = Claim(
    id="A.softmax-shrinking",
    title="Softmax attention converges to the mean when its temperature falls with length",
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
        f"−2/(m+4) ± {MARGIN} for keys on spheres of dimension m = $manifold_dim."
    ),
    controls={CONTROL: Control("The temperature stays at $control_temperature.")},
    assumptions=(
        Assumption(
            "Keys are uniform on the sphere and values linear in the key plus noise",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The constant of the schedule uses the known noise level; another one keeps the rate"
        ),
    ),
    meaning=Meaning(
        supported=(
            "The temperature must fall as the context grows. The higher the dimension of the keys, "
            "the less a longer context helps: keys should be low-dimensional."
        ),
        refuted=(
            "A temperature that falls as L^(−2/(m+4)) does not give the predicted rate: do not set "
            "the temperature, or the dimension of the keys, by this formula."
        ),
        undecided=(
            "Whether the error falls at the predicted rate is open: measure the error at the "
            "lengths that you need instead of extrapolating it."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 5."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
