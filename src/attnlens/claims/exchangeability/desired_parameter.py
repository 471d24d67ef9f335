"""A.desired-parameter: training learns the temperature that the theory asks for.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), that "empirical risk
minimization" learns "the desired parameter", for the one parameter whose best value is known in
closed form (docs/theory.md, predictions 5 and 10): the temperature of softmax attention. With keys
uniform on S^m and v = ⟨z, k⟩ + N(0, σ²) the best temperature falls as

    τ(L) = [C σ²/(m L)]^(2/(m+4)) ∝ L^(−2/(m+4))

where the noise dominates (`softmax_law`). Here log τ is not computed but trained: by Adam, from
τ = 1, on the empirical risk of `episodes` sequences of length L. The label of a query is m(q, z);
noise on labels would add the same constant to the risk of every temperature and only widen the
intervals. As in attention, values are vectors: they have `value_dim` coordinates, each with a
latent and a noise of its own, which share one temperature.

Without noise in the values the derivation gives another exponent, because only the variation of the
signal within the kernel contributes to the variance. The exponent is −2/5 for m = 3, −2/3 for m = 2
and −2 for m = 1, where the kernel shrinks to a few neighbours (A.softmax-shrinking, part
noise-free). That is the first control: same training, same lengths, only the noise is removed.

**What the result depends on.** The output SM of softmax attention is the weighted mean of the
values, without rescaling. The second control also trains a factor g, for the output g·SM; the value
map of an attention layer could learn such a factor. For linear f the expected output is A(τ)⟨z, q⟩,
so g = 1/A removes the whole bias at *every* temperature. A lower temperature then has no advantage,
and the trained temperature does not fall: slopes of −0.02, 0.00 and 0.00 (m = 1, 2, 3; pilot of
eight runs each, L = 64 and 1024) at τ ≈ 0.28. So the desired parameter of the theory is that of a
layer without an output gain, or of a function whose bias no single factor removes.

A replicate is one training run per length, with keys, latents and noise of its own.

What a sceptic may ask. *Did training converge?* |d log risk / d log τ| after the last step is
recorded with each run; in the pilot it was always below 0.01, so log τ was within 0.01 of a minimum
(the second derivative is about m). *Would any slope near −1/3 do?* No single slope passes, because
the regions of m = 1 and m = 3 do not overlap. Besides the slope, τ itself is judged: at the longest
length it must be within 10 % of the formula, which has no free constant. *Is the slope put in by
the schedule?* No: start, learning rate and steps are the same at every length and dimension. *Is
one scalar a straw man of "the desired parameter"?* It is the parameter that the theory determines;
A.trained-approaches-bayes trains whole networks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw, log_of
from attnlens.claims.exchangeability.statements import GENERALISATION, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region

from .softmax_law import rate, schedule, sphere_points

CONTROL, GAIN = "noise-free-values", "trained-gain"
GRID = Grid(
    settings={
        "noise_std": 1.0,  # as in A.efficiency: noise dominates, and τ is small for L ≥ 64
        "episodes": 16,
        "queries": 8,
        "value_dim": 16,
        "start": 1.0,
        # Adam moves log τ by at most the learning rate per step. In total it can move by about 20,
        # twice the distance to the lowest temperature of the control.
        "learning_rate": 0.3,
        "steps": 120,
        "gain": False,  # whether a factor g of the output is trained too
    },
    axes={
        "manifold_dim": {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)},
        "length": {"smoke": (64, 256), "default": (64, 256, 1024), "full": (64, 256, 1024)},
    },
    blocks={
        PREDICTION: {"smoke": 2, "default": 4, "full": 36},
        CONTROL: {"smoke": 2, "default": 2, "full": 2},
        GAIN: {"smoke": 2, "default": 2, "full": 2},
    },
    seeds_per_block=4,
    arm_settings={CONTROL: {"noise_std": 0.0}, GAIN: {"gain": True}},
    cost=lambda parameters, seeds: 0.05 + seeds * 1.5e-4 * parameters["length"],
    pilot=range(1024),
)
MARGIN = 0.05
LEVEL_MARGIN = math.log(1.1)  # the same margin as for the law of A.softmax-shrinking
TEMPERATURE = ScalingLaw("temperature", "length")


def over_schedule(cell: Measured) -> np.ndarray:
    """The trained temperature divided by the best one according to the formula, one per seed."""
    at = (cell.parameters[name] for name in ("manifold_dim", "length", "noise_std"))
    m, length, noise_std = at
    return cell.values["temperature"] / schedule(m, length, noise_std)


RULE = Rule(
    Quantity(
        "slope",
        "slope of the trained temperature in length "
        "(keys on a sphere of dimension m = {manifold_dim}, L {span})",
        TEMPERATURE.slopes,
        lambda m: Region(rate(m) - MARGIN, rate(m) + MARGIN),
        per=("manifold_dim",),
        # Pilot of 16 runs per m. The minimiser of the exact risk has the slopes −0.375, −0.335 and
        # −0.304.
        power=Power(lambda m: {1: -0.375, 2: -0.335, 3: -0.304}[m], 0.02),
    ),
    Quantity(
        "level",
        "log of the trained temperature over the formula's "
        "(keys on a sphere of dimension m = {manifold_dim}, L = {length})",
        log_of(over_schedule),
        Region(-LEVEL_MARGIN, LEVEL_MARGIN),
        per=("manifold_dim",),
        # Without noise the formula gives τ = 0, so this is not judged for the first control.
        where={"length": 1024, "noise_std": 1.0},
        # Pilot of 16 runs per m.
        power=Power(lambda m: {1: -0.011, 2: -0.001, 3: 0.031}[m], 0.031),
    ),
)


class Trained(NamedTuple):
    """The trained temperature, and |d log risk / d log τ| at that temperature."""

    temperature: Array
    gradient: Array


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The trained temperature, and |d log risk / d log τ| after the last step, one per seed."""
    settings = (float(parameters[name]) for name in ("start", "learning_rate", "gain"))
    start, learning_rate, gain = map(jnp.asarray, settings)
    runs = []
    for seed in seeds:
        similarity, value, label = sequences(parameters, seed)
        runs.append(
            train(similarity, value, label, start, learning_rate, gain, parameters["steps"])
        )
    return {name: np.array([getattr(run, name) for run in runs]) for name in Trained._fields}


