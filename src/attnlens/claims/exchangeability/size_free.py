"""A.size-free: a network trained at one length works at four times that length.

Our formalisation of statement (a) of lens A (Zhang et al., 2022), "a latent variable model that is
invariant to input sizes" (docs/theory.md, section A(a), size-free). The posterior lies in the same
space for every number of tokens, so a network that infers it can read more of them. A network is
trained to predict the latent mean from L = 32 tokens and tested on 128, without further training.
Its excess over the exact posterior mean is compared with the exact risk,

    E(f̂ − f*)² / E(f* − z)²      at 4L.

The ratio cannot be zero. Softmax weights sum to one, so the network sees the mean of the tokens and
not their number: the best answer that it can learn at L multiplies this mean by L/(L + 1) (noise
and prior have equal variance), and it keeps this factor at 4L. Exactly, with a = L/(L + 1),

    E(a x̄ − f*)² / E(f* − z)² = (a − 4L/(4L + 1))² (1 + 1/4L) (4L + 1) = 0.066 at L = 32.

The control is a network with learned positions. Training never reaches positions beyond L, so its
position vectors there keep their initial random values (standard deviation one). The ratio is
judged on the log scale, where a few very large ratios of the control do not decide alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning, Measured
from attnlens.claims.estimates import ScalingLaw, log_of
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Point, Series
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.learned import TEST, TRAIN, compare, draw, trained
from attnlens.networks.reader import Reader
from attnlens.worlds import NormalMean

CONTROL = "positions"
# The full profile has twelve times as many blocks as the default: with twice the samples the ratio
# varies more, and with nine times as many the interval was 2.7 times as narrow instead of 3.
BLOCKS = {"smoke": 1, "default": 3, "full": 36}
GRID = Grid(
    settings={
        "length": 32,  # at 8 the unavoidable ratio is 0.22, close to the margin
        "length_factor": 4,
        "noise_std": 1.0,
        "prior_std": 1.0,
        "samples": {"smoke": 1024, "default": 4096, "full": 8192},
        "test_sequences": 2048,
        "heads": 2,
        "hidden": 16,
        "positions": False,
        "training": {
            "steps": 1500,
            "batch": 64,
            "learning_rate": 0.01,
            "schedule": "cosine",
            "warmup": 50,
        },
    },
    arm_settings={CONTROL: {"positions": True}},
    derived={"test_lengths": lambda p: [p["length"], p["length_factor"] * p["length"]]},
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=8,
    cost=lambda parameters, seeds: 2.5,
)
RATIO = Region(high=math.log(0.25))
RULE = Rule(
    Quantity(
        "ratio",
        "log of excess over exact risk at four times the length",
        log_of(lambda cell: cell.values["ratio"][:, -1]),
        RATIO,
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Excess over exact risk at every test length: (seed, length)."""
    samples, tested = parameters["samples"], parameters["test_sequences"]
    world = NormalMean(1, parameters["noise_std"], parameters["prior_std"])
    positions = max(parameters["test_lengths"]) if parameters["positions"] else 0
    network = {name: parameters[name] for name in ("heads", "hidden")}
    make = partial(Reader, key_dim=1, max_length=positions, **network)
    train = draw(world, seeds, samples, parameters["length"], TRAIN, "latent")
    fitted = trained(make, train, seeds, (samples,), **parameters["training"])
    ratios = []
    for length in parameters["test_lengths"]:
        learned = compare(fitted, train, draw(world, seeds, tested, length, TEST, "latent"))
        ratios.append((learned.distance / learned.uncertainty)[:, 0])
    return {"ratio": np.stack(ratios, axis=1)}


def allowed(arms: Mapping[str, Sequence[Measured]]) -> list[Series]:
    lengths = arms[PREDICTION][0].parameters["test_lengths"]
    return [Series("allowed", tuple(Point(x, math.exp(RATIO.high)) for x in lengths), line=True)]


FIGURE = Lines(
    "Excess over the exact risk, trained at L = {length}",
    "tokens L at test time",
    "excess / exact risk",
    ScalingLaw("ratio", "test_lengths", within=True),
    {PREDICTION: "no positions", CONTROL: "absolute positions"},
    fit=False,
    extra=allowed,
)


CLAIM = Claim(
    id="A.size-free",
    title="A network trained at one length works at four times that length",
    statement=(
        "An attention network without positions that was trained at one length has, at four times "
        "that length, an excess of at most a quarter of the exact risk."
    ),
    formula=(
        r"\mathbb{E}\left(\hat f_L(X_{4L})-f^*(X_{4L})\right)^2 \;\le\; $ratio_high_exp\,"
        r"\mathbb{E}\left(f^*(X_{4L})-z\right)^2"
    ),
    prediction=(
        "The excess at 4L is at most $ratio_high_exp_percent of the exact risk there (log ratio "
        "$ratio), for L = $length."
    ),
    controls={
        CONTROL: Control("The same network with absolute positions; those beyond L are untrained.")
    },
    assumptions=(
        Assumption(
            "Tokens are exchangeable, and the network does not see their order",
            Check.CONTROL,
            control=CONTROL,
        ),
        Assumption(
            "The training length is long enough that the learned factor L/(L + 1) is near one"
        ),
    ),
    meaning=Meaning(
        supported=(
            "A network that reads tokens as a set may be trained on short contexts and used on "
            "longer ones. Its limit is that softmax averages: it cannot count tokens, and so it "
            "cannot know how certain its answer is."
        ),
        refuted=(
            "A network that reads tokens as a set lost accuracy on contexts four times as long: "
            "train it at the lengths at which it will be used."
        ),
        undecided=(
            "Whether training on short contexts is enough is open: test the network at the "
            "longest length at which it will be used."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (a); our formalisation: "
        "docs/theory.md, section A(a), size-free."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
