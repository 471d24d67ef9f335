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

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Check,
    Claim,
    Control,
    Meaning,
    Measured,
    example,
    group_by,
)
from attnlens.claims.estimates import pooled
from attnlens.claims.figures import mean_point
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.instruments.order.exchange import p_values
from attnlens.instruments.order.martingale import wealth
from attnlens.instruments.order.symmetry import equivariance
from attnlens.networks.encoder import Encoder
from attnlens.worlds import AutoRegressive, Drifting
from attnlens.worlds.base import World
from attnlens.worlds.registry import EXAMPLES
from attnlens.worlds.seeding import episode_keys

AUTO_REGRESSIVE, DRIFTING, POSITIONS = "auto-regressive", "drifting", "positions"
LEVEL = 0.05
# Worlds by their names in `attnlens.worlds.registry`. The default profile has one of every kind,
# the full profile also their variants. (Teachers are left out: they draw their rows (x, y)
# independently, so the order cannot matter.)
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
DRAWN = WORLDS[:3]  # worlds whose wealth is drawn beside that of the controls
FEW = {"smoke": 1, "default": 1, "full": 9}  # a rate near 1 against 0.07
ORDER = Grid(
    settings={
        "part": "exchangeable",
        # A batch has 96 tokens: a lag-one correlation of 0.5 is then five standard errors
        # (1/√96 = 0.1).
        "sequences": 3,
        "length": 32,
        "other_lengths": {"equicorrelated": 10},  # a correlation of −0.1: at most eleven tokens
        "permutations": 199,  # 0.05 is then a value that p can take: 10 of 200
        "level": LEVEL,
        "world_settings": {},  # none: those of the registry
    },
    axes={"world": {"smoke": WORLDS[:1], "default": WORLDS[:8], "full": WORLDS}},
    arm_settings={
        AUTO_REGRESSIVE: {
            "part": "ordered",
            "world": (AUTO_REGRESSIVE,),
            "world_settings": {"dim": 1, "coefficient": 0.5, "token_std": 1.0},
        },
        DRIFTING: {
            "part": "ordered",
            "world": (DRIFTING,),
            "world_settings": {"dim": 1, "drift": 2.0, "noise_std": 1.0, "prior_std": 1.0},
        },
    },
    blocks={
        # The full profile has eleven times as many blocks as the default: with nine times as many
        # the interval was 2.9 times as narrow instead of 3.
        PREDICTION: {"smoke": 1, "default": 8, "full": 88},
        AUTO_REGRESSIVE: FEW,
        DRIFTING: FEW,
    },
    seeds_per_block=512,
    cost=lambda parameters, seeds: 0.15,
)
ENCODERS = {"smoke": 1, "default": 2, "full": 18}
ENCODER = Grid(
    settings={
        "part": "encoder",
        "length": 32,
        "token_dim": 3,
        "width": 16,
        "heads": 4,
        "layers": 2,
        "positions": False,
        "position_std": 1.0,
    },
    arm_settings={POSITIONS: {"positions": True}},
    blocks={PREDICTION: ENCODERS, POSITIONS: ENCODERS},
    seeds_per_block=4,
    cost=lambda parameters, seeds: 0.5,
)
RATE = Region(high=LEVEL + 0.02)
REJECTED = pooled("rejected")
RULE = Rule(
    Quantity(
        "deviation",
        "largest deviation from equivariance, in units of ε",
        pooled("deviation"),
        Region(high=100.0),
        where={"part": "encoder"},
        exact=True,
    ),
    Quantity(
        "rate",
        "rejection rate ({world})",
        REJECTED,
        RATE,
        per=("world",),
        where={"part": "exchangeable"},
    ),
    Quantity(  # the controls with an order in time: their power must be above
        "power",
        "rejection rate ({world})",
        REJECTED,
        Region(high=0.9),
        per=("world",),
        where={"part": "ordered"},
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Whether each batch is rejected, or the deviation of each encoder in units of ε."""
    if parameters["part"] == "encoder":
        return {"deviation": np.array([_deviation(parameters, seed) for seed in seeds])}
    name = parameters["world"]
    length = parameters["other_lengths"].get(name, parameters["length"])
    kinds = {AUTO_REGRESSIVE: AutoRegressive, DRIFTING: Drifting}
    world = kinds[name](**parameters["world_settings"]) if name in kinds else EXAMPLES[name]
    drawn = _batches(world, episode_keys(seeds, length), parameters["sequences"], length)
    tokens = np.asarray(drawn)
    # The first seed of the cell is also the seed of its pool of permutations.
    p = p_values(tokens, parameters["permutations"], seeds[0])
    values = {"rejected": p <= parameters["level"] + 1e-9}
    if seeds[0] == 0:  # the first batch is plotted as an example
        values["log_wealth"] = np.array(wealth(tokens[0]).log_values)
    return values


@eqx.filter_jit
def _batches(world: World, keys: jax.Array, sequences: int, length: int) -> jax.Array:
    """Tokens (batch, sequence, length, dim); keys and values are concatenated where both exist."""

    def one(key: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(world.sample(key, length).tokens)
        return jnp.concatenate(leaves, axis=-1)

    parts = jax.vmap(lambda key: jax.random.split(key, sequences))(keys)
    # lax.map, not vmap: one LAPACK call at a time.
    return jax.lax.map(lambda row: jax.lax.map(one, row), parts)


def _deviation(parameters: Mapping[str, Any], seed: int) -> float:
    length, dim = parameters["length"], parameters["token_dim"]
    names = ("token_dim", "width", "heads", "layers", "positions", "position_std")
    settings = {"max_length": length} | {name: parameters[name] for name in names}
    tokens, key = np.random.default_rng(seed).normal(size=(length, dim)), jax.random.key(seed)
    reading = equivariance(lambda x: _represent(key, jnp.asarray(x), settings), tokens, seed=seed)
    return reading.value / float(np.finfo(float).eps)


@eqx.filter_jit
def _represent(key: jax.Array, tokens: jax.Array, settings: dict[str, Any]) -> jax.Array:
    """The representation by a fresh encoder, drawn inside so that an arm is one program."""
    return Encoder(key, **settings).represent(tokens)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        tested = [cell for cell in measured if cell.parameters["part"] != "encoder"]
        for world, cells in group_by(tested, "world").items():
            place = len(series) + 1
            point = mean_point(place, REJECTED(cells))
            series.append(Series(f"{place} {world}", (point,), control=arm != PREDICTION))
    last = len(series)
    for name, rate in (("level", LEVEL), ("allowed", RATE.high)):
        series.append(Series(f"{name} {rate:g}", (Point(1, rate), Point(last, rate)), line=True))
    return Figure(
        f"How often an exact test at level {LEVEL:g} rejects exchangeability",
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
        for world in DRAWN if arm == PREDICTION else (arm,):
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
        r"P\left(p(x_1,\dots,x_L)\le $level\right)\le $level,\qquad "
        r"f(x_{\pi(1)},\dots,x_{\pi(L)})=\left(f(x)_{\pi(1)},\dots,f(x)_{\pi(L)}\right)"
    ),
    prediction=(
        "The rejection rate at level $level is $rate in every exchangeable world; the largest "
        "deviation of an encoder's representation is $deviation ε of its largest entry."
    ),
    controls={
        AUTO_REGRESSIVE: Control(
            "Each token has correlation 0.5 with the one before: the rejection rate is above 0.9.",
            quantities=("power",),
        ),
        DRIFTING: Control(
            "The mean of the tokens drifts by two noise standard deviations: the rejection rate is "
            "above 0.9.",
            quantities=("power",),
        ),
        POSITIONS: Control(
            "The encoder adds positions, drawn with standard deviation 1.",
            quantities=("deviation",),
        ),
    },
    assumptions=(
        Assumption(
            "The sequences of a batch are independent, and each is exchangeable",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The encoder sees tokens only through attention and token-wise maps",
            Check.CONTROL,
            control=POSITIONS,
        ),
    ),
    meaning=Meaning(
        supported=(
            "Before treating tokens as a set, test that they are exchangeable: the test keeps its "
            "stated false-positive rate at any sample size, and 96 tokens are enough to detect a "
            "drift or a correlation of one half between neighbours."
        ),
        refuted=(
            "Either the test rejects exchangeable tokens too often or the encoder depends on their "
            "order: do not use either to decide whether tokens may be treated as a set."
        ),
        undecided=(
            "The false-positive rate of the test is not known well enough: do not read a rejection "
            "at this level as evidence that the order matters."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), the assumption of exchangeable tokens; our "
        "formalisation: docs/theory.md, section A(a)."
    ),
    plan=Grids(ORDER, ENCODER),
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
)
