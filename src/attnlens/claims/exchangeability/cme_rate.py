"""A.cme-rate: the mean squared error of CME attention is the posterior variance, at every length.

Our formalisation of statement (b) of lens A (Zhang et al., 2022), "an approximation error, which is
decreasing in input sizes", for CME attention in a Gaussian-process world (docs/theory.md,
prediction 6). With ridge λ = σ² the estimate is the posterior mean, so given the keys
E[(CME − z(q))²] *is* the posterior variance at q:

    ratio(episode) = Σ_q (CME − z(q))² / Σ_q var(q)   has mean exactly 1, at every L.

The root-mean-square error then falls in L at the rate of the exact posterior; for this analytic
kernel on the sphere that is about L^(−1/2), up to logarithms.

Replicates. The ratio is averaged over episodes directly. For the slope, the squared errors of a
block of episodes are averaged before the logarithm is taken. Its bias follows from
E log X ≈ log E X − (variance of X)/(2 mean²). The squared error of one episode has a relative
variance of 1.1 at m = 1 and L = 16, of at most 0.45 at the other m and L = 16, and of at most 0.35
for L ≥ 64 (measured on 512 episodes each, up to L = 256). So the bias in log MSE is at most
1.1/256 = 0.0043 with blocks of 128 episodes, and 0.35/32 = 0.011 with the blocks of 16 at L = 1024.
The bias in log RMSE is half of that, and only its differences between lengths change the slope: by
less than 0.001 over L = 16 … 256 and over L = 16 … 1024, against a margin of 0.03.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.attention.cme import cme
from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, group_by
from attnlens.claims.rates import grid, lines, log_root_mean_squares, points, span, sphere
from attnlens.core.drawing import Figure, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import slopes
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.error import errors
from attnlens.worlds import GaussianProcess
from attnlens.worlds.seeding import episode_keys

TEMPERATURE = 0.5
NOISE_STD = 0.3
QUERIES = 16  # the latent is smooth, so answers at more queries would be nearly collinear
MANIFOLD_DIMS = (1, 2, 3)  # keys on the sphere in R^(m+1)
# Episodes per block at each length, fewer where an episode costs more. Their number sets the width
# of the ratio's interval: one ratio has a standard deviation of 0.4 to 0.6 (0.8 at m = 1, L = 16),
# so 32 × 128 of them give ± 0.018 (± 0.025) against a margin of 0.05.
EPISODES_PER_BLOCK = {16: 128, 64: 128, 256: 128, 1024: 16}
LENGTHS = {"smoke": (16, 64), "default": (16, 64, 256), "full": (16, 64, 256, 1024)}
DIMS = {"smoke": (2,), "default": MANIFOLD_DIMS, "full": MANIFOLD_DIMS}
BLOCKS = {"smoke": 16, "default": 32, "full": 288}
CONTROL_BLOCKS = {"smoke": 8, "default": 8, "full": 72}  # the effect is 100 times the margin
RATIO = Region(0.95, 1.05)
SLOPE = Region(-0.03, 0.03)
CONTROL = "ridge-grows"


def plan(profile: Profile) -> Iterable[Work]:
    counts = {PREDICTION: BLOCKS[profile], CONTROL: CONTROL_BLOCKS[profile]}
    dims, lengths = DIMS[profile], LENGTHS[profile]
    episodes = EPISODES_PER_BLOCK.__getitem__
    return grid(counts, dims, lengths, episodes, lambda n: 1e-4 + (n / 2500) ** 2.5)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared error and exact posterior variance, one per seed."""
    m, length = parameters["manifold_dim"], parameters["length"]
    world = GaussianProcess(key_dim=m + 1, temperature=TEMPERATURE, noise_std=NOISE_STD)
    # A traced ridge: prediction and control share one compiled program.
    ridge = jnp.asarray(NOISE_STD**2 * (1.0 if arm == PREDICTION else length))
    operator = jax.tree_util.Partial(cme, ridge=ridge, temperature=TEMPERATURE)
    measured = errors(operator, world, episode_keys(seeds, m, length), length, QUERIES)
    return {"squared": measured.squared, "posterior_var": measured.posterior_var}


def judge(measured: Sequence[Measured]) -> list[Part]:
    parts = []
    for m, cells in group_by(measured, "manifold_dim").items():
        for length, group in group_by(cells, "length").items():
            ratio = np.concatenate([c.values["squared"] / c.values["posterior_var"] for c in group])
            quantity = f"mean squared error over posterior variance ({sphere(m)}, L = {length})"
            parts.append(judge_part(quantity, ratio, RATIO))
        x, measured_log = log_root_mean_squares(cells, "squared")
        _, exact_log = log_root_mean_squares(cells, "posterior_var")
        difference = slopes(x, measured_log - exact_log)
        quantity = f"slope of the error minus slope of the exact one ({sphere(m)}, L {span(x)})"
        parts.append(judge_part(quantity, difference, SLOPE))
    return parts


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    exact = [
        Series(
            f"exact posterior, m = {m}",
            points(*log_root_mean_squares(cells, "posterior_var")),
            line=True,
        )
        for m, cells in group_by(arms[PREDICTION], "manifold_dim").items()
    ]
    names = {PREDICTION: "ridge σ²", CONTROL: "ridge σ²L"}
    return Figure(
        "Error of CME attention against the latent function, over length",
        "tokens L",
        "root-mean-square error",
        (*lines(arms, names), *exact),
    )


CLAIM = Claim(
    id="A.cme-rate",
    title="The error of CME attention is the posterior variance",
    statement=(
        "In a Gaussian-process world the mean squared error of CME attention equals the mean "
        "posterior variance at every length, and so falls with length at the exact rate."
    ),
    formula=(
        r"\mathbb{E}\left(\mathrm{CME}(q)-z(q)\right)^2 \;=\; \kappa(q,q)-\kappa(q,K)"
        r"\left(\kappa(K,K)+\sigma^2 I\right)^{-1}\kappa(K,q)"
    ),
    prediction=(
        "Mean squared error over mean posterior variance is 1 ± 0.05 at each length; the slope of "
        "the root-mean-square error in length equals that of the exact posterior ± 0.03."
    ),
    controls={CONTROL: "The ridge is σ²L instead of σ²: it grows with the length."},
    assumptions=(
        "The latent is a Gaussian process with the operator's kernel (true by construction).",
        "The ridge is the noise variance (the control breaks this).",
    ),
    meaning=(
        "The gain from more tokens can be computed beforehand: the expected error depends on the "
        "keys alone, not on the values. A ridge that grows with the context loses this gain."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 6."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
