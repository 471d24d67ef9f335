"""A.generalisation-samples: the generalisation gap falls with the number of sequences.

Our formalisation of claim (c) of lens A ("a generalisation error that is independent of input
sizes"), its part in n. A network with p parameters, trained on n sequences with noisy labels, has a
gap of the order of p/n near its optimum, and of √(p/n) at worst; so the slope of log gap in log n
is −1/2 or below. The gap is taken beside a network g that was trained on other sequences and so has
the same risk on both samples:

    gap = [test(f̂) − test(g)] + [train(g) − train(f̂)]

The mean is that of test(f̂) − train(f̂), without the noise that the two samples' labels bring. (With
the exact predictor in the place of g, one block in eight came out negative at n = 16,384.)

The label is the next token's value; the world is a linear regression with latent weights. The
network is one attention layer (two heads) with a small head, far smaller than n at the right end
of the range and overfitted at its left end.

Training has the same 1,500 steps of 64 sequences at every n: a sequence is seen 1,500 times at
n = 64, but only 6 times at n = 16,384 (1.5 at 65,536). Few passes stop short of the minimum of the
training loss, and a network that stops short overfits less. So the slope is that of training on a
fixed budget, not that of the minimiser, and may be below −1. (The control does not tell the two
apart: its 32 sequences are seen as often at every n.)

Where n is large the gap is small beside its noise, and of single blocks it is negative now and
then, so the logarithm is taken of the mean over blocks (`claims.trained`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from attnlens.claims.base import PREDICTION, UNSEEN, Claim, Measured, Profile, Work, blocks
from attnlens.claims.trained import judge_slope, line, within
from attnlens.instruments.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.records import Figure, Part, Region
from attnlens.worlds import LinearRegression

KEY_DIM, NOISE_STD = 3, 0.5
LENGTH = 16
NETWORK = partial(Reader, key_dim=KEY_DIM, query_dim=KEY_DIM, heads=2, hidden=16)  # 168 parameters
# Up to n·L = 2¹⁸ by default, beyond in full.
SAMPLES = {
    "smoke": (64, 256, 1024),
    "default": (64, 256, 1024, 4096, 16384),
    "full": (64, 256, 1024, 4096, 16384, 65536),
}
SEEDS_A_BLOCK = 2
# In full sixteen times as many: nine gave an interval 2.4 times as narrow instead of 3.
BLOCKS = {"smoke": 4, "default": 8, "full": 128}
# What is left of the test sequences' noise falls with their number, that of the training ones with
# n: as many as the longest default training set has, so that neither is much the larger.
TEST_SEQUENCES = 16384
DISTINCT = 32
CONTROL = "copies"
SLOPE = Region(high=-0.5)


def plan(profile: Profile) -> Iterable[Work]:
    sizes = list(SAMPLES[profile])
    for arm in (PREDICTION, CONTROL):
        for seeds in blocks(BLOCKS[profile], SEEDS_A_BLOCK, first=2 * UNSEEN):
            yield Work(arm, {"samples": sizes}, seeds, 0.3 + 0.1 * len(sizes) + 1e-4 * sizes[-1])


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The gap, for every seed (rows) and number of sequences (columns)."""
    world = LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD)
    samples = parameters["samples"]
    if arm == PREDICTION:
        train = draw(world, seeds, max(samples), LENGTH, TRAIN, exact=False)
    else:
        few = draw(world, seeds, DISTINCT, LENGTH, TRAIN, exact=False)
        copies = max(samples) // DISTINCT
        train = jax.tree.map(lambda leaf: np.concatenate([leaf] * copies, axis=1), few)
    test = draw(world, seeds, TEST_SEQUENCES, LENGTH, TEST, exact=False)
    return {"gap": learn(NETWORK, train, test, seeds, samples).gap}


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = within(measured, "gap", "samples", average=True)
    return [judge_slope("slope of the generalisation gap in the number of sequences", logs, SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "distinct sequences", CONTROL: f"copies of {DISTINCT} sequences"}
    series = [
        line(names[arm], within(cells, "gap", "samples", average=True), control=arm != PREDICTION)
        for arm, cells in arms.items()
    ]
    return Figure(
        "Generalisation gap over the number of training sequences",
        "sequences n", "generalisation gap", tuple(series),
    )  # fmt: skip


CLAIM = Claim(
    id="A.generalisation-samples",
    title="The generalisation gap falls with the number of sequences",
    statement=(
        "An attention network trained to predict the next token from n sequences has a "
        "generalisation gap that falls at least as fast as one over the square root of n."
    ),
    formula=(
        r"\left[R(\hat f)-R(g)\right]+\left[\hat R_n(g)-\hat R_n(\hat f)\right]"
        r" = O\left(n^{-1/2}\right)"
    ),
    prediction="The slope of the gap in n, on log–log axes, is at most −0.5.",
    controls={CONTROL: f"The n sequences are copies of {DISTINCT} distinct ones."},
    assumptions=(
        "Sequences are independent (the control breaks this).",
        "The network's size does not grow with n (by construction).",
    ),
    meaning=(
        "Labels count, copies do not: the gap is set by the number of distinct sequences, and "
        "four times as many buy at least half the gap."
    ),
    source="Lens A, claim (c); prediction (10) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
