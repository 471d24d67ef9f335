"""B.spurious-minima: attention has bad local minima on its own data where a plain network has none.

Our finding about the landscape that lens B (ICLR 2021 submission) studies (docs/theory.md,
prediction 17). If some starts of attention end in bad minima, this says something about attention
only if a network without attention does not, on data that it can represent. So with bad minima as
defined in `landscape`,

    P(bad | attention, own data) − P(bad | baseline, own data) ≥ 0.3.

The two are paired: the baseline's data are those of the same teacher with a(x) replaced by the
identity (same weights, inputs, noise and scale of the answer), and both students have the shape of
their teacher. A replicate is a teacher with one start of each student.

*What causes them?* The controls freeze one half of the network at the teacher's values. In one,
a(x) is given and w_V, w₁ and w₂ are trained; in the other, w_V, w₁ and w₂ are given and w_Q and w_K
are trained. In the pilot each half alone ended in a bad minimum as rarely as the baseline (3 % and
2 %, against 46 % if both are trained): neither the softmax nor the value path has many bad minima
by itself. They come from training both: if the value path fits the answers for a wrong attention,
this attention may not change any more.

*Is the baseline better only because it has more parameters?* It has 30 and attention has 21, for a
target with the structure w₁ (I ⊗ w_V). The student with given attention has that structure and 15
parameters, the same value path as attention, and has almost no bad minima.

*Does it depend on the logits?* The full profile shows the share over `focus`, the standard
deviation of the teacher's logits: from nearly uniform attention (0.5) to the selection of one token
(4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import FINDING, PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import difference, pooled
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series, View
from attnlens.core.shares import share_interval
from attnlens.core.verdicts import Region
from attnlens.instruments.landscape.audit import DescentEnds

from .landscape import BAD, SETTINGS, bad, descents, seconds

GIVEN_ATTENTION, GIVEN_VALUES = "given-attention", "given-values"
NAMES = {
    PREDICTION: "self-attention",
    GIVEN_ATTENTION: "attention given",
    GIVEN_VALUES: "value path given",
}
JUDGED = Grid(
    settings={**SETTINGS, "role": "judged", "samples": 512, "threshold": BAD},
    arm_settings={arm: {"student": arm} for arm in (GIVEN_ATTENTION, GIVEN_VALUES)},
    blocks={
        PREDICTION: {"smoke": 1, "default": 16, "full": 72},
        GIVEN_ATTENTION: {"smoke": 1, "default": 4, "full": 24},
        GIVEN_VALUES: {"smoke": 1, "default": 4, "full": 24},
    },
    seeds_per_block=16,
    cost=lambda parameters, seeds: 2 * seconds(parameters, seeds),
    pilot=range(1000),
)
FOCUS = replace(
    JUDGED,
    settings={**{k: v for k, v in JUDGED.settings.items() if k != "focus"}, "role": "focus"},
    axes={"focus": (0.5, 1.0, 4.0)},
    arm_settings={},
    blocks={PREDICTION: {"smoke": 0, "default": 0, "full": 8}},
)
RULE = Rule(
    Quantity(
        "difference",
        "share of bad minima, attention minus baseline, each on its own data (n = {samples})",
        difference(pooled("bad"), pooled("baseline_bad")),
        Region(low=0.3),
        where={"role": "judged"},
        # In the pilot, 204 of 448 starts of attention and 3 of 256 of the baseline were bad.
        power=Power(effect=0.44, std=0.51),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Whether one start of the student, and one of the baseline on its own data, are bad.

    Excesses are returned too; arrays of the baseline have the prefix "baseline_".
    """
    other = {**parameters, "student": "baseline", "attend": False}
    ends: dict[str, list[DescentEnds]] = {"": [], "baseline_": []}
    for seed in seeds:
        ends[""].append(descents(parameters, seed, starts=1))
        ends["baseline_"].append(descents(other, seed, starts=1))
    threshold = parameters["threshold"]
    return {
        f"{side}{name}": np.array([value(end) for end in ended])
        for side, ended in ends.items()
        for name, value in (
            ("bad", lambda end: bad(end, threshold)[0]),
            ("excess", lambda end: end.excess[0]),
        )
    }


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure of the share of bad minima of every student."""
    judged = {arm: group_by(cells, "role")["judged"] for arm, cells in arms.items() if cells}
    names = [*(NAMES[arm] for arm in judged), "baseline, own data"]
    rows = [*((cells, "bad") for cells in judged.values())]
    rows.append((judged[PREDICTION], "baseline_bad"))
    series = [
        Series(name, (_share(1.0 + place, cells, key),), control=place > 0)
        for place, (name, (cells, key)) in enumerate(zip(names, rows, strict=True))
    ]
    return Figure(
        "Share of starts that end in a bad minimum",
        "",
        "share",
        tuple(series),
        log_x=False,
        log_y=False,
        names=tuple(names),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[View]:
    """A figure of the share over the focus of the teacher's attention, if the profile varies it."""
    roles = group_by(arms[PREDICTION], "role")
    if "focus" not in roles:
        return []
    groups = group_by([*roles["judged"], *roles["focus"]], "focus").items()
    lines = tuple(
        Series(name, tuple(_share(focus, cells, key) for focus, cells in groups), control=other)
        for name, key, other in (
            ("self-attention", "bad", False),
            ("baseline, own data", "baseline_bad", True),
        )
    )
    title = "Share of bad minima over the focus of the teacher's attention"
    return [Figure(title, "standard deviation of the logits", "share", lines, log_y=False)]


def _share(x: float, cells: Sequence[Measured], key: str) -> Point:
    values = np.concatenate([cell.values[key] for cell in cells])
    low, high = share_interval(values.sum(), values.size)
    return Point.between(x, float(values.mean()), float(low), float(high))


CLAIM = Claim(
    id="B.spurious-minima",
    title="Attention has bad minima of its own",
    statement=(
        "On data that it can represent, a self-attention network ends in a bad local minimum more "
        "often than a plain network on data that that can represent."
    ),
    formula=(
        r"P(\mathrm{bad}\mid \mathrm{attention}) - P(\mathrm{bad}\mid \mathrm{baseline}) "
        r"\ge $difference_low"
    ),
    prediction=(
        "At n = $samples the share of starts that end in a local minimum with an excess above "
        "$threshold, attention minus baseline, each on its own data, is $difference."
    ),
    controls={
        GIVEN_ATTENTION: Control(
            "Attention is frozen at the teacher's w_Q and w_K; the value path is trained."
        ),
        GIVEN_VALUES: Control(
            "The value path is frozen at the teacher's w_V, w₁ and w₂; w_Q and w_K are trained."
        ),
    },
    assumptions=(
        Assumption("Each student has the shape of its teacher", Check.BY_CONSTRUCTION),
        Assumption(
            "Queries and keys are trained together with the value path",
            Check.CONTROL,
            control=GIVEN_ATTENTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "Bad minima come from training attention and values together: train from several "
            "starts. Where the attention is known, or the values are, give it: one start is enough."
        ),
        refuted="Attention ends in bad minima no more often than a plain network does.",
        undecided=(
            "How much more often attention ends in bad minima is open: train from several starts."
        ),
    ),
    source="Our own prediction (docs/theory.md, prediction 17).",
    attribution=FINDING,
    plan=Grids(JUDGED, FOCUS),
    measure=measure,
    judge=RULE,
    figure=figure,
    views=views,
)
