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

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.claim import (
    FIRST_FRESH_SEED,
    PREDICTION,
    Claim,
    Measured,
    Profile,
    Work,
    blocks,
    group_by,
)
from attnlens.claims.trained_networks import across_cells, judge_slope, line
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.worlds import GaussianProcess, LinearRegression

KEY_DIM, NOISE_STD, TEMPERATURE = 3, 0.5, 0.5
WORLDS = {
    "regression": LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD),
    "process": GaussianProcess(key_dim=KEY_DIM, temperature=TEMPERATURE, noise_std=NOISE_STD),
}
PRIOR_VAR = 1.0  # of m(q, z), in both worlds
RESOLVED_SHARE = 0.5  # of the prior variance, from which the slope is fitted
NETWORK = partial(Reader, key_dim=KEY_DIM, query_dim=KEY_DIM, heads=2, hidden=16)
# n·L = 2¹⁸ at the longest default length.
SAMPLES = {"smoke": 512, "default": 2048, "full": 8192}
TEST_SEQUENCES = 512
LENGTHS = {"smoke": (8, 32), "default": (16, 32, 64, 128), "full": (16, 32, 64, 128, 256)}
# The slope of the control is positive and the region ends at −0.2, so the two extreme lengths and
# half of the seeds are enough.
CONTROL_LENGTHS = {"smoke": (8, 32), "default": (16, 128), "full": (16, 256)}
SEEDS_PER_BLOCK = 8
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
CONTROL_BLOCKS = {"smoke": 1, "default": 1, "full": 2}
CONTROL = "shuffled"
SLOPE = Region(high=-0.2)


def plan(profile: Profile) -> Iterable[Work]:
    for arm, count, lengths in (
        (PREDICTION, BLOCKS[profile], LENGTHS[profile]),
        (CONTROL, CONTROL_BLOCKS[profile], CONTROL_LENGTHS[profile]),
    ):
        for world in WORLDS:
            for length in lengths:
                for seeds in blocks(count, SEEDS_PER_BLOCK, first=FIRST_FRESH_SEED):
                    parameters = {"world": world, "length": length, "samples": SAMPLES[profile]}
                    yield Work(arm, parameters, seeds, 1.5 + 0.03 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """E(f̂ − f*)² and the exact posterior variance for every seed."""
    world, length, samples = (parameters[name] for name in ("world", "length", "samples"))
    train = draw(WORLDS[world], seeds, samples, length, TRAIN, exact=False)
    test = draw(WORLDS[world], seeds, TEST_SEQUENCES, length, TEST)
    if arm != PREDICTION:
        train = train._replace(target=np.roll(train.target, 1, axis=1))
    learned = learn(NETWORK, train, test, seeds, (samples,))
    return {"distance": learned.distance[:, 0], "uncertainty": learned.uncertainty[:, 0]}


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


def judge(measured: Sequence[Measured]) -> list[Part]:
    return [
        judge_slope(
            f"slope of the excess risk over the exact predictive, {world}, L",
            across_cells(asymptotic_cells(cells), "distance", "length"),
            SLOPE,
        )
        for world, cells in group_by(measured, "world").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for world, cells in group_by(measured, "world").items():
            control = arm != PREDICTION
            name = f"{world}, shuffled targets" if control else world
            series.append(
                line(name, across_cells(asymptotic_cells(cells), "distance", "length"), control)
            )
    return Figure(
        "Excess risk of a trained network over the exact predictive, over length",
        "tokens L",
        "mean squared distance to the exact predictive mean",
        tuple(series),
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
        "The slope of the excess risk in L is at most −0.2 in both worlds, over the lengths at "
        "which half of the prior variance is resolved."
    ),
    controls={CONTROL: "The network is trained with the labels of other sequences."},
    assumptions=(
        "The labels belong to their sequences, so training can find the structure (the control "
        "breaks this).",
        "There are enough sequences that the generalisation error does not dominate.",
    ),
    meaning=(
        "Bayes' rule need not be built in: training to predict hidden tokens approximates it, and "
        "the remaining gap falls as contexts become longer."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 8."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
