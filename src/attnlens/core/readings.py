"""Results of measurements.

Reading         a number: value, standard error, count, status
BoundedReading  a number with an interval that is not symmetric
StoredReading   a number that was read from a document, with the details stored there
Curve           readings along an axis, with the slope of the straight line through them on log–log
                axes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from .drawing import Figure, Point, Series
from .frames import Tabular
from .status import Status

LEVEL = 0.95  # confidence level of every interval that is shown


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """The t for which Student's t lies in −t to t with probability `level`; NaN for freedom 0."""
    from scipy.special import (  # imported here, because many commands do not need SciPy
        ndtri,
        stdtrit,
    )

    if math.isinf(freedom):
        return float(ndtri(0.5 + level / 2))
    return float(stdtrit(freedom, 0.5 + level / 2)) if freedom > 0 else math.nan


@dataclass(frozen=True)
class Reading(Tabular):
    """A measured number, its standard error, and the number of independent draws behind it.

    `interval` is the only interval of a reading: figures, sentences and decisions use it. `freedom`
    is the number of degrees of freedom of the standard error; None means count − 1. `status` says
    whether there is a number and, where there is none, `reason` says why. A measurement with more
    results returns a subclass that adds fields; `details` maps their names to their values.

    >>> print(Reading(0.5, 0.01, 100))
    0.5 ± 0.01 (n = 100)
    >>> low, high = Reading(0.5, 0.01, 100).interval()
    >>> print(f"{low:.4f} to {high:.4f}")
    0.4802 to 0.5198
    >>> print(Reading(math.nan, math.nan, 1, Status.FEW_REPLICATES))
    no number: fewer than two finite replicates
    """

    value: float
    standard_error: float
    count: int
    status: Status = Status.OK
    freedom: float | None = None
    remark: str = field(default="", kw_only=True)  # the reason in words, for `Status.OTHER`

    def __post_init__(self):
        if not isinstance(self.status, Status):  # a string, as in documents of earlier versions
            status, remark = Status.read(self.status)
            object.__setattr__(self, "status", status)
            object.__setattr__(self, "remark", remark)

    @classmethod
    def of(cls, reading: Reading, **own: Any) -> Self:
        """A reading of this class: the numbers of `reading`, and `own`, the fields it adds.

        >>> BoundedReading.of(Reading(2.0, 0.5, 8), low=1.0, high=4.0).high
        4.0
        """
        numbers = reading.value, reading.standard_error, reading.count
        return cls(*numbers, reading.status, reading.freedom, remark=reading.remark, **own)

    @property
    def details(self) -> Mapping[str, Any]:
        """The fields that a subclass adds, by name, and the remark if there is one."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _READING}
        return {**own, "reason": self.remark} if self.remark else own

    @property
    def reason(self) -> str:
        """The status in words, with its numbers."""
        return self.status.sentence(self.details)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """value ± t_ν · standard error, with Student's t distribution of ν = `freedom` degrees.

        A number without error (standard error 0) is its own interval. A single draw (ν = 0) with an
        error has none: both ends are NaN.
        """
        half = self.half_width(level)
        return self.value - half, self.value + half

    def half_width(self, level: float = LEVEL) -> float:
        """Half of the width of `interval`."""
        if self.standard_error == 0:
            return 0.0
        freedom = self.count - 1 if self.freedom is None else self.freedom
        return t_quantile(freedom, level) * self.standard_error

    def p_value(self) -> float:
        """The two-sided p-value of "the truth is 0", by Student's t; NaN for a single draw.

        >>> round(Reading(1.0, 0.5, 11).p_value(), 4)
        0.0734
        """
        from scipy.special import stdtr

        freedom = self.count - 1 if self.freedom is None else self.freedom
        if self.standard_error == 0:
            return 1.0 if self.value == 0 else 0.0
        if not freedom > 0:
            return math.nan
        return 2 * float(stdtr(freedom, -abs(self.value) / self.standard_error))

    def row(self) -> dict[str, Any]:
        """Value, standard error, 95 % interval, count and status, as a row of a table."""
        low, high = self.interval()
        return {
            "value": self.value,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
            "count": self.count,
            "status": self.status.value,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row: the numbers and texts among the `details`, followed by the entries of `row`."""
        return [
            {
                **{k: v for k, v in self.details.items() if isinstance(v, int | float | str)},
                **self.row(),
            }
        ]

    def point(self, x: float) -> Point:
        """The value at `x` with its 95 % interval, to be drawn."""
        return Point(float(x), self.value, self.half_width())

    def exp_point(self, x: float) -> Point:
        """For a reading of a logarithm: exp of its value and 95 % interval at `x`, to be drawn."""
        return Point.between(float(x), _exp(self.value), *map(_exp, self.interval()))

    def __str__(self) -> str:
        if not self.status.has_number:
            return f"no number: {self.reason}"
        if self.status in (Status.AT_MOST, Status.AT_LEAST):
            return f"{self.reason} {self.value:.4g} (n = {self.count})"
        text = f"{self.value:.4g} ± {self.standard_error:.2g} (n = {self.count})"
        return text if self.status is Status.OK else f"{text}, {self.reason}"

    def figure(self) -> Figure:
        """The value with its 95 % interval."""
        points = (self.point(1.0),) if math.isfinite(self.value) else ()
        series = (Series(f"n = {self.count}", points),)
        return Figure(str(self), "", "value", series, False, False, names=("measured",))

    def plot(self) -> Any:
        """The value with its interval, drawn by matplotlib."""
        return self.figure().plot()


