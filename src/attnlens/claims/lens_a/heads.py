"""A.heads: error falls with the number of heads until there is one for every factor.

Our formalisation of claim (b) of lens A for several heads. Tokens fall into r = 3 groups that their
keys tell apart, each group seeing its own factor z_g of the latent through noise; the label is a
nonlinear function of the factors, their maximum. One head with one query reads one weighted mean
over all tokens, so with fewer than r heads some factors reach the output only mixed; with r heads
each can be read alone, and a further one has nothing left to read.

    test error:  e₁ > e₂ > e₃ ≈ e₄

The *average* of the factors needs one head only: that is the control. Groups have equal sizes
(with random ones even a linear label would gain from heads), and values do not depend on keys
(else one head could do it all).

Heads can collapse onto the same group early in training; for the maximum each network is the best
of six starts by its *training* loss, the same rule for every number of heads. The average, linear
in the factors, has no bad starts: there each network has one.

Errors are judged as they are, above zero and not above the best that tokens allow. For the maximum
that floor is E Var(max z | X) = 0.0280 (by quadrature: given X the factors are independent normal
with variance 1/33, and their means have variance 32/33); for the average it is 1/99. Three heads
reach about 0.033, so that 10 % of it is 0.7 of what lies above the floor: "≈" says that a fourth
head does not gain (or lose) more than about that part of the excess, not that it gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.base import PREDICTION, UNSEEN, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.base import example as kept
from attnlens.claims.rates import points
from attnlens.instruments.inference import episode_keys
from attnlens.instruments.learned import TEST, TRAIN
from attnlens.networks.ensemble import fit
from attnlens.networks.reader import Asked, Reader
from attnlens.records import Figure, Map, Part, Region, Series
from attnlens.statistics import judge as judge_part

GROUPS = 3
TOKENS_A_GROUP = 8
NOISE_STD = 0.5
HEADS = (1, 2, 3, 4)
SAMPLES = 4096
TEST_SEQUENCES = 2048
STARTS = {PREDICTION: 6, "average": 1}  # a linear label has no bad starts
SEEDS_A_BLOCK = 4
# In full twelve times as many: nine gave an interval 2.8 times as narrow instead of 3.
BLOCKS = {"smoke": 1, "default": 2, "full": 24}
TRAINING = {"steps": 1500, "batch": 64, "learning_rate": 1e-2, "schedule": "cosine", "warmup": 50}
SHORT = {**TRAINING, "steps": 200}  # smoke only sees whether everything runs
CONTROL = "average"
FALLS = Region(high=math.log(0.75))  # each step up to r heads: at least 25 % lower
FLAT = Region(math.log(0.9), math.log(1.1))


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for heads in HEADS:
            for seeds in blocks(BLOCKS[profile], SEEDS_A_BLOCK, first=UNSEEN):
                parameters = {"heads": heads, "short": profile == "smoke"}
                yield Work(arm, parameters, seeds, 0.3 + (0.5 if profile == "smoke" else 2.0))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The test error of every seed's best start."""
    starts = STARTS[arm]
    train, test = _draw(arm, seeds, TRAIN, SAMPLES), _draw(arm, seeds, TEST, TEST_SEQUENCES)
    # Start i of seed s is member s·starts + i; the starts of a seed share its data.
    members = [seed * starts + i for seed in seeds for i in range(starts)]
    train, test = (
        jax.tree.map(lambda leaf: np.repeat(leaf, starts, axis=0), drawn) for drawn in (train, test)
    )
    make = partial(Reader, key_dim=GROUPS, heads=parameters["heads"], hidden=32)
    settings = SHORT if parameters["short"] else TRAINING
    fitted = fit(
        make, *train, test=test, seeds=members, data_per_seed=True, block=len(members), **settings
    )
    last = fitted.train[:, -1].reshape(len(seeds), starts)  # mean over the last twentieth of steps
    best = np.nanargmin(last, axis=1)
    errors = fitted.test_loss.reshape(len(seeds), starts)
    values = {"error": errors[np.arange(len(seeds)), best].astype(float)}
    if arm == PREDICTION and seeds[0] == UNSEEN:
        # An example to look at: one network's weights on one sequence.
        model = fitted.model(int(best[0]))
        asked = Asked(*(jnp.asarray(part[0, 0], model.key.dtype) for part in test[0][:2]))
        values["weights"] = np.asarray(model.attention(asked), float)
    return values


