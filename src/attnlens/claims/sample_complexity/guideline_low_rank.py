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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Meaning,
    Measured,
    Origin,
    Profile,
)
from attnlens.claims.estimates import log_of, log_ratio
from attnlens.claims.figures import log_point
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import (
    ADAM,
    Samples,
    teacher_samples,
    token_teacher,
    train,
    training_of,
)
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.networks import SelfAttention
from attnlens.worlds.seeding import episode_keys

CONTROL = "below-rank"
BELOW_RANK = 1  # the query dimension of the control
# A teacher costs sixteen students of a tenth of a second, so the default profile has only 8
# teachers, enough if every teacher has a good start. The full profile has nine times as many.
BLOCKS: dict[Profile, int] = {"smoke": 1, "default": 1, "full": 9}
GRID = Grid(
    settings={
        **ADAM,
        "tokens": 4,
        "token_dim": 10,  # t, and the query dimension of the teacher and of the wide student
        "query_dim": 2,  # of the narrow student
        "value_dim": 1,
        "layers": 1,
        "rank": 2,
        "attend": True,
        "rows": 768,
        "focus": 3.0,
        "noise": "gaussian",
        "noise_std": 0.1,
        "sharpness": 5.0,
        "test_samples": 512,  # per seed; they cause a few per cent of the variance of an error
        "teacher_hidden": 4,
        "hidden": 8,
        "starts": {"smoke": 2, "default": 8, "full": 8},
        "steps": {"smoke": 150, "default": 1500, "full": 1500},
        "every": 150,  # the training loss is the mean over the last 150 steps
        "batch": 32,
        "learning_rate": 1e-2,
        "l2": 1e-4,
    },
    arm_settings={CONTROL: {"query_dim": BELOW_RANK}},
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block={"smoke": 2, "default": 8, "full": 8},
    cost=lambda parameters, seeds: (
        0.1 + 5e-5 * parameters["steps"] * parameters["starts"] * 2 * seeds
    ),
    pilot=range(1000),
)
RULE = Rule(
    Quantity(
        "log_ratio",
        "log ratio of test errors, narrow queries over d_q = {token_dim}",
        log_ratio("narrow", "full"),
        Region(high=-0.3),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors with narrow and with full queries, one per teacher."""
    dim, rank = parameters["token_dim"], parameters["rank"]
    keys, tested = episode_keys(seeds, dim, rank), parameters["test_samples"]
    world = token_teacher(parameters, query_dim=dim)
    samples = teacher_samples(world, keys, parameters["rows"], tested)
    return {
        "narrow": _best(parameters["query_dim"], samples, seeds, parameters),
        "full": _best(dim, samples, seeds, parameters),
    }


def _best(
    query_dim: int, samples: Samples, seeds: Sequence[int], parameters: Mapping[str, Any]
) -> np.ndarray:
    """The relative error of the start with the lowest training loss, one per teacher."""
    names = ("tokens", "token_dim", "value_dim", "hidden", "sharpness")
    make = partial(SelfAttention, query_dim=query_dim, **{n: parameters[n] for n in names})
    starts, every = parameters["starts"], min(parameters["every"], parameters["steps"])
    repeated = Samples(*(np.repeat(part, starts, axis=0) for part in samples))
    start_seeds = [seed * 1000 + start for seed in seeds for start in range(starts)]
    training = {**training_of(parameters), "every": every}
    students = train(make, repeated, start_seeds, (parameters["rows"],), **training)
    errors, losses = (
        part.reshape(len(seeds), starts) for part in (students.errors, students.train)
    )
    return np.take_along_axis(errors, losses.argmin(1)[:, None], axis=1)[:, 0]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    def point(arm: str, name: str, dim: str) -> Point:
        cells = arms[arm]
        return log_point(float(cells[0].parameters[dim]), log_of(name)(cells))

    setting = arms[PREDICTION][0].parameters
    enough = point(PREDICTION, "narrow", "query_dim"), point(PREDICTION, "full", "token_dim")
    below = (point(CONTROL, "narrow", "query_dim"),)
    return Figure(
        f"Test error over the width of queries and keys, {setting['rows']} samples, true rank "
        f"{setting['rank']}",
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
        r"\mathbb{E}\,\log\frac{\mathrm{error}(d_q=r)}{\mathrm{error}(d_q=t)}\;\leq\;$log_ratio_high,"
        r"\qquad \mathrm{rank}\left(w_Q^{\top}w_K\right)=r<t"
    ),
    prediction=(
        "The mean log ratio of test errors, d_q = $rank over d_q = $token_dim, is $log_ratio with "
        "true rank $rank, t = $token_dim, n = $rows and the best of $starts starts by training "
        "loss."
    ),
    controls={CONTROL: Control(f"d_q = {BELOW_RANK}, below the true rank of $rank.")},
    assumptions=(
        Assumption("The query–key product of the data has low rank", Check.BY_CONSTRUCTION),
        Assumption("d_q is at least that rank", Check.CONTROL, control=CONTROL),
        Assumption(
            "There are enough starts to avoid the bad local minima that narrow queries have"
        ),
    ),
    meaning=Meaning(
        supported=(
            "Lower d_q until the validation error rises: above the rank, a larger d_q only costs "
            "samples. Use several starts when d_q is small."
        ),
        refuted=(
            "Narrow queries do not lower the error even where attention has low rank: do not lower "
            "d_q in order to save samples."
        ),
        undecided=(
            "Whether narrow queries lower the error is open: choose d_q on validation data, with "
            "several starts where it is small."
        ),
    ),
    source=(
        "Our own prediction (docs/theory.md, prediction 20); lens B (ICLR 2021 submission) "
        "announces guidelines for practitioners, and their content here is ours."
    ),
    attribution=Attribution(Origin.FINDING),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
)
