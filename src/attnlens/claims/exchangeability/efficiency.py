"""A.efficiency: unscaled softmax attention loses efficiency against the posterior as L grows.

Our own finding about statement (b) of lens A (Zhang et al., 2022), by our formalisation
(docs/theory.md, predictions 5 and 6): the error of attention decreases in input sizes, but not as
fast as possible. In a linear-regression world with keys uniform on S^m, the mean squared error
(MSE) of softmax attention with the best temperature per length falls as L^(−4/(m+4))
(`softmax_law`), and the posterior variance V as

    V ≈ 1/(1 + L/((m + 1)σ²)) → (m + 1)σ²/L.

So the relative inefficiency MSE/V grows as L^(m/(m+4)): the higher the dimension of the keys, the
more tokens softmax wastes. A ridge solve with the kernel of the world has no such loss. A ridge
solve with the Gaussian kernel has a smaller loss than softmax, but its ratio to V grows too (slopes
of 0.13, 0.22 and 0.28 for m = 1, 2, 3 in the default profile), because this kernel's functions
include many others besides the linear ones.

**What it depends on.** The output of softmax attention, SM, is not rescaled, so only a lower
temperature removes its bias. In this linear world a factor of the output removes it too: at a
*fixed* temperature SM → A(τ)⟨z, q⟩ (A.softmax-smoothed), so SM/A has no bias, its error falls as
1/L and its inefficiency is constant. At τ = 0.25 it is 2.5, 3.0 and 3.3 (m = 1, 2, 3) at every
length. Softmax with the best temperature per length has 4, 7 and 9 at L = 1024, and 7, 16 and 29 at
L = 16,384. The value map of an attention layer can learn such a factor. The control `output-gain`
has it: only operators without it lose efficiency, or functions whose bias no single factor removes
(A.trained-efficiency, process).

MSE and V are exact given the keys. For weights w that do not depend on the values, E(Σ w v −
⟨z, q⟩)² = ‖Σ w k − q‖² + σ² Σ w² (`softmax_law`). A replicate is a ratio of means over a block of
draws of the keys.

What a sceptic may ask. *Is the rate put in by the temperature schedule?* The schedule minimises the
large-noise error, so another one has a larger error at every L. *Is the range asymptotic?* Nearly:
the law and V give slopes of 0.19, 0.32 and 0.41 for L = 1024 to 16,384; m/(m+4) is 0.20, 0.33 and
0.43. *Is softmax a straw man?* It is given the noise level, and no temperature on a grid of factors
from 0.35 to 2 around the schedule has a smaller error at these lengths; but its output is not
multiplied by a factor (see above).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve

from attnlens.attention.cme import cme
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core import kernels
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.error import errors
from attnlens.worlds import LinearRegression
from attnlens.worlds.gaussian_process import factor, gram
from attnlens.worlds.seeding import episode_keys

from .softmax_law import moments, schedule, sphere_points

OTHER, EXACT = "ridge-solve-with-another-kernel", "exact-ridge-solve"
GAIN = "output-gain"
DIMENSIONS = {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)}
GRID = Grid(
    settings={
        # At L = 1024, the prior would still matter with σ = 2, and the variation of the signal
        # within the kernel with σ = 0.5.
        "noise_std": 1.0,
        "queries": 16,
        "operator": "softmax",
        "other_temperature": 2.0,  # temperature of the Gaussian kernel, which is smooth
        "gain": False,  # whether the output is divided by A(τ) with τ = gain_temperature
        "gain_temperature": 0.25,  # near the best for m = 1, 2 and 3: trained temperatures are 0.28
    },
    axes={
        "manifold_dim": DIMENSIONS,
        "length": {
            "smoke": (1024, 4096),
            "default": (1024, 4096, 16_384),
            "full": (1024, 4096, 16_384),
        },
    },
    blocks={
        PREDICTION: {"smoke": 4, "default": 6, "full": 54},
        OTHER: {"smoke": 4, "default": 6, "full": 12},
        EXACT: {"smoke": 8, "default": 96, "full": 864},
        GAIN: {"smoke": 4, "default": 6, "full": 12},
    },
    seeds_per_block=lambda parameters: {"softmax": 16, "cme": 8, "cme-linear": 64}[
        parameters["operator"]
    ],
    arm_settings={
        # A ridge solve costs L³, so these episodes are shorter; V has the same form there.
        OTHER: {"operator": "cme", "length": (128, 512)},
        EXACT: {"operator": "cme-linear", "manifold_dim": (2,), "length": (16, 128)},
        GAIN: {"gain": True},
    },
    cost=lambda parameters, seeds: (
        0.01
        + seeds
        * (
            2.5e-7 * parameters["length"]
            if parameters["operator"] == "softmax"
            else 3e-4 + (parameters["length"] / 3500) ** 2.5
        )
    ),
    pilot=range(8192),
)
MARGIN = 0.05
# Margin of the calibration by the exact ridge solve, which has no bias: a little more than half of
# the margin of the claim.
FLAT = 0.03


def rate(m: int) -> float:
    """The predicted slope of log(MSE/V) in log L."""
    return m / (m + 4)


RATIO = ScalingLaw("squared", "length", replicate="block", over="posterior_var")
SPHERE = "keys on a sphere of dimension m = {manifold_dim}"
RULE = Rule(
    Quantity(
        "slope",
        f"slope of mean squared error over posterior variance in length ({SPHERE}, L {{span}})",
        RATIO.slopes,
        lambda m: Region(rate(m) - MARGIN, rate(m) + MARGIN),
        per=("manifold_dim",),
        # Pilot of 6 blocks per m.
        power=Power(lambda m: {1: 0.191, 2: 0.320, 3: 0.413}[m], 0.004),
    ),
    Quantity(
        "flat",
        f"slope of the ratio of the exact ridge solve in length ({SPHERE}, L {{span}})",
        RATIO.slopes,
        Region(-FLAT, FLAT),
        per=("manifold_dim",),
        where={"operator": "cme-linear"},
    ),
)


class Exact(NamedTuple):
    """Squared error and posterior variance, as means over the queries of an episode."""

    squared: Array
    posterior_var: Array


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The squared error of the operator and the posterior variance, one per seed."""
    m, length, noise_std = (parameters[n] for n in ("manifold_dim", "length", "noise_std"))
    queries, operator = parameters["queries"], parameters["operator"]
    if operator == "cme-linear":
        world = LinearRegression(key_dim=m + 1, noise_std=noise_std)
        solve = jax.tree_util.Partial(cme, ridge=noise_std**2, temperature=1.0, kernel="linear")
        return errors(solve, world, episode_keys(seeds, m, length), length, queries)._asdict()
    points = jnp.asarray(sphere_points(seeds, m, length + queries))
    token, query = points[:, :length], points[:, length:]
    if operator == "cme":
        own = parameters["other_temperature"]
        return by_ridge_solve(token, query, noise_std, own)._asdict()
    if parameters["gain"]:
        temperature = parameters["gain_temperature"]
        measured = moments(seeds, m, length, queries, [temperature])
        factor = 1 / LinearRegression(key_dim=m + 1).smoothing(temperature)
        signal = factor**2 * measured.to_smoothed  # ‖Σ w k/A − q‖²
        squared = (signal + (factor * noise_std) ** 2 * measured.weight)[:, 0]
        return {"squared": squared, "posterior_var": posterior_var(token, query, noise_std)}
    measured = moments(seeds, m, length, queries, [schedule(m, length, noise_std)])
    squared = (measured.to_mean + noise_std**2 * measured.weight)[:, 0]
    return {"squared": squared, "posterior_var": posterior_var(token, query, noise_std)}


