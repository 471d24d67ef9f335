"""Ticks of an axis: their places and their labels."""

from __future__ import annotations

import math
from typing import Any

# Ticks of a logarithmic axis: (least number of decades that the values span, leading digits).
DIGITS = (
    (2.5, (1,)),
    (1.0, (1, 2, 5)),
    (0.4, (1, 1.5, 2, 3, 5, 7)),
    (0.0, (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)),
)
MOST_TICKS = 12  # along a side of a panel; the labels of more would overlap


def log_ticks(values: list[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis as plotly takes them: 1, 2, 5, 10, … or powers of ten alone.

    plotly's own labels between powers of ten are single small digits, which are hard to read.
    """
    ticks = log_places(values)
    if not ticks:
        return {}
    return {
        "tickvals": [d * 10.0**k for k, d in ticks],
        "ticktext": [tick_label(d, k) for k, d in ticks],
    }


def log_places(values: list[float]) -> list[tuple[int, float]]:
    """Places of ticks on a logarithmic axis, as (power of ten, digit).

    The closer the values lie together, the more digits, so that at least two ticks are visible.

    >>> log_places([1.0, 1e6])[:3]
    [(-1, 1), (0, 1), (1, 1)]
    """
    known = [math.log10(v) for v in values if v > 0 and math.isfinite(v)]
    if not known:
        return []
    low, high = math.floor(min(known)) - 1, math.ceil(max(known)) + 1
    span = max(known) - min(known)
    digits = next(digits for least, digits in DIGITS if span >= least)
    step = 1 if span < 2.5 else math.ceil((high - low) / 12)
    ticks = [(k, d) for k in range(low, high + 1, step) for d in digits]
    if span >= DIGITS[1][0]:
        return ticks
    # There are many digits: keep those that can be visible.
    return [(k, d) for k, d in ticks if -0.2 <= k + math.log10(d) - min(known) <= span + 0.2]


def tick_label(digit: float, power: int) -> str:
    """digit · 10^power as a label."""
    if -4 < power < 6:
        return f"{digit * 10.0**power:,.10g}"
    return f"{f'{digit:g}·' * (digit > 1)}10<sup>{power}</sup>".replace("-", "−")


def counts_few_things(places: list[float]) -> bool:
    """Whether an axis counts a few things, such as heads, so that only whole ticks make sense."""
    whole = all(math.isfinite(x) and x == round(x) for x in places)
    return whole and bool(places) and max(places) - min(places) <= MOST_TICKS
