"""A.generalisation-length: the generalisation gap does not grow with the length of sequences.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), a generalisation error that is
"independent of input sizes" (docs/theory.md, prediction 10). An attention layer has the same
parameters for every number of tokens, and it reads weighted means, whose scale does not grow with
L; so at fixed n the gap (see A.generalisation-samples) has no reason to grow. A plain network that
reads the tokens as one long vector has a weight for every token: at fixed n its gap grows with L.

The latent is a mean in the plane, tokens are noisy observations of it, and the label is the next
token. The plain network has 4 hidden units, so it has at most 1,024 input weights for 2,048
sequences in the default range. That is below the point where it fits every label; beyond that point
the gap saturates and would show nothing.

A gap of about p/n has a standard deviation over seeds as large as itself when few of the p
directions matter (a χ² with few degrees of freedom), so eight seeds are averaged before the
logarithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx

from attnlens.claims.claim import (
    FIRST_FRESH_SEED,
    PREDICTION,
    Claim,
    Measured,
    Profile,
    Work,
    blocks,
)
from attnlens.claims.trained_networks import across_cells, judge_slope, line
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.dense import Baseline
from attnlens.networks.reader import Asked, Reader
from attnlens.worlds import NormalMean

SAMPLES = 2048  # n·L = 2¹⁸ at the longest default length
LENGTHS = {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128, 512)}
DIM = 2
SEEDS_PER_BLOCK = 8
# The slope of the plain network is near one, ten times the margin: a few blocks are enough. At
# L = 512 it has more weights than there are sequences, so the control is limited to L ≤ 128.
BLOCKS = {"smoke": 2, "default": 8, "full": 72}
CONTROL_BLOCKS = {"smoke": 2, "default": 3, "full": 6}
CONTROL_LENGTHS = {**LENGTHS, "full": LENGTHS["default"]}
TEST_SEQUENCES = 2048
TRAINING = {"steps": 1000}
CONTROL = "flattened"
SLOPE = Region(high=0.10)


class Flattened(eqx.Module):
    """A plain network that reads all tokens as one vector."""

    network: Baseline

    def __call__(self, inputs: Asked) -> Any:
        return self.network(inputs.value.reshape(-1))


def make_flattened(key: Any, length: int) -> Flattened:
    return Flattened(Baseline(key, features=length * DIM, hidden=4, outputs=DIM))


def plan(profile: Profile) -> Iterable[Work]:
    for arm, count, lengths in (
        (PREDICTION, BLOCKS[profile], LENGTHS[profile]),
        (CONTROL, CONTROL_BLOCKS[profile], CONTROL_LENGTHS[profile]),
    ):
        for length in lengths:
            for seeds in blocks(count, SEEDS_PER_BLOCK, first=FIRST_FRESH_SEED):
                yield Work(arm, {"length": length}, seeds, 0.6 + 0.01 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The generalisation gap of every seed."""
    world, length = NormalMean(dim=DIM), parameters["length"]
    attention = partial(Reader, key_dim=DIM, value_dim=DIM, outputs=DIM, heads=2, hidden=16)
    make = attention if arm == PREDICTION else partial(make_flattened, length=length)
    train = draw(world, seeds, SAMPLES, length, TRAIN, exact=False)
    test = draw(world, seeds, TEST_SEQUENCES, length, TEST, exact=False)
    return {"gap": learn(make, train, test, seeds, (SAMPLES,), **TRAINING).gap[:, 0]}


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = across_cells(measured, "gap", "length", average=True)
    return [judge_slope("slope of the generalisation gap in the length", logs, SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "attention", CONTROL: "plain network on flattened tokens"}
    series = [
        line(
            names[arm],
            across_cells(cells, "gap", "length", average=True),
            control=arm != PREDICTION,
        )
        for arm, cells in arms.items()
    ]
    return Figure(
        f"Generalisation gap over the length of sequences, n = {SAMPLES}",
        "tokens L",
        "generalisation gap",
        tuple(series),
    )


CLAIM = Claim(
    id="A.generalisation-length",
    title="The generalisation gap does not grow with length",
    statement=(
        "At a fixed number of sequences, the generalisation gap of an attention network does not "
        "grow with the number of tokens in a sequence."
    ),
    formula=r"\mathrm{gap}(n, L) = O\left(L^{0}\right)\quad\text{at fixed } n",
    prediction="The slope of the gap in L, on log–log axes, is at most 0.10.",
    controls={CONTROL: "A plain network reads the same tokens as one long vector."},
    assumptions=(
        "The parameters of the network do not depend on L (the control breaks this).",
        "Tokens are exchangeable (by construction), so that weighted means are sufficient.",
    ),
    meaning=(
        "Attention needs no more labelled sequences when contexts become longer. A network with a "
        "weight for every token needs more with every token."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 10."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
