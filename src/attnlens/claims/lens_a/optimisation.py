"""A.optimisation: the optimisation error falls with width and with steps.

Our formalisation of claim (c) of lens A, its optimisation error: what training leaves on the table.
The excess *training* risk of the trained network over the exact predictor on the same n sequences
is that, less what fitting their noise earned. With p parameters noise lowers the training risk and
raises the test risk by about p/n of its variance each, so half of the generalisation gap gives it
back (as in Mallows' C_p; Efron, The estimation of prediction error, 2004):

    excess = train(f̂) − train(f*) + ½ [test(f̂) − train(f̂)],

the gap measured with test sequences of their own, noise by the next seed's network on the same
sequences. Without it a wider head would seem to leave less, only because it fits more noise. The
excess should fall as the head gets wider (at a fixed number of steps) and as training gets longer
(at a fixed width).

The world is a mixture of six normal classes around a circle; the label is the next token, and the
exact predictor a softmax of the tokens' mean: smooth, nonlinear, and not one of the network's own
functions at any width. Learning rate zero is the control: neither width nor steps then help.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from attnlens.claims.base import PREDICTION, UNSEEN, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.trained import across, judge_slope, line
from attnlens.instruments.episodes import Episodes
from attnlens.instruments.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.records import Figure, Part, Region
from attnlens.worlds import FiniteMixture

CLASSES = 6
MEANS = tuple(
    (math.cos(2 * math.pi * c / CLASSES), math.sin(2 * math.pi * c / CLASSES))
    for c in range(CLASSES)
)
NOISE_STD = 1.5  # at L = 16 the mean token is uncertain by 0.4, neighbours are 1 apart
LENGTH = 16
SAMPLES = {"smoke": 2048, "default": 16384, "full": 16384}  # n·L = 2¹⁸
WIDTHS = {"smoke": (2, 32), "default": (2, 8, 32), "full": (2, 8, 32, 128)}
STEPS = {"smoke": (16, 256), "default": (64, 256, 1024), "full": (64, 256, 1024, 4096)}
# What is fixed while the other varies.
WIDTH, STEPS_AT = 16, {"smoke": 256, "default": 1024, "full": 1024}
TEST_SEQUENCES = 4096  # the gap of a seed is then known to a tenth of the excess
SEEDS_A_BLOCK = 8
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
CONTROL = "no-learning"
SLOPE = Region(high=-0.1)


def plan(profile: Profile) -> Iterable[Work]:
    widths, steps, fixed = WIDTHS[profile], STEPS[profile], STEPS_AT[profile]
    for arm, points in ((PREDICTION, None), (CONTROL, 2)):
        # What stands still needs no more than two points.
        settings = [("width", width, fixed) for width in widths[:points]]
        settings += [("steps", WIDTH, count) for count in steps[:points]]
        for vary, width, count in settings:
            for seeds in blocks(BLOCKS[profile], SEEDS_A_BLOCK, first=UNSEEN):
                parameters = {
                    "vary": vary, "width": width, "steps": count, "samples": SAMPLES[profile],
                }  # fmt: skip
                yield Work(arm, parameters, seeds, 1 + 1e-4 * width * count / 16)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The excess training risk of every seed, with what fitting noise earned given back."""
    train, test = _data(tuple(seeds), parameters["samples"])
    make = partial(Reader, key_dim=2, value_dim=2, outputs=2, hidden=parameters["width"])
    more = {} if arm == PREDICTION else {"schedule": _never}
    learned = learn(
        make, train, test, seeds, (parameters["samples"],),
        steps=parameters["steps"], warmup=0, **more,
    )  # fmt: skip
    return {"excess": (learned.excess + learned.gap / 2)[:, 0]}


@lru_cache(maxsize=2)
def _data(seeds: tuple[int, ...], samples: int) -> tuple[Episodes, Episodes]:
    """The same sequences for every width and number of steps."""
    world = FiniteMixture(means=MEANS, noise_std=NOISE_STD, weights=CLASSES * (1 / CLASSES,))
    return draw(world, seeds, samples, LENGTH, TRAIN), draw(
        world, seeds, TEST_SEQUENCES, LENGTH, TEST
    )


def _never(step: Any) -> Any:
    return 0.0 * step


def judge(measured: Sequence[Measured]) -> list[Part]:
    return [
        judge_slope(f"slope of the excess training risk in {vary}", _logs(cells, vary), SLOPE)
        for vary, cells in by(measured, "vary").items()
    ]


def _logs(cells: Sequence[Measured], vary: str) -> Any:
    return across(cells, "excess", vary)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for vary, cells in by(measured, "vary").items():
            control = arm != PREDICTION
            name = f"{vary}, learning rate zero" if control else vary
            series.append(line(name, _logs(cells, vary), control))
    return Figure(
        "Excess training risk over the exact predictor",
        "hidden units, or steps", "excess training risk", tuple(series),
    )  # fmt: skip


CLAIM = Claim(
    id="A.optimisation",
    title="The optimisation error falls with width and with steps",
    statement=(
        "The training risk that a network leaves above the exact predictor's falls as it gets "
        "wider and as it is trained longer."
    ),
    formula=(
        r"\hat R_n(\hat f)-\hat R_n(f^*)+\tfrac12\left[R(\hat f)-\hat R_n(\hat f)\right] "
        r"\;\text{falls in width and in steps}"
    ),
    prediction="Both slopes, on log–log axes, are at most −0.1.",
    controls={CONTROL: "The learning rate is zero."},
    assumptions=(
        "There are far more sequences than parameters, so that half of the gap is what fitting "
        "noise earned.",
        "Training moves (the control stands still).",
    ),
    meaning=(
        "What a small network misses on data it has seen is bought back by width and by time; "
        "neither helps where the learning rate is wrong."
    ),
    source="Lens A, claim (c); prediction (12) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
