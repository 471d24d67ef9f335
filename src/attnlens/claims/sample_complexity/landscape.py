"""Shared by the claims about the loss landscape: small networks, and descents to stationary points.

Networks are small enough for all eigenvalues of the Hessian in float64. Student and teacher have
the same shape, so the class is realisable for attention. An ℓ₂ penalty bounds the parameters:
without it valleys lead to infinity and descents do not end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from attnlens.claims.teacher_student import token_teacher
from attnlens.instruments.landscape.audit import DescentEnds, descend
from attnlens.networks import Baseline, SelfAttention

SETTINGS: dict[str, Any] = {
    "tokens": 3,
    "token_dim": 3,
    "query_dim": 1,
    "value_dim": 1,
    "layers": 1,
    "rank": 1,  # of the product of queries and keys: full
    "attend": True,
    "teacher_hidden": 3,
    "hidden": 3,  # of attention
    "focus": 2.0,
    "noise": "gaussian",
    "noise_std": 0.1,
    "sharpness": 5.0,
    "l2": 1e-4,  # a hundredth of the noise variance 0.01 at ‖w‖ = 1
    "tolerance": 1e-8,  # of the gradient norm
    "max_steps": 2000,
    "test_samples": 1000,
}


def attention(parameters: Mapping[str, Any]) -> Any:
    """How to make the attention network of a cell."""
    names = ("tokens", "token_dim", "query_dim", "value_dim", "hidden", "sharpness")
    return partial(SelfAttention, **{name: parameters[name] for name in names})


def baseline(parameters: Mapping[str, Any]) -> Any:
    """How to make the baseline of a cell."""
    features = parameters["tokens"] * parameters["token_dim"]
    hidden, sharpness = parameters["baseline_hidden"], parameters["sharpness"]
    return partial(Baseline, features=features, hidden=hidden, sharpness=sharpness)


def search(make: Any, parameters: Mapping[str, Any], seed: int) -> DescentEnds:
    """Where the descents from all starts end, for one teacher."""
    names = ("samples", "starts", "l2", "tolerance", "max_steps")
    settings = {name: parameters[name] for name in names}
    tested = parameters["test_samples"]
    return descend(make, token_teacher(parameters), seed, tested=tested, **settings)
