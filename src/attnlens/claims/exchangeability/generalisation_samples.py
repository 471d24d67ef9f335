"""A.generalisation-samples: the generalisation gap falls with the number of sequences.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), learning "up to a generalization
error" (docs/theory.md, prediction 10, its part in n). A network with p parameters, trained on n
sequences with noisy labels, has a gap of the order of p/n near its optimum, and of √(p/n) at worst;
so the slope of log gap in log n is −1/2 or below. The gap is measured relative to a network g that
was trained on other sequences and so has the same expected risk on both samples:

    gap = [test(f̂) − test(g)] + [train(g) − train(f̂)]

Its mean is that of test(f̂) − train(f̂), without the noise from the labels of the two samples. (With
the exact predictor in place of g, one block in eight had a negative gap at n = 16,384.)

The label is the value of the next token; the world is a linear regression with latent weights. The
network is one attention layer (two heads) with a small output network. It has far fewer parameters
than sequences at the largest n, and it overfits at the smallest n.

Training takes the same 1,500 steps of 64 sequences at every n: a sequence is seen 1,500 times at
n = 64, but only 6 times at n = 16,384 (1.5 times at 65,536). With few passes training stops before
the minimum of the training loss, and such a network overfits less. So the slope is that of training
with a fixed budget, not that of the minimiser, and it may be below −1. (The control cannot
distinguish the two: its 32 sequences are seen equally often at every n.)

At large n the gap is small compared with its noise and is sometimes negative in a single block, so
the logarithm is taken of the mean over blocks (`attnlens.claims.trained_networks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from attnlens.claims.claim import (
    FIRST_FRESH_SEED,
    PREDICTION,
    Claim,
    Measured,
    Profile,
    Work,
    blocks,
)
from attnlens.claims.trained_networks import judge_slope, line, within_cells
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.worlds import LinearRegression

KEY_DIM, NOISE_STD = 3, 0.5
LENGTH = 16
NETWORK = partial(Reader, key_dim=KEY_DIM, query_dim=KEY_DIM, heads=2, hidden=16)  # 168 parameters
# n·L is at most 2¹⁸ in the default profile, and larger in the full one.
SAMPLES = {
    "smoke": (64, 256, 1024),
    "default": (64, 256, 1024, 4096, 16384),
    "full": (64, 256, 1024, 4096, 16384, 65536),
}
SEEDS_PER_BLOCK = 2
# The full profile has sixteen times as many blocks as the default: with nine times as many the
# interval was 2.4 times as narrow instead of 3.
BLOCKS = {"smoke": 4, "default": 8, "full": 128}
# The remaining noise of the test sequences falls with their number, that of the training sequences
# with n. As many as in the largest default training set, so that neither dominates.
TEST_SEQUENCES = 16384
DISTINCT_SEQUENCES = 32
CONTROL = "copies"
SLOPE = Region(high=-0.5)


def plan(profile: Profile) -> Iterable[Work]:
    sizes = list(SAMPLES[profile])
    for arm in (PREDICTION, CONTROL):
        for seeds in blocks(BLOCKS[profile], SEEDS_PER_BLOCK, first=2 * FIRST_FRESH_SEED):
            yield Work(arm, {"samples": sizes}, seeds, 0.3 + 0.1 * len(sizes) + 1e-4 * sizes[-1])


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The generalisation gap: rows are seeds, columns are numbers of sequences."""
    world = LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD)
    samples = parameters["samples"]
    if arm == PREDICTION:
        train = draw(world, seeds, max(samples), LENGTH, TRAIN, exact=False)
    else:
        distinct = draw(world, seeds, DISTINCT_SEQUENCES, LENGTH, TRAIN, exact=False)
        copies = max(samples) // DISTINCT_SEQUENCES
        train = jax.tree.map(lambda leaf: np.concatenate([leaf] * copies, axis=1), distinct)
    test = draw(world, seeds, TEST_SEQUENCES, LENGTH, TEST, exact=False)
    return {"gap": learn(NETWORK, train, test, seeds, samples).gap}


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = within_cells(measured, "gap", "samples", average=True)
    return [judge_slope("slope of the generalisation gap in the number of sequences", logs, SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    copies = f"copies of {DISTINCT_SEQUENCES} sequences"
    names = {PREDICTION: "distinct sequences", CONTROL: copies}
    series = [
        line(
            names[arm],
            within_cells(cells, "gap", "samples", average=True),
            control=arm != PREDICTION,
        )
        for arm, cells in arms.items()
    ]
    return Figure(
        "Generalisation gap over the number of training sequences",
        "sequences n",
        "generalisation gap",
        tuple(series),
    )


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
    controls={CONTROL: f"The n sequences are copies of {DISTINCT_SEQUENCES} distinct ones."},
    assumptions=(
        "Sequences are independent (the control breaks this).",
        "The size of the network does not grow with n (by construction).",
    ),
    meaning=(
        "Only distinct sequences count, copies do not: four times as many distinct sequences "
        "remove at least half of the gap."
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
