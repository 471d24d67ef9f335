"""A.optimisation: the optimisation error falls with the number of training steps.

Our formalisation of statement (c) of lens A (Zhang et al., 2022): empirical risk minimisation
"learns the desired parameter" only as far as training minimises the empirical risk (docs/theory.md,
prediction 12). The optimisation error after T steps, at fixed data and width, is

    R̂(f̂_T) − min R̂,     R̂(w) = mean squared error on the n training sequences + λ₂‖w‖²

For a convex risk, stochastic gradient steps with a decaying rate have an error of order T^(−1/2) or
better (Shamir and Zhang, 2013); so the slope of log error in log T should be −1/2 or below over the
last decade of steps. The risk of a network is not convex, so this can fail: descents end in minima
of different height, and the error then has a floor.

*The minimum.* Descents with second-order steps (`trained_networks.minimise`) start at the final
parameters of all runs of a seed, short and long; min R̂ is the lowest risk that one of them
reaches, an upper bound of the true minimum. A run that ends in a poorer minimum therefore has an
error. Without the penalty there is no minimum: the risk falls along valleys that lead to infinity.

*Why not the risk above the exact predictor's.* The training risk minus that of the *exact*
predictor would mix approximation with optimisation. How it depends on the width is judged by no
claim at present (A.approximation is about length).

*What was found.* On the pilot's seeds the slope is between −0.9 and −2.5 with the learning rate
0.01, and near −0.5 with 0.03. There a third of the runs end in a poorer minimum, 1e−4 to 1e−3 above
the best: this is the floor. In a world in which attention is not needed and the risk is badly
conditioned (six normal classes around a circle, read by a mean; second-order descents take 50 to
180 steps there) the slope was −0.19 to −0.88 in the pilot, mostly above −0.5. World and learning
rate were chosen on the pilot's seeds, so a verdict is about this world at this learning rate;
`--set world=mixture` sets the other world.

*Two slopes.* With a constant learning rate of 0.01 the slope over the decade is −0.45 ± 0.08 (mean
and standard error of 16 pilot seeds), close to the end of the region, although the error has
stopped falling: between the last two numbers of steps its slope is 0.0 ± 0.14, and with the
decaying rate −0.97 ± 0.09. A slope over the whole range does not show a floor, so the last local
slope is judged too.

Controls: (1) the learning rate is zero; for each number of steps there is another random start, so
that the slope is not zero by construction; (2) the learning rate is constant; only the last local
slope is judged, to show that more steps alone are not enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.exchangeability.statements import OPTIMISATION, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import DESCENT, FITTING, fitting, minimise, reader, risk
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TRAIN, draw
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.training.trainer import fit
from attnlens.worlds import FiniteMixture, LinearRegression
from attnlens.worlds.base import ExactWorld
from attnlens.worlds.seeding import episode_keys

CONTROL, CONSTANT = "no-learning", "constant-rate"
GRID = Grid(
    settings={
        "world": "regression",  # or "mixture"
        "classes": 6,  # number of classes of the mixture
        "key_dim": 3,
        "noise_std": 0.5,
        "length": 16,
        "samples": 1024,  # 14 times the 72 parameters
        "l2": 1e-3,  # λ₂; at the minimum, the penalty is a hundredth of the risk
        "heads": 1,
        "head_dim": 3,
        "hidden": 8,
        "sharpness": 5.0,
        **FITTING,
        "warmup": 0,
        # The default covers one decade. At 400 steps the slowest pilot run had just left its start.
        "steps": {"smoke": [40, 400], "default": [500, 1600, 5000], "full": [500, 1600, 5000]},
        "training": True,
        **DESCENT,
    },
    arm_settings={CONTROL: {"training": False}, CONSTANT: {"schedule": "constant"}},
    # With a constant rate, the last local slope of one seed is 0.0 ± 0.54: with 24 seeds it is 4.5
    # standard errors away from the end of the region.
    blocks={
        PREDICTION: {"smoke": 1, "default": 2, "full": 16},
        CONTROL: 1,
        CONSTANT: {"smoke": 1, "default": 3, "full": 4},
    },
    seeds_per_block={"smoke": 3, "default": 8, "full": 8},
    cost=lambda parameters, seeds: 3.0 + 0.001 * seeds * sum(parameters["steps"]) / 10,
    pilot=range(1000),
)
ERROR = ScalingLaw("error", "steps", within=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the optimisation error in the number of steps ({span})",
        ERROR.slopes,
        Region(high=-0.5),
        power=Power(effect=-1.1, std=0.6),
    ),
    Quantity(
        "last",
        "last local slope of the optimisation error in the number of steps ({span})",
        ERROR.last_slopes,
        Region(high=-0.5),
        power=Power(effect=-0.97, std=0.37),  # pilot of 16 seeds
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The optimisation error: rows are seeds, columns are numbers of steps."""
    world, sizes = _world(parameters)
    data = draw(world, seeds, parameters["samples"], parameters["length"], TRAIN, exact=False)
    make = reader(parameters, **sizes)
    if parameters["training"]:
        vectors = [_trained(make, data, seeds, parameters, count) for count in parameters["steps"]]
    else:
        vectors = [_untrained(make, seeds, count) for count in parameters["steps"]]
    rows = []
    for i, _ in enumerate(seeds):
        inputs = jax.tree.map(lambda leaf, i=i: leaf[i], data.inputs)
        target = data.target[i]
        starts = np.stack([vector[i] for vector in vectors])
        lowest = minimise(make, starts, inputs, target, parameters).risk.min()
        rows.append(
            [risk(make, start, inputs, target, parameters["l2"]) - lowest for start in starts]
        )
    return {"error": np.array(rows)}


