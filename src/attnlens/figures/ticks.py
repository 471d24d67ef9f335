"""Where the ticks of an axis stand, and how their numbers are written."""

from __future__ import annotations

import math
from typing import Any

# Digits at ticks of a logarithmic axis, by the powers of ten that its values span at least.
DIGITS = (
    (2.5, (1,)), (1.0, (1, 2, 5)), (0.4, (1, 1.5, 2, 3, 5, 7)),
    (0.0, (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)),
)  # fmt: skip
TICKS = 12  # along a side of a panel; more names would run into each other


def log_ticks(values: list[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis in whole numbers: 1, 2, 5, 10, … or powers of ten alone.

    plotly's own put small digits between powers of ten, which few people can read.
    """
    ticks = log_places(values)
    if not ticks:
        return {}
    return {
        "tickvals": [d * 10.0**k for k, d in ticks],
        "ticktext": [power(d, k) for k, d in ticks],
    }


def log_places(values: list[float]) -> list[tuple[int, float]]:
    """Where ticks of a logarithmic axis stand, as (power of ten, digit): the closer the values lie
    together, the more digits, so that at least two ticks are in sight.

    >>> log_places([1.0, 1e6])[:3]
    [(-1, 1), (0, 1), (1, 1)]
    """
    known = [math.log10(v) for v in values if v > 0 and math.isfinite(v)]
    if not known:
        return []
    low, high = math.floor(min(known)) - 1, math.ceil(max(known)) + 1
    span = max(known) - min(known)
    digits = next(found for least, found in DIGITS if span >= least)
    step = 1 if span < 2.5 else math.ceil((high - low) / 12)
    ticks = [(k, d) for k in range(low, high + 1, step) for d in digits]
    if span >= DIGITS[1][0]:
        return ticks
    # Many digits, so only those that can come into sight.
    return [(k, d) for k, d in ticks if -0.2 <= k + math.log10(d) - min(known) <= span + 0.2]


def power(digit: float, power: int) -> str:
    if -4 < power < 6:
        return f"{digit * 10.0**power:,.10g}"
    return f"{f'{digit:g}·' * (digit > 1)}10<sup>{power}</sup>".replace("-", "−")


def counts(places: list[float]) -> bool:
    """Whether an axis counts a few things: there are no half heads."""
    whole = all(math.isfinite(x) and x == round(x) for x in places)
    return whole and bool(places) and max(places) - min(places) <= TICKS
