"""B.known-attention: known attention needs fewer samples, by a factor that grows with p.

Our formalisation of lens B (ICLR 2021 submission), sections 2 and 3.1 (docs/theory.md,
prediction 15): "known attention", y = w₂ᵀ φ(w₁ (x ⊙ f(x))) with f given, is compared with the
baseline y = w₂ᵀ φ(w₁ x). The teacher attends to s = 4 of p features, so known attention has s
relevant inputs for every p, while the baseline must learn the weights of all p. With n(ε) the
smallest sample size whose relative error is at most ε,

    slope of log [n_baseline(ε) / n_known(ε)] in log p  ≥  0.5.

The parameter counts alone (d·p and d·s, with d hidden units) would give a slope of 1.

**Exact pairing.** A seed has one teacher and one sample at every p: weights, support and noise are
those of p = 8, and the further features are irrelevant (`SparseTeacher.core_features`). So n_known
does not depend on p, and the slope of the ratio is that of the baseline. *Is the slope an
identity?* No: a learner that finds the support (the attended features) needs samples in proportion
to log p, which is a slope near 0.4 over this range. *Is it about attention?* The growth with p is
due to feature selection. The figure also shows a baseline that is given the support, but not the
weights f(x): its ratio has the same slope, but it needs five times as many samples as known
attention (24 and 5 in the pilot).
*Is the baseline a straw man?* Its penalty is the best of six (`SPARSE_SETTINGS`); with a smaller
penalty the slope was larger (1.46 at 1e-4, 1.08 with the best). Gates with an ℓ₁ penalty are better
on such data (B.guideline-sparsity), but are not part of this comparison, which is the paper's.

*Why ε = 0.3?* The weights f(x) depend on x, so a network with one hidden layer on x has an
approximation error: its relative error is 0.14 to 0.17 at n = 1024. With a smaller ε, n(ε) could be
infinite for this reason, which says nothing about samples. At ε = 0.3 no baseline of the pilot was
censored at the upper end of the grid.

A replicate is the slope over p of the log ratios of one seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.figures import level_line, log_point, log_points
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.sample_complexity.statements import RESULTS, cite
from attnlens.claims.teacher_student import (
    SPARSE_SETTINGS,
    Samples,
    log_sample_size,
    log_size_ratio,
    sparse_samples,
    sparse_teacher,
    train_sparse,
)
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import slopes
from attnlens.core.verdicts import Region
from attnlens.worlds.seeding import episode_keys

CONTROL = "constant-attention"
GRID = Grid(
    settings={
        **SPARSE_SETTINGS,
        "sharpness": 5.0,
        "given_attention": "the teacher's",
        "features": {"smoke": [8, 32], "default": [8, 16, 32], "full": [8, 16, 32]},
    },
    # With f ≡ 1 the student that is given f needs the same number of samples as the baseline.
    arm_settings={
        CONTROL: {
            "known_sizes": SPARSE_SETTINGS["baseline_sizes"],
            "given_attention": "ones",
        }
    },
    blocks={
        PREDICTION: {"smoke": 1, "default": 3, "full": 27},
        # The true slope of the control is 0, with a standard deviation of about 0.4.
        CONTROL: {"smoke": 1, "default": 2, "full": 18},
    },
    seeds_per_block={"smoke": 3, "default": 8, "full": 8},
    cost=lambda parameters, seeds: 0.25 * seeds,
    pilot=range(1000),
)
STUDENTS = ("baseline", "known", "support")


def log_ratios(cells: Sequence[Measured], student: str = "known") -> np.ndarray:
    """log(n(ε) of the baseline / n(ε) of `student`), (seed, p)."""

    def errors(name: str, column: int) -> Any:
        return lambda cell: cell.values[name][:, column]

    own = "known_sizes" if student == "known" else "baseline_sizes"
    columns = [
        log_size_ratio(errors("baseline", i), errors(student, i), ("baseline_sizes", own))(cells)
        for i in range(len(cells[0].parameters["features"]))
    ]
    return np.stack(columns, 1)


def slope(cells: Sequence[Measured]) -> np.ndarray:
    """The slope of the log ratio in log p, one per seed."""
    return slopes(np.log(cells[0].parameters["features"]), log_ratios(cells))


RULE = Rule(
    Quantity(
        "slope",
        "slope of the log ratio of n({goal}) in log p",
        slope,
        Region(low=0.5),
        power=Power(1.08, 0.32),  # pilot of 24 seeds
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors of the students, (seed, p, number of samples)."""
    sizes = {name: parameters[f"{name}_sizes"] for name in ("baseline", "known")}
    rows, most = sizes["baseline"][-1], max(parameters["features"])
    keys = episode_keys(seeds, parameters["core_features"])
    world = sparse_teacher({**parameters, "features": most})
    shape = 2 * rows, parameters["test_samples"], parameters["padded_features"]
    plain, attended = sparse_samples(world, keys, *shape)
    fitted = partial(train_sparse, parameters=parameters, sharpness=parameters["sharpness"])

    def baselines(first: int, starts: Sequence[int]) -> np.ndarray:
        """Relative errors (seed, p, size) of baselines on the first p features.

        The other inputs are zero. Rows start at `first`; `starts` are the seeds of the networks.
        """
        part = plain.rows(first, first + rows)
        errors = [
            fitted(_first_features(part, p), starts, sizes["baseline"])
            for p in parameters["features"]
        ]
        return np.stack(errors, 1)

    if parameters["given_attention"] == "ones":
        # With f ≡ 1, known attention is the same network as the baseline. It has other rows and
        # starts, so that the rule compares two independent measurements of the same quantity.
        others = [seed + 10**6 for seed in seeds]
        return {"baseline": baselines(0, seeds), "known": baselines(rows, others)}
    _, supported = sparse_samples(world, keys, *shape, support=True)
    students = {
        "known": fitted(attended.rows(0, rows), seeds, sizes["known"]),
        "support": fitted(supported.rows(0, rows), seeds, sizes["baseline"]),
    }
    # These errors are the same at every p, because the attended inputs are those of p = 8.
    count = len(parameters["features"])
    same = {name: np.repeat(errors[:, None], count, 1) for name, errors in students.items()}
    return {"baseline": baselines(0, seeds), **same}


