"""All operators by name, for contract tests, claims and the command line.

An entry is the operator with its required settings filled in: a function of (query, key, value)
that also takes `mask`. All of them accept a mask of shape (..., 1, length), one row for all
queries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attnlens.core import kernels

from .cme import cme
from .kernel import kernel
from .linear import linear
from .sigmoid import sigmoid
from .softmax import softmax

OPERATORS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "softmax-blocks": partial(softmax, method="blocks"),
    **{f"kernel-{name}": partial(kernel, kernel=name) for name in kernels.LOG_PROFILES},
    "linear-elu": linear,
    "linear-positive": partial(linear, features="positive"),
    "sigmoid": sigmoid,
    "cme": partial(cme, ridge=0.1),
    "cme-matern32": partial(cme, ridge=0.1, kernel="matern32"),
    "cme-linear": partial(cme, ridge=0.1, kernel="linear"),
    "cme-iterative": partial(cme, ridge=0.1, method="iterative", rank=8),
}
"""Every operator as a function of (query, key, value), ready to call."""
