"""The records that everything passes on: plain data, no JAX, nothing heavy.

Reading   what an instrument measured: value, standard error, count, status, details
Curve     readings along an axis, with the straight line through them on log–log axes
Surface   a quantity over a plane through parameters
Map       matrices of weights side by side, such as attention by head
Cell      the unit of work: a pure function of (claim, arm, parameters, seeds)
Part      one judged quantity of a claim: estimate, interval, region, p-values
Verdict   what a claim came to: supported, refuted or undecided, and why
Figure    series of points with error bars, ready to be drawn anywhere
Answer    one question about a user's data or model, answered in plain words with its evidence
Sheet     what a command found out: facts, answers and figures
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

Outcome = Literal["supported", "refuted", "undecided"]


@dataclass(frozen=True)
class Reading:
    """A measured number, its standard error, and the number of independent draws behind it.

    The 95 % interval is value ± t · standard_error (`statistics.t_interval`). `status` is "ok", or
    says why there is no number.

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
        """The value with its 95 % interval."""
        point = Point(1.0, self.value, 1.96 * self.standard_error)
        series = (Series(f"n = {self.count}", (point,) if math.isfinite(self.value) else ()),)
        return Figure(str(self), "", "value", series, False, False, names=("measured",))

    def plot(self) -> Any:
        """The value with its interval as a matplotlib figure."""
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
        tail = [] if self.slope is None else [f"{'slope':>10}  {self.slope}{self._beside()}"]
        return "\n".join([f"{self.axis:>10}  {self.quantity}", *rows, *tail])

    def _beside(self) -> str:
        """What stands beside the slope: the predicted one, and where the fit starts."""
        start, predicted = (self.details.get(name) for name in ("fitted_from", "predicted"))
        said = "" if predicted is None else f"; predicted {predicted:.3g}"
        late = start is not None and start != self.at[0]
        return said + (f"; fitted from {self.axis} {start:g} on" if late else "")

    def figure(self) -> Figure:
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
        # Logarithms where there are any: positions along a direction go through zero.
        log_x, log_y = min(self.at) > 0, all(point.y > 0 for point in points)
        title = f"{self.quantity} over {self.axis}"
        return Figure(title, self.axis, self.quantity, (series,), log_x=log_x, log_y=log_y)

    def plot(self) -> Any:
        """The curve as a matplotlib figure."""
        return self.figure().plot()


@dataclass(frozen=True)
class Surface:
    """A quantity over a plane; `values` has a row for each y. `path` is drawn over it.

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
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def minimum(self) -> tuple[float, float, float]:
        """(x, y, value) of the lowest point of the grid."""
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
        """As a matplotlib figure: contour lines, or a surface in three dimensions."""
        from attnlens.figures.surfaces import surface_to_matplotlib

        return surface_to_matplotlib(self, kind)


@dataclass(frozen=True)
class Map:
    """Matrices of weights, a panel each: row = who asks, column = what is looked at."""

    title: str
    x_label: str
    y_label: str
    panels: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [self.title]
        for name, values in self.panels:
            weight, i, j = max((w, i, j) for i, row in enumerate(values) for j, w in enumerate(row))
            at = f"{_named(self.y_names, i)} → {_named(self.x_names, j)}"
            rows.append(f"{name}: {len(values)} × {len(values[0])}, largest {weight:.3g} ({at})")
        return "\n".join(rows)

    def plot(self) -> Any:
        """As a matplotlib figure, panels side by side."""
        from attnlens.figures.maps import map_to_matplotlib

        return map_to_matplotlib(self)


def _named(names: tuple[str, ...], place: int) -> str:
    return names[place] if place < len(names) else str(place + 1)


@dataclass(frozen=True)
class Cell:
    """One piece of work, and the unit of loss: finished cells are kept and never computed again.

    `measure` names the function that computes it, "module:function"; it is called as
    measure(arm, parameters, seeds) and returns named arrays. What is vmapped together (`seeds`)
    is part of the cell, so no result depends on the number of workers. `code` is the version of
    the source behind `measure`. `cost` is a rough number of seconds, used for estimates only; it
    is not part of the key.

    >>> cell = Cell("A.mine", "prediction", "mine:measure", {"length": 16}, (0, 1), code="v1")
    >>> cell.key == Cell("A.mine", "prediction", "mine:measure", {"length": 16}, (0, 1), "v1").key
    True
    """

    claim: str
    arm: str
    measure: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    code: str
    cost: float = field(default=1.0, compare=False)

    @cached_property
    def key(self) -> str:
        """A hash of everything that decides the result."""
        content = [self.claim, self.arm, self.measure, self.parameters, self.seeds, self.code]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Region:
    """Where a quantity must lie for its part of the claim to hold: low ≤ quantity ≤ high."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"≤ {self.high:.3g}"
        return (
            f"≥ {self.low:.3g}" if self.high == math.inf else f"{self.low:.3g} to {self.high:.3g}"
        )


