"""A.trained-is-bayes: a trained masked predictor approaches the exact Bayes predictive with length.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) for attention that is learned, not
set by hand (docs/theory.md, prediction 8). A network with one attention layer is trained to predict
the next value from L tokens. Its excess risk over the exact predictive mean f* is E(f̂ − f*)². This
should fall with L in worlds where attention can only approximate f*: a linear regression with
latent weights (f* is ridge regression) and a Gaussian process (f* is kernel ridge regression with
the kernel of the process).

The scale is that of a risk (squared). The slope is fitted over the lengths at which the exact
posterior has resolved at least half of the prior variance. At shorter lengths f* itself is near the
prior mean, which any network knows, and the excess is small because nothing has been inferred yet.
At least the two longest lengths are fitted. This rule depends on the world alone, not on the
network.

The distance of every seed is positive by construction, so seeds are the replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Check,
    Claim,
    Control,
    Meaning,
    Measured,
    group_by,
)
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, NETWORK, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.worlds import GaussianProcess, LinearRegression

CONTROL = "shuffled"
GRID = Grid(
    settings={
        "key_dim": 3,
        "noise_std": 0.5,
        "temperature": 0.5,  # of the kernel of the Gaussian process
        # n·L = 2¹⁸ at the longest default length.
        "samples": {"smoke": 512, "default": 2048, "full": 8192},
        "test_sequences": 512,
        **NETWORK,
        **FITTING,
    },
    axes={
        "world": ("regression", "process"),
        "length": {
            "smoke": (8, 32),
            "default": (16, 32, 64, 128),
            "full": (16, 32, 64, 128, 256),
        },
    },
    # The slope of the control is positive and the region ends at −0.2, so the two extreme lengths
    # and half of the seeds are enough.
    arm_settings={CONTROL: {"length": {"smoke": (8, 32), "default": (16, 128), "full": (16, 256)}}},
    blocks={
        PREDICTION: {"smoke": 1, "default": 2, "full": 18},
        CONTROL: {"smoke": 1, "default": 1, "full": 2},
    },
    seeds_per_block=8,
    cost=lambda parameters, seeds: 1.5 + 0.03 * parameters["length"],
    pilot=range(1000),
)
PRIOR_VAR = 1.0  # of m(q, z), in both worlds
RESOLVED_SHARE = 0.5  # of the prior variance, from which the slope is fitted


def asymptotic_cells(cells: Sequence[Measured]) -> list[Measured]:
    """The cells whose length resolves half of the prior variance; at least the two longest."""
    variance = {
        length: np.mean([cell.values["uncertainty"].mean() for cell in group])
        for length, group in group_by(cells, "length").items()
    }
    lengths = sorted(variance)
    resolved = (n for n in lengths if variance[n] <= RESOLVED_SHARE * PRIOR_VAR)
    first = min(next(resolved, lengths[-1]), lengths[-2])
    return [cell for cell in cells if cell.parameters["length"] >= first]


class AsymptoticLaw(ScalingLaw):
    """A power law that is fitted to the asymptotic cells only."""

    def logs(self, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
        return super().logs(asymptotic_cells(cells))


EXCESS = AsymptoticLaw("distance", "length")
RULE = Rule(
    Quantity(
        "slope",
        "slope of the excess risk over the exact predictive, {world}, L ({span})",
        EXCESS.slopes,
        Region(high=-0.2),
        per=("world",),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """E(f̂ − f*)² and the exact posterior variance for every seed."""
    dim, noise_std, samples = (parameters[n] for n in ("key_dim", "noise_std", "samples"))
    world = LinearRegression(dim, noise_std)
    if parameters["world"] == "process":
        world = GaussianProcess(dim, temperature=parameters["temperature"], noise_std=noise_std)
    train = draw(world, seeds, samples, parameters["length"], TRAIN, exact=False)
    test = draw(world, seeds, parameters["test_sequences"], parameters["length"], TEST)
    if arm != PREDICTION:
        train = train._replace(target=np.roll(train.target, 1, axis=1))
    make = reader(parameters, key_dim=dim, query_dim=dim)
    learned = learn(make, train, test, seeds, (samples,), **fitting(parameters))
    return {"distance": learned.distance[:, 0], "uncertainty": learned.uncertainty[:, 0]}


FIGURE = Lines(
    "Excess risk of a trained network over the exact predictive, over length",
    "tokens L",
    "mean squared distance to the exact predictive mean",
    EXCESS,
    {PREDICTION: "{world}", CONTROL: "{world}, shuffled targets"},
    per=("world",),
)


CLAIM = Claim(
    id="A.trained-is-bayes",
    title="A trained predictor approaches the exact Bayes predictive",
    statement=(
        "An attention network trained to predict a hidden value comes closer to the exact Bayes "
        "predictive as sequences become longer, also where attention can only approximate it."
    ),
    formula=r"\mathbb{E}\left(\hat f_L(X,q)-\mathbb{E}[v\mid X,q]\right)^2 \;\text{falls in}\; L",
    prediction=(
        "The slope of the excess risk in L is $slope in both worlds, over the lengths at which "
        "half of the prior variance is resolved."
    ),
    controls={CONTROL: Control("The network is trained with the labels of other sequences.")},
    assumptions=(
        Assumption(
            "The labels belong to their sequences, so training can find the structure",
            Check.CONTROL,
            control=CONTROL,
        ),
        Assumption(
            "There are enough sequences that the generalisation error does not dominate",
        ),
    ),
    meaning=Meaning(
        supported=(
            "Bayes' rule need not be built in: training to predict hidden tokens approximates it, "
            "and the remaining gap falls as contexts become longer."
        ),
        refuted=(
            "Training to predict hidden tokens does not come closer to Bayes' rule as contexts "
            "become longer: where the exact predictive matters, build it in."
        ),
        undecided=(
            "Whether longer contexts bring a trained network closer to Bayes' rule is open: do not "
            "lengthen the context for that reason alone."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 8."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
