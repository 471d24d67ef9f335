"""A.trained-is-bayes: a trained masked predictor approaches the exact Bayes predictive with length.

Our formalisation of claim (b) of lens A for attention that is learned, not set by hand. A network
with one attention layer is trained to predict the next value from L tokens. Its excess risk over
the exact predictive mean f* is E(f̂ − f*)², and it should fall with L, in worlds where attention
can only approximate f*: a linear regression with latent weights (f* is ridge regression) and a
Gaussian process (f* is kernel ridge regression with the process's own kernel).

The scale is that of a risk (squared). The slope is fitted from the length on at which the exact
posterior has resolved half of the prior variance: before, f* itself is near the prior mean, which
any network knows, and the excess is small because nothing has been inferred yet. At least the two
longest lengths are fitted. That rule looks at the world alone, not at the network.

Each seed's distance is positive by construction, so seeds are replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.base import PREDICTION, UNSEEN, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.trained import across, judge_slope, line
from attnlens.instruments.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.records import Figure, Part, Region
from attnlens.worlds import GaussianProcess, LinearRegression

KEY_DIM, NOISE_STD, TEMPERATURE = 3, 0.5, 0.5
WORLDS = {
    "regression": LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD),
    "process": GaussianProcess(key_dim=KEY_DIM, temperature=TEMPERATURE, noise_std=NOISE_STD),
}
PRIOR_VAR = 1.0  # of m(q, z), in both worlds
RESOLVED = 0.5
NETWORK = partial(Reader, key_dim=KEY_DIM, query_dim=KEY_DIM, heads=2, hidden=16)
# n·L = 2¹⁸ at the longest default length.
SAMPLES = {"smoke": 512, "default": 2048, "full": 8192}
TEST_SEQUENCES = 512
LENGTHS = {"smoke": (8, 32), "default": (16, 32, 64, 128), "full": (16, 32, 64, 128, 256)}
# The control's slope is positive, the region ends at −0.2: its ends and half of the seeds do.
CONTROL_LENGTHS = {"smoke": (8, 32), "default": (16, 128), "full": (16, 256)}
SEEDS_A_BLOCK = 8
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
                for seeds in blocks(count, SEEDS_A_BLOCK, first=UNSEEN):
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


def asymptotic(cells: Sequence[Measured]) -> list[Measured]:
    """The cells from the first length on that resolves half of the prior variance; at least the
    two longest lengths."""
    spread = {
        length: np.mean([cell.values["uncertainty"].mean() for cell in group])
        for length, group in by(cells, "length").items()
    }
    lengths = sorted(spread)
    resolved = (n for n in lengths if spread[n] <= RESOLVED * PRIOR_VAR)
    first = min(next(resolved, lengths[-1]), lengths[-2])
    return [cell for cell in cells if cell.parameters["length"] >= first]


def judge(measured: Sequence[Measured]) -> list[Part]:
    return [
        judge_slope(
            f"slope of the excess risk over the exact predictive, {world}, L",
            across(asymptotic(cells), "distance", "length"),
            SLOPE,
        )
        for world, cells in by(measured, "world").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for world, cells in by(measured, "world").items():
            control = arm != PREDICTION
            name = f"{world}, shuffled targets" if control else world
            series.append(line(name, across(asymptotic(cells), "distance", "length"), control))
    return Figure(
        "Excess risk of a trained network over the exact predictive, over length",
        "tokens L", "mean squared distance to the exact predictive mean", tuple(series),
    )  # fmt: skip


CLAIM = Claim(
    id="A.trained-is-bayes",
    title="A trained predictor approaches the exact Bayes predictive",
    statement=(
        "An attention network trained to predict a hidden value comes closer to the exact Bayes "
        "predictive as sequences become longer, also where attention can only approximate it."
    ),
    formula=r"\mathbb{E}\left(\hat f_L(X,q)-\mathbb{E}[v\mid X,q]\right)^2 \;\text{falls in}\; L",
    prediction=(
        "The slope of the excess risk in L is at most −0.2 in both worlds, from the length on at "
        "which half of the prior variance is resolved."
    ),
    controls={CONTROL: "The network is trained on the labels of other sequences."},
    assumptions=(
        "Training finds the structure (the control takes the labels' meaning away).",
        "There are enough sequences that the generalisation error does not dominate.",
    ),
    meaning=(
        "Nobody has to build Bayes' rule in: predicting hidden tokens finds it, and the remaining "
        "gap closes as contexts grow."
    ),
    source="Lens A, claim (b); prediction (8) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
