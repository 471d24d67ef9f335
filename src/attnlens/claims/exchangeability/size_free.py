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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks
from attnlens.claims.rates import points
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.learned import TEST, TRAIN, compare, draw, trained
from attnlens.networks.reader import Reader
from attnlens.worlds import NormalMean

LENGTH = 32  # at 8 the unavoidable ratio is 0.22, close to the margin
LENGTH_FACTOR = 4
SAMPLES = {"smoke": 1024, "default": 4096, "full": 8192}
TEST_SEQUENCES = 2048
SEEDS_PER_BLOCK = 8
# The full profile has twelve times as many blocks as the default: with twice the samples the ratio
# varies more, and with nine times as many the interval was 2.7 times as narrow instead of 3.
BLOCKS = {"smoke": 1, "default": 3, "full": 36}
TRAINING = {"steps": 1500}
CONTROL = "positions"
LARGEST_RATIO = 0.25
RATIO = Region(high=math.log(LARGEST_RATIO))


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for seeds in blocks(BLOCKS[profile], SEEDS_PER_BLOCK):
            yield Work(arm, {"samples": SAMPLES[profile]}, seeds, 2.5)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Excess over exact risk for every seed, at the training length and at four times it."""
    world, samples = NormalMean(), parameters["samples"]
    positions = 0 if arm == PREDICTION else LENGTH_FACTOR * LENGTH
    make = partial(Reader, key_dim=1, heads=2, hidden=16, max_length=positions)
    train = draw(world, seeds, samples, LENGTH, TRAIN, "latent")
    fitted = trained(make, train, seeds, (samples,), **TRAINING)
    ratios = []
    for length in (LENGTH, LENGTH_FACTOR * LENGTH):
        test = draw(world, seeds, TEST_SEQUENCES, length, TEST, "latent")
        learned = compare(fitted, train, test)
        ratios.append((learned.distance / learned.uncertainty)[:, 0])
    return {"same": ratios[0], "longer": ratios[1]}


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = np.log(np.concatenate([cell.values["longer"] for cell in measured]))
    return [judge_part("log of excess over exact risk at four times the length", logs, RATIO)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, cells in arms.items():
        names = {LENGTH: "same", LENGTH_FACTOR * LENGTH: "longer"}
        columns = [np.concatenate([c.values[name] for c in cells]) for name in names.values()]
        means = points(np.log(list(names)), np.log(np.array(columns)).T)
        label = "no positions" if arm == PREDICTION else "absolute positions"
        series.append(Series(label, means, control=arm != PREDICTION))
    bound = tuple(Point(x, LARGEST_RATIO) for x in (LENGTH, LENGTH_FACTOR * LENGTH))
    series.append(Series("allowed", bound, line=True))
    return Figure(
        f"Excess over the exact risk, trained at L = {LENGTH}",
        "tokens L at test time",
        "excess / exact risk",
        tuple(series),
    )


CLAIM = Claim(
    id="A.size-free",
    title="A network trained at one length works at four times that length",
    statement=(
        "An attention network without positions that was trained at one length has, at four times "
        "that length, an excess of at most a quarter of the exact risk."
    ),
    formula=(
        r"\mathbb{E}\left(\hat f_L(X_{4L})-f^*(X_{4L})\right)^2 \;\le\; \tfrac14\,"
        r"\mathbb{E}\left(f^*(X_{4L})-z\right)^2"
    ),
    prediction="The excess at 4L is at most 25 % of the exact risk there (log ratio ≤ −1.39).",
    controls={CONTROL: "The same network with absolute positions; those beyond L are untrained."},
    assumptions=(
        "Tokens are exchangeable, and the network does not see their order (the control does).",
        "The training length is long enough that the learned factor L/(L + 1) is near one.",
    ),
    meaning=(
        "A network that reads tokens as a set may be trained on short contexts and used on longer "
        "ones. Its limit is that softmax averages: it cannot count tokens, and so it cannot know "
        "how certain its answer is."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (a); our formalisation: "
        "docs/theory.md, section A(a), size-free."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