def _world(parameters: Mapping[str, Any]) -> tuple[ExactWorld, dict[str, int]]:
    """The world, and the dimensions of its tokens as arguments of `reader`."""
    noise_std, dim = parameters["noise_std"], parameters["key_dim"]
    if parameters["world"] == "regression":
        return LinearRegression(dim, noise_std), {"key_dim": dim, "query_dim": dim}
    classes = parameters["classes"]
    angles = [2 * math.pi * c / classes for c in range(classes)]
    means = tuple((math.cos(angle), math.sin(angle)) for angle in angles)
    # At L = 16 the mean of the tokens has a standard error of 0.4; neighbouring class means have
    # the distance 1.
    world = FiniteMixture(means=means, noise_std=3 * noise_std, weights=classes * (1 / classes,))
    return world, {"key_dim": 2, "value_dim": 2, "outputs": 2}


def _trained(
    make: Any, data: Episodes, seeds: Sequence[int], parameters: Mapping[str, Any], steps: int
) -> np.ndarray:
    """The parameters after `steps` training steps, one row per seed."""
    training = {**fitting(parameters), "steps": steps, "l2": parameters["l2"]}
    return fit(
        make,
        data.inputs,
        data.target,
        seeds=seeds,
        data_per_seed=True,
        block=len(seeds),
        **training,
    ).vectors


def _untrained(make: Any, seeds: Sequence[int], steps: int) -> np.ndarray:
    """The parameters of random starts, one row per seed, different for each number of steps."""
    layout = Layout.of(Recipe.of(make))
    keys = episode_keys(seeds, steps)
    return np.stack([np.asarray(layout.flatten(make(key))) for key in keys])


FIGURE = Lines(
    "Training risk above its minimum, over the number of steps",
    "steps",
    "optimisation error",
    ERROR,
    {
        PREDICTION: "decaying learning rate",
        CONTROL: "learning rate zero",
        CONSTANT: "constant learning rate",
    },
)


CLAIM = Claim(
    id="A.optimisation",
    title="The optimisation error falls with the number of steps",
    statement=(
        "At fixed data and width, the training risk of an attention network falls towards its "
        "minimum as training becomes longer."
    ),
    formula=r"\hat R(\hat f_T)-\min_w \hat R(w) = O\left(T^{-1/2}\right)",
    prediction=(
        "The slope of the training risk above its minimum in the number of steps $steps, on "
        "log–log axes, is $slope, over the whole range and between the last two."
    ),
    controls={
        CONTROL: Control(
            "The learning rate is zero: a random start for each number of steps.",
            quantities=("slope", "last"),
        ),
        CONSTANT: Control(
            "The learning rate does not decay: the error stops falling.", quantities=("last",)
        ),
    },
    assumptions=(
        Assumption(
            "The lowest of the descents from all runs of a seed reaches the minimum of the risk"
        ),
        Assumption("Training changes the parameters", Check.CONTROL, control=CONTROL),
        Assumption("The learning rate decays", Check.CONTROL, control=CONSTANT),
    ),
    meaning=Meaning(
        supported=(
            "In this regression, with Adam and a rate that decays from $learning_rate, longer "
            "training closes the gap to the minimum of the training risk at least as fast as one "
            "over the square root of the steps; at a constant rate it stops closing. In a badly "
            "conditioned world, pilots were mostly slower."
        ),
        refuted=(
            "Longer training closes the gap to the minimum of the training risk more slowly than "
            "one over the square root of the steps: use second-order steps or several starts "
            "instead of more steps."
        ),
        undecided=(
            "How fast longer training closes the gap to the minimum is open: compare two budgets "
            "on your own data."
        ),
    ),
    source=cite("statement (c)", "prediction 12"),
    attribution=OPTIMISATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
