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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning, Profile
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.worlds import FiniteMixture

CONTROL = "no-learning"
BLOCKS: Mapping[Profile, int] = {"smoke": 1, "default": 2, "full": 18}
SETTINGS = {
    "classes": 6,
    "noise_std": 1.5,  # at L = 16 the mean token's standard error is 0.4; neighbours are 1 apart
    "length": 16,
    "samples": {"smoke": 2048, "default": 16384, "full": 16384},  # n·L = 2¹⁸
    "test_sequences": 4096,  # the standard error of the gap of a seed is a tenth of the excess
    "heads": 1,
    "head_dim": 4,
    "sharpness": 5.0,
    **{name: value for name, value in FITTING.items() if name != "steps"},
    "warmup": 0,
}
# Two points are enough for the control, whose slope is zero.
IN_WIDTH = Grid(
    settings={**SETTINGS, "steps": {"smoke": 256, "default": 1024, "full": 1024}},
    axes={
        "vary": ("width",),
        "width": {"smoke": (2, 32), "default": (2, 8, 32), "full": (2, 8, 32, 128)},
    },
    arm_settings={
        CONTROL: {
            "schedule": "zero",
            "width": {"smoke": (2, 32), "default": (2, 8), "full": (2, 8)},
        }
    },
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=8,
    cost=lambda parameters, seeds: 1 + 1e-4 * parameters["width"] * parameters["steps"] / 16,
    pilot=range(1000),
)
IN_STEPS = replace(
    IN_WIDTH,
    settings={**SETTINGS, "width": 16},
    axes={
        "vary": ("steps",),
        "steps": {"smoke": (16, 256), "default": (64, 256, 1024), "full": (64, 256, 1024, 4096)},
    },
    arm_settings={
        CONTROL: {
            "schedule": "zero",
            "steps": {"smoke": (16, 256), "default": (64, 256), "full": (64, 256)},
        }
    },
)
EXCESS = {axis: ScalingLaw("excess", axis) for axis in ("steps", "width")}
RULE = Rule(
    *(
        Quantity(
            f"slope_in_{axis}",
            f"slope of the excess training risk in {axis} ({{span}})",
            law.slopes,
            Region(high=-0.1),
            where={"vary": axis},
        )
        for axis, law in EXCESS.items()
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The excess training risk of every seed, corrected for the gain from fitting noise."""
    samples = parameters["samples"]
    of_data = ("classes", "noise_std", "length", "samples", "test_sequences")
    train, test = _data(tuple(seeds), *(parameters[name] for name in of_data))
    make = reader({**parameters, "hidden": parameters["width"]}, key_dim=2, value_dim=2, outputs=2)
    training = fitting(parameters)
    if training["schedule"] == "zero":
        training["schedule"] = _zero_rate
    learned = learn(make, train, test, seeds, (samples,), **training)
    return {"excess": (learned.excess + learned.gap / 2)[:, 0]}


@lru_cache(maxsize=2)
def _data(
    seeds: tuple[int, ...], classes: int, noise_std: float, length: int, samples: int, tests: int
) -> tuple[Episodes, Episodes]:
    """The same sequences for every width and number of steps."""
    angles = [2 * math.pi * c / classes for c in range(classes)]
    world = FiniteMixture(
        means=tuple((math.cos(angle), math.sin(angle)) for angle in angles),
        noise_std=noise_std,
        weights=classes * (1 / classes,),
    )
    return draw(world, seeds, samples, length, TRAIN), draw(world, seeds, tests, length, TEST)


def _zero_rate(step: Any) -> Any:
    """A learning-rate schedule that is zero at every step."""
    return 0.0 * step


FIGURE = Lines(
    "Excess training risk over the exact predictor",
    "hidden units, or steps",
    "excess training risk",
    EXCESS.__getitem__,
    {PREDICTION: "{vary}", CONTROL: "{vary}, learning rate zero"},
    per=("vary",),
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
    prediction=(
        "The slope in width is $slope_in_width and the slope in steps $slope_in_steps, on log–log "
        "axes."
    ),
    controls={CONTROL: Control("The learning rate is zero.")},
    assumptions=(
        Assumption(
            "There are far more sequences than parameters, so that half of the gap is the gain "
            "from fitting noise"
        ),
        Assumption("Training changes the parameters", Check.CONTROL, control=CONTROL),
    ),
    meaning=Meaning(
        supported=(
            "More width and longer training both lower the error of a small network on its "
            "training data; neither helps if the learning rate is wrong."
        ),
        refuted=(
            "More width or longer training does not lower the error on the training data: look "
            "for another cause before spending more computation."
        ),
        undecided=(
            "Whether width and steps both lower the error on the training data is open: vary one "
            "at a time before scaling either."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 12."
    ),
    plan=Grids(IN_WIDTH, IN_STEPS),
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
