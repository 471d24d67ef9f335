"""Claims of a user, each of which fails in a different place."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from attnlens.claims.cells import Work
from toy_claims import CLAIM


def fails(*_: Any) -> Any:
    raise ValueError("my own mistake")


def leaves(*_: Any) -> Any:
    sys.exit(0)


def numpy_plan(_: str) -> list[Work]:
    parameters = {"shift": np.int64(1), "sizes": np.arange(3), "scale": np.float32(0.5)}
    seeds: Any = (np.int64(0), np.int64(1))
    return [Work(arm, parameters, seeds) for arm in CLAIM.arms]


def plan_of(**changes: Any) -> Any:
    def plan(_: str) -> list[Work]:
        return [Work("prediction", {"shift": 1}, (0, 1))._replace(**changes)]

    return plan


PLAN = replace(CLAIM, plan=fails)
JUDGE = replace(CLAIM, judge=fails)
FIGURE = replace(CLAIM, figure=fails)
EXIT = replace(CLAIM, plan=leaves)
NUMPY = replace(CLAIM, plan=numpy_plan)
SURROGATE = replace(CLAIM, plan=plan_of(parameters={"shift": "\udc80"}))
INFINITE = replace(CLAIM, plan=plan_of(parameters={"shift": float("inf")}))
OBJECT = replace(CLAIM, plan=plan_of(parameters={"shift": object()}))
LARGE_SEED = replace(CLAIM, plan=plan_of(seeds=(2**32,)))
NO_WORK = replace(CLAIM, plan=lambda _: [("prediction", {}, (0,))])
NO_PARTS = replace(CLAIM, judge=lambda _: [1.0])
