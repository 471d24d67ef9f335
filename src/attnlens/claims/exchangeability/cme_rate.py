"""A.cme-rate: the mean squared error of CME attention is the posterior variance, at every length.

Our formalisation of statement (b) of lens A (Zhang et al., 2022), "an approximation error, which is
decreasing in input sizes", for CME attention in a Gaussian-process world (docs/theory.md,
prediction 6). With ridge λ = σ² the estimate is the posterior mean, so given the keys
E[(CME − z(q))²] *is* the posterior variance at q:

    ratio(episode) = Σ_q (CME − z(q))² / Σ_q var(q)   has mean exactly 1, at every L.

The root-mean-square error then falls in L at the rate of the exact posterior; for this analytic
kernel on the sphere that is about L^(−1/2), up to logarithms.

A replicate is one episode, with its own keys, function and noise. Ratios are averaged without
taking logarithms.

What a sceptic may ask. *Is this an identity?* In expectation, yes: the claim checks by sampling
that operator, world and posterior variance fit together, and is no evidence about attention. It
fails if there is an error in the software, in the world's noise or in the ridge; the control shows
the effect of a wrong ridge. The slope of the error in L is not judged, because it would only repeat
the ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from attnlens.attention.cme import cme
from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw, pooled
from attnlens.claims.exchangeability.statements import APPROXIMATION, cite
from attnlens.claims.figures import Lines, log_points
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Series
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.error import errors
from attnlens.worlds import GaussianProcess
from attnlens.worlds.seeding import episode_keys

CONTROL = "ridge-grows"
GRID = Grid(
    settings={
        "temperature": 0.5,
        "noise_std": 0.3,
        "queries": 16,  # the latent is smooth: answers at more queries would be nearly collinear
    },
    axes={
        "manifold_dim": {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)},
        "length": (16, 128),
    },
    blocks={
        PREDICTION: {"smoke": 4, "default": 32, "full": 288},
        CONTROL: {"smoke": 2, "default": 2, "full": 4},  # its effect is 100 times the margin
    },
    seeds_per_block=128,
    cost=lambda parameters, seeds: 0.005 + seeds * (1e-4 + (parameters["length"] / 2500) ** 2.5),
    # Seeds below 65,536 belong to the pilot; all earlier runs used some of them.
    pilot=range(65_536),
)
# Standard deviation, rounded up, of the ratio of one episode at (m, L), where it is above 0.65.
STDS = {(1, 16): 0.85}
ERROR = ScalingLaw("squared", "length", replicate="block", root=True)
EXACT = ScalingLaw("posterior_var", "length", replicate="block", root=True)
RULE = Rule(
    Quantity(
        "ratio",
        "mean squared error over posterior variance "
        "(keys on a sphere of dimension m = {manifold_dim}, L = {length})",
        pooled(lambda cell: cell.values["squared"] / cell.values["posterior_var"]),
        Region(0.95, 1.05),
        per=("manifold_dim", "length"),
        # The mean 1 is exact. The ratio of one episode has a standard deviation of 0.8 at m = 1 and
        # L = 16, and of 0.4 to 0.6 at other m and L (512 episodes each, on seeds of the pilot).
        power=Power(1.0, lambda m, length: STDS.get((m, length), 0.65)),
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The squared error of CME attention and the exact posterior variance, one per seed."""
    m, length, temperature = (parameters[n] for n in ("manifold_dim", "length", "temperature"))
    noise_std = parameters["noise_std"]
    world = GaussianProcess(key_dim=m + 1, temperature=temperature, noise_std=noise_std)
    # The ridge is a traced argument, so prediction and control share one compiled program.
    ridge = jnp.asarray(noise_std**2 * (1.0 if arm == PREDICTION else length))
    operator = jax.tree_util.Partial(cme, ridge=ridge, temperature=temperature)
    keys = episode_keys(seeds, m, length)
    return errors(operator, world, keys, length, parameters["queries"])._asdict()


def exact_lines(arms: Mapping[str, Sequence[Measured]]) -> list[Series]:
    groups = group_by(arms[PREDICTION], "manifold_dim")
    return [
        Series(f"exact posterior, m = {m}", log_points(*EXACT.logs(cells)), line=True)
        for m, cells in groups.items()
    ]


FIGURE = Lines(
    "Error of CME attention against the latent function, over length",
    "tokens L",
    "root-mean-square error",
    ERROR,
    {PREDICTION: "ridge σ², m = {manifold_dim}", CONTROL: "ridge σ²L, m = {manifold_dim}"},
    per=("manifold_dim",),
    extra=exact_lines,
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
        "Mean squared error over posterior variance is $ratio at each of $length tokens, for keys "
        "on spheres of dimension m = $manifold_dim."
    ),
    controls={CONTROL: Control("The ridge is σ²L instead of σ²: it grows with the length.")},
    assumptions=(
        Assumption(
            "The latent is a Gaussian process with the operator's kernel", Check.BY_CONSTRUCTION
        ),
        Assumption("The ridge is the noise variance", Check.CONTROL, control=CONTROL),
    ),
    meaning=Meaning(
        supported=(
            "The gain from more tokens can be computed beforehand: the expected error depends on "
            "the keys alone, not on the values. A ridge that grows with the context loses this "
            "gain."
        ),
        refuted=(
            "The posterior variance does not give the error of CME attention: do not use it to "
            "decide how many tokens are enough."
        ),
        undecided=(
            "Whether the posterior variance gives the error is open: measure the error before "
            "choosing a context length by it."
        ),
    ),
    source=cite("statement (b)", "prediction 6"),
    attribution=APPROXIMATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
