"""A.optimisation: the optimisation error falls with width and with steps.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), optimisation error: the training
risk that training could still remove (docs/theory.md, prediction 12). The excess *training* risk of
the trained network over the exact predictor on the same n sequences is this error minus the gain
from fitting noise. With p parameters, fitting noise lowers the training risk and raises the test
risk by about p/n of the noise variance each, so half of the generalisation gap is added as a
correction (as in Mallows' C_p; Efron, The estimation of prediction error, 2004):

    excess = train(f̂) − train(f*) + ½ [test(f̂) − train(f̂)].

The gap is measured on separate test sequences; the noise of the labels is removed by comparison
with the network of the next seed on the same sequences. Without the correction a wider output
network would seem to have a smaller excess only because it fits more noise. The excess should fall
as the network becomes wider (at a fixed number of steps) and as training becomes longer (at a fixed
width).

The world is a mixture of six normal classes around a circle; the label is the next token. The exact
predictor is a softmax of the mean of the tokens: smooth, nonlinear, and at no width exactly a
function of the network. The control has learning rate zero: then neither width nor steps help.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

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
from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.worlds import FiniteMixture

CLASSES = 6
MEANS = tuple(
    (math.cos(2 * math.pi * c / CLASSES), math.sin(2 * math.pi * c / CLASSES))
    for c in range(CLASSES)
)
NOISE_STD = 1.5  # at L = 16 the mean token has a standard error of 0.4; neighbours are 1 apart
LENGTH = 16
SAMPLES = {"smoke": 2048, "default": 16384, "full": 16384}  # n·L = 2¹⁸
WIDTHS = {"smoke": (2, 32), "default": (2, 8, 32), "full": (2, 8, 32, 128)}
STEPS = {"smoke": (16, 256), "default": (64, 256, 1024), "full": (64, 256, 1024, 4096)}
# The value of one setting while the other varies.
FIXED_WIDTH, FIXED_STEPS = 16, {"smoke": 256, "default": 1024, "full": 1024}
TEST_SEQUENCES = 4096  # the standard error of the gap of a seed is then a tenth of the excess
SEEDS_PER_BLOCK = 8
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
CONTROL = "no-learning"
SLOPE = Region(high=-0.1)


def plan(profile: Profile) -> Iterable[Work]:
    widths, steps, fixed_steps = WIDTHS[profile], STEPS[profile], FIXED_STEPS[profile]
    for arm, points in ((PREDICTION, None), (CONTROL, 2)):
        # Two points are enough for the control, whose slope is zero.
        settings = [("width", width, fixed_steps) for width in widths[:points]]
        settings += [("steps", FIXED_WIDTH, count) for count in steps[:points]]
        for vary, width, count in settings:
            for seeds in blocks(BLOCKS[profile], SEEDS_PER_BLOCK, first=FIRST_FRESH_SEED):
                parameters = {
                    "vary": vary,
                    "width": width,
                    "steps": count,
                    "samples": SAMPLES[profile],
                }
                yield Work(arm, parameters, seeds, 1 + 1e-4 * width * count / 16)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The excess training risk of every seed, corrected for the gain from fitting noise."""
    train, test = _data(tuple(seeds), parameters["samples"])
    make = partial(Reader, key_dim=2, value_dim=2, outputs=2, hidden=parameters["width"])
    schedule = {} if arm == PREDICTION else {"schedule": _zero_rate}
    learned = learn(
        make,
        train,
        test,
        seeds,
        (parameters["samples"],),
        steps=parameters["steps"],
        warmup=0,
        **schedule,
    )
    return {"excess": (learned.excess + learned.gap / 2)[:, 0]}


@lru_cache(maxsize=2)
def _data(seeds: tuple[int, ...], samples: int) -> tuple[Episodes, Episodes]:
    """The same sequences for every width and number of steps."""
    world = FiniteMixture(means=MEANS, noise_std=NOISE_STD, weights=CLASSES * (1 / CLASSES,))
    return draw(world, seeds, samples, LENGTH, TRAIN), draw(
        world, seeds, TEST_SEQUENCES, LENGTH, TEST
    )


def _zero_rate(step: Any) -> Any:
    """A learning-rate schedule that is zero at every step."""
    return 0.0 * step


def judge(measured: Sequence[Measured]) -> list[Part]:
    return [
        judge_slope(f"slope of the excess training risk in {vary}", _logs(cells, vary), SLOPE)
        for vary, cells in group_by(measured, "vary").items()
    ]


def _logs(cells: Sequence[Measured], vary: str) -> Any:
    return across_cells(cells, "excess", vary)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for vary, cells in group_by(measured, "vary").items():
            control = arm != PREDICTION
            name = f"{vary}, learning rate zero" if control else vary
            series.append(line(name, _logs(cells, vary), control))
    return Figure(
        "Excess training risk over the exact predictor",
        "hidden units, or steps",
        "excess training risk",
        tuple(series),
    )


CLAIM = Claim(
    id="A.optimisation",
    title="The optimisation error falls with width and with steps",
    statement=(
        "The excess training risk of a network over the exact predictor falls as the network "
        "becomes wider and as it is trained longer."
    ),
    formula=(
        r"\hat R_n(\hat f)-\hat R_n(f^*)+\tfrac12\left[R(\hat f)-\hat R_n(\hat f)\right] "
        r"\;\text{falls in width and in steps}"
    ),
    prediction="Both slopes, on log–log axes, are at most −0.1.",
    controls={CONTROL: "The learning rate is zero."},
    assumptions=(
        "There are far more sequences than parameters, so that half of the gap is the gain from "
        "fitting noise.",
        "Training changes the parameters (they do not change in the control).",
    ),
    meaning=(
        "More width and longer training both lower the error of a small network on its training "
        "data; neither helps if the learning rate is wrong."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 12."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
