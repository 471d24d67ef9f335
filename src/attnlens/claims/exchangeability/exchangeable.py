"""A.exchangeable: the tokens of exchangeable worlds pass a test; encoders are equivariant.

The assumption of lens A (Zhang et al., 2022), "input tokens are often exchangeable"
(docs/theory.md, section A(a)). (i) In an exchangeable world no permutation of the tokens changes
their joint law, so an exact permutation test at level 0.05 rejects a batch of sequences with
probability 0.05, or less where values of the statistic tie. (ii) Attention without positions is
built from sums over tokens, so permuting the tokens permutes its representation, up to rounding:

    ‖f(x∘π) − f(x)∘π‖∞ ≤ 100 ε ‖f(x)‖∞.

Every layer adds sums of L numbers in another order (each with an error of at most about L ε,
typically √L ε, with L = 32), and layer norm keeps the numbers of order one; the factor 100 allows
for two layers.

Part (i) tests the instrument as much as the worlds: the test must keep its level also when tokens
are dependent (Pólya's urn, negative correlation) or heavy-tailed.

The replicates of (i) are batches, each with value 0 or 1. The t interval over 4,096 of them is the
usual interval for a proportion; its skewness is (1 − 2p)/√(np(1 − p)) = 0.06 at p = 0.05, so the
nominal 2.5 % per side is right to about 0.5 %. The batches of a cell share their pool of
permutations. Given the pool, each batch rejects with probability 0.05, so they are uncorrelated
nevertheless (`attnlens.instruments.order.permutation`). The interval of the rate must lie below
0.07 in every world. With 2,000 batches (standard error 0.0049) one of eight worlds would fail this
by chance in every seventh run; with 4,096 (0.0034) in fewer than one run of a thousand.

Each control arm has one part: a rejection rate or an equivariance. A claim is refuted when one of
its parts is, so each control tests the part that it breaks. A rejection rate of 0.1 would already
break (i), but a useful test must do better: the controls with an order in time count as refuted
only if the power is above 0.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.claim import (
    PREDICTION,
    Claim,
    Measured,
    Profile,
    Work,
    blocks,
    example,
    group_by,
)
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import judge_exactly, mean_reading
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.order.exchange import p_values
from attnlens.instruments.order.martingale import wealth
from attnlens.instruments.order.symmetry import equivariance
from attnlens.networks.encoder import Encoder
from attnlens.worlds.base import World
from attnlens.worlds.registry import EXAMPLES
from attnlens.worlds.seeding import episode_keys

LEVEL = 0.05
PERMUTATIONS = 199  # 0.05 is then a value that p can take: 10 of 200
RATE = Region(high=LEVEL + 0.02)
POWER = Region(high=0.9)  # for the controls with an order in time: their power must be above
DEVIATION = Region(high=100.0)  # in units of ε
# A batch has 96 tokens: a lag-one correlation of 0.5 is then five standard errors (1/√96 = 0.1).
SEQUENCES, LENGTH = 3, 32
BATCHES_PER_CELL = 512
# The full profile has eleven times as many blocks as the default: with nine times as many the
# interval was 2.9 times as narrow instead of 3.
BLOCKS = {"smoke": 1, "default": 8, "full": 88}
CONTROL_BLOCKS = {"smoke": 1, "default": 1, "full": 9}  # a rate near 1 against 0.07
CONTROLS = ("auto-regressive", "drifting")  # correlation 0.5; drift of two noise deviations
POSITIONS = "positions"
WORLDS_DRAWN = 3  # worlds whose wealth is drawn beside that of the controls
# The default profile has one world of every kind, the full profile also their variants. (Teachers
# are left out: they draw their rows (x, y) independently, so the order cannot matter.)
WORLDS = (
    "normal-mean",
    "normal-inverse-gamma",
    "dirichlet-categorical",
    "finite-mixture",
    "linear-regression",
    "gaussian-process",
    "polya-urn",
    "equicorrelated",
    "normal-mean-full",
    "finite-mixture-categorical",
    "linear-regression-features",
    "gaussian-process-plane",
    "logistic-regression",
    "nonlinear-gaussian",
)
WORLD_COUNT = {"smoke": 1, "default": 8, "full": len(WORLDS)}
# equicorrelated: a correlation of −0.1 is possible for at most eleven tokens.
LENGTHS = {"equicorrelated": 10}
ENCODERS_PER_CELL = 4
ENCODER_BLOCKS = {"smoke": 1, "default": 2, "full": 18}
DIM, WIDTH = 3, 16


def plan(profile: Profile) -> Iterable[Work]:
    for world in WORLDS[: WORLD_COUNT[profile]]:
        for seeds in blocks(BLOCKS[profile], BATCHES_PER_CELL):
            yield Work(PREDICTION, {"part": "order", "world": world}, seeds, 0.15)
    for world in CONTROLS:
        for seeds in blocks(CONTROL_BLOCKS[profile], BATCHES_PER_CELL):
            yield Work(world, {"part": "order", "world": world}, seeds, 0.15)
    for arm in (PREDICTION, POSITIONS):
        for seeds in blocks(ENCODER_BLOCKS[profile], ENCODERS_PER_CELL):
            yield Work(arm, {"part": "encoder", "world": "normal"}, seeds, 0.5)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Whether each batch is rejected, or the deviation of each encoder in units of ε."""
    if parameters["part"] == "encoder":
        return {"deviation": np.array([_deviation(arm == POSITIONS, seed) for seed in seeds])}
    name = parameters["world"]
    keys = episode_keys(seeds, LENGTHS.get(name, LENGTH))
    tokens = np.asarray(_batches(EXAMPLES[name], keys, LENGTHS.get(name, LENGTH)))
    # The first seed of the cell is also the seed of its pool of permutations.
    values = {"rejected": p_values(tokens, PERMUTATIONS, seeds[0]) <= LEVEL + 1e-9}
    if seeds[0] == 0:  # the first batch is plotted as an example
        values["log_wealth"] = np.array(wealth(tokens[0]).log_values)
    return values