@eqx.filter_jit
def posterior_var(token: Array, query: Array, noise_std: float) -> Array:
    """The posterior variance qᵀ (I + KᵀK/σ²)⁻¹ q, averaged over queries, one per episode."""

    def one(episode: tuple[Array, Array]) -> Array:
        token, query = episode
        precision = jnp.eye(token.shape[1]) + token.T @ token / noise_std**2
        return jnp.mean(jnp.sum(query.T * jnp.linalg.solve(precision, query.T), 0))

    return jax.lax.map(one, (token, query))


@eqx.filter_jit
def by_ridge_solve(token: Array, query: Array, noise_std: float, temperature: float) -> Exact:
    """The error of CME with the Gaussian kernel and ridge σ², and the posterior variance."""

    def one(episode: tuple[Array, Array]) -> Array:
        token, query = episode
        root = factor(gram("rbf", token, temperature, noise_std**2))
        cross = kernels.KERNELS["rbf"](query, token, temperature)
        weights = cho_solve((root, True), cross.T).T
        signal = jnp.sum((weights @ token - query) ** 2, -1)
        return jnp.mean(signal + noise_std**2 * jnp.sum(weights**2, -1))

    squared = jax.lax.map(one, (token, query))
    return Exact(squared, posterior_var(token, query, noise_std))


