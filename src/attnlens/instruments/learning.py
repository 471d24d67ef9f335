"""Learning curves: test error over the number of labels, and what another label would buy.

Every learner is trained on the same nested samples of the same folds, so that differences between
learners are paired. See `labelled` for the folds (whose standard errors are widened as by Nadeau
and Bengio, 2003), `learners` for what is trained, and `sample_size` for how n(ε) and the intervals
come about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attnlens import checks
from attnlens.records import Curve, Figure, Point, Reading, Series

from . import learners
from .labelled import folds as split
from .labelled import inflation, labelled, usable_sizes
from .powerlaw import fit_power_law
from .sample_size import Bundle, Estimate, bundles, interval, larger, ratio, sample_size

SIZES = 8
FOLDS = 8


@dataclass(frozen=True)
class LearningCurves:
    """Paired error curves of several learners; everything else is computed from them on demand.

    `errors[name]` has a row a fold and a column a size. `target_error` is the ε that questions
    are about when they name none.
    """

    data: str
    quantity: str
    sizes: tuple[int, ...]
    target_error: float
    errors: Mapping[str, tuple[tuple[float, ...], ...]]
    widened: tuple[float, ...]  # by how much standard errors are, for overlapping training rows
    test_rows: int = 0  # of classes, in all folds together: an error is a count of these

    def __getitem__(self, name: str) -> Curve:
        """One learner's curve, with standard errors; its slope is that of the plain power law."""
        values = np.array(self.errors[checks.one_of("the model", name, self.errors)])
        count, wide = len(values), np.array(self.widened)
        deviation = values.std(0, ddof=1) * wide / math.sqrt(count)
        deviation = np.where(
            self._unseen(values), math.sqrt(0.5) / max(self.test_rows, 1), deviation
        )
        readings = [
            Reading(float(m), float(s), count)
            for m, s in zip(values.mean(0), deviation, strict=True)
        ]
        return Curve("labels", self.quantity, self.sizes, tuple(readings), self._slope(name))

    def __iter__(self):
        return iter(self.errors)

    def said(self, name: str, place: int = -1) -> str:
        """The error at one of the sizes, in words."""
        if self._unseen(np.array(self.errors[name]))[place]:
            return f"none of {self.test_rows:,} test rows wrong"
        reading = self[name].readings[place]
        return f"{reading.value:.3g} ± {reading.standard_error:.1g}"

    def _unseen(self, values: np.ndarray) -> np.ndarray:
        """At which sizes no test row was wrong; see `_resolved`."""
        return (
            (values == 0.5 / self.test_rows).all(0)
            if self.test_rows
            else np.zeros(len(self.sizes), bool)
        )

    def samples(self, error: float | None = None) -> dict[str, Estimate]:
        """n(ε): how many labels each learner needs for this error."""
        return {name: sample_size(own, self._goal(error)) for name, own in self._bundles.items()}

    def ratio(self, first: str, second: str, error: float | None = None) -> Estimate:
        """How many times as many labels the first learner needs as the second."""
        one, two = (
            self._bundles[checks.one_of("the model", n, self.errors)] for n in (first, second)
        )
        return ratio(one, two, self._goal(error))

    def more_labels(self, labels: int) -> dict[str, tuple[Estimate, Estimate]]:
        """Each learner's error at the largest size and, extrapolated, with `labels` more."""
        checks.whole("labels", labels, at_least=1)
        now, then = float(self.sizes[-1]), float(self.sizes[-1] + labels)
        found = {}
        for name, own in self._bundles.items():
            today = np.exp(own.logs[:, -1])
            # By the factor that the law predicts, from where the curve stands.
            later = today * own.law.error(then) / own.law.error(now)
            found[name] = (_estimate(today), _estimate(later, "extrapolated"))
        return found

    def laws(self) -> dict[str, dict[str, Estimate]]:
        """exponent, scale and floor of a n^(−b) + c, and the exponent of the plain a n^(−b)."""
        found = {}
        for name, own in self._bundles.items():
            plain = fit_power_law(own.sizes, np.exp(own.logs), np.ones(len(own.sizes)))
            parts = {**own.law._asdict(), "plain_exponent": plain.exponent}
            found[name] = {part: _estimate(np.asarray(draws)) for part, draws in parts.items()}
        return found

    def __str__(self) -> str:
        curves = {name: self[name] for name in self.errors}
        lines = [
            f"Learning curves: {self.data}; {self.quantity}, mean ± standard error over "
            f"{next(iter(curves.values())).readings[0].count} folds",
            f"{'labels':>8}" + "".join(f"  {name:>20}" for name in curves),
        ]
        for i, size in enumerate(self.sizes):
            cells = (curve.readings[i] for curve in curves.values())
            row = "".join(f"  {f'{c.value:.3g} ± {c.standard_error:.1g}':>20}" for c in cells)
            lines.append(f"{size:>8}{row}")
        if any(self._unseen(np.array(own)).any() for own in self.errors.values()):
            lines.append(f"{0.5 / self.test_rows:.3g} stands for none of {self.test_rows} wrong")
        for name, law in self.laws().items():
            lines.append(
                f"{name}: the larger sizes fall as n^−b, b = {law['exponent']}, to a floor of "
                f"{law['floor']}"
            )
        lines.append(f"Labels for {self.quantity} {self.target_error:.3g}:")
        lines += [f"  {name}: {size}" for name, size in self.samples().items()]
        first, *others = self.errors
        lines += [
            f"  {first} needs {self.ratio(first, other)} times the labels of {other}"
            for other in others
        ]
        more = self.sizes[-1]
        lines.append(f"{more} more labels ({more} → {2 * more}) would buy, if the law goes on:")
        for name, (now, then) in self.more_labels(more).items():
            lines.append(f"  {name}: {now.value:.3g} → {then}")
        return "\n".join(lines)

    def figure(self) -> Figure:
        """Every learner's curve with its fitted law, and n(ε) where it crosses the target error."""
        series, fitted = [], self.sizes[larger(len(self.sizes))]
        for name in self.errors:
            curve = self[name]
            points = [
                Point(float(x), r.value, 1.96 * r.standard_error)
                for x, r in zip(curve.at, curve.readings, strict=True)
            ]
            series.append(Series(name, tuple(points)))
            law = self._bundles[name].law
            line = [
                Point(float(x), float(law.error(float(x))[0]))
                for x in np.geomspace(fitted[0], fitted[-1], 32)
            ]
            part = "fitted law"
            if len(fitted) < len(self.sizes):
                part = f"law fitted to the {len(fitted)} larger sizes"
            series.append(Series(f"{name}, {part}", tuple(line), line=True, like=name))
        goal = self.target_error
        ends = (Point(float(n), goal) for n in (self.sizes[0], self.sizes[-1]))
        series.append(Series(f"ε = {goal:.3g}", tuple(ends), line=True))
        for name, size in self.samples().items():
            # What was not reached within the sizes that were tried is said, not drawn.
            reached = size.status == "ok" and math.isfinite(size.value)
            points = (Point(size.value, goal),) if reached else ()
            series.append(Series(f"{name}: n(ε) = {size}", points, mark=True, like=name))
        title = f"{self.quantity} over labels; n(ε) is how many it takes for ε"
        return Figure(title, "labels", self.quantity, tuple(series))

    def plot(self) -> Any:
        """The curves as a matplotlib figure."""
        return self.figure().plot()

    @cached_property
    def _bundles(self) -> dict[str, Bundle]:
        sizes, every = np.array(self.sizes, float), np.array(list(self.errors.values()))
        return dict(zip(self.errors, bundles(sizes, every, np.array(self.widened)), strict=True))

    def _slope(self, name: str) -> Reading:
        own = self._bundles[name]
        draws = -fit_power_law(own.sizes, np.exp(own.logs), np.ones(len(own.sizes))).exponent
        return Reading(float(draws[0]), float(draws[1:].std(ddof=1)), len(self.errors[name]))

    def _goal(self, error: float | None) -> float:
        return self.target_error if error is None else checks.positive("error", error)


