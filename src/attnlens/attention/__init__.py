"""Attention as pure functions of (query, key, value); parameters enter only in `networks`.

Shapes: query (..., Lq, d), key (..., L, d), value (..., L, dv) give (..., Lq, dv). Inputs keep
their precision: float64 in, float64 throughout.

Imported eagerly, unlike the other packages: operators share their names with their files, and a
lazy name would turn into the module once somebody imports that.
"""

from .cme import cme
from .registry import OPERATORS
from .softmax import softmax

__all__ = ["OPERATORS", "cme", "softmax"]
