"""B.sub-gaussian: n(ε) depends on the variance of sub-Gaussian noise, hardly on its law.

Our formalisation of lens B (ICLR 2021 submission), section 3, which assumes sub-Gaussian noise
(docs/theory.md, prediction 15). If that assumption is what matters, then uniform and Rademacher
noise of the same variance give the n(ε) of Gaussian noise, for known attention and for the
baseline:

    E log n(ε; noise) − E log n(ε; Gaussian)  within  ± 0.2.

*Noise must matter.* The noise has the variance of the answers. With a hundredth of this variance,
as in the other claims, known attention needs 5 samples instead of 33 for ε = 0.3, and all
distributions of the noise would agree because noise hardly matters. The goals are ε = 0.2 for known
attention (n of about 48) and 0.4 for the baseline (n of about 260, with p = 16): at smaller n a few
values of the noise decide, and the log ratio of known attention with Rademacher noise was 0.12 at
ε = 0.3 in the pilot.

In the control the noise has Student's t distribution with 2.1 degrees of freedom and the same
variance, which is not sub-Gaussian. The difference could have either sign; in the pilot n(ε) was
*smaller*, by a log ratio of about 1: most of the variance of such noise comes from rare values, and
a typical sample has none of them. So n(ε) is not a function of the variance alone.

Teachers, inputs and starts are the same for every distribution, and all noise is computed from the
same random numbers, so the differences are paired. A replicate is a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import Estimate
from attnlens.claims.figures import log_point
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.sample_complexity.statements import RESULTS, cite
from attnlens.claims.teacher_student import (
    SPARSE_SETTINGS,
    log_sample_size,
    sparse_samples,
    sparse_teacher,
    train_sparse,
)
from attnlens.core.drawing import Figure, Series
from attnlens.core.verdicts import Region
from attnlens.worlds.noise import SUB_GAUSSIAN
from attnlens.worlds.seeding import episode_keys

CONTROL = "heavy-tails"
REFERENCE = "gaussian"
_OTHERS = ("goal", "noise", "baseline_sizes", "known_sizes")


def _grid(student: str, goal: float, sizes: Sequence[int], seeds: int) -> Grid:
    """The grid of one student: one cell per distribution of the noise and block of seeds."""
    return Grid(
        settings={
            **{n: v for n, v in SPARSE_SETTINGS.items() if n not in _OTHERS},
            "features": 16,
            "sharpness": 5.0,
            "noise_std": 1.0,
            "student": student,
            "goal": goal,
            "sizes": list(sizes),
        },
        axes={"noise": SUB_GAUSSIAN},
        arm_settings={CONTROL: {"noise": (REFERENCE, "student")}},
        blocks={
            PREDICTION: {"smoke": 1, "default": 8, "full": 72},
            CONTROL: {"smoke": 1, "default": 5, "full": 45},
        },
        seeds_per_block={"smoke": 4, "default": seeds, "full": seeds},
        cost=lambda parameters, count: 0.008 * count * len(sizes),
        pilot=range(1000),
    )


KNOWN = _grid("known", 0.2, [4, 8, 16, 32, 64, 128, 256], 16)
BASELINE = _grid("baseline", 0.4, [64, 128, 256, 512, 1024], 4)
LOG_SIZE: Estimate = log_sample_size("errors", "sizes")
# Mean and standard deviation of the paired difference, from a pilot of 96 seeds.
PILOT = {
    ("known", "uniform"): (0.034, 0.154),
    ("known", "rademacher"): (0.066, 0.41),
    ("baseline", "uniform"): (0.009, 0.052),
    ("baseline", "rademacher"): (-0.006, 0.25),
}


def _quantity(student: str, words: str) -> Quantity:
    return Quantity(
        student,
        f"log n({{goal}}) of {words} with {{noise}} noise minus that with {REFERENCE} noise",
        LOG_SIZE,
        Region(-0.2, 0.2),
        per=("noise",),
        where={"student": student},
        against={"student": student, "noise": REFERENCE},
        power=Power(lambda noise: PILOT[student, noise][0], lambda noise: PILOT[student, noise][1]),
    )


RULE = Rule(_quantity("known", "known attention"), _quantity("baseline", "the baseline"))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors of one student, (seed, number of samples)."""
    sizes = parameters["sizes"]
    plain, attended = sparse_samples(
        sparse_teacher(parameters),
        episode_keys(seeds, parameters["core_features"]),
        sizes[-1],
        parameters["test_samples"],
        parameters["padded_features"],
    )
    samples = plain if parameters["student"] == "baseline" else attended
    errors = train_sparse(samples, seeds, sizes, parameters, parameters["sharpness"])
    return {"errors": errors}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of learning curves, one per student and distribution of the noise."""
    series = []
    for arm, cells in arms.items():
        for (student, noise), group in group_by(cells, "student", "noise").items():
            if arm == CONTROL and noise == REFERENCE:
                continue
            sizes = map(float, group[0].parameters["sizes"])
            logs = np.log(np.concatenate([cell.values["errors"] for cell in group]))
            points = tuple(map(log_point, sizes, logs.T))
            name = f"{student}, {'Student t' if noise == 'student' else noise} noise"
            series.append(Series(name, points, control=arm == CONTROL))
    return Figure(
        "Learning curves under noise of the same variance",
        "samples n",
        "relative error (geometric mean)",
        tuple(series),
    )


CLAIM = Claim(
    id="B.sub-gaussian",
    title="n(ε) is nearly the same under sub-Gaussian noise of any law",
    statement=(
        "Uniform and Rademacher noise give the sample complexity of Gaussian noise of the same "
        "variance, for known attention and for the baseline."
    ),
    formula=(
        r"\left|\,\mathbb{E}\,\log\frac{n(\varepsilon;\,\mathrm{noise})}"
        r"{n(\varepsilon;\,\mathrm{Gaussian})}\right|\;\leq\;$known_high"
    ),
    prediction=(
        "The mean log n(ε) minus that with Gaussian noise is $known for known attention "
        f"(ε = {KNOWN.settings['goal']}) and $baseline for the baseline "
        f"(ε = {BASELINE.settings['goal']}), each with uniform and with Rademacher noise of "
        "standard deviation $noise_std, at p = $features."
    ),
    controls={
        CONTROL: Control(
            "Student's t noise with hardly more than two degrees of freedom, of the same variance.",
            quantities=("known", "baseline"),
        )
    },
    assumptions=(
        Assumption("The noise is sub-Gaussian", Check.CONTROL, control=CONTROL),
        Assumption("The noise is large enough to matter", Check.CHECKED),
        Assumption("Noise is independent of the inputs", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "Plan the number of labels from the variance of their noise; the law matters little, "
            "as long as its tails are light."
        ),
        refuted=(
            "The law of the noise matters beyond its variance even among light tails: plan the "
            "number of labels from a learning curve of your own data."
        ),
        undecided="Whether the law of light-tailed noise matters is open.",
    ),
    source=cite("section 3 (noise and loss)", "prediction 15"),
    attribution=RESULTS,
    plan=Grids(KNOWN, BASELINE),
    measure=measure,
    judge=RULE,
    figure=figure,
)