FIGURE = Lines(
    "Mean squared error over posterior variance, over length",
    "tokens L",
    "mean squared error / posterior variance",
    RATIO,
    {
        PREDICTION: "softmax, m = {manifold_dim}",
        OTHER: "ridge solve, Gaussian kernel, m = {manifold_dim}",
        EXACT: "exact ridge solve, m = {manifold_dim}",
        GAIN: "softmax with an output gain, m = {manifold_dim}",
    },
    per=("manifold_dim",),
    reference=rate,
)


CLAIM = Claim(
    id="A.efficiency",
    title="Softmax attention without an output gain wastes more tokens the longer the context",
    statement=(
        "At its best temperature, and with an output that is not rescaled, the mean squared error "
        "of softmax attention grows relative to that of the exact posterior as a power of the "
        "length that depends on the dimension of the keys."
    ),
    formula=(
        r"\frac{\mathbb{E}\left(\mathrm{SM}_{\tau_L}(q)-m(q,z)\right)^2}"
        r"{\mathbb{E}\,\mathrm{Var}(m(q,z)\mid X)} \;\propto\; "
        r"\frac{L^{-4/(m+4)}}{L^{-1}} = L^{m/(m+4)}"
    ),
    prediction=(
        "In the linear-regression world the log–log slope of mean squared error over posterior "
        f"variance is m/(m+4) ± {MARGIN} for keys on spheres of dimension m = $manifold_dim."
    ),
    controls={
        OTHER: Control(
            "A ridge solve with a Gaussian kernel, which is not the world's.",
            quantities=("slope",),
        ),
        EXACT: Control(
            "Calibration: CME with the world's kernel and ridge has a slope of 0 ± $flat_high.",
            expected="supported",
            quantities=("flat",),
        ),
        GAIN: Control(
            "Softmax at a fixed temperature whose output is multiplied by the factor that removes "
            "its bias: the loss must not grow like that of softmax alone.",
            quantities=("slope",),
        ),
    },
    assumptions=(
        Assumption(
            "Keys are uniform on the sphere and values linear in the key plus noise",
            Check.BY_CONSTRUCTION,
        ),
        Assumption("The operator averages values instead of solving", Check.CONTROL, control=OTHER),
        Assumption("The output is not rescaled", Check.CONTROL, control=GAIN),
    ),
    meaning=Meaning(
        supported=(
            "Softmax attention that removes its bias by its temperature alone uses a shrinking "
            "share of its context: at m = 3 a hundred times as many tokens cost a factor of seven "
            "in efficiency. For a linear function a learned gain of the output avoids this, at a "
            "constant loss (about three here); otherwise a ridge solve may be worth its price."
        ),
        refuted=(
            "The loss of efficiency does not follow m/(m+4): measure it before replacing softmax "
            "by a solve."
        ),
        undecided=(
            "How fast softmax loses against the exact posterior is open: compare the two at the "
            "lengths that you need."
        ),
    ),
    source="Our own prediction (docs/theory.md, prediction 6).",
    attribution=FINDING,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
