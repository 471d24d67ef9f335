"""Attention as pure functions of (query, key, value); parameters enter only in `networks`.

Shapes: query (..., Lq, d), key (..., L, d), value (..., L, dv) give (..., Lq, dv). Inputs keep
their precision: float64 in, float64 throughout.

Imported eagerly, unlike the other packages: operators have the same names as their modules, and a
lazy name would be replaced by the module when somebody imports that module.
"""

from .cme import Estimate, SolveInfo, WithVariance, cme
from .kernel import kernel
from .linear import linear
from .multihead import MultiHead
from .registry import OPERATORS
from .sigmoid import sigmoid
from .softmax import softmax

__all__ = [
    "OPERATORS",
    "Estimate",
    "MultiHead",
    "SolveInfo",
    "WithVariance",
    "cme",
    "kernel",
    "linear",
    "sigmoid",
    "softmax",
]
