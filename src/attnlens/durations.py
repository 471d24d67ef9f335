"""Spans of time, as people write and say them."""

from __future__ import annotations

import re

from attnlens import checks

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(budget: float | str) -> float:
    """A budget in seconds: a number, or 30s, 10m, 2h.

    >>> seconds("10m"), seconds("1.5h"), seconds(30)
    (600.0, 5400.0, 30.0)
    """
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", budget.lower())
        if found is None:
            raise checks.BadInput(
                f"the budget must be a time such as 30s, 10m or 2h, but {budget!r} came."
            )
        budget = float(found[1]) * UNITS[found[2] or "s"]
    return float(checks.positive("budget", budget))


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(42), clock(185), clock(7800)
    ('42 s', '3 min 05 s', '2 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
