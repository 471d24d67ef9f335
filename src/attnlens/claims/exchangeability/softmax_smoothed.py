"""A.softmax-smoothed: at a fixed temperature, softmax attention converges to the smoothed mean.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) for softmax attention
(docs/theory.md, prediction 4). Let keys be uniform on the sphere in R^(m+1) and let
v = ⟨z, k⟩ + N(0, σ²). Softmax attention at temperature τ is a ratio of two means over tokens. It
converges to E[v κ]/E[κ] = A(1/τ)·⟨z, q⟩ by the law of large numbers (A is a ratio of Bessel
functions, `LinearRegression.smoothing`), and at the rate L^(−1/2) in root mean square by the
central limit theorem. It does not converge to m(q, z) = ⟨z, q⟩: the bias (1 − A)·⟨z, q⟩ stays.

A replicate is the mean square over a block of episodes; the logarithm is taken afterwards. To first
order the bias that the logarithm adds is the same at every L (the variation over episodes comes
from ‖z‖²), so it does not change the slope.
"""

from __future__ import annotations

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

CONTROL = "distance-to-the-mean"
GRID = Grid(
    settings={
        # At 0.5 the bias is a third of the answer or more, so the error of the control cannot fall;
        # at 0.02 it would still fall at L = 4096.
        "temperature": 0.5,
        "noise_std": 0.5,
        "queries": 16,
    },
    axes={
        "manifold_dim": {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)},
        "length": {
            "smoke": (64, 1024),
            "default": (64, 256, 1024, 4096),
            "full": (64, 256, 1024, 4096),
        },
    },
    blocks={
        # The full profile has twelve times as many blocks as the default: with nine times as many
        # the interval was 2.75 times as narrow instead of 3.
        PREDICTION: {"smoke": 16, "default": 32, "full": 384},
        CONTROL: {"smoke": 8, "default": 8, "full": 72},  # its slope is nine margins away
    },
    seeds_per_block=32,
    cost=lambda parameters, seeds: 0.005 + seeds * 5e-7 * parameters["length"],
)
ERROR = ScalingLaw("squared", "length", replicate="block", root=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the error in length (keys on a sphere of dimension m = {manifold_dim}, L {span})",
        ERROR.slopes,
        Region(-0.55, -0.45),
        per=("manifold_dim",),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared distance to the smoothed mean (in the control: to the mean), one per seed."""
    m, length, temperature = (parameters[n] for n in ("manifold_dim", "length", "temperature"))
    world = LinearRegression(key_dim=m + 1, noise_std=parameters["noise_std"])
    operator = jax.tree_util.Partial(softmax, temperature=temperature)
    # A traced factor: prediction and control share one compiled program.
    smoothing = jnp.asarray(world.smoothing(temperature) if arm == PREDICTION else 1.0)
    keys, queries = episode_keys(seeds, m, length), parameters["queries"]
    measured = errors(operator, world, keys, length, queries, "smoothed", smoothing)
    return {"squared": measured.squared}


FIGURE = Lines(
    "Distance of softmax attention to its limit, over length",
    "tokens L",
    "root-mean-square distance",
    ERROR,
    {
        PREDICTION: "to the smoothed mean, m = {manifold_dim}",
        CONTROL: "to m(q, z), m = {manifold_dim}",
    },
    per=("manifold_dim",),
    reference=lambda m: -0.5,
)


CLAIM = Claim(
    id="A.softmax-smoothed",
    title="Softmax attention converges to a smoothed mean, not to the mean",
    statement=(
        "At a fixed temperature softmax attention converges to the kernel-smoothed conditional "
        "mean at the rate of one over the square root of the length; its bias stays."
    ),
    formula=(
        r"\mathrm{SM}_\tau(q) \;\to\; \frac{\mathbb{E}[v\,\kappa_\tau(q,k)\mid z]}"
        r"{\mathbb{E}[\kappa_\tau(q,k)\mid z]} = "
        r"\frac{I_{d/2}(1/\tau)}{I_{d/2-1}(1/\tau)}\,\langle z,q\rangle,"
        r"\qquad \mathrm{RMSE}\propto L^{-1/2}"
    ),
    prediction=(
        "The log–log slope of the root-mean-square distance to the smoothed mean is $slope in each "
        "key dimension m = $manifold_dim."
    ),
    controls={CONTROL: Control("The distance to the conditional mean m(q, z) itself.")},
    assumptions=(
        Assumption(
            "Keys are uniform on the sphere and values linear in the key plus noise",
            Check.BY_CONSTRUCTION,
        ),
        Assumption("The temperature is fixed as the length grows", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "A longer context removes the variance of softmax attention, not its bias. Only a "
            "lower temperature (or a ridge solve) removes the bias."
        ),
        refuted=(
            "The error of softmax attention around its own limit does not fall as one over the "
            "square root of the length: do not extrapolate it to longer contexts."
        ),
        undecided=(
            "Whether the error around the limit falls as one over the square root of the length "
            "is open; the bias of a fixed temperature stays in any case."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 4."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