@eqx.filter_jit
def _batches(world: World, keys: jax.Array, length: int) -> jax.Array:
    """Tokens (batch, sequence, length, dim); keys and values are concatenated where both exist."""

    def one(key: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(world.sample(key, length).tokens)
        return jnp.concatenate(leaves, axis=-1)

    parts = jax.vmap(lambda key: jax.random.split(key, SEQUENCES))(keys)
    # lax.map, not vmap: one LAPACK call at a time.
    return jax.lax.map(lambda row: jax.lax.map(one, row), parts)


def _deviation(positions: bool, seed: int) -> float:
    tokens = np.random.default_rng(seed).normal(size=(LENGTH, DIM))
    key = jax.random.key(seed)
    reading = equivariance(lambda x: _represent(key, positions, jnp.asarray(x)), tokens, seed=seed)
    return reading.value / float(np.finfo(float).eps)


@eqx.filter_jit
def _represent(key: jax.Array, positions: bool, tokens: jax.Array) -> jax.Array:
    """The representation by a fresh encoder, drawn inside so that an arm is one program."""
    settings = {"token_dim": DIM, "width": WIDTH, "max_length": LENGTH, "position_std": 1.0}
    return Encoder(key, positions=positions, **settings).represent(tokens)


def judge(measured: Sequence[Measured]) -> list[Part]:
    parts = []
    for (part, world), cells in group_by(measured, "part", "world").items():
        if part == "encoder":
            values = np.concatenate([cell.values["deviation"] for cell in cells])
            quantity = "largest deviation from equivariance, in units of ε"
            parts.append(judge_exactly(quantity, values, DEVIATION))
        else:
            region = POWER if world in CONTROLS else RATE
            parts.append(judge_part(f"rejection rate ({world})", _rejected(cells), region))
    return parts


def _rejected(cells: Sequence[Measured]) -> np.ndarray:
    return np.concatenate([cell.values["rejected"] for cell in cells]).astype(float)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        tested = [cell for cell in measured if cell.parameters["part"] == "order"]
        for world, cells in group_by(tested, "world").items():
            place = len(series) + 1
            point = mean_reading(_rejected(cells)).point(place)
            series.append(Series(f"{place} {world}", (point,), control=arm != PREDICTION))
    last = len(series)
    for name, rate in (("level", LEVEL), ("allowed", RATE.high)):
        series.append(Series(f"{name} {rate:g}", (Point(1, rate), Point(last, rate)), line=True))
    return Figure(
        "How often an exact test at level 0.05 rejects exchangeability",
        "world",
        "share of batches rejected",
        tuple(series),
        log_x=False,
        log_y=False,
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """Wealth of a bettor against exchangeability, token by token, in one batch per world."""
    series = []
    for arm, measured in arms.items():
        worlds = WORLDS[:WORLDS_DRAWN] if arm == PREDICTION else (arm,)
        for world in worlds:
            logs = example(measured, "log_wealth", world=world)
            if logs is not None:
                walk = tuple(Point(float(n), float(np.exp(v))) for n, v in enumerate(logs))
                series.append(Series(world, walk, control=arm != PREDICTION, curve=True))
    if not series:
        return []
    last = max(point.x for line in series for point in line.points)
    edge = (Point(0.0, 1 / LEVEL), Point(last, 1 / LEVEL))
    series.append(Series(f"enough to reject at level {LEVEL:g}", edge, line=True))
    return [
        Figure(
            "Wealth from betting against exchangeability, one batch per world",
            "tokens of each sequence",
            "wealth",
            tuple(series),
            log_x=False,
        )
    ]


CLAIM = Claim(
    id="A.exchangeable",
    title="Exchangeable tokens pass the test, and encoders without positions are equivariant",
    statement=(
        "An exact test of exchangeability rejects the tokens of every exchangeable world no more "
        "often than its level allows, and an encoder without positions is equivariant: permuting "
        "the tokens permutes its representation."
    ),
    formula=(
        r"P\left(p(x_1,\dots,x_L)\le 0.05\right)\le 0.05,\qquad "
        r"f(x_{\pi(1)},\dots,x_{\pi(L)})=\left(f(x)_{\pi(1)},\dots,f(x)_{\pi(L)}\right)"
    ),
    prediction=(
        "The rejection rate at level 0.05 is at most 0.07 in every exchangeable world; the largest "
        "deviation of an encoder's representation is at most 100 ε of its largest entry."
    ),
    controls={
        "auto-regressive": (
            "Each token has correlation 0.5 with the one before: the rejection rate is above 0.9."
        ),
        "drifting": (
            "The mean of the tokens drifts by two noise standard deviations: the rejection rate is "
            "above 0.9."
        ),
        POSITIONS: "The encoder adds positions, drawn with standard deviation 1.",
    },
    assumptions=(
        "The sequences of a batch are independent, and each is exchangeable (by construction).",
        "The encoder sees tokens only through attention and token-wise maps (positions break it).",
    ),
    meaning=(
        "Before treating tokens as a set, test that they are exchangeable: the test keeps its "
        "stated false-positive rate at any sample size, and 96 tokens are enough to detect a drift "
        "or a correlation of one half between neighbours."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), the assumption of exchangeable tokens; our "
        "formalisation: docs/theory.md, section A(a)."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
