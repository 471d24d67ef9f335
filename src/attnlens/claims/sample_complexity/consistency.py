"""B.consistency: the excess of the best minimum of attention falls as 1/n.

Our finding about the landscape that lens B (ICLR 2021 submission) studies (docs/theory.md,
prediction 17). Bad minima do not disappear with more samples (`B.population-landscape`), but the
best minimum should be as good as the theory of maximum likelihood predicts. A student with the
teacher's shape and P free directions has, at the minimum of the training loss near the teacher,

    E excess ≈ σ² P/n  (σ² relative to Var m = 1),

where the noise variance σ² is relative to the variance Var m of the teacher's answers. So the slope
of log excess in log n is −1; the region is −1 ± 0.15.

The ℓ₂ penalty falls as 1/n (λ₂ = 0.0512/n, which is 1e−4 at n = 512). With a fixed penalty the
excess would have a floor; a penalty ∝ 1/n corresponds to a fixed prior.

The rate holds only if every direction is identified. From n = 256 to 1024 the slope was
−1.31 ± 0.10 (24 teachers), because a few teachers have directions that 256 samples hardly
determine, such as those of a nearly linear unit. From 1024 to 4096 it was −1.04 ± 0.07, with an
excess of 0.15/n to 0.2/n: 15 to 20 directions at σ² = 0.01. So the claim is judged for n ≥ 1024.

Descents start from two random starts and from the teacher's own parameters; the best minimum is the
one with the lowest training loss. So the rate does not depend on luck with random starts: at
n = 512, 2 teachers of 48 had no good minimum among eight random starts.

Control: the baseline (a plain network) of equal width on the same data. It cannot represent the
teacher, so its excess has a floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region

from .landscape import SETTINGS, best, descents, seconds

CONTROL = "baseline"
GRID = Grid(
    settings={
        **{name: value for name, value in SETTINGS.items() if name != "l2"},
        "l2_times_samples": 0.0512,
        "starts": 2,
    },
    axes={
        "samples": {
            "smoke": (512, 2048),
            "default": (1024, 8192),
            "full": (1024, 4096, 16_384),
        }
    },
    derived={"l2": lambda parameters: parameters["l2_times_samples"] / parameters["samples"]},
    arm_settings={CONTROL: {"student": "baseline"}},
    blocks={
        PREDICTION: {"smoke": 2, "default": 10, "full": 60},
        CONTROL: {"smoke": 2, "default": 2, "full": 12},
    },
    seeds_per_block=4,
    cost=lambda parameters, seeds: 1.5 * seconds(parameters, seeds),
    pilot=range(2000),
)
EXCESS = ScalingLaw("excess", "samples")
RULE = Rule(
    Quantity(
        "slope",
        "slope of the excess of the best minimum in n (n {span})",
        EXCESS.slopes,
        Region(-1.15, -0.85),
        # In the pilot, the slope of one teacher had a standard deviation of 0.33 over a factor of 4
        # in n; here the factor is 8, so it is smaller.
        power=Power(effect=-1.02, std=0.23),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The excess of the minimum with the lowest training loss, and the index of its start."""
    ends = [descents(parameters, seed, parameters["starts"], from_teacher=True) for seed in seeds]
    chosen = [best(end) for end in ends]
    excess = [end.excess[place] for end, place in zip(ends, chosen, strict=True)]
    return {"excess": np.array(excess), "start": np.array(chosen)}


FIGURE = Lines(
    "Excess of the best minimum over the number of samples",
    "samples n",
    "excess / variance of the answer",
    EXCESS,
    {PREDICTION: "self-attention", CONTROL: "baseline"},
    reference=lambda *_: -1.0,
)


CLAIM = Claim(
    id="B.consistency",
    title="The best minimum of attention becomes exact",
    statement=(
        "The excess error of the best local minimum of a self-attention network falls in "
        "proportion to the number of samples."
    ),
    formula=r"\mathbb{E}\,\mathrm{excess}(\hat w_n) \propto n^{-1}",
    prediction=(
        "With an ℓ₂ penalty of $l2_times_samples/n, the log–log slope of the excess of the best "
        "minimum in n is $slope."
    ),
    controls={CONTROL: Control("The baseline of equal width, which cannot represent the teacher.")},
    assumptions=(
        Assumption("The student can represent the teacher", Check.CONTROL, control=CONTROL),
        Assumption("Descents from random starts and from the teacher find the best minimum"),
    ),
    meaning=Meaning(
        supported=(
            "Where a start ended well, four times as many labels divide the excess error by four; "
            "where it does not fall, suspect a bad minimum or a network that cannot fit."
        ),
        refuted="The error of the best minimum does not fall as 1/n at these sizes.",
        undecided="At which rate the best minimum becomes better is open.",
    ),
    source="Our own prediction (docs/theory.md, prediction 17).",
    attribution=FINDING,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
