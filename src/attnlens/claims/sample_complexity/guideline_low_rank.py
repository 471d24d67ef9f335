"""B.guideline-low-rank: queries of the rank of the data's attention have a lower error.

Our own prediction; lens B (ICLR 2021 submission) announces guidelines for the design of attention
models (docs/theory.md, prediction 20). Only w_Qᵀ w_K enters a self-attention model (lens B,
section 2): a t × t matrix of rank at most d_q. Where that matrix of the data has rank r < t, a
student with d_q = r must learn fewer directions than one with d_q = t, at the same n:

    E log [error(d_q = r) / error(d_q = t)]  ≤  −0.3,    t = 10, r = 2, n = 768,

as long as d_q ≥ r: with d_q = 1 < r the student cannot represent the teacher (the control).

Each student is the best of eight starts *by training loss*, as a practitioner would choose: narrow
attention has bad local minima, and with few starts these determine the error, not the number of
samples. In a pilot the standard deviation of the log ratio of a teacher was 0.9 with four starts of
1000 steps and 0.2 with eight starts of 1500 steps; with six starts of 1200 steps and eight teachers
the claim was undecided, at −0.75 ± 0.9. The claim is judged on teachers that were not used for
these choices. n = 768, because at n = 384 a bad minimum can fit the samples as well as a good one,
so that the training loss cannot distinguish them. With value dimension 1 and logits of standard
deviation 3 most of the label depends on attention.

A replicate is a teacher with its data, the same for both students.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

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
from attnlens.claims.teacher_student import Samples, teacher_samples, train
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import mean_reading
from attnlens.core.verdicts import Part, Region
from attnlens.networks import SelfAttention
from attnlens.worlds import TokenTeacher
from attnlens.worlds.seeding import episode_keys

TOKENS, DIM, VALUE_DIM, RANK, ROWS, FOCUS = 4, 10, 1, 2, 768, 3.0
HIDDEN = {"teacher": 4, "student": 8}
STARTS = 8
TRAINING: dict[str, Any] = {
    "steps": 1500,
    "batch": 32,
    "learning_rate": 1e-2,
    "schedule": "cosine",
    "l2": 1e-4,
}
EVERY = 150  # the training loss is the mean over the last 150 steps
QUERY_DIM = {PREDICTION: RANK, "below-rank": 1}
CONTROL = "below-rank"
# (blocks, teachers per block). A teacher costs sixteen students of a tenth of a second, so the
# default profile has only 8, enough if every teacher has a good start. The full profile has nine
# times as many.
BLOCKS = {"smoke": (1, 2), "default": (1, 8), "full": (9, 8)}
SMOKE = {"starts": 2, "steps": 150}
LOG_RATIO = Region(high=-0.3)


def plan(profile: Profile) -> Iterable[Work]:
    parameters = SMOKE if profile == "smoke" else {"starts": STARTS, "steps": TRAINING["steps"]}
    for arm in (PREDICTION, CONTROL):
        for seeds in blocks(*BLOCKS[profile], first=FIRST_FRESH_SEED):
            cost = 0.1 + 5e-5 * parameters["steps"] * parameters["starts"] * 2 * len(seeds)
            yield Work(arm, parameters, seeds, cost)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors with narrow and with full queries, one per teacher."""
    world = TokenTeacher(
        tokens=TOKENS,
        token_dim=DIM,
        query_dim=DIM,
        value_dim=VALUE_DIM,
        hidden=HIDDEN["teacher"],
        rank=RANK,
        focus=FOCUS,
    )
    samples = teacher_samples(world, episode_keys(seeds, DIM, RANK), ROWS)
    return {
        "narrow": _best(QUERY_DIM[arm], samples, seeds, **parameters),
        "full": _best(DIM, samples, seeds, **parameters),
    }


def _best(
    query_dim: int, samples: Samples, seeds: Sequence[int], starts: int, steps: int
) -> np.ndarray:
    """The relative error of the start with the lowest training loss, one per teacher."""
    make = partial(
        SelfAttention,
        tokens=TOKENS,
        token_dim=DIM,
        query_dim=query_dim,
        value_dim=VALUE_DIM,
        hidden=HIDDEN["student"],
    )
    repeated = Samples(*(np.repeat(part, starts, axis=0) for part in samples))
    start_seeds = [seed * 1000 + start for seed in seeds for start in range(starts)]
    settings = {**TRAINING, "steps": steps, "every": min(EVERY, steps)}
    students = train(make, repeated, start_seeds, (ROWS,), **settings)
    errors, losses = (
        part.reshape(len(seeds), starts) for part in (students.errors, students.train)
    )
    return np.take_along_axis(errors, losses.argmin(1)[:, None], axis=1)[:, 0]


def _logs(measured: Sequence[Measured], name: str) -> np.ndarray:
    return np.log(np.concatenate([cell.values[name] for cell in measured]))


def judge(measured: Sequence[Measured]) -> list[Part]:
    quantity = f"log ratio of test errors, narrow queries over d_q = {DIM}"
    ratio = _logs(measured, "narrow") - _logs(measured, "full")
    return [judge_part(quantity, ratio, LOG_RATIO)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    def point(measured: Sequence[Measured], name: str, query_dim: int) -> Point:
        return mean_reading(_logs(measured, name)).exp_point(query_dim)

    measured = arms[PREDICTION]
    enough = (point(measured, "narrow", RANK), point(measured, "full", DIM))
    below = (point(arms[CONTROL], "narrow", 1),)
    return Figure(
        f"Test error over the width of queries and keys, {ROWS} samples, true rank {RANK}",
        "d_q",
        "relative error (geometric mean)",
        (Series("d_q ≥ rank", enough), Series("d_q below the rank", below, control=True)),
    )


CLAIM = Claim(
    id="B.guideline-low-rank",
    title="Narrow queries lower the error where attention has low rank",
    statement=(
        "At a fixed number of samples, a self-attention student whose query dimension equals the "
        "rank of the data's attention has a lower error than one with the full query dimension; "
        "below the rank its error is higher."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{\mathrm{error}(d_q=r)}{\mathrm{error}(d_q=t)}\;\leq\;-0.3,"
        r"\qquad \mathrm{rank}\left(w_Q^{\top}w_K\right)=r<t"
    ),
    prediction=(
        "The mean log ratio of test errors, d_q = 2 over d_q = 10, is at most −0.3 with true rank "
        "2, t = 10, n = 768 and the best of eight starts by training loss."
    ),
    controls={CONTROL: "d_q = 1, below the true rank of 2."},
    assumptions=(
        "The query–key product of the data has low rank, and d_q is at least that rank (not in the "
        "control).",
        "There are enough starts to avoid the bad local minima that narrow queries have.",
    ),
    meaning=(
        "Lower d_q until the validation error rises: above the rank, a larger d_q only costs "
        "samples. Use several starts when d_q is small."
    ),
    source=(
        "Our own prediction (docs/theory.md, prediction 20); lens B (ICLR 2021 submission) "
        "announces guidelines for practitioners, and their content here is ours."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
