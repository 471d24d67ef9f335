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
the logarithm is taken of the mean over blocks ("jackknife" in `attnlens.claims.estimates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning, Profile
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, NETWORK, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.worlds import LinearRegression

CONTROL = "copies"
BLOCKS: Mapping[Profile, int] = {"smoke": 4, "default": 8, "full": 128}
GRID = Grid(
    settings={
        "key_dim": 3,
        "noise_std": 0.5,
        "length": 16,
        # All in one cell. n·L is at most 2¹⁸ in the default profile, and larger in the full one.
        "samples": {
            "smoke": [64, 256, 1024],
            "default": [64, 256, 1024, 4096, 16384],
            "full": [64, 256, 1024, 4096, 16384, 65536],
        },
        # The remaining noise of the test sequences falls with their number, that of the training
        # sequences with n. As many as in the largest default training set, so that neither
        # dominates.
        "test_sequences": 16384,
        "distinct_sequences": 32,  # of the control
        **NETWORK,  # 168 parameters
        **FITTING,
    },
    # The full profile has sixteen times as many blocks as the default: with nine times as many the
    # interval was 2.4 times as narrow instead of 3.
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=2,
    cost=lambda parameters, seeds: (
        0.3 + 0.1 * len(parameters["samples"]) + 1e-4 * parameters["samples"][-1]
    ),
    pilot=range(2000),
)
GAP = ScalingLaw("gap", "samples", replicate="jackknife", within=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the generalisation gap in the number of sequences ({span})",
        GAP.slopes,
        Region(high=-0.5),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The generalisation gap: rows are seeds, columns are numbers of sequences."""
    dim, length, samples = (parameters[n] for n in ("key_dim", "length", "samples"))
    world = LinearRegression(dim, parameters["noise_std"])
    distinct = max(samples) if arm == PREDICTION else parameters["distinct_sequences"]
    train = draw(world, seeds, distinct, length, TRAIN, exact=False)
    if arm != PREDICTION:
        copies = max(samples) // distinct
        train = jax.tree.map(lambda leaf: np.concatenate([leaf] * copies, axis=1), train)
    test = draw(world, seeds, parameters["test_sequences"], length, TEST, exact=False)
    make = reader(parameters, key_dim=dim, query_dim=dim)
    return {"gap": learn(make, train, test, seeds, samples, **fitting(parameters)).gap}


FIGURE = Lines(
    "Generalisation gap over the number of training sequences",
    "sequences n",
    "generalisation gap",
    GAP,
    {PREDICTION: "distinct sequences", CONTROL: "copies of {distinct_sequences} sequences"},
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
    prediction="The slope of the gap in n, on log–log axes, is $slope.",
    controls={CONTROL: Control("The n sequences are copies of $distinct_sequences distinct ones.")},
    assumptions=(
        Assumption("Sequences are independent", Check.CONTROL, control=CONTROL),
        Assumption("The size of the network does not grow with n", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "Only distinct sequences count, copies do not: four times as many distinct sequences "
            "remove at least half of the gap."
        ),
        refuted=(
            "More distinct sequences close the gap more slowly than one over the square root of "
            "n: do not count on four times the data to halve it."
        ),
        undecided=(
            "How fast more sequences close the gap is open: measure the gap on held-out sequences "
            "before planning how many to collect."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 10."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