@dataclass(frozen=True)
class Part:
    """One quantity of a claim, judged: its interval against its region.

    `p_support` is the evidence against "outside the region", `p_refute` against "inside"; both
    are one-sided at the region's boundary. An exact part has no sampling error and no p-values.
    """

    quantity: str
    estimate: float
    low: float
    high: float
    region: Region
    p_support: float
    p_refute: float
    count: int
    exact: bool = False


@dataclass(frozen=True)
class Point:
    """A point with the half-width of its 95 % interval."""

    x: float
    y: float
    half_width: float = 0.0


@dataclass(frozen=True)
class Series:
    """Points of one kind; `slope` draws the power law through them, `reference` one to compare.

    `line`: a dashed line, for bounds. `curve`: a solid line, its half-widths a band. `mark`: large
    diamonds, for places to be looked at. `like` names the series whose colour is taken.
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
class Figure:
    """What to draw; `figures/` draws it with plotly for the page and matplotlib for papers.

    `names` stand at 1, 2, … along a horizontal axis that counts things.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = True
    log_y: bool = True
    names: tuple[str, ...] = ()

    def plot(self) -> Any:
        """As a matplotlib figure."""
        from attnlens.figures.lines import to_matplotlib

        return to_matplotlib(self)


View = Figure | Surface | Map


def plain(record: View) -> dict[str, Any]:
    """A view as data that JSON can hold; numbers that are not finite become null."""
    return _finite(asdict(record))


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


@dataclass(frozen=True)
class Verdict:
    """What a claim, or its control, came to.

    Made by `statistics.verdicts` from the parts of one claim or of several.

    >>> from attnlens.statistics import judge, verdicts
    >>> part = judge("slope", [-0.50, -0.51, -0.49, -0.50], Region(-0.55, -0.45))
    >>> verdicts([[part]])[0].outcome
    'supported'
    """

    outcome: Outcome
    parts: tuple[Part, ...]
    p_support: float
    p_refute: float
    exact: bool
    reason: str


@dataclass(frozen=True)
class Answer:
    """One question about a user's data or model, answered in plain words, with its evidence.

    `known` is False where there is not enough data to say. `readings` are the numbers behind the
    words, by name.
    """

    question: str
    answer: str
    evidence: str
    known: bool = True
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.question} {self.answer} ({self.evidence})"


@dataclass(frozen=True)
class Sheet:
    """What a command found out: facts about its subject, answers, and figures to look at."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    figures: tuple[View, ...] = ()

    def __getitem__(self, question: str) -> Answer:
        """The answer to a question."""
        return {each.question: each for each in self.answers}[question]

    def __str__(self) -> str:
        facts = [f"  {name}: {words}" for name, words in self.facts]
        return "\n".join([self.title, *facts, *(f"- {each}" for each in self.answers)])

    def plain(self) -> dict[str, Any]:
        """As plain data that JSON can hold; figures stay out of it, and numbers that are not
        finite become null."""
        answers = [
            {**vars(each), "readings": {name: vars(r) for name, r in each.readings.items()}}
            for each in self.answers
        ]
        return _finite({"title": self.title, "facts": dict(self.facts), "answers": answers})
