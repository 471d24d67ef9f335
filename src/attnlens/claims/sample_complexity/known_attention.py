"""B.known-attention: known attention needs fewer samples, by a factor that grows with p.

Our formalisation of lens B (ICLR 2021 submission), sections 2 and 3.1 (docs/theory.md,
prediction 15): y = w₂ᵀ φ(w₁ (x ⊙ f(x))) with f given is compared with y = w₂ᵀ φ(w₁ x). The teacher
attends to s = 4 of p features, so known attention has about s relevant inputs for every p, while
the baseline must learn the weights of all p. With n(ε) the smallest sample size whose relative
error is at most ε,

    slope of log [n_baseline(ε) / n_known(ε)] in log p  ≥  0.5.

The parameter counts alone (d·p and d·s) would give a slope of 1.

ε = 0.3. The weights f(x) depend on x, so a network with one hidden layer on x has an approximation
error: at p = 8 its median relative error is 0.12 at n = 1024, with 16 hidden units and with 64, and
half of the seeds reach ε = 0.1 (our first choice) at no n. An n(ε) that is infinite because of the
approximation error says nothing about samples. At ε = 0.3 fewer than a tenth of the baselines are
censored at the upper end. There censoring makes the ratio smaller, most of all at large p, which
works against the claim.

A replicate is the slope over p of the log ratios of one seed; teachers at different p are
independent.
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
    group_by,
)
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines, log_points
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import (
    SPARSE_SETTINGS,
    log_ratios,
    log_sizes,
    sparse_samples,
    sparse_teacher,
    train_sparse,
)
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.worlds.seeding import episode_keys

CONTROL = "constant-attention"
GRID = Grid(
    settings={**SPARSE_SETTINGS, "sharpness": 5.0, "given_attention": "the teacher's"},
    axes={"features": {"smoke": (8, 32), "default": (8, 16, 32), "full": (8, 16, 32)}},
    # With f ≡ 1 the student that is given f needs as many samples as the baseline.
    arm_settings={
        CONTROL: {
            "features": (8, 32),
            "known_sizes": SPARSE_SETTINGS["baseline_sizes"],
            "given_attention": "ones",
        }
    },
    blocks={
        # The slope of one seed has a standard deviation of about 0.8 and the effect is about 1.2,
        # so with 24 seeds the interval is ± 0.35 and lies above 0.5.
        PREDICTION: {"smoke": 1, "default": 3, "full": 27},
        # The true slope of the control is 0. Its estimate, from the smallest and the largest p, has
        # a smaller standard deviation of 0.35.
        CONTROL: {"smoke": 1, "default": 2, "full": 18},
    },
    seeds_per_block={"smoke": 3, "default": 8, "full": 8},
    cost=lambda parameters, seeds: 0.1 * seeds,
)
RATIO = ScalingLaw(partial(log_ratios, student="known"), "features", logged=True)
RULE = Rule(
    Quantity("slope", "slope of the log ratio of n({goal}) in log p", RATIO.slopes, Region(low=0.5))
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors (seed, size) of both students, and log n(ε) per seed."""
    sizes = {name: parameters[f"{name}_sizes"] for name in ("baseline", "known")}
    rows = sizes["baseline"][-1]
    keys = episode_keys(seeds, parameters["features"])
    tested, width = parameters["test_samples"], parameters["padded_features"]
    plain, attended = sparse_samples(sparse_teacher(parameters), keys, 2 * rows, tested, width)
    starts = seeds
    if parameters["given_attention"] == "ones":
        # With f ≡ 1 known attention is the baseline. It has its own rows and starts, so that the
        # rule is applied to two independent measurements of the same quantity.
        attended, starts = plain.rows(rows, 2 * rows), [seed + 10**6 for seed in seeds]
    train = partial(train_sparse, parameters=parameters, sharpness=parameters["sharpness"])
    errors = {
        "baseline": train(plain.rows(0, rows), seeds, sizes["baseline"]),
        "known": train(attended.rows(0, rows), starts, sizes["known"]),
    }
    goal = parameters["goal"]
    return {**errors, **{f"log_n_{k}": log_sizes(sizes[k], e, goal) for k, e in errors.items()}}


