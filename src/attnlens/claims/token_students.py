"""Shared by the claims about self-attention: a token teacher, two kinds of students, one rule.

Teachers are the self-attention models of lens B (ICLR 2021 submission) on p tokens of dimension t
(`TokenTeacher`), with answers of variance one. One student is of the teacher's own class; the other
is the baseline, a plain network on the p·t numbers of the tokens. Both sides have the same number
of candidates: two widths, each with two penalties and one start. All candidates are trained on four
fifths of their n samples; the candidate with the lowest loss on the last fifth is chosen, for each
side, seed and sample size (held-out rows have labels too, so they count towards n). Without a
choice of penalties the comparison would be unfair to the baseline: at n = 128 its error was 1.0
with 1e-4 and 0.73 with 0.03, in a pilot with p = t = 4.

ε is a goal that both sides reach. The baseline has an approximation error here; with a goal below
it, the ratio would measure this error and not samples. Each claim says how many baselines of its
pilot did not reach ε. The figure shows the log ratio at other goals too.

Every such claim has a control with a teacher *without attention* (a is the identity), on whose data
attention must learn to switch itself off. A student whose attention is *frozen at uniform* shows
whether a saving comes from attention or from averaging tokens: it is the same network, but every
token is replaced by the mean token, so that every softmax is uniform. If it is worse than the plain
network, it is a control; otherwise it is one of the baseline's candidates (`against`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.core.drawing import Figure, Series
from attnlens.core.verdicts import Region
from attnlens.networks import Baseline, SelfAttention
from attnlens.worlds.seeding import episode_keys

from .cells import Measured
from .claim import PREDICTION, Assumption, Check, Control, Profile
from .figures import log_point
from .grid import Grid
from .power import Power
from .rule import Quantity, Rule
from .teacher_student import (
    ADAM,
    Samples,
    best_candidate,
    log_size_ratio,
    teacher_samples,
    token_teacher,
    training_of,
)

ABSENT, UNIFORM = "no-attention", "uniform-attention"
CONTROLS = {
    ABSENT: Control("A teacher without attention: a is the identity."),
    UNIFORM: Control("The student's attention is frozen at uniform."),
}
SETTINGS: dict[str, Any] = {
    **ADAM,
    "goal": 0.5,
    "goals": [0.8, 0.7, 0.6, 0.5, 0.4],  # values of ε in the figure
    # Powers of three times 16, which contain n(ε) of the pilots.
    "sizes": {
        "smoke": [16, 432],
        "default": [16, 48, 144, 432, 1296, 3888],
        "full": [16, 48, 144, 432, 1296, 3888],
    },
    "tokens": 4,
    "token_dim": 4,
    "query_dim": 4,
    "value_dim": 4,
    "rank": 4,  # rank of the product of queries and keys, equal to query_dim
    "attend": True,
    "hard": False,
    "unit_variance": True,
    "focus": 1.0,
    "student": "attention",
    "against": ["plain"],  # kinds of networks among the baseline's candidates
    "noise": "gaussian",
    "noise_std": 0.1,
    "sharpness": 5.0,
    "test_samples": 512,  # per seed; a few per cent of an error's variance come from them
    "teacher_hidden": 8,
    # The widths and penalties of the candidates of each side. In a pilot, a baseline of 256 units
    # was no better than one of 64. Of the penalties 0.001, 0.01 and 0.1 the best was 0.1 at small
    # n; at large n 0.01 was good and 0.001 slightly better, for both sides.
    "widths": {"smoke": [16], "default": [16, 64], "full": [16, 64]},
    "l2": [1e-2, 1e-1],
    # With 1500 steps at half the learning rate (n ≥ 1024, penalty 1e-4), errors of the baseline
    # changed by a tenth or less, and those of attention fell by half or more. So longer training
    # would favour the claim.
    "steps": 400,
    "batch": 32,
    "learning_rate": 2e-2,
    "validation": 0.2,
}


def log_ratio(goal: float | None = None) -> Any:
    """An estimate: E log n(ε) of the baseline minus that of attention, one per seed.

    ε is `goal`, or by default the parameter `goal` of the cells.
    """
    return log_size_ratio("baseline", "attention", ("sizes", "sizes"), goal)


def rule(power: Power) -> Rule:
    """The rule of a claim: the log ratio is at least 0.3; `power` comes from the claim's pilot."""
    return Rule(
        Quantity(
            "log_ratio",
            "log ratio of n({goal}), baseline over attention",
            log_ratio(),
            Region(low=0.3),
            power=power,
        )
    )


