"""B.guideline-sparsity: where few features matter, gates with an ℓ₁ penalty beat a ridge.

Our own prediction; lens B (ICLR 2021 submission) announces guidelines for the design of attention
models (docs/theory.md, prediction 20). If the attention weights f(x) of the data are *not* known, a
practitioner can learn non-negative gates g on the inputs, y = w₂ᵀ φ(w₁ (x ⊙ g)), with the penalty
λ₁ Σ g. The alternative is the plain network without gates and with a tuned ℓ₂ penalty (ridge). With
fewer samples than features (n = 24, p = 32) and low noise, on data in which s = 4 features matter,

    E log [error(gates, λ₁) / error(no gates, best ridge)]  ≤  −0.3.

On dense data (the control) the gates must not help, because they remove features that are needed.

*Is the comparison fair?* Each side has one setting, chosen on the pilot (64 seeds). With the ridges
0.001, 0.01, 0.03, 0.1 and 0.3 the errors were 0.94, 0.84, 0.83, 0.83 and 0.88, so 0.03 is used.
With gates, this ridge on the weights, and λ₁ = 0, 0.01, 0.03, 0.1 and 0.3, the log ratios were
−0.14, −0.65, −0.76, −0.75 and −0.48; λ₁ = 0.1 is used, as in `guidelines`. Even the best ridge of
each seed, chosen on the test error, had the error 0.80, far above 0.39 with gates. *Do the gates or
their penalty lower the error?* The penalty: gates alone gain little (the figure shows them). On
dense data the log ratio was +0.25.

A replicate is a seed: teacher, data and start, the same for all networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax import Array

from attnlens.claims.cells import Measured
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import log_ratio
from attnlens.claims.figures import log_point
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import (
    ADAM,
    sparse_teacher,
    teacher_samples,
    train,
    training_of,
)
from attnlens.core.drawing import Figure, Series
from attnlens.core.verdicts import Region
from attnlens.networks import Baseline, Gated
from attnlens.worlds.seeding import episode_keys

CONTROL = "dense"
PENALTY = 0.1  # λ₁
GRID = Grid(
    settings={
        **ADAM,
        "features": 32,
        "attended": 4,
        "rows": 24,
        "noise": "gaussian",
        "noise_std": 0.1,
        "sharpness": 5.0,
        "attend": True,
        "unit_variance": True,
        "test_samples": 512,  # per seed; a few per cent of an error's variance come from them
        "teacher_hidden": 8,
        "hidden": 16,  # twice the width of the teacher
        "penalties": [0.0, PENALTY],
        # There is no batch size: every step uses all rows.
        "steps": 1000,
        "learning_rate": 1e-2,
        "l2": 3e-2,  # the best ridge without gates, for every network
    },
    arm_settings={CONTROL: {"attend": False}},
    blocks={
        PREDICTION: {"smoke": 1, "default": 2, "full": 18},
        CONTROL: {"smoke": 1, "default": 1, "full": 9},
    },
    seeds_per_block={"smoke": 8, "default": 16, "full": 16},
    cost=lambda parameters, seeds: 0.05 * seeds,
    pilot=range(1000),
)
RULE = Rule(
    Quantity(
        "log_ratio",
        "log ratio of test errors, gates with the ℓ₁ penalty over no gates with the best ridge",
        log_ratio(lambda cell: cell.values["gates"][:, -1], "ridge"),
        Region(high=-0.3),
        power=Power(-0.75, 0.49),  # pilot of 64 seeds
    )
)


def gated(key: Array, features: int, hidden: int, sharpness: float) -> Gated:
    """The baseline network with learned gates on its inputs."""
    body = Baseline(key, features=features, hidden=hidden, sharpness=sharpness)
    return Gated(body, shape=(features,))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors without gates (seed,) and with gates (seed, penalty)."""
    rows, features = parameters["rows"], parameters["features"]
    keys, tested = episode_keys(seeds, features, rows), parameters["test_samples"]
    samples = teacher_samples(sparse_teacher(parameters), keys, rows, tested)
    shape = {n: parameters[n] for n in ("features", "hidden", "sharpness")}
    training = training_of(parameters)
    penalties = tuple(parameters["penalties"])
    ridge = train(partial(Baseline, **shape), samples, seeds, (rows,), **training)
    gates = train(partial(gated, **shape), samples, seeds, (rows,), **training, l1_gates=penalties)
    return {"ridge": ridge.errors[:, 0], "gates": gates.errors}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    setting = arms[PREDICTION][0].parameters
    features, rows = setting["features"], setting["rows"]
    labels = {
        PREDICTION: f"{setting['attended']} of {features} features matter",
        CONTROL: f"all {features} matter",
    }
    names = (
        f"no gates, ridge {setting['l2']:g}",
        *(f"gates, λ₁ = {penalty:g}" for penalty in setting["penalties"]),
    )
    series = []
    for arm, measured in arms.items():
        rows = [np.c_[cell.values["ridge"], cell.values["gates"]] for cell in measured]
        logs = np.log(np.concatenate(rows))
        points = (log_point(1.0 + place, column) for place, column in enumerate(logs.T))
        series.append(Series(labels[arm], tuple(points), control=arm != PREDICTION))
    return Figure(
        f"Test error with and without gates, {rows} samples",
        "",
        "relative error (geometric mean)",
        tuple(series),
        log_x=False,
        names=names,
    )


CLAIM = Claim(
    id="B.guideline-sparsity",
    title="Sparse input gates lower the error where few features matter",
    statement=(
        "With fewer samples than features, non-negative input gates with an ℓ₁ penalty have a "
        "lower test error than the best ridge without gates when only a few features matter, and "
        "do not when all do."
    ),
    formula=(
        rf"\mathbb{{E}}\,\log\frac{{\mathrm{{error}}(\mathrm{{gates}},\,\lambda_1={PENALTY})}}"
        r"{\mathrm{error}(\mathrm{no\ gates,\ ridge})}"
        r"\;\leq\;$log_ratio_high,\qquad y=w_2^{\top}\varphi\left(w_1(x\odot g)\right),\; g\geq 0"
    ),
    prediction=(
        f"The mean log ratio of test errors, gates with λ₁ = {PENALTY} over no gates, both with "
        "the ridge $l2, is $log_ratio at p = $features, "
        f"s = {GRID.settings['attended']}, "
        "n = $rows, noise $noise_std."
    ),
    controls={CONTROL: Control("A teacher that uses all $features features.")},
    assumptions=(
        Assumption("Few features matter", Check.CONTROL, control=CONTROL),
        Assumption(
            "There are fewer samples than features and the noise is low; with many samples both "
            "errors are small",
            Check.BY_CONSTRUCTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "With little data and many inputs, put gates on the inputs and penalise their sum; on "
            "dense data leave the penalty out."
        ),
        refuted=(
            "A penalty on input gates does not lower the error even where few features matter: "
            "leave it out."
        ),
        undecided=(
            "Whether a penalty on input gates helps is open: choose it on validation data, with 0 "
            "among the candidates."
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