FIGURE = Lines(
    "Samples that the baseline needs, as a multiple of known attention's",
    "features p",
    "n_baseline({goal}) / n_known({goal})",
    RATIO,
    {PREDICTION: "{attended} of p features attended to", CONTROL: "f ≡ 1, independent samples"},
)


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """Learning curves at the largest p, with n(ε) where each curve crosses ε."""
    features, cells = list(group_by(arms[PREDICTION], "features").items())[-1]
    parameters = cells[0].parameters
    goal, series, marks = parameters["goal"], [], []
    for name, label in (("known", "known attention"), ("baseline", "baseline")):
        logs = np.log(np.concatenate([cell.values[name] for cell in cells]))
        series.append(Series(label, log_points(np.log(parameters[f"{name}_sizes"]), logs)))
        log_n = np.concatenate([cell.values[f"log_n_{name}"] for cell in cells])
        n = float(np.exp(log_n.mean()))  # the judged quantity is a mean of logs
        mark = f"{label}: n({goal}) = {n:.0f}"
        marks.append(Series(mark, (Point(n, goal),), mark=True, like=label))
    ends = parameters["known_sizes"][0], parameters["baseline_sizes"][-1]
    line = Series(f"goal ε = {goal}", tuple(Point(float(n), goal) for n in ends), line=True)
    return [
        Figure(
            f"Learning curves with {features} features, and the samples that ε needs",
            "samples n",
            "relative test error",
            (*series, line, *marks),
        )
    ]


CLAIM = Claim(
    id="B.known-attention",
    title="Known attention needs fewer samples, by a factor that grows with the features",
    statement=(
        f"On data that attend to {SPARSE_SETTINGS['attended']} of p features, a network that is "
        "given the attention weights needs fewer samples than one that is not, and the ratio grows "
        "with p."
    ),
    formula=(
        r"\frac{\mathrm{d}\,\log\left(n_{\mathrm{baseline}}(\varepsilon)/"
        r"n_{\mathrm{known}}(\varepsilon)\right)}{\mathrm{d}\,\log p}\;\geq\;$slope_low"
    ),
    prediction=(
        "The slope of the log ratio of n(ε) in log p is $slope, with relative error ε = $goal, "
        "$attended attended features and p = $features."
    ),
    controls={
        CONTROL: Control(
            "The network is given f ≡ 1: both are then baselines, on independent samples."
        )
    },
    assumptions=(
        Assumption("The attention weights are known", Check.CONTROL, control=CONTROL),
        Assumption("They are zero off a small support", Check.BY_CONSTRUCTION),
        Assumption(
            "Both networks can reach ε: known attention is the teacher's own class; the baseline "
            "approximates it"
        ),
        Assumption("Stochastic gradient descent finds good minima of both"),
    ),
    meaning=Meaning(
        supported=(
            "A network that is given the relevant inputs needs fewer labelled samples, by a factor "
            "that grows with the number of irrelevant inputs."
        ),
        refuted=(
            "Giving a network its attention does not save more samples when there are more "
            "irrelevant inputs: do not expect that removing inputs pays off with their number."
        ),
        undecided=(
            "Whether the saving grows with the number of irrelevant inputs is open: measure it at "
            "your own number of inputs."
        ),
    ),
    source=(
        "Lens B (ICLR 2021 submission), sections 2 and 3.1 (known attention); our formalisation: "
        "docs/theory.md, prediction 15."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "Our results show that, under mild assumptions, every local minimum of the "
        "attention model has low prediction error, and attention models require lower "
        "sample complexity than models without attention.",
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
    views=views,
)