def _draw(arm: str, seeds: Sequence[int], part: int, count: int) -> tuple[Asked, np.ndarray]:
    """Tokens and labels of every seed: (seeds, count, …)."""
    tokens = GROUPS * TOKENS_A_GROUP

    def one(key: Any) -> tuple[Any, Any]:
        draws = jax.random.normal(key, (count, GROUPS, 1 + TOKENS_A_GROUP))
        factors = draws[:, :, 0]
        values = factors[:, :, None] + NOISE_STD * draws[:, :, 1:]
        label = factors.max(1) if arm == PREDICTION else factors.mean(1)
        return values.reshape(count, tokens, 1), label[:, None]

    values, labels = (np.asarray(x) for x in jax.vmap(one)(episode_keys(seeds, part)))
    groups = np.repeat(np.eye(GROUPS), TOKENS_A_GROUP, axis=0)
    return Asked(np.broadcast_to(groups, (len(seeds), count, tokens, GROUPS)), values), labels


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = {
        heads: np.log(np.concatenate([cell.values["error"] for cell in cells]))
        for heads, cells in by(measured, "heads").items()
    }
    parts = [
        judge_part(f"log error ratio, {h + 1} heads to {h}", logs[h + 1] - logs[h], FALLS)
        for h in range(1, GROUPS)
    ]
    quantity = f"log error ratio, {GROUPS + 1} heads to {GROUPS}"
    return [*parts, judge_part(quantity, logs[GROUPS + 1] - logs[GROUPS], FLAT)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "maximum of three factors", CONTROL: "average of three factors"}
    series = []
    for arm, measured in arms.items():
        columns = [
            np.log(np.concatenate([cell.values["error"] for cell in cells]))
            for cells in by(measured, "heads").values()
        ]
        drawn = points(np.log(HEADS), np.array(columns).T)
        series.append(Series(names[arm], drawn, control=arm != PREDICTION))
    return Figure(
        "Test error over the number of heads", "heads", "mean squared error", tuple(series),
        log_x=False,
    )  # fmt: skip


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Map]:
    """Where each head looks, with fewer heads than groups and with as many."""
    names = tuple(f"{'abc'[g]}{i + 1}" for g in range(GROUPS) for i in range(TOKENS_A_GROUP))
    found = {heads: kept(arms[PREDICTION], "weights", heads=heads) for heads in (1, 2, GROUPS)}
    panels = tuple(
        (f"{heads} head{'s' * (heads > 1)}", tuple(tuple(map(float, row)) for row in weights))
        for heads, weights in found.items()
        if weights is not None
    )
    title = "Where each head looks in one sequence: groups a, b and c of eight tokens"
    return [Map(title, "token", "head", panels, names)] if panels else []


CLAIM = Claim(
    id="A.heads",
    title="One head for every factor of the latent",
    statement=(
        "When the label mixes several factors of the latent nonlinearly, error falls with each "
        "head until there is one for every factor, and not further."
    ),
    formula=r"e_1 > e_2 > \dots > e_r \approx e_{r+1}",
    prediction=(
        "With three factors, the second and the third head each lower the error by at least 25 %; "
        "the fourth changes it by at most 10 %."
    ),
    controls={CONTROL: "The label is the average of the factors: one head can read it."},
    assumptions=(
        "Keys tell the groups apart, groups have equal sizes, values do not depend on keys (by "
        "construction).",
        "The label is not linear in the factors (the control breaks this).",
    ),
    meaning=(
        "Count the things that must be read apart: that is how many heads are needed. One more "
        "than that changed the error by less than a tenth; with one fewer it was several times as "
        "large, with the same 32 hidden units behind the heads."
    ),
    source="Lens A, claim (b); prediction (9) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
