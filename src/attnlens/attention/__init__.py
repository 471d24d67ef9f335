"""Attention as pure functions of (query, key, value); parameters enter only in `networks`.

Shapes: query (..., Lq, d), key (..., L, d), value (..., L, dv) give (..., Lq, dv). Inputs keep
their precision: float64 in, float64 throughout.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
