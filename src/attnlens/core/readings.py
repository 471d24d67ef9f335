"""Results of measurements.

Reading   a number: value, standard error, count, status, details
Curve     readings along an axis, with the slope of the straight line through them on log–log axes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .drawing import Figure, Point, Series


@dataclass(frozen=True)
class Reading:
    """A measured number, its standard error, and the number of independent draws behind it.

    The 95 % interval is value ± t · standard_error (`statistics.t_interval`). `status` is "ok", or
    the reason why there is no number.

    >>> print(Reading(0.5, 0.01, 100))
    0.5 ± 0.01 (n = 100)
    >>> print(Reading(math.nan, math.nan, 1, "fewer than two finite replicates"))
    no number: fewer than two finite replicates
    """

    value: float
    standard_error: float
    count: int
    status: str = "ok"
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.status != "ok":
            return f"no number: {self.status}"
        return f"{self.value:.4g} ± {self.standard_error:.2g} (n = {self.count})"

    def figure(self) -> Figure:
        """The value with its 95 % interval in the normal approximation (1.96 standard errors)."""
        point = Point(1.0, self.value, 1.96 * self.standard_error)
        series = (Series(f"n = {self.count}", (point,) if math.isfinite(self.value) else ()),)
        return Figure(str(self), "", "value", series, False, False, names=("measured",))

    def plot(self) -> Any:
        """The value with its interval, drawn by matplotlib."""
        return self.figure().plot()


@dataclass(frozen=True)
class Curve:
    """Readings along an axis, such as error over length; `slope` is the log–log rate.

    >>> halves = (Reading(1.0, 0.1, 9), Reading(0.5, 0.05, 9))
    >>> print(Curve("length", "error", (16, 64), halves, slope=Reading(-0.5, 0.1, 18)))
        length  error
            16  1 ± 0.1 (n = 9)
            64  0.5 ± 0.05 (n = 9)
         slope  -0.5 ± 0.1 (n = 18)
    """

    axis: str
    quantity: str
    at: tuple[float, ...]
    readings: tuple[Reading, ...]
    slope: Reading | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [f"{x:>10g}  {reading}" for x, reading in zip(self.at, self.readings, strict=True)]
        tail = [] if self.slope is None else [f"{'slope':>10}  {self.slope}{self._remarks()}"]
        return "\n".join([f"{self.axis:>10}  {self.quantity}", *rows, *tail])

    def _remarks(self) -> str:
        """Remarks on the slope: the predicted slope, and the first point of the fit."""
        start, predicted = (self.details.get(name) for name in ("fitted_from", "predicted"))
        prediction = "" if predicted is None else f"; predicted {predicted:.3g}"
        late = start is not None and start != self.at[0]
        return prediction + (f"; fitted from {self.axis} {start:g} on" if late else "")

    def figure(self) -> Figure:
        """The curve with its slope and 95 % intervals (1.96 standard errors)."""
        points = [
            Point(x, r.value, 1.96 * r.standard_error)
            for x, r in zip(self.at, self.readings, strict=True)
        ]
        series = Series(
            self.quantity,
            tuple(points),
            slope=self.slope.value if self.slope and self.slope.status == "ok" else None,
            reference=self.details.get("predicted"),
        )
        # Logarithmic axes only for positive numbers: positions along a direction pass through 0.
        log_x, log_y = min(self.at) > 0, all(point.y > 0 for point in points)
        title = f"{self.quantity} over {self.axis}"
        return Figure(title, self.axis, self.quantity, (series,), log_x=log_x, log_y=log_y)

    def plot(self) -> Any:
        """The curve, drawn by matplotlib."""
        return self.figure().plot()
