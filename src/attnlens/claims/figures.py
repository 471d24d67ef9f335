"""Figures of claims: declarations that draw one series per arm and group of cells, and helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import mean_reading

from .cells import Measured, group_by
from .claim import PREDICTION
from .estimates import ScalingLaw, pooled


@dataclass(frozen=True)
class Lines:
    """One line per arm and combination of the parameters `per`, on log–log axes.

    In `title`, `x_label` and `y_label`, {parameter} is replaced by its value in the first cell.
    law        the law whose values and axis are drawn, with one interval per point; or a function
               that returns it for values of `per`
    names      maps each arm to a label, or to a function that returns it for values of `per`;
               {parameter} in a label is replaced by its value in the cells
    fit        True to draw the fitted power law through the points
    reference  a function that returns the predicted exponent for values of `per`; it is drawn for
               the prediction
    extra      a function that returns further series from the cells of all arms

    >>> law = ScalingLaw("error", "length")
    >>> figure = Lines("Error over length", "tokens L", "error", law, {"prediction": "attention"})
    >>> values = ({"error": np.full(2, 1 / n)} for n in (1, 4))
    >>> cells = [Measured({"length": n}, (0, 1), v) for n, v in zip((1, 4), values, strict=True)]
    >>> figure({"prediction": cells}).series[0].slope
    -1.0
    """

    title: str
    x_label: str
    y_label: str
    law: ScalingLaw | Callable[..., ScalingLaw]
    names: Mapping[str, str | Callable[..., str]]
    per: tuple[str, ...] = ()
    fit: bool = True
    reference: Callable[..., float] | None = None
    extra: Callable[[Mapping[str, Sequence[Measured]]], Sequence[Series]] = lambda arms: ()
    axes: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments passed to `Figure`

    def __call__(self, arms: Mapping[str, Sequence[Measured]]) -> Figure:
        series = []
        for arm, measured in arms.items():
            if not measured or arm not in self.names:
                continue
            groups = group_by(measured, *self.per) if self.per else {(): list(measured)}
            for values, cells in groups.items():
                values = values if isinstance(values, tuple) else (values,)
                law = self.law if isinstance(self.law, ScalingLaw) else self.law(*values)
                x, logs = law.logs(cells)
                control = arm != PREDICTION
                predicted = None if control or not self.reference else self.reference(*values)
                slope = float(law.slopes(cells).mean()) if self.fit else None
                name = self.names[arm]
                name = name if isinstance(name, str) else name(*values)
                name = name.format(**cells[0].parameters)
                series.append(Series(name, log_points(x, logs), slope, predicted, control=control))
        series += self.extra(arms)
        shown = next((cells[0].parameters for cells in arms.values() if cells), {})
        texts = (text.format(**shown) for text in (self.title, self.x_label, self.y_label))
        title, x_label, y_label = texts
        return Figure(title, x_label, y_label, tuple(series), **self.axes)


@dataclass(frozen=True)
class RoundingErrors:
    """The largest errors over the length of sequences, and the rounding bounds of these errors.

    Cells have the arrays "error" and "allowed". There is one line per value of the parameter `per`;
    `names` maps each arm to a label, in which {} is replaced by that value. Errors below `least`
    are drawn at `least`, because a logarithmic axis cannot show zero.
    """

    title: str
    per: str
    names: Mapping[str, str]
    least: float = 0.0

    def __call__(self, arms: Mapping[str, Sequence[Measured]]) -> Figure:
        series = []
        for arm, measured in arms.items():
            control = arm != PREDICTION
            for kind, cells in group_by(measured, self.per).items():
                groups = group_by(cells, "length").items()
                errors = ((length, pooled("error")(group).max()) for length, group in groups)
                points = tuple(Point(length, max(float(e), self.least)) for length, e in errors)
                series.append(Series(self.names[arm].format(kind), points, control=control))
                if not control:
                    bounds = ((length, pooled("allowed")(group).min()) for length, group in groups)
                    bound = tuple(Point(length, float(b)) for length, b in bounds)
                    series.append(Series(f"rounding bound, {kind}", bound, line=True))
        return Figure(self.title, "tokens L", "largest absolute difference", tuple(series))


def level_line(name: str, y: float, first: float, last: float) -> Series:
    """A horizontal line at `y`, such as the end of a region."""
    return Series(name, tuple(Point(float(x), y) for x in (first, last)), line=True)


def log_points(x: np.ndarray, logs: np.ndarray) -> tuple[Point, ...]:
    """One point per x: exp of the mean log over replicates, and exp of the ends of its interval.

    `x` are logarithms too.
    """
    return tuple(log_point(at, column) for at, column in zip(np.exp(x), logs.T, strict=True))


def log_point(x: float, logs: np.ndarray) -> Point:
    """A point at `x`: exp of the mean of the logarithms, with its interval."""
    return mean_reading(logs).exp_point(x)


def mean_point(x: float, values: np.ndarray) -> Point:
    """A point at `x`: the mean of the values, with its interval."""
    return mean_reading(values).point(x)
