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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks, group_by
from attnlens.claims.rates import points
from attnlens.claims.teacher_student import log_sizes, sparse_samples, train_sparse
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import slopes
from attnlens.core.verdicts import Part, Region
from attnlens.worlds import SparseTeacher
from attnlens.worlds.seeding import episode_keys

ATTENDED = 4
GOAL = 0.3
FEATURES = {"smoke": (8, 32), "default": (8, 16, 32), "full": (8, 16, 32)}
# Powers of two around the n(ε) of a pilot (known attention 5 to 20, baseline 60 to 700).
BASELINE_SIZES = (16, 32, 64, 128, 256, 512, 1024)
KNOWN_SIZES = (2, 4, 8, 16, 32, 64, 128)
# (blocks, seeds per block). The slope of one seed has a standard deviation of about 0.8 and the
# effect is about 1.2, so with 24 seeds the interval is ± 0.35 and lies above 0.5.
BLOCKS = {"smoke": (1, 3), "default": (3, 8), "full": (27, 8)}
# The true slope of the control is 0. Its estimate, from the smallest and the largest p, has a
# smaller standard deviation of 0.35.
CONTROL_BLOCKS = {"smoke": (1, 3), "default": (2, 8), "full": (18, 8)}
SLOPE = Region(low=0.5)
CONTROL = "not-told"


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        feature_counts = FEATURES[profile] if arm == PREDICTION else FEATURES["smoke"]
        for features in feature_counts:
            for seeds in blocks(*(BLOCKS if arm == PREDICTION else CONTROL_BLOCKS)[profile]):
                yield Work(arm, {"features": features}, seeds, cost=0.1 * len(seeds))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors (seed, size) of both students, and log n(ε) per seed."""
    features = parameters["features"]
    world = SparseTeacher(features=features, attended=ATTENDED)
    keys = episode_keys(seeds, features)
    rows = BASELINE_SIZES[-1]
    plain, attended = sparse_samples(world, keys, 2 * rows)
    sizes, starts = KNOWN_SIZES, seeds
    if arm == CONTROL:
        # With f ≡ 1 known attention is the baseline. It has its own rows and starts, so that the
        # rule is applied to two independent measurements of the same quantity.
        attended = plain.rows(rows, 2 * rows)
        sizes, starts = BASELINE_SIZES, [seed + 10**6 for seed in seeds]
    baseline = train_sparse(plain.rows(0, rows), seeds, BASELINE_SIZES)
    known = train_sparse(attended.rows(0, rows), starts, sizes)
    return {
        "baseline": baseline,
        "log_n_baseline": log_sizes(BASELINE_SIZES, baseline, GOAL),
        "known": known,
        "log_n_known": log_sizes(sizes, known, GOAL),
    }


def _log_ratios(cell: Measured) -> np.ndarray:
    """log of n(ε) of the baseline over n(ε) of known attention, one per seed."""
    return cell.values["log_n_baseline"] - cell.values["log_n_known"]


def _over_features(measured: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """log p, and log ratios (seed, p)."""
    groups = group_by(measured, "features")
    ratios = [np.concatenate([_log_ratios(cell) for cell in cells]) for cells in groups.values()]
    return np.log(list(groups)), np.array(ratios).T


def judge(measured: Sequence[Measured]) -> list[Part]:
    quantity = f"slope of the log ratio of n({GOAL}) in log p"
    return [judge_part(quantity, slopes(*_over_features(measured)), SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "4 of p features attended to", CONTROL: "f ≡ 1, independent samples"}
    series = []
    for arm, measured in arms.items():
        x, ratios = _over_features(measured)
        slope = float(slopes(x, ratios).mean())
        series.append(Series(names[arm], points(x, ratios), slope, control=arm != PREDICTION))
    return Figure(
        "Samples that the baseline needs, as a multiple of known attention's",
        "features p",
        f"n_baseline({GOAL}) / n_known({GOAL})",
        tuple(series),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """Learning curves at the largest p, with n(ε) where each curve crosses ε."""
    features, cells = list(group_by(arms[PREDICTION], "features").items())[-1]
    series, marks = [], []
    for name, label, sizes in (
        ("known", "known attention", KNOWN_SIZES),
        ("baseline", "baseline", BASELINE_SIZES),
    ):
        logs = np.log(np.concatenate([cell.values[name] for cell in cells]))
        series.append(Series(label, points(np.log(sizes), logs)))
        log_n = np.concatenate([cell.values[f"log_n_{name}"] for cell in cells])
        n = float(np.exp(log_n.mean()))  # the judged quantity is a mean of logs
        mark = f"{label}: n({GOAL}) = {n:.0f}"
        marks.append(Series(mark, (Point(n, GOAL),), mark=True, like=label))
    edge = (Point(float(KNOWN_SIZES[0]), GOAL), Point(float(BASELINE_SIZES[-1]), GOAL))
    goal = Series(f"goal ε = {GOAL}", edge, line=True)
    return [
        Figure(
            f"Learning curves with {features} features, and the samples that ε needs",
            "samples n",
            "relative test error",
            (*series, goal, *marks),
        )
    ]


CLAIM = Claim(
    id="B.known-attention",
    title="Known attention needs fewer samples, by a factor that grows with the features",
    statement=(
        "On data that attend to 4 of p features, a network that is given the attention weights "
        "needs fewer samples than one that is not, and the ratio grows with p."
    ),
    formula=(
        r"\frac{\mathrm{d}\,\log\left(n_{\mathrm{baseline}}(\varepsilon)/"
        r"n_{\mathrm{known}}(\varepsilon)\right)}{\mathrm{d}\,\log p}\;\geq\;0.5"
    ),
    prediction=(
        "The slope of the log ratio of n(ε) in log p is at least 0.5, with relative error ε = 0.3, "
        "4 attended features and p = 8, 16, 32."
    ),
    controls={
        CONTROL: "The network is given f ≡ 1: both are then baselines, on independent samples."
    },
    assumptions=(
        "The attention weights are known (the control breaks this) and zero off a small support.",
        "Both networks can reach ε: known attention is the teacher's own class; the baseline "
        "approximates it.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "A network that is given the relevant inputs needs fewer labelled samples, by a factor "
        "that grows with the number of irrelevant inputs."
    ),
    source=(
        "Lens B (ICLR 2021 submission), sections 2 and 3.1 (known attention); our formalisation: "
        "docs/theory.md, prediction 15."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