def _first_features(samples: Samples, features: int) -> Samples:
    kept = np.arange(samples.inputs.shape[-1]) < features
    return samples._replace(inputs=samples.inputs * kept, fresh=samples.fresh * kept)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of the ratios over p, for known attention, the given support, and the control."""
    setting = arms[PREDICTION][0].parameters
    lines = (
        (PREDICTION, "known", f"f(x) given, {setting['attended']} of p features attended to"),
        (PREDICTION, "support", "support given, without the weights (not judged)"),
        (CONTROL, "known", "f ≡ 1, independent samples"),
    )
    series = []
    for arm, student, name in lines:
        cells = arms[arm]
        ratios = log_ratios(cells, student)
        at = cells[0].parameters["features"]
        points = tuple(map(log_point, map(float, at), ratios.T))
        fitted = float(slopes(np.log(at), ratios).mean())
        series.append(Series(name, points, fitted, control=arm == CONTROL))
    return Figure(
        "Samples that the baseline needs, as a multiple of another student's",
        "features p",
        f"ratio of n({setting['goal']})",
        tuple(series),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """A figure of learning curves at the largest p; marks show where each curve crosses ε."""
    cells = arms[PREDICTION]
    parameters = cells[0].parameters
    goal, series, marks = parameters["goal"], [], []
    labels = {"known": "known attention", "support": "support given", "baseline": "baseline"}
    ratios = {name: log_ratios(cells, name)[:, -1].mean() for name in ("known", "support")}
    sizes = {name: parameters[f"{name}_sizes"] for name in ("known", "baseline")}
    baseline = _mean_log_size(cells)
    for name, label in labels.items():
        logs = np.log(np.concatenate([cell.values[name][:, -1] for cell in cells]))
        series.append(Series(label, log_points(np.log(sizes.get(name, sizes["baseline"])), logs)))
        n = float(np.exp(baseline - ratios.get(name, 0.0)))
        marks.append(
            Series(f"{label}: n({goal}) = {n:.0f}", (Point(n, goal),), mark=True, like=label)
        )
    ends = sizes["known"][0], sizes["baseline"][-1]
    line = level_line(f"goal ε = {goal}", goal, *map(float, ends))
    return [
        Figure(
            f"Learning curves with {parameters['features'][-1]} features, and the samples that "
            "ε needs",
            "samples n",
            "relative test error",
            (*series, line, *marks),
        )
    ]


def _mean_log_size(cells: Sequence[Measured]) -> float:
    """The mean log n(ε) of the baseline at the largest p."""
    estimate = log_sample_size(lambda cell: cell.values["baseline"][:, -1], "baseline_sizes")
    return float(estimate(cells).mean())


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
        Assumption("The teacher is the same at every p", Check.BY_CONSTRUCTION),
        Assumption(
            "Both networks can reach ε: known attention is the teacher's own class; the baseline "
            "approximates it",
            Check.CHECKED,
        ),
        Assumption("Stochastic gradient descent finds good minima of both"),
    ),
    meaning=Meaning(
        supported=(
            "A network that is given the relevant inputs needs fewer labelled samples, by a factor "
            "that grows with the number of irrelevant inputs. The growth is feature selection: a "
            "network that is told only which inputs matter saves as large a share of it."
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
    source=cite("sections 2 and 3.1 (known attention)", "prediction 15"),
    attribution=RESULTS,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
)
