"""The result of `attnlens.inspect`: what the layers and heads of a transformer do.

Measure      one quantity by layer and, where it makes sense, by head
TokenView    the attention of all heads on one input, with its tokens by name
Inspection   sentences, facts, measures and token views
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .checks import BadInput
from .drawing import Figure, Point, Series
from .frames import Tabular
from .readings import Curve, Reading
from .serialise import to_plain


@dataclass(frozen=True)
class Measure(Tabular):
    """A quantity by layer, with intervals over inputs; `at` are the numbers of the layers.

    by_head: one tuple per layer, in the order of `at`, with one reading per head; empty if the
        quantity describes whole layers.
    meaning: how to read the quantity, in one sentence.
    limits: the smallest and the largest possible value; None if there are no such limits.
    rounding: values of a smaller size are rounding errors of zero, and are drawn as zero.

    >>> measure = Measure("order", "0 is a bag of words.", (0, 1), (Reading(0.0, 0.0, 9),) * 2)
    >>> measure.curve().at
    (0, 1)
    """

    name: str
    meaning: str
    at: tuple[int, ...]
    by_layer: tuple[Reading, ...]
    by_head: tuple[tuple[Reading, ...], ...] = ()
    limits: tuple[float, float] | None = None
    rounding: float = 0.0

    def rows(self) -> list[dict[str, Any]]:
        """One row per layer, without a number of a head, then one per head."""
        layers = [(layer, None, r) for layer, r in zip(self.at, self.by_layer, strict=True)]
        heads = [
            (layer, head, reading)
            for layer, readings in zip(self.at, self.by_head, strict=False)
            for head, reading in enumerate(readings)
        ]
        return [
            {"measure": self.name, "layer": layer, "head": head, **reading.row()}
            for layer, head, reading in layers + heads
        ]

    def curve(self) -> Curve:
        """The readings by layer."""
        return Curve("layer", self.name, self.at, self.by_layer)

    def figure(self) -> Figure:
        """A line over depth with a band, the 95 % intervals."""
        points = tuple(
            Point(layer, 0.0) if abs(reading.value) < self.rounding else reading.point(layer)
            for layer, reading in zip(self.at, self.by_layer, strict=True)
            if reading.status.has_number
        )
        series = (Series(self.name, points, curve=True),)
        title = f"{self.name[:1].upper()}{self.name[1:]} over depth"
        return Figure(title, "layer", self.name, series, False, False)


@dataclass(frozen=True)
class TokenView:
    """Attention on one input: `weights[layer][head]` is a matrix of bytes, row by row, in which 255
    stands for the weight 1."""

    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    weights: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True)
class Inspection(Tabular):
    """What a transformer does, layer by layer; `inspection["order"]` is the measure of that name.

    >>> Inspection("Mine", (), (), (), (("attention", "none"),)).missing
    (('attention', 'none'),)
    """

    title: str
    sentences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    measures: tuple[Measure, ...]
    missing: tuple[tuple[str, str], ...] = ()  # what could not be measured, and why
    views: tuple[TokenView, ...] = ()
    profiles: tuple[Curve, ...] = ()  # attention by distance, one curve per measured layer

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all measures: one per layer, and one per head."""
        return [row for measure in self.measures for row in measure.rows()]

    def drawings(self) -> list[Figure]:
        """The figures that a notebook shows below the table: one per measure."""
        return [measure.figure() for measure in self.measures]

    def profile_figure(self) -> Figure:
        """The share of attention by distance, one line per layer."""
        series = tuple(
            Series(
                curve.quantity,
                tuple(r.point(at) for at, r in zip(curve.at, curve.readings, strict=True)),
                curve=True,
            )
            for curve in self.profiles
        )
        title = "Attention by distance"
        return Figure(title, "tokens away, from", "share of attention", series, False, False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(measure.name for measure in self.measures)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Measure:
        for measure in self.measures:
            if measure.name == name:
                return measure
        raise BadInput(f"there is no measure {name!r}; measured are {', '.join(self.names)}.")

    def __str__(self) -> str:
        facts = [f"  {name}: {words}" for name, words in self.facts]
        lacking = [f"  not measured: {name}, because {words}" for name, words in self.missing]
        return "\n".join([self.title, *self.sentences, *facts, *lacking])

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON, without the token views; numbers that are not finite become None."""
        measures: list[Mapping[str, Any]] = [
            {
                "name": measure.name,
                "meaning": measure.meaning,
                "layers": list(measure.at),
                "by_layer": measure.by_layer,
                "by_head": measure.by_head,
            }
            for measure in self.measures
        ]
        return to_plain(
            {
                "title": self.title,
                "summary": list(self.sentences),
                "facts": dict(self.facts),
                "missing": dict(self.missing),
                "measures": measures,
                "attention by distance": [
                    {"layer": curve.quantity, "from": list(curve.at), "shares": curve.readings}
                    for curve in self.profiles
                ],
            }
        )