def learning_curve(
    X: Any,
    y: Any,
    *,
    models: Sequence[str] | Mapping[str, Any] | None = None,
    sizes: Sequence[int] | None = None,
    target_error: float | None = None,
    task: str | None = None,
    attention: Any = None,
    hidden: int = 16,
    folds: int = FOLDS,
    starts: int = 1,
    seed: int = 0,
    training: Mapping[str, Any] | None = None,
) -> LearningCurves:
    """Test error of several learners over the number of labels, paired, with n(ε) and its interval.

        n(ε) = the smallest n with E error(n) ≤ ε;   beyond what is measured error(n) ≈ a n^(−b) + c

    X: rows (n, p), or tokens (n, L, t). y: numbers, or classes; `task` overrides what is inferred.
    models: names of B's four models ("baseline", "known-attention", "self-attention",
        "multi-layer"), or a mapping from names of yours to such a name, to a function of a random
        key that returns a network (as `fit` takes it; it is given standardised inputs in X's
        shape), or to a scikit-learn estimator (it is given X as it is, tokens flattened).
    sizes: numbers of labels, log-spaced by default up to what the folds leave to train on.
    target_error: the ε of n(ε), in the units of the curve (error rate, or squared error as a share
        of the variance of y); by default a tenth above the smallest error that all
        models reach, and one wrong test row at least.
    attention: f(X) for known attention, an array of X's shape or a function that returns one.
    starts: of so many starts the one with the least training loss counts (networks only).
    training: arguments for `fit`, such as {"steps": 2000, "l2": 1e-3}.

    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(60, 3))
    >>> curves = learning_curve(X, X[:, 0] > 0, models=["baseline"], sizes=(8, 40), folds=3)
    >>> [reading.count for reading in curves["baseline"].readings]
    [3, 3]
    """
    data = labelled(X, y, task)
    checks.whole("hidden", hidden, at_least=1)
    checks.whole("starts", starts, at_least=1)
    checks.whole("seed", seed)
    if target_error is not None:
        checks.positive("target_error", target_error)
    settings = learners.settings(training)
    parts = split(data, folds, seed)
    used = usable_sizes(sizes, data, parts, SIZES)
    chosen = learners.choose(models, data, attention, hidden)
    errors = {name: _resolved(run(parts, used, seed, settings, starts), len(data.inputs))
              for name, run in chosen.items()}  # fmt: skip
    if target_error is None:
        # A little above what the weakest learner reaches, so that its n(ε) lies inside the range.
        target_error = 1.1 * max(float(own.mean(0).min()) for own in errors.values())
        if data.classes:  # less than one wrong test row cannot be seen
            target_error = max(target_error, 1 / len(data.inputs))
    return LearningCurves(
        data=str(data),
        quantity="error rate" if data.classes else "relative squared error",
        sizes=used,
        target_error=target_error,
        errors={name: tuple(map(tuple, own.tolist())) for name, own in errors.items()},
        widened=tuple(inflation(np.array(used, float), len(data.inputs), folds).tolist()),
        test_rows=len(data.inputs) if data.classes else 0,
    )


def _resolved(errors: np.ndarray, rows: int) -> np.ndarray:
    """Where no test row was wrong, half a row counts as wrong: less cannot be told from none.

    Of n rows none wrong, Jeffreys' posterior of the error is Beta(½, n + ½): its mean is ½/(n + 1),
    and its standard deviation, about √½/n, is the standard error that is told.
    """
    return np.where(errors.mean(0) > 0, errors, 0.5 / rows)


def _estimate(draws: np.ndarray, status: str = "ok") -> Estimate:
    low, high = interval(draws[1:])
    value = float(draws[0])
    return Estimate(value, min(low, value), max(high, value), status)