PREDICTED = (
    "The mean log ratio of n($goal), baseline over {student}, is $log_ratio; $tokens tokens of "
    "dimension $token_dim; width and penalty of each side are chosen on held-out samples."
)


def grid(
    seconds: float,
    blocks: Mapping[str, Mapping[Profile, int]],
    arm_settings: Mapping[str, Mapping[str, Any]],
    pilot: range,
    **settings: Any,
) -> Grid:
    """The grid of a claim; a cell takes `seconds` per seed and sample size."""
    return Grid(
        settings={**SETTINGS, **settings},
        arm_settings=arm_settings,
        blocks=blocks,
        seeds_per_block={"smoke": 2, "default": 8, "full": 8},
        cost=lambda parameters, seeds: seconds * seeds * len(parameters["sizes"]),
        pilot=pilot,
    )


def measure(
    arm: str, parameters: Mapping[str, Any], seeds: Sequence[int], student: Callable[..., Any]
) -> dict[str, Any]:
    """Relative errors of the chosen candidates of both sides, (seed, sample size)."""
    sizes, widths = parameters["sizes"], parameters["widths"]
    keys = episode_keys(seeds, parameters["layers"])
    samples = teacher_samples(
        token_teacher(parameters), keys, sizes[-1], parameters["test_samples"]
    )
    tokens, token_dim, sharpness = (parameters[n] for n in ("tokens", "token_dim", "sharpness"))
    averaged = mean_tokens(samples)
    attention = partial(student, tokens=tokens, token_dim=token_dim, sharpness=sharpness)
    kinds = {
        "plain": (partial(Baseline, features=tokens * token_dim, sharpness=sharpness), samples),
        "attention": (attention, samples),
        "uniform": (attention, averaged),
    }
    training = {**training_of(parameters), "l2": tuple(parameters["l2"])}

    def best(names: Sequence[str]) -> np.ndarray:
        candidates = [
            (partial(kinds[name][0], hidden=width), kinds[name][1])
            for name in names
            for width in widths
        ]
        return best_candidate(candidates, seeds, sizes, **training)

    return {"baseline": best(parameters["against"]), "attention": best([parameters["student"]])}


def self_attention(parameters: Mapping[str, Any]) -> Callable[..., SelfAttention]:
    """The constructor of a student with one layer of self-attention, with the sizes of a cell."""
    query_dim, value_dim = parameters["query_dim"], parameters["value_dim"]
    return partial(SelfAttention, query_dim=query_dim, value_dim=value_dim)


def mean_tokens(samples: Samples) -> Samples:
    """The samples with every token replaced by the mean token of its sample.

    All keys are then equal, so every softmax is uniform, in every layer.
    """

    def mean(inputs: np.ndarray) -> np.ndarray:
        return np.broadcast_to(inputs.mean(-1, keepdims=True), inputs.shape)

    return samples._replace(inputs=mean(samples.inputs), fresh=mean(samples.fresh))


LABELS = {
    PREDICTION: "attention",
    ABSENT: "attention, teacher without attention",
    UNIFORM: "attention frozen at uniform",
}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of the ratio of n(ε) as a function of ε, for the prediction and the controls."""
    series = []
    for arm, cells in arms.items():
        points = [log_point(goal, log_ratio(goal)(cells)) for goal in cells[0].parameters["goals"]]
        series.append(Series(LABELS[arm], tuple(points), control=arm != PREDICTION))
    return Figure(
        "Samples that the baseline needs, as a multiple of the other student's",
        "relative error ε",
        "ratio of n(ε)",
        tuple(series),
        log_x=False,
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """A figure of the learning curves of both students, in every arm."""
    series = []
    for arm, measured in arms.items():
        sizes = [float(size) for size in measured[0].parameters["sizes"]]
        for student, label in (("attention", LABELS[arm]), ("baseline", f"baseline ({arm})")):
            logs = np.log(np.concatenate([cell.values[student] for cell in measured]))
            points = tuple(map(log_point, sizes, logs.T))
            series.append(Series(label, points, control=arm != PREDICTION))
    title = "Learning curves, with width and penalty chosen on held-out samples"
    return [Figure(title, "samples n", "relative error (geometric mean)", tuple(series))]


def assumptions(labels: str) -> tuple[Assumption, ...]:
    """The assumptions of a claim; `labels` says where its labels come from."""
    return (
        Assumption(f"The labels come from {labels}", Check.CONTROL, control=ABSENT),
        Assumption(
            "Most baselines reach ε, and n(ε) of the others is censored; not far below ε they have "
            "an approximation floor",
            Check.CHECKED,
        ),
        Assumption("Stochastic gradient descent finds good minima of both"),
    )
