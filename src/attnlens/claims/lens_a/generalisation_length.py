"""A.generalisation-length: the generalisation gap does not grow with the length of sequences.

Our formalisation of claim (c) of lens A ("a generalisation error that is independent of input
sizes"). An attention layer has the same parameters whatever the number of tokens, and reads
weighted means, whose scale does not grow with L; so at fixed n the gap (see
A.generalisation-samples) has no reason to grow. A plain network that reads the tokens as one long
vector has a weight for every token: at fixed n its gap grows with L.

The world is a latent mean in the plane, seen through noise; the label is the next token. The plain
network has 4 units, so that it has at most 1,024 weights into them for 2,048 sequences in the
default range: below the point where it fits every label, where the gap saturates and would say
nothing.

A gap of about p/n varies from seed to seed by as much as itself when few directions of the p are
in play (a χ² with few degrees of freedom), so eight seeds are averaged before the logarithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx

from attnlens.claims.base import PREDICTION, UNSEEN, Claim, Measured, Profile, Work, blocks
from attnlens.claims.trained import across, judge_slope, line
from attnlens.instruments.learned import TEST, TRAIN, draw, learn
from attnlens.networks.dense import Baseline
from attnlens.networks.reader import Asked, Reader
from attnlens.records import Figure, Part, Region
from attnlens.worlds import NormalMean

SAMPLES = 2048  # n·L = 2¹⁸ at the longest default length
LENGTHS = {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128, 512)}
DIM = 2
SEEDS_A_BLOCK = 8
# The plain network's slope is near one, ten times the margin: a few blocks settle it. Its weights
# outnumber the sequences at L = 512, so the control keeps to L ≤ 128.
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


def flattened(key: Any, length: int) -> Flattened:
    return Flattened(Baseline(key, features=length * DIM, hidden=4, outputs=DIM))


def plan(profile: Profile) -> Iterable[Work]:
    for arm, count, lengths in (
        (PREDICTION, BLOCKS[profile], LENGTHS[profile]),
        (CONTROL, CONTROL_BLOCKS[profile], CONTROL_LENGTHS[profile]),
    ):
        for length in lengths:
            for seeds in blocks(count, SEEDS_A_BLOCK, first=UNSEEN):
                yield Work(arm, {"length": length}, seeds, 0.6 + 0.01 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The gap of every seed."""
    world, length = NormalMean(dim=DIM), parameters["length"]
    attention = partial(Reader, key_dim=DIM, value_dim=DIM, outputs=DIM, heads=2, hidden=16)
    make = attention if arm == PREDICTION else partial(flattened, length=length)
    train = draw(world, seeds, SAMPLES, length, TRAIN, exact=False)
    test = draw(world, seeds, TEST_SEQUENCES, length, TEST, exact=False)
    return {"gap": learn(make, train, test, seeds, (SAMPLES,), **TRAINING).gap[:, 0]}


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = across(measured, "gap", "length", average=True)
    return [judge_slope("slope of the generalisation gap in the length", logs, SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "attention", CONTROL: "plain network on flattened tokens"}
    series = [
        line(names[arm], across(cells, "gap", "length", average=True), control=arm != PREDICTION)
        for arm, cells in arms.items()
    ]
    return Figure(
        f"Generalisation gap over the length of sequences, n = {SAMPLES}",
        "tokens L", "generalisation gap", tuple(series),
    )  # fmt: skip


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
        "Tokens are exchangeable (by construction), so that weighted means carry what is needed.",
    ),
    meaning=(
        "Longer contexts need no more labelled sequences when attention reads them. A network "
        "with a weight for every token pays for each one of them."
    ),
    source="Lens A, claim (c); prediction (10) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
