"""Durations as users write them and as they are printed."""

from __future__ import annotations

import re

from attnlens.core import checks

SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(budget: float | str) -> float:
    """A budget in seconds, from a number of seconds or a text such as 30s, 10m or 2h.

    >>> parse_duration("10m"), parse_duration("1.5h"), parse_duration(30)
    (600.0, 5400.0, 30.0)
    """
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", budget.lower())
        if match is None:
            raise checks.BadInput(
                f"the budget must be a time such as 30s, 10m or 2h; got {budget!r}."
            )
        budget = float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"]
    return float(checks.positive("budget", budget))


def format_duration(seconds: float) -> str:
    """Seconds as text, rounded to seconds or, from one hour on, to minutes.

    >>> format_duration(42), format_duration(185), format_duration(7800)
    ('42 s', '3 min 05 s', '2 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