_READING = {f.name for f in fields(Reading)}


@dataclass(frozen=True)
class BoundedReading(Reading):
    """A reading whose 95 % interval, `low` to `high`, is not symmetric around the value."""

    low: float = field(default=math.nan, kw_only=True)
    high: float = field(default=math.nan, kw_only=True)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """`low` to `high` at the level 95 %, otherwise the interval from the standard error."""
        return (self.low, self.high) if level == LEVEL else super().interval(level)

    def point(self, x: float) -> Point:
        return Point.between(float(x), self.value, *self.interval())


@dataclass(frozen=True)
class StoredReading(Reading):
    """A reading that was read from a document, with the details that the document holds."""

    stored: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def details(self) -> Mapping[str, Any]:
        return {**self.stored, "reason": self.remark} if self.remark else self.stored


@dataclass(frozen=True)
class Curve(Tabular):
    """Readings along an axis, such as error over length; `slope` is the log–log rate.

    predicted: the slope that the theory predicts.
    fitted_from: the first point of the fit, if earlier points are left out.
    slope_of_means: whether `slope` is the slope of the mean values, not the mean of the slopes.

    >>> halves = (Reading(1.0, 0.1, 9), Reading(0.5, 0.05, 9))
    >>> print(Curve("length", "error", (16, 64), halves, slope=Reading(-0.5, 0.1, 18)))
        length  error
            16  1 ± 0.1 (n = 9)
            64  0.5 ± 0.05 (n = 9)
         slope  -0.5 ± 0.1 (n = 18)
    """

    axis: str
    quantity: str
    at: tuple[int | float, ...]
    readings: tuple[Reading, ...]
    slope: Reading | None = None
    predicted: float | None = None
    fitted_from: float | None = None
    slope_of_means: bool = False

    def __str__(self) -> str:
        rows = [f"{x:>10g}  {reading}" for x, reading in zip(self.at, self.readings, strict=True)]
        tail = [] if self.slope is None else [f"{'slope':>10}  {self.slope}{self._remarks()}"]
        return "\n".join([f"{self.axis:>10}  {self.quantity}", *rows, *tail])

    def _remarks(self) -> str:
        """Remarks on the slope: the predicted slope, and the first point of the fit."""
        prediction = "" if self.predicted is None else f"; predicted {self.predicted:.3g}"
        start = self.fitted_from
        if start is None or start == self.at[0]:
            return prediction
        return f"{prediction}; fitted from {self.axis} {start:g} on"

    def rows(self) -> list[dict[str, Any]]:
        """One row per reading; the slope has a frame of its own, `slope.to_frame()`."""
        names = {"axis": self.axis, "quantity": self.quantity}
        readings = zip(self.at, self.readings, strict=True)
        return [{**names, "at": x, **reading.row()} for x, reading in readings]

    def figure(self) -> Figure:
        """The curve with its slope and 95 % intervals."""
        points = [reading.point(x) for x, reading in zip(self.at, self.readings, strict=True)]
        series = Series(
            self.quantity,
            tuple(points),
            slope=self.slope.value if self.slope and self.slope.status is Status.OK else None,
            reference=self.predicted,
        )
        # Logarithmic axes only for positive numbers: positions along a direction pass through 0.
        log_x, log_y = min(self.at) > 0, all(point.y > 0 for point in points)
        title = f"{self.quantity} over {self.axis}"
        return Figure(title, self.axis, self.quantity, (series,), log_x=log_x, log_y=log_y)

    def plot(self) -> Any:
        """The curve, drawn by matplotlib."""
        return self.figure().plot()


def _exp(value: float) -> float:
    """exp(value), or infinity if it is too large for a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
