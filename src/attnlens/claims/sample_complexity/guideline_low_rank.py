"""B.guideline-low-rank: queries of the rank of the data's attention have a lower error.

Our own prediction; lens B (ICLR 2021 submission) announces guidelines for the design of attention
models (docs/theory.md, prediction 20). A self-attention model depends on queries and keys only
through w_Qᵀ w_K (lens B, section 2), a t × t matrix of rank at most d_q. If this matrix of the
teacher has rank r < t, a student with d_q = r must learn fewer directions than one with d_q = t,
from the same number n of samples:

    E log [error(d_q = r) / error(d_q = t)]  ≤  −0.3,    t = 10, r = 2, n = 768,

The condition is d_q ≥ r: with d_q = 1 < r the student cannot represent the teacher (the control).

Why it should hold: if the noise dominates, the excess error of least squares is σ²/n times the
number of free parameters. With one hidden layer of 8 units on 4 values these are 50, plus those of
w_Qᵀ w_K, 100 or 36 (a matrix of rank 2), so the log ratio would be −0.56.

Each side has 12 candidates (six starts with two penalties), and a fifth of the rows is held out to
choose among them. *Why so many starts?* Narrow attention has bad local minima: with two starts,
three of 16 teachers of the pilot had no good start, and their log ratios were near 2. With four,
six and eight starts every teacher had a good one, and the mean was −0.61, −0.61 and −0.64. *Why
n = 768 and noise 0.3?* With t = 12 and n = 1024 three of 16 teachers had no good start of four.
With noise 0.1 the log ratio of eight teachers was −0.42 with a standard deviation of 0.5. *Is the
penalty the reason?* No: for both sides the smaller penalty, 0.001, is better.

A replicate is a teacher with its data, the same for both students.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import log_of, log_ratio
from attnlens.claims.figures import log_point
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
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
GRID = Grid(
    settings={
        **ADAM,
        "tokens": 4,
        "token_dim": 10,  # t, and the query dimension of the teacher and of the wide student
        "query_dim": 2,  # query dimension of the narrow student
        "value_dim": 1,
        "layers": 1,
        "rank": 2,
        "attend": True,
        "unit_variance": True,
        "rows": 768,
        # The standard deviation of the logits. With 3, and with value dimension 1, most of the
        # label depends on attention.
        "focus": 3.0,
        "noise": "gaussian",
        "noise_std": 0.3,
        "sharpness": 5.0,
        "test_samples": 512,  # per seed; a few per cent of an error's variance come from them
        "teacher_hidden": 4,
        "hidden": 8,
        "starts": {"smoke": 2, "default": 6, "full": 6},
        "steps": {"smoke": 150, "default": 1500, "full": 1500},
        "batch": 32,
        "learning_rate": 1e-2,
        "l2": [1e-3, 3e-3],
        "validation": 0.2,
    },
    arm_settings={CONTROL: {"query_dim": BELOW_RANK}},
    blocks={
        # By the pilot's numbers four teachers are enough; 24 allow for one without a good start.
        PREDICTION: {"smoke": 1, "default": 3, "full": 27},
        CONTROL: {"smoke": 1, "default": 1, "full": 9},
    },
    seeds_per_block={"smoke": 2, "default": 8, "full": 8},
    cost=lambda parameters, seeds: (
        0.1 + 2.5e-5 * parameters["steps"] * parameters["starts"] * 4 * seeds
    ),
    pilot=range(1000),
)
RULE = Rule(
    Quantity(
        "log_ratio",
        "log ratio of test errors, narrow queries over d_q = {token_dim}",
        log_ratio("narrow", "full"),
        Region(high=-0.3),
        # Pilot of 16 teachers: −0.61 with a standard deviation of 0.16. The larger value here
        # allows for one teacher of 24 whose narrow students all end in a bad minimum.
        power=Power(-0.6, 0.4),
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
    """The relative error of the start and penalty with the lowest loss on held-out rows."""
    names = ("tokens", "token_dim", "value_dim", "hidden", "sharpness")
    make = partial(SelfAttention, query_dim=query_dim, **{n: parameters[n] for n in names})
    starts = parameters["starts"]
    repeated = Samples(*(np.repeat(part, starts, axis=0) for part in samples))
    start_seeds = [seed * 1000 + start for seed in seeds for start in range(starts)]
    training = {**training_of(parameters), "l2": tuple(parameters["l2"])}
    students = train(make, repeated, start_seeds, (parameters["rows"],), **training)
    errors, held_out = (
        part.reshape(len(seeds), -1) for part in (students.errors, students.validation)
    )
    return np.take_along_axis(errors, held_out.argmin(1)[:, None], axis=1)[:, 0]


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
        "true rank $rank, t = $token_dim, n = $rows, noise $noise_std, and start ($starts of them) "
        "and penalty chosen on held-out samples."
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
    attribution=FINDING,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
)
