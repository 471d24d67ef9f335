"""B.known-attention: known attention needs fewer samples, by a factor that grows with p.

B, section 2: y = w₂ᵀ φ(w₁ (x ⊙ f(x))) with f given, against y = w₂ᵀ φ(w₁ x). The teacher attends to
s = 4 of p features, so known attention has about s relevant inputs whatever p is, while the
baseline has to find out about p of them. With n(ε) the smallest sample size whose relative error
is at most ε,

    slope of log [n_baseline(ε) / n_known(ε)] in log p  ≥  0.5.

Parameter counting alone (d·p against d·s) would give a slope of 1.

ε = 0.3. The weights f(x) depend on x, so a network of one hidden layer on x has an approximation
error: at p = 8 its median relative error is 0.12 at n = 1024, with 16 hidden units and with 64,
and ε = 0.1 (which we had meant to use) is not reached by half of the seeds at any n. An n(ε) that
is infinite because of approximation says nothing about samples. At 0.3 fewer than a tenth of the
baselines are censored at the upper end, where censoring makes the ratio smaller, and most so at
large p: against the claim.

A replicate is a seed: the slope over p of its log ratios; teachers at different p are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.rates import points
from attnlens.claims.samples import log_sizes, sparse_samples, train_sparse
from attnlens.instruments.inference import episode_keys
from attnlens.records import Figure, Part, Point, Region, Series
from attnlens.statistics import judge as judge_part
from attnlens.statistics import slopes
from attnlens.worlds import SparseTeacher

ATTENDED = 4
GOAL = 0.3
FEATURES = {"smoke": (8, 32), "default": (8, 16, 32), "full": (8, 16, 32)}
# Powers of two around the n(ε) that a pilot found (known attention 5 to 20, baseline 60 to 700).
BASELINE_SIZES = (16, 32, 64, 128, 256, 512, 1024)
KNOWN_SIZES = (2, 4, 8, 16, 32, 64, 128)
# One seed's slope has a standard deviation of about 0.8 and the effect is about 1.2, so that 24
# seeds put the interval at ± 0.35: above 0.5.
BLOCKS = {"smoke": (1, 3), "default": (3, 8), "full": (27, 8)}
# The control's truth is 0 and its slope, from the two ends of p, has a smaller deviation of 0.35.
CONTROL_BLOCKS = {"smoke": (1, 3), "default": (2, 8), "full": (18, 8)}
SLOPE = Region(low=0.5)
CONTROL = "not-told"


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        listed = FEATURES[profile] if arm == PREDICTION else FEATURES["smoke"]
        for features in listed:
            for seeds in blocks(*(BLOCKS if arm == PREDICTION else CONTROL_BLOCKS)[profile]):
                yield Work(arm, {"features": features}, seeds, cost=0.1 * len(seeds))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Relative errors (seed, size) of both students, and log n(ε) a seed."""
    features = parameters["features"]
    world = SparseTeacher(features=features, attended=ATTENDED)
    keys = episode_keys(seeds, features)
    most = BASELINE_SIZES[-1]
    plain, attended = sparse_samples(world, keys, 2 * most)
    sizes, starts = KNOWN_SIZES, seeds
    if arm == CONTROL:
        # Told f ≡ 1, known attention is the baseline: it gets rows and starts of its own, so that
        # the rule is judged on two independent measurements of one thing.
        attended = plain.rows(most, 2 * most)
        sizes, starts = BASELINE_SIZES, [seed + 10**6 for seed in seeds]
    baseline = train_sparse(plain.rows(0, most), seeds, BASELINE_SIZES)
    known = train_sparse(attended.rows(0, most), starts, sizes)
    return {
        "baseline": baseline, "log_n_baseline": log_sizes(BASELINE_SIZES, baseline, GOAL),
        "known": known, "log_n_known": log_sizes(sizes, known, GOAL),
    }  # fmt: skip


def _log_ratios(cell: Measured) -> np.ndarray:
    """log of n(ε) of the baseline over n(ε) of known attention, one a seed."""
    return cell.values["log_n_baseline"] - cell.values["log_n_known"]


def _over_features(measured: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """log p, and log ratios (seed, p)."""
    groups = by(measured, "features")
    ratios = [np.concatenate([_log_ratios(cell) for cell in cells]) for cells in groups.values()]
    return np.log(list(groups)), np.array(ratios).T


def judge(measured: Sequence[Measured]) -> list[Part]:
    quantity = f"slope of the log ratio of n({GOAL}) in log p"
    return [judge_part(quantity, slopes(*_over_features(measured)), SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "4 of p features attended to", CONTROL: "told f ≡ 1, independent samples"}
    series = []
    for arm, measured in arms.items():
        x, ratios = _over_features(measured)
        slope = float(slopes(x, ratios).mean())
        series.append(Series(names[arm], points(x, ratios), slope, control=arm != PREDICTION))
    return Figure(
        "Samples that the baseline needs, as a multiple of known attention's", "features p",
        f"n_baseline({GOAL}) / n_known({GOAL})", tuple(series),
    )  # fmt: skip


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """Learning curves at the largest p, with n(ε) where each crosses the goal."""
    features, cells = list(by(arms[PREDICTION], "features").items())[-1]
    series, marks = [], []
    for name, words, sizes in (
        ("known", "known attention", KNOWN_SIZES),
        ("baseline", "baseline", BASELINE_SIZES),
    ):
        logs = np.log(np.concatenate([cell.values[name] for cell in cells]))
        series.append(Series(words, points(np.log(sizes), logs)))
        needed = np.concatenate([cell.values[f"log_n_{name}"] for cell in cells])
        at = float(np.exp(needed.mean()))  # the judged quantity is a mean of logs
        label = f"{words}: n({GOAL}) = {at:.0f}"
        marks.append(Series(label, (Point(at, GOAL),), mark=True, like=words))
    ends = (Point(float(KNOWN_SIZES[0]), GOAL), Point(float(BASELINE_SIZES[-1]), GOAL))
    goal = Series(f"goal ε = {GOAL}", ends, line=True)
    return [
        Figure(
            f"Learning curves with {features} features, and the samples that ε needs",
            "samples n", "relative test error", (*series, goal, *marks),
        )
    ]  # fmt: skip


CLAIM = Claim(
    id="B.known-attention",
    title="Known attention needs fewer samples, the more so the more features there are",
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
        CONTROL: "The network is told f ≡ 1 instead: both are baselines, on independent samples."
    },
    assumptions=(
        "The attention weights are known (the control breaks this) and zero off a small support.",
        "Both networks can reach ε: known attention is the teacher's own class; the baseline "
        "approximates it.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "Telling a network where to look is worth a factor in labelled samples that grows with the "
        "number of inputs it need not look at."
    ),
    source="Lens B, section 2 (known attention); prediction (15) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
