"""Records of what to draw; `report/draw/` draws them with plotly or matplotlib.

Figure    series of points with error bars
Surface   a quantity over a plane in parameter space
Map       matrices of weights side by side, such as one attention matrix per head
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from .frames import Tabular


@dataclass(frozen=True)
class Point:
    """A point with its 95 % interval, y − below to y + half_width.

    `below` is None if the interval is symmetric.

    >>> Point.between(1.0, 0.5, low=0.25, high=2.0)
    Point(x=1.0, y=0.5, half_width=1.5, below=0.25)
    """

    x: float
    y: float
    half_width: float = 0.0
    below: float | None = None

    @classmethod
    def between(cls, x: float, y: float, low: float, high: float) -> Point:
        """The point whose interval is `low` to `high`."""
        above, below = high - y, y - low
        symmetric = math.isclose(above, below, rel_tol=1e-9)  # apart from rounding
        return cls(x, y, above, None if symmetric else below)

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.y - (self.half_width if self.below is None else self.below)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.y + self.half_width


@dataclass(frozen=True)
class Series:
    """Points of one kind.

    `slope` adds the power law with this exponent through the points, `reference` a power law with
    another exponent for comparison. `control` marks the points of a control. `line` draws a
    dashed line (for bounds), `curve` a solid line with the intervals as a band, `mark` large
    diamonds (for points that deserve attention). `like` is the name of another series, whose colour
    this one takes.
    """

    name: str
    points: tuple[Point, ...]
    slope: float | None = None
    reference: float | None = None
    control: bool = False
    line: bool = False
    curve: bool = False
    mark: bool = False
    like: str = ""


@dataclass(frozen=True)
class Figure(Tabular):
    """Series of points on two axes: drawn by plotly on the page and by matplotlib for papers.

    `names` are the labels of positions 1, 2, … if the horizontal axis has categories, not numbers.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = True
    log_y: bool = True
    names: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row per point; `low` to `high` is its 95 % interval."""
        return [
            {
                "series": series.name,
                "x": p.x,
                "y": p.y,
                "low": p.low,
                "high": p.high,
            }
            for series in self.series
            for p in series.points
        ]

    def drawings(self) -> tuple[Figure]:
        return (self,)

    def plot(self) -> Any:
        """The figure, drawn by matplotlib."""
        from attnlens.report.draw.lines import to_matplotlib

        return to_matplotlib(self)


@dataclass(frozen=True)
class Surface(Tabular):
    """A quantity on a grid in a plane; `values` has one row per y.

    `path` is a sequence of points (x, y) that is drawn on top of the surface.

    >>> bowl = Surface("loss", "x", "y", (0.0, 1.0), (0.0, 1.0), ((0.0, 1.0), (1.0, 2.0)))
    >>> bowl.minimum
    (0.0, 0.0, 0.0)
    """

    quantity: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    path: tuple[tuple[float, float], ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row per point of the grid."""
        return [
            {"quantity": self.quantity, "x": x, "y": y, "value": value}
            for y, row in zip(self.y, self.values, strict=True)
            for x, value in zip(self.x, row, strict=True)
        ]

    def drawings(self) -> tuple[Surface]:
        return (self,)

    @property
    def minimum(self) -> tuple[float, float, float]:
        """(x, y, value) of the grid point with the lowest finite value."""
        finite = [
            (value, x, y)
            for y, row in zip(self.y, self.values, strict=True)
            for x, value in zip(self.x, row, strict=True)
            if math.isfinite(value)
        ]
        value, x, y = min(finite)
        return x, y, value

    def __str__(self) -> str:
        x, y, value = self.minimum
        high = max(v for row in self.values for v in row if math.isfinite(v))
        return (
            f"{self.quantity} over {len(self.x)} × {len(self.y)} points: lowest {value:.4g} at "
            f"({x:.3g}, {y:.3g}), highest {high:.4g}"
        )

    def plot(self, kind: Literal["contour", "surface"] = "contour") -> Any:
        """Contour lines, or a surface in three dimensions, drawn by matplotlib."""
        from attnlens.report.draw.surfaces import surface_to_matplotlib

        return surface_to_matplotlib(self, kind)


@dataclass(frozen=True)
class Map(Tabular):
    """Matrices of weights, one panel per matrix: one row per query, one column per token."""

    title: str
    x_label: str
    y_label: str
    panels: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    quantity: str = "weight"  # name of the quantity that the matrices contain

    def rows(self) -> list[dict[str, Any]]:
        """One row per weight."""
        return [
            {
                "panel": name,
                "query": _name_at(self.y_names, i),
                "token": _name_at(self.x_names, j),
                "weight": weight,
            }
            for name, values in self.panels
            for i, row in enumerate(values)
            for j, weight in enumerate(row)
        ]

    def drawings(self) -> tuple[Map]:
        return (self,)

    def __str__(self) -> str:
        rows = [self.title]
        for name, values in self.panels:
            weight, i, j = max((w, i, j) for i, row in enumerate(values) for j, w in enumerate(row))
            place = f"{_name_at(self.y_names, i)} → {_name_at(self.x_names, j)}"
            rows.append(f"{name}: {len(values)} × {len(values[0])}, largest {weight:.3g} ({place})")
        return "\n".join(rows)

    def plot(self) -> Any:
        """The panels side by side, drawn by matplotlib."""
        from attnlens.report.draw.maps import map_to_matplotlib

        return map_to_matplotlib(self)


def _name_at(names: tuple[str, ...], index: int) -> str:
    """The name of a row or column; without names, its number from 1."""
    return names[index] if index < len(names) else str(index + 1)


View = Figure | Surface | Map
