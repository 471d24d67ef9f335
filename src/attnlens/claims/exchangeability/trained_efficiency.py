"""A.trained-efficiency: a trained predictor falls behind the Bayes risk as sequences become longer.

Our stronger reading of statement (b) of lens A (Zhang et al., 2022; docs/theory.md, prediction 8):
if a trained softmax network f̂ infers the posterior, its risk should fall as fast as the Bayes
risk. With V the posterior variance (the Bayes risk of m(q, z)) and f* the exact predictive mean,
the relative inefficiency is

    E(f̂ − m)² / V = 1 + E(f̂ − f*)² / V

and the claim is that it does not grow with L. It is expected to be refuted.

*The scale.* The slope is that of 1 + excess/V, not of excess/V, where excess is E(f̂ − f*)². The
estimation error of a readout does not fall with L. So a predictor whose risk is within 1 % of the
Bayes risk, but which has this error, has excess/V ∝ L and would be refuted although it loses almost
nothing. (The positive control is such a predictor.)

*Why it fails.* Two reasons, which differ between the worlds.

- Regression: a softmax head reads a kernel-weighted mean. For keys uniform on the sphere in R^d and
  L → ∞, the head with temperature τ and the right scale 1/A, A = E[κt]/E[κ] and t = ⟨q, k⟩, has

      MSE/V → E[κ² (1 − 2At + A² + σ²)] / (E[κ]² A² d σ²)

  whose smallest value over τ is 4.7 at τ = 0.2 (d = 3, σ = 0.5), because the head does not whiten
  the keys as ridge regression does. So the inefficiency rises from 1 at L = 0 to a *bounded* limit;
  two heads and a readout reach a slightly lower value. On the pilot's seeds it is 2.5, 3.7 and 3.9
  at L = 16, 64 and 128 with 8,192 sequences, and 2.9, 4.2 and 4.5 with 2,048: at a fixed number of
  sequences a part of the inefficiency is due to estimation error, but its growth with L is not.
- Process: two heads have two smoothing scales, and a bias remains that does not fall with L, while
  V falls nearly as 1/L: the inefficiency grows without a bound (1.2, 1.5 and 1.6).

So in the regression, where the inefficiency saturates, its slope over the whole range is not a
rate: on four further seeds it was 0.15 ± 0.04 (standard error) from L = 16 to 64 and 0.06 ± 0.03
from 64 to 128. In the process the inefficiency does not saturate: 0.13 ± 0.01 and 0.14 ± 0.04.
Only in the process does the refutation also hold at longer lengths.

Positive control: the network is given the read of kernel ridge attention (CME), with the kernel and
the ridge of the world, and a linear readout is trained; its inefficiency does not grow. Negative
control: attention is frozen at equal weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.exchangeability.statements import APPROXIMATION, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_predictors import SETTINGS, distances
from attnlens.core.verdicts import Region

CME, UNIFORM = "cme-readout", "uniform-attention"
REGRESSION = Grid(
    settings={
        **SETTINGS,
        # The estimation error of the positive control, about 6σ²/n, must be small compared with V,
        # which is 0.006 at L = 128.
        "samples": 8192,
        "length": {"smoke": [16, 64], "default": [16, 128], "full": [16, 32, 64, 128]},
        "steps": {"smoke": 500, "default": 3000, "full": 3000},
    },
    axes={"world": ("regression",)},
    arm_settings={
        CME: {
            "reading": "cme",
            "hidden": 0,
            "steps": {"smoke": 500, "default": 1500, "full": 1500},
        },
        UNIFORM: {"reading": "uniform", "steps": 500},
    },
    # In the pilot, the slope of one seed was 0.21 ± 0.08 (regression) and 0.12 ± 0.03 (process).
    blocks={
        PREDICTION: {"smoke": 1, "default": 2, "full": 8},
        # With four seeds this control was undecided after the correction for the number of claims.
        CME: {"smoke": 1, "default": 2, "full": 2},
        UNIFORM: {"smoke": 1, "default": 1, "full": 2},
    },
    seeds_per_block=4,
    cost=lambda parameters, seeds: 2.0 + 0.02 * seeds * max(parameters["length"]),
    pilot=range(1000),
)
PROCESS = replace(  # V is ten times that of the regression, so fewer sequences are enough
    REGRESSION,
    settings={
        **REGRESSION.settings,
        "samples": 1024,
        "steps": {"smoke": 500, "default": 1500, "full": 1500},
    },
    axes={"world": ("process",)},
)


def inefficiency(cell: Measured) -> np.ndarray:
    """The inefficiency E(f̂ − m)² / V of every seed and length."""
    return 1 + cell.values["distance"] / cell.values["uncertainty"]


RATIO = ScalingLaw(inefficiency, "length", within=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the risk over the Bayes risk, {world}, L ({span})",
        RATIO.slopes,
        Region(high=0.05),
        per=("world",),
        power=Power(
            effect=lambda world: 0.21 if world == "regression" else 0.12,
            std=lambda world: 0.08 if world == "regression" else 0.03,
        ),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """E(f̂ − f*)² and the posterior variance V: rows are seeds, columns are lengths."""
    return dict(distances(parameters, seeds))


FIGURE = Lines(
    "Risk of a trained network relative to the Bayes risk, over length",
    "tokens L",
    "mean squared error / posterior variance",
    RATIO,
    {
        PREDICTION: "{world}",
        CME: "{world}, CME with a trained readout",
        UNIFORM: "{world}, uniform attention",
    },
    per=("world",),
)


CLAIM = Claim(
    id="A.trained-efficiency",
    title="A trained predictor keeps up with the Bayes risk",
    statement=(
        "The risk of an attention network trained to predict a hidden value, relative to the Bayes "
        "risk, does not grow as sequences become longer."
    ),
    formula=(r"\frac{\mathbb{E}(\hat f_L-m)^2}{\mathbb{E}(f^*_L-m)^2} = O\left(L^{0}\right)"),
    prediction=(
        "The slope of the mean squared error over the posterior variance in L, on log–log axes, is "
        "$slope in both worlds."
    ),
    controls={
        CME: Control(
            "Positive: a linear readout is trained on kernel ridge attention.", expected="supported"
        ),
        UNIFORM: Control("Attention is frozen at equal weights; the readout is trained."),
    },
    assumptions=(
        Assumption(
            "There are enough sequences that the error of the readout is small beside the Bayes "
            "risk",
            Check.CHECKED,
        ),
        Assumption("Attention can select tokens by their keys", Check.CONTROL, control=UNIFORM),
    ),
    meaning=Meaning(
        supported=(
            "Softmax attention loses no more to Bayes' rule at long contexts than at short ones."
        ),
        refuted=(
            "Over these lengths, relative to the Bayes risk, a trained softmax network falls "
            "behind as contexts become longer, and kernel ridge attention does not. For a linear "
            "function the loss tends to a constant factor, which whitening the keys would avoid; "
            "for a process it keeps growing."
        ),
        undecided=(
            "Whether a trained network keeps up with Bayes' rule at long contexts is open: compare "
            "it with ridge regression at two lengths."
        ),
    ),
    source=cite("statement (b)", "prediction 8"),
    attribution=APPROXIMATION,
    plan=Grids(REGRESSION, PROCESS),
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
