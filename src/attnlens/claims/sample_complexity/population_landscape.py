"""B.population-landscape: more samples do not remove the bad minima of attention.

Our finding about the landscape that lens B (ICLR 2021 submission) studies (docs/theory.md,
prediction 17): the paper's results hold "with enough samples". If bad minima were an effect of the
finite sample, the share s of starts that end in them would fall as n grows. If they belong to the
expected loss, it does not fall:

    logit s(n) = a + b log n,      −0.1 ≤ b ≤ 0.1,

with very small noise (σ² = 0.0001 Var m) and n ≥ 512. Each n has the same teachers and the same
starts. With n < 512 a student has only a few samples per parameter, and there are further bad
minima that belong to the sample: the phase diagrams show them.

*Interval.* The logit is that of the share of all starts at an n; a replicate is the jackknife
pseudo-value of the slope for one block of teachers. The share of k of N starts is estimated by
(k + ½)/(N + 1), so that k = 0 has a logit. The default profile shows the shares and the diagrams;
only the full profile can distinguish a slope of 0 from one of 0.1.

Control: at small noise the baseline on its own data has almost no bad minima, and the slope of a
share of 0 says nothing. So the control is the baseline with noise of the variance of the answer
(σ = 1). Its excess is estimation error, 30 σ²/n, which falls below 0.05 near n = 600. The share of
"bad" starts falls with n, as it would for attention if small samples were the reason.

The phase diagrams show the share over n and the student's width, over n and the student's d_q, and
over n and the noise. The teacher always has width 3 and d_q = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import AlongAxis
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Map, Point, Series, View
from attnlens.core.shares import share_interval
from attnlens.core.verdicts import Region

from .landscape import BAD, SETTINGS, bad, descents, seconds

CONTROL = "noisy-baseline"
NAMES = {PREDICTION: "self-attention", CONTROL: "baseline, σ = 1"}
JUDGED = Grid(
    settings={
        **SETTINGS,
        "noise_std": 0.01,
        "role": "judged",
        "starts": 2,
        "threshold": BAD,
    },
    axes={
        "samples": {
            "smoke": (512, 2048),
            "default": (512, 4096),
            "full": (512, 2048, 8192),
        }
    },
    arm_settings={
        CONTROL: {
            "student": "baseline",
            "attend": False,
            "noise_std": 1.0,
            "samples": {
                "smoke": (512, 2048),
                "default": (512, 4096),
                "full": (512, 2048, 8192),
            },
        }
    },
    blocks={
        PREDICTION: {"smoke": 2, "default": 4, "full": 130},
        CONTROL: {"smoke": 2, "default": 6, "full": 12},
    },
    seeds_per_block=8,
    cost=seconds,
    pilot=range(1000),
)
DIAGRAM_SAMPLES = (128, 512, 2048)


def _diagram(role: str, axis: str, values: tuple[Any, ...]) -> Grid:
    """The grid of one phase diagram: the share over n and the parameter `axis`."""
    settings = {name: value for name, value in JUDGED.settings.items() if name != axis}
    return replace(
        JUDGED,
        settings={**settings, "role": role},
        axes={"samples": DIAGRAM_SAMPLES, axis: values},
        arm_settings={},
        blocks={PREDICTION: {"smoke": 0, "default": 1, "full": 8}},
    )


WIDTHS = _diagram("width", "hidden", (3, 6, 12))
QUERY_DIMS = _diagram("query_dim", "student_query_dim", (1, 2, 3))
NOISES = _diagram("noise", "noise_std", (0.01, 0.1, 0.5))
DIAGRAMS = {
    "width": ("hidden", "width d of the student (teacher: 3)"),
    "query_dim": ("student_query_dim", "d_q of the student (teacher: 1)"),
    "noise": ("noise_std", "noise σ"),
}


@dataclass(frozen=True)
class LogitLaw(AlongAxis):
    """The law logit share = a + b log axis, with one jackknife pseudo-value of b per block.

    >>> rows = {16: [1, 0, 1, 0], 256: [1, 1, 0, 0]}
    >>> cells = [
    ...     Measured({"n": n}, (2 * i, 2 * i + 1), {"x": np.array(row[2 * i : 2 * i + 2])})
    ...     for n, row in rows.items() for i in range(2)
    ... ]
    >>> LogitLaw("x", "n", "block").slopes(cells).round(9).tolist()
    [0.580482024, -0.580482024]
    """

    def slopes(self, cells: Sequence[Measured]) -> np.ndarray:
        """The slope b, the exponent of the odds: one pseudo-value per block of teachers."""
        at, shares = self.columns(cells)
        values = next(iter(cells)).values[str(self.values)]
        blocks, size = len(shares), values.size
        x = np.log(np.asarray(at, float))
        x = (x - x.mean()) / np.sum((x - x.mean()) ** 2)

        def slope(rows: np.ndarray) -> float:
            total = len(rows) * size
            good = (rows.sum(0) * size + 0.5) / (total + 1)
            return float(x @ (np.log(good) - np.log1p(-good)))

        every = slope(shares)
        left_out = np.array([slope(np.delete(shares, i, axis=0)) for i in range(blocks)])
        return blocks * every - (blocks - 1) * left_out


LAW = LogitLaw("bad", "samples", "block")
RULE = Rule(
    Quantity(
        "slope",
        "slope of the logit of the share of bad minima in n (n {span})",
        LAW.slopes,
        Region(-0.1, 0.1),
        where={"role": "judged"},
        # The slope of one block has a standard deviation of 0.35 over a factor of 8 in n; the full
        # profile has a factor of 16. With the four blocks of the default profile the interval is
        # about ± 0.5.
        power=Power(effect=0.0, std=0.28),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Whether each start ends in a bad minimum, and its excess, both (teacher, start)."""
    ends = [descents(parameters, seed, parameters["starts"]) for seed in seeds]
    return {
        "bad": np.stack([bad(end, parameters["threshold"]) for end in ends]),
        "excess": np.stack([end.excess for end in ends]),
    }


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of the share over n; its exact intervals treat starts as independent."""
    series = []
    for arm, measured in arms.items():
        cells = group_by(measured, "role")["judged"]
        points = tuple(_point(n, group) for n, group in group_by(cells, "samples").items())
        series.append(Series(NAMES[arm], points, control=arm != PREDICTION))
    title = "Share of starts that end in a bad minimum, over the number of samples"
    return Figure(title, "samples n", "share", tuple(series), log_y=False)


def _point(x: float, cells: Sequence[Measured]) -> Point:
    values = np.concatenate([cell.values["bad"].ravel() for cell in cells])
    low, high = share_interval(values.sum(), values.size)
    return Point.between(x, float(values.mean()), float(low), float(high))


def views(arms: Mapping[str, Sequence[Measured]]) -> list[View]:
    """The phase diagrams that the profile has cells for."""
    roles = group_by(arms[PREDICTION], "role")
    maps: list[View] = []
    for role, (axis, label) in DIAGRAMS.items():
        if role not in roles:
            continue
        cells = group_by(roles[role], axis, "samples")
        rows, columns = (sorted({key[i] for key in cells}) for i in range(2))
        values = tuple(
            tuple(
                float(np.mean([cell.values["bad"].mean() for cell in cells[row, column]]))
                for column in columns
            )
            for row in rows
        )
        names = tuple(f"{column:g}" for column in columns), tuple(f"{row:g}" for row in rows)
        title = f"Share of bad minima of attention over n and {label}"
        maps.append(Map(title, "samples n", label, (("", values),), *names, quantity="share"))
    return maps


CLAIM = Claim(
    id="B.population-landscape",
    title="More samples do not remove the bad minima",
    statement=(
        "The share of starts that end in a bad local minimum does not change with the number of "
        "samples: bad minima belong to the expected loss, not to the sample."
    ),
    formula=(
        r"$slope_low \le \frac{\mathrm{d}\,\mathrm{logit}\,P(\mathrm{excess} > $threshold)}"
        r"{\mathrm{d}\,\log n} \le $slope_high"
    ),
    prediction=(
        "With next to no noise and $starts starts per teacher, the slope of the logit of the share "
        "of minima with an excess above $threshold, in log n, is $slope."
    ),
    controls={
        CONTROL: Control(
            "The baseline on its own data at noise σ = 1, whose excess is estimation error."
        )
    },
    assumptions=(
        Assumption("The student can represent the teacher", Check.BY_CONSTRUCTION),
        Assumption("Excess is not estimation error of good minima", Check.CONTROL, control=CONTROL),
        Assumption("The range of n speaks for larger n too"),
    ),
    meaning=Meaning(
        supported=(
            "More data do not repair a start that ended badly: spend computing time on further "
            "starts, not on labels."
        ),
        refuted="The share of bad minima depends on the number of samples: see the phase diagrams.",
        undecided="Whether more samples remove bad minima is open: use several starts at every n.",
    ),
    source="Our own prediction (docs/theory.md, prediction 17).",
    attribution=FINDING,
    plan=Grids(JUDGED, WIDTHS, QUERY_DIMS, NOISES),
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
    decisive="full",
)
