"""The classes that a claim is made of.

A claim's file is read from top to bottom: the prediction and the reason for it, the constants with
a reason for each, then these fields. An arm is the prediction or one of the controls.

    plan     a `Grid`: the cells to compute, for the prediction and every control
    measure  a function (arm, parameters, seeds) that computes one cell in a worker and returns
             named arrays, whose first axis is the seed
    judge    a `Rule`: it computes the parts of the claim from the cells of one arm
    figure   `Lines`, or a function of a mapping from arms to cells
    views    a function of a mapping from arms to cells that returns further figures (optional)

`Grid`, `Rule` and `Lines` are declarations, and their instances are callable; a claim that needs
something unusual gives a function in their place. The rule (quantities, regions, seeds) is fixed in
the file before any run.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from string import Template
from typing import Any, Literal

from attnlens.core.checks import BadInput
from attnlens.core.drawing import Figure, Point, Series, View
from attnlens.core.verdicts import Decision, Part

from .cells import Measured, Work

Profile = Literal["smoke", "default", "full"]
"""Size of a run: minutes with wide intervals, the usual one, or hours with narrow intervals."""
PROFILES: tuple[Profile, ...] = ("smoke", "default", "full")
PREDICTION = "prediction"
"""The name of the arm that is not a control."""
TEMPLATES = ("prediction", "formula", "controls", "meaning")  # fields of `Claim` with placeholders
Judge = Callable[[Sequence[Measured]], Sequence[Part]]


class Check(StrEnum):
    """How an assumption of a claim was checked."""

    BY_CONSTRUCTION = "by construction"
    CHECKED = "checked"
    CONTROL = "a control breaks it"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Assumption:
    """What a claim assumes, and how the assumption was checked.

    With `Check.CONTROL`, `control` is the name of the arm that breaks the assumption.

    >>> print(Assumption("Sequences are independent", Check.BY_CONSTRUCTION))
    Sequences are independent (by construction).
    """

    words: str
    check: Check = Check.NOT_CHECKED
    control: str = ""

    def __str__(self) -> str:
        how = f"the control {self.control} breaks it" if self.control else self.check
        return f"{self.words} ({how})."


@dataclass(frozen=True)
class Control:
    """An arm with a known outcome, judged by the rule of the claim.

    A negative control changes the one thing that the claim says matters, and must come out refuted.
    A positive control is a setting in which the rule must come out supported. `quantities` are the
    keys of the quantities that are judged for the control; by default all that its cells have.
    """

    words: str
    expected: Decision = "refuted"
    quantities: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.words


class Origin(StrEnum):
    """Whose prediction a claim is.

    >>> print(Origin.FINDING)
    our own finding
    """

    PAPER = "stated by the paper"
    FORMALISATION = "our formalisation of the paper's statement"
    FINDING = "our own finding"


@dataclass(frozen=True)
class Attribution:
    """Whose prediction a claim is, with the sentence of the paper; "" for our own finding.

    >>> print(Attribution(Origin.FINDING))
    our own finding
    >>> print(Attribution(Origin.PAPER, "Tokens are exchangeable."))
    stated by the paper: “Tokens are exchangeable.”
    """

    origin: Origin
    sentence: str = ""

    def __post_init__(self) -> None:
        if (self.origin is Origin.FINDING) == bool(self.sentence.strip()):
            raise BadInput(
                "an attribution to the paper must quote its sentence and a finding of ours none; "
                f"got {self.sentence!r} for {self.origin.value!r}."
            )

    def __str__(self) -> str:
        return f"{self.origin}: “{self.sentence}”" if self.sentence else str(self.origin)


FINDING = Attribution(Origin.FINDING)


@dataclass(frozen=True)
class Meaning:
    """For each verdict, what it means for somebody who designs a model."""

    supported: str
    refuted: str = "The prediction does not hold here: do not rely on it."
    undecided: str = "The data do not settle it: run a larger profile before relying on it."

    def of(self, outcome: Decision) -> str:
        return {"supported": self.supported, "refuted": self.refuted}.get(outcome, self.undecided)


@dataclass(frozen=True)
class Claim:
    """A prediction that can fail, with the rule that judges it.

    `controls` maps the name of each control's arm to a `Control`. `requires` maps each optional
    module with data of the claim to the command that installs it. Without a `figure`, the estimates
    of all parts are drawn. If `judge` is a `Rule`, the texts of `prediction`, `formula`, `controls`
    and `meaning` may contain placeholders for numbers of the rule and settings of the grid:
    `$slope` is the region of the quantity "slope" in words, `$slope_high` its upper end, and
    `$noise_std` a setting. In the text of a control, a setting has its value in the control's arm.

    `exact` declares an exact check: it holds by algebra and is no evidence, so it is shown
    separately and never counted as supported. `decisive` is the smallest profile in which the claim
    must have a power of 0.9 (`attnlens.claims.power`). `left_out` returns sentences that name the
    data sets on which the claim was not tested because they are not available.

    >>> from attnlens.claims import find
    >>> (claim,) = find(["A.softmax-smoothed"])
    >>> claim.lens, claim.arms
    ('A', ('prediction', 'distance-to-the-mean'))
    """

    id: str
    title: str
    statement: str
    formula: str  # LaTeX
    prediction: str  # the rule, in words and numbers
    controls: Mapping[str, Control]
    assumptions: Sequence[Assumption]
    meaning: Meaning  # the consequence for somebody who designs a model
    source: str  # the paper and the prediction in docs/theory.md, or "our own prediction"
    plan: Callable[[Profile], Iterable[Work]]
    measure: Callable[[str, Mapping[str, Any], Sequence[int]], Mapping[str, Any]]
    judge: Judge
    figure: Callable[[Mapping[str, Sequence[Measured]]], Figure] | None = None
    requires: Mapping[str, str] = field(default_factory=dict)
    views: Callable[[Mapping[str, Sequence[Measured]]], Sequence[View]] = lambda _: ()
    variation: Mapping[str, Any] = field(default_factory=dict)  # settings changed by `at`
    attribution: Attribution | None = None
    exact: bool = False
    decisive: Profile = "default"
    left_out: Callable[[], Sequence[str]] = lambda: ()

    def __post_init__(self) -> None:
        for records, kind in (
            (self.controls.values(), Control),
            (self.assumptions, Assumption),
            ([self.meaning], Meaning),
        ):
            for record in records:
                if not isinstance(record, kind):
                    raise BadInput(
                        f"{self.id} must describe its {kind.__name__.lower()}s by records, such as "
                        f"{kind.__name__}({str(record)[:20]!r}…); got a {type(record).__name__}."
                    )
        templates = {name: getattr(self, name) for name in TEMPLATES}
        object.__setattr__(self, "_templates", templates)
        words = getattr(self.judge, "words", None)
        if words is not None:
            values = {**self._setting_words(), **words()}
            for name, template in templates.items():
                if name != "controls":
                    object.__setattr__(self, name, _filled(template, values, self.id))
            controls = {
                arm: _filled(control, {**values, **self._setting_words(arm), **words()}, self.id)
                for arm, control in self.controls.items()
            }
            object.__setattr__(self, "controls", controls)

    def _setting_words(self, arm: str | None = None) -> dict[str, str]:
        values = getattr(self.plan, "values", None)
        declared = values("default", arm) if values else {}
        return {name: _listed(items) for name, items in declared.items()}

    def at(self, changes: Mapping[str, Any]) -> Claim:
        """A variation of the claim, with other settings and an id that names them.

        >>> from attnlens.claims import find
        >>> find(["A.softmax-smoothed"])[0].at({"noise_std": 0.5}).id
        'A.softmax-smoothed[noise_std=0.5]'
        """
        settings = getattr(self.plan, "settings", {})
        values = self.plan.values("default") if settings else {}  # type: ignore[attr-defined] (plans with settings have it)
        for name, value in changes.items():
            if name not in settings:
                known = ", ".join(sorted(settings)) or "(it declares none)"
                raise BadInput(f"a setting of {self.id} must be one of {known}; got {name!r}.")
            if _kind(value) != _kind(values[name][0]):
                raise BadInput(
                    f"{name} of {self.id} must be a {_kind(values[name][0])}; got {value!r}."
                )
        label = ",".join(f"{name}={value}" for name, value in changes.items())
        plan = self.plan.with_settings(changes)  # type: ignore[attr-defined] (plans with settings have it)
        templates = self._templates  # type: ignore[attr-defined] (set by __post_init__)
        return replace(
            self, id=f"{self.id}[{label}]", plan=plan, variation=dict(changes), **templates
        )

    def draw(self, arms: Mapping[str, Sequence[Measured]]) -> Figure:
        """The figure of the claim; by default the estimate of every part in every arm."""
        return draw_parts(self, arms) if self.figure is None else self.figure(arms)

    @property
    def lens(self) -> str:
        """The letter of the lens (the paper) that the claim belongs to."""
        return self.id[0]

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of all arms: the prediction, then the controls."""
        return (PREDICTION, *self.controls)

    @property
    def refutation(self) -> str:
        """A sentence that says which result would refute the claim; "" if `judge` is a function."""
        words = getattr(self.judge, "refutation", None)
        works = [work for work in self.plan("default") if work.arm == PREDICTION]
        return "" if words is None else words(works)

    @property
    def needs(self) -> str | None:
        """A sentence that names a missing package and how to install it; None if all are there."""
        for module, command in self.requires.items():
            if importlib.util.find_spec(module) is None:
                name = module.replace("_", "-")
                return f"{self.id} needs the package {name}; get it with {command}."
        return None


