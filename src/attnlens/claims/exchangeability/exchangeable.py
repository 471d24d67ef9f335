"""A.exchangeable: the tokens of exchangeable worlds pass an exact test of exchangeability.

The premise of lens A (Zhang et al., 2022), "input tokens are often exchangeable" (docs/theory.md,
section A(a)). In an exchangeable world no permutation of the tokens changes their joint law, so an
exact permutation test at level 0.05 rejects a batch of sequences with probability 0.05, or with a
smaller probability if values of the statistic tie.

The claim calibrates the test as much as it tests the worlds: the level must hold also when tokens
are dependent (Pólya's urn, negative correlation) or heavy-tailed. It says nothing about attention,
and nothing about real tokens; A.position-pairs checks that an encoder reads tokens with positions
as a set. The claim fails if `sample` of a world depends on the order, if ties of the statistic are
counted wrongly, or if the shared pool of permutations makes the test wrong.

The replicates are batches, each with value 0 or 1. The t interval over 3,072 of them is the usual
interval for a proportion; its skewness is (1 − 2p)/√(np(1 − p)) = 0.07 at p = 0.05, so the nominal
2.5 % per side is right to about 0.5 %. The batches of a cell share their pool of permutations.
Given the pool, each batch is rejected with probability 0.05, so batches are uncorrelated
nevertheless (`attnlens.instruments.order.permutation`). The interval of the rate must lie below
0.07 in every world. With 2,000 batches (standard error 0.0049) one of eight worlds would fail this
by chance in every seventh run; with 3,072 (0.0039) in fewer than one run of a hundred.

The controls have an order in time. For them, a rejection rate of 0.1 would already be outside the
region, but a useful test must detect them almost always: they count as refuted only if the
rejection rate is above 0.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.cells import Measured, example, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.exchangeability.statements import EXCHANGEABLE, cite
from attnlens.claims.figures import level_line, mean_point
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.instruments.order.exchange import p_values
from attnlens.instruments.order.martingale import wealth
from attnlens.worlds.base import World
from attnlens.worlds.registry import EXAMPLES, settings_of
from attnlens.worlds.seeding import episode_keys

AUTO_REGRESSIVE, DRIFTING = "auto-regressive", "drifting"
LEVEL = 0.05
CORRELATION = settings_of(AUTO_REGRESSIVE)["coefficient"]  # correlation of neighbouring tokens
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
DRAWN = WORLDS[:3]  # worlds whose wealth is plotted together with that of the controls
# Blocks of the controls: few are enough, because their rejection rate is near 1.
FEW = {"smoke": 1, "default": 1, "full": 4}
GRID = Grid(
    settings={
        "part": "exchangeable",
        # A batch has 96 tokens: a lag-one correlation of 0.5 is then five standard errors
        # (1/√96 = 0.1).
        "sequences": 3,
        "length": 32,
        # Eleven tokens at most can have a pairwise correlation of −0.1.
        "other_lengths": {"equicorrelated": 10},
        "permutations": 199,  # then p can be exactly 0.05 = 10/200
        "level": LEVEL,
    },
    axes={"world": {"smoke": WORLDS[:1], "default": WORLDS[:8], "full": WORLDS}},
    arm_settings={
        AUTO_REGRESSIVE: {
            "part": "ordered",
            "world": (AUTO_REGRESSIVE,),
        },
        DRIFTING: {
            "part": "ordered",
            "world": (DRIFTING,),
        },
    },
    derived={"world_settings": lambda parameters: settings_of(parameters["world"])},
    blocks={
        # The full profile has four times as many blocks as the default, for intervals half as wide:
        # 0.05 ± 0.0039 is clearly below 0.07, the end of the region.
        PREDICTION: {"smoke": 1, "default": 6, "full": 24},
        AUTO_REGRESSIVE: FEW,
        DRIFTING: FEW,
    },
    seeds_per_block=512,
    cost=lambda parameters, seeds: 0.15,
    pilot=range(4096),  # seeds on which the sizes of batches and blocks were chosen
)
RATE = Region(high=LEVEL + 0.02)
REJECTED = pooled("rejected")
RULE = Rule(
    Quantity(
        "rate",
        "rejection rate ({world})",
        REJECTED,
        RATE,
        per=("world",),
        where={"part": "exchangeable"},
        power=Power(effect=LEVEL, std=math.sqrt(LEVEL * (1 - LEVEL))),  # std of 0 or 1 per batch
    ),
    Quantity(  # judged for the controls, whose rejection rate must be above the region
        "power",
        "rejection rate ({world})",
        REJECTED,
        Region(high=0.9),
        per=("world",),
        where={"part": "ordered"},
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """For each batch, whether the test rejects exchangeability.

    The cell with the first seed also returns the wealth in its first batch, as an example.
    """
    name = parameters["world"]
    length = parameters["other_lengths"].get(name, parameters["length"])
    drawn = _batches(EXAMPLES[name], episode_keys(seeds, length), parameters["sequences"], length)
    tokens = np.asarray(drawn)
    # The pool of permutations of a cell is drawn with the first seed of the cell.
    p = p_values(tokens, parameters["permutations"], seeds[0])
    values = {"rejected": p <= parameters["level"] + 1e-9}
    if seeds[0] == GRID.pilot.stop:  # the first batch is plotted as an example
        values["log_wealth"] = np.array(wealth(tokens[0]).log_values)
    return values


@eqx.filter_jit
def _batches(world: World, keys: jax.Array, sequences: int, length: int) -> jax.Array:
    """Tokens (batch, sequence, length, dim); keys and values are concatenated where both exist."""

    def one(key: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(world.sample(key, length).tokens)
        return jnp.concatenate(leaves, axis=-1)

    parts = jax.vmap(lambda key: jax.random.split(key, sequences))(keys)
    # lax.map, not vmap, so that one LAPACK call runs at a time.
    return jax.lax.map(lambda row: jax.lax.map(one, row), parts)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for world, cells in group_by(measured, "world").items():
            place = len(series) + 1
            point = mean_point(place, REJECTED(cells))
            series.append(Series(f"{place} {world}", (point,), control=arm != PREDICTION))
    last = len(series)
    for name, rate in (("level", LEVEL), ("allowed", RATE.high)):
        series.append(level_line(f"{name} {rate:g}", rate, 1, last))
    return Figure(
        f"How often an exact test at level {LEVEL:g} rejects exchangeability",
        "world",
        "share of batches rejected",
        tuple(series),
        log_x=False,
        log_y=False,
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """A figure of the wealth from betting against exchangeability, over tokens, for one batch per
    world.
    """
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
    series.append(level_line(f"enough to reject at level {LEVEL:g}", 1 / LEVEL, 0.0, last))
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
    title="Tokens of exchangeable worlds pass an exact test",
    statement=(
        "An exact test of exchangeability rejects the tokens of every exchangeable world no more "
        "often than its level allows, and detects an order in time."
    ),
    formula=r"P\left(p(x_1,\dots,x_L)\le $level\right)\le $level",
    prediction="The rejection rate at level $level is $rate in every exchangeable world.",
    controls={
        AUTO_REGRESSIVE: Control(
            f"Each token has correlation {CORRELATION} with the one before: the rejection rate is "
            "above $power_high.",
            quantities=("power",),
        ),
        DRIFTING: Control(
            "The mean of the tokens drifts by two noise standard deviations: the rejection rate is "
            "above $power_high.",
            quantities=("power",),
        ),
    },
    assumptions=(
        Assumption(
            "The sequences of a batch are independent, and each is exchangeable",
            Check.BY_CONSTRUCTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "Before treating tokens as a set, test that they are exchangeable: the test keeps its "
            "stated false-positive rate at any sample size, and 96 tokens are enough to detect a "
            "drift or a correlation of one half between neighbours."
        ),
        refuted=(
            "The test rejects exchangeable tokens too often: do not use it to decide whether "
            "tokens may be treated as a set."
        ),
        undecided=(
            "The false-positive rate of the test is not known well enough: do not read a rejection "
            "at this level as evidence that the order matters."
        ),
    ),
    source=cite("the assumption of exchangeable tokens", "section A(a)"),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
    attribution=EXCHANGEABLE,
)