def sequences(
    parameters: Mapping[str, Any], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The products q·k − 1 (episodes, queries, length), the values (episodes, length, value_dim),
    and the labels of the queries.

    The products are computed in float64; training runs in float32.
    """
    m, length, episodes, queries, width = (
        parameters[name] for name in ("manifold_dim", "length", "episodes", "queries", "value_dim")
    )
    (points,) = sphere_points([seed], m, episodes, length + queries)
    token, query = points[:, :length], points[:, length:]
    random = np.random.default_rng([seed, m, length])
    latent = random.standard_normal((episodes, m + 1, width))
    noise = parameters["noise_std"] * random.standard_normal((episodes, length, width))
    arrays = query @ token.swapaxes(1, 2) - 1, token @ latent + noise, query @ latent
    first, second, third = (array.astype(np.float32) for array in arrays)
    return first, second, third


@partial(jax.jit, static_argnames="steps")
def train(
    similarity: Array,
    value: Array,
    label: Array,
    start: Array,
    learning_rate: Array,
    gain: Array,
    steps: int,
) -> Trained:
    """Minimise the risk over log τ with Adam; the learning rate falls to zero along a cosine.

    If `gain` is 1, the logarithm of the output factor g is trained too, from 0; if it is 0, g is 1.
    """

    def risk(logs: Array) -> Array:
        weights = jax.nn.softmax(similarity * jnp.exp(-logs[0]))
        return jnp.log(jnp.mean((jnp.exp(logs[1]) * (weights @ value) - label) ** 2))

    decay = optax.cosine_decay_schedule(1.0, steps)
    optimiser = optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(decay))
    trained = jnp.stack([jnp.ones_like(gain), gain]).astype(similarity.dtype)

    def step(state: Any, _: None) -> tuple[Any, None]:
        logs, memory = state
        update: Any
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            update, memory = optimiser.update(trained * jax.grad(risk)(logs), memory)
        return (logs - learning_rate.astype(update.dtype) * update, memory), None

    first = jnp.stack([jnp.log(start), jnp.zeros_like(start)]).astype(similarity.dtype)
    (last, _), _ = jax.lax.scan(step, (first, optimiser.init(first)), None, length=steps)
    return Trained(jnp.exp(last[0]), jnp.abs(jax.grad(risk)(last)[0]))


FIGURE = Lines(
    "Trained temperature of softmax attention, over length",
    "tokens L",
    "trained temperature τ",
    TEMPERATURE,
    {
        PREDICTION: "noise σ = {noise_std:g}, m = {manifold_dim}",
        CONTROL: "without noise, m = {manifold_dim}",
        GAIN: "output gain trained too, m = {manifold_dim}",
    },
    per=("manifold_dim",),
    reference=rate,
)


CLAIM = Claim(
    id="A.desired-parameter",
    title="Training learns the temperature that the theory asks for",
    statement=(
        "Where the output of softmax attention is not rescaled, empirical risk minimisation by "
        "gradient descent learns the temperature that is best for inference: it falls with the "
        "length at the predicted rate, to the predicted value."
    ),
    formula=(
        r"\hat\tau_L = \arg\min_\tau \frac1n\sum_{i=1}^n "
        r"\left\|\mathrm{SM}_\tau(q_i; X_i) - m(q_i, z_i)\right\|^2 \;\propto\; L^{-2/(m+4)}"
    ),
    prediction=(
        "The log–log slope of the trained temperature in length is −2/(m+4) "
        f"± {MARGIN} for keys on spheres of dimension m = $manifold_dim, and at the longest of "
        f"$length tokens it differs from the formula by at most {math.expm1(LEVEL_MARGIN):.0%}."
    ),
    controls={
        CONTROL: Control(
            "Values without noise: the best temperature falls faster.", quantities=("slope",)
        ),
        GAIN: Control(
            "One factor of the output is trained beside the temperature: it removes the bias, and "
            "the temperature need not fall.",
            quantities=("slope", "level"),
        ),
    },
    assumptions=(
        Assumption(
            "Keys are uniform on the sphere and values linear in the key", Check.BY_CONSTRUCTION
        ),
        Assumption(
            "The noise dominates the variance of the output", Check.CONTROL, control=CONTROL
        ),
        Assumption("The output is not rescaled", Check.CONTROL, control=GAIN),
        Assumption("Training reached a minimum", Check.CHECKED),
    ),
    meaning=Meaning(
        supported=(
            "Where nothing rescales the output, a temperature that is trained at one length is "
            "wrong at another: train it at the length of use, or scale it by the ratio of the "
            "lengths to the power −2/(m+4). A layer that also learns a gain of its output does not "
            "need this for a linear function: its trained temperature hardly depended on the "
            "length."
        ),
        refuted=(
            "Training does not find the temperature of the theory: do not rescale a trained "
            "temperature by this power of the length."
        ),
        undecided=(
            "Whether trained temperatures follow the theory is open: train at the lengths that you "
            "need."
        ),
    ),
    source=cite("statement (c)", "prediction 5"),
    attribution=GENERALISATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