def draw_parts(claim: Claim, arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """A figure with the estimate and interval of every part, one series per arm.

    Horizontal lines show the ends of the regions.
    """
    names: list[str] = []
    series, bounds = [], set()
    for arm, measured in arms.items():
        points = []
        for part in claim.judge(measured):
            if part.quantity not in names:
                names.append(part.quantity)
            place = 1.0 + names.index(part.quantity)
            points.append(Point.between(place, part.estimate, part.low, part.high))
            bounds |= {part.region.low, part.region.high}
        series.append(Series(arm, tuple(points), control=arm != PREDICTION))
    for bound in sorted(b for b in bounds if math.isfinite(b)):
        edge = (Point(1.0, bound), Point(float(len(names)), bound))
        series.append(Series(f"end of the region: {bound:.3g}", edge, line=True))
    return Figure(
        claim.title, "", "estimate", tuple(series), log_x=False, log_y=False, names=tuple(names)
    )


def _kind(value: Any) -> str:
    """The name of the JSON type of a setting."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", dict: "object"}.get(type(value), "list")


def _filled(text: Any, values: Mapping[str, str], claim: str) -> Any:
    """`text` with placeholders replaced by `values`; in records and mappings, every text is filled.

    In LaTeX formulas, minus signs of the values become hyphens.
    """
    if isinstance(text, Mapping):
        return {name: _filled(part, values, claim) for name, part in text.items()}
    if isinstance(text, Control | Meaning):
        return replace(text, **_filled(vars(text), values, claim))
    if not isinstance(text, str) or "$" not in text:
        return text
    if "\\" in text:  # LaTeX
        values = {name: value.replace("−", "-") for name, value in values.items()}
    try:
        return Template(text).substitute(values)
    except (KeyError, ValueError) as error:
        names = ", ".join(sorted(values))
        raise BadInput(
            f"the texts of {claim} may use $ before one of: {names}; got {error}."
        ) from error


def _listed(values: Sequence[Any]) -> str:
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]  # a setting that is a list, such as the sample sizes of a cell
    words = [f"{v:g}" if isinstance(v, int | float) else str(v) for v in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
