"""Learning curves: test error against the number of labels, and the gain from more labels.

Every learner is trained on the same nested samples of the same folds, so differences between
learners are paired. `labelled` describes the folds and the variance inflation factor of overlapping
training sets (Nadeau and Bengio, 2003), `learners` the learners, `forecast` the continuation of a
curve beyond the largest size, and `sample_size` n(ε), the number of labels for error ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import LEVEL, Curve, Reading
from attnlens.core.statistics import implied_error, mean_reading
from attnlens.core.status import Status

from . import learners, pipelines
from .error_tables import above_zero, default_target
from .forecast import ForecastDraws, forecast_draws, used_sizes
from .labelled import inflation, labelled, split_folds, usable_sizes
from .powerlaw import fit_power_law
from .sample_size import SampleSize, interval, ratio, sample_size, with_interval

SIZES = 8  # default number of sizes
FOLDS = 8  # default number of folds
FEWEST_FOR_BACK_TEST = 3  # sizes: two for the forecast, and a third to test it
AHEAD = 4  # figures show forecasts up to this multiple of the largest size


@dataclass(frozen=True)
class LearningCurves(Tabular):
    """Paired error curves of several learners; everything else is computed from them on demand.

    `errors[name]` has one row per fold and one column per size. `target_error` is the default ε of
    the methods. `inflation` has one factor per size, by which standard errors are multiplied
    because training sets overlap. `test_rows` (0 except for error rates) is the number of test rows
    in all folds together: an error rate is a count of wrong rows among these. `none_wrong[name]`
    says at which sizes no test row was wrong; there, `errors` counts half a wrong row
    (`above_zero`). If a learner diverged or predicted NaN, its error is not finite, and its
    readings, its n(ε) and all results computed from them have the status `NOT_FINITE`.
    """

    data: str
    quantity: str
    sizes: tuple[int, ...]
    target_error: float
    errors: Mapping[str, tuple[tuple[float, ...], ...]]
    inflation: tuple[float, ...]
    test_rows: int = 0
    none_wrong: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Curve:
        """Return a learner's curve with standard errors; its slope is that of a n^(−b)."""
        values = np.array(self.errors[checks.one_of("the model", name, self.errors)])
        count, factors = len(values), np.array(self.inflation)
        errors = values.std(0, ddof=1) * factors / math.sqrt(count)
        errors = np.where(self._none_wrong(name), math.sqrt(0.5) / max(self.test_rows, 1), errors)
        readings = [
            Reading(float(m), float(s), count)
            if math.isfinite(m)
            else Reading(math.nan, math.nan, count, Status.NOT_FINITE)
            for m, s in zip(values.mean(0), errors, strict=True)
        ]
        return Curve("labels", self.quantity, self.sizes, tuple(readings), self._slope(name))

    def __iter__(self):
        return iter(self.errors)

    def error_text(self, name: str, index: int = -1) -> str:
        """Return the error at size number `index` as text."""
        if self.none_wrong_at(name, index):
            return f"none of {self.test_rows:,} test rows wrong"
        return _cell(self[name].readings[index])

    def none_wrong_at(self, name: str, index: int = -1) -> bool:
        """Whether no test row was wrong at size number `index`."""
        return bool(self._none_wrong(name)[index])

    def _none_wrong(self, name: str) -> np.ndarray:
        """Return for each size whether no test row was wrong."""
        return np.array(self.none_wrong.get(name, (False,) * len(self.sizes)), bool)

    def samples(self, error: float | None = None) -> dict[str, SampleSize]:
        """Return n(ε) of each learner, the number of labels for error `error`.

        By default ε is `target_error`.
        """
        goal = self._goal(error)
        return {name: sample_size(draws, goal) for name, draws in self._draws.items()}

    def ratio(self, first: str, second: str, error: float | None = None) -> SampleSize:
        """The number of labels that the first learner needs, divided by that of the second."""
        one, two = (
            self._draws[checks.one_of("the model", n, self.errors)] for n in (first, second)
        )
        return ratio(one, two, self._goal(error))

    def difference(self, first: str, second: str) -> Reading:
        """The first learner's error minus the second's with all labels, paired by fold."""
        one, two = (np.array(self.errors[name])[:, -1] for name in (first, second))
        mean = mean_reading(one - two)
        error = mean.standard_error * self.inflation[-1]
        return Reading(mean.value, error, mean.count, mean.status)

    @property
    def recommended(self) -> str:
        """The first model, in the given order, that is not significantly worse than the best model.

        Models are compared with all labels, with Bonferroni's correction. List the models from
        simple to complex, so that the simplest adequate one is recommended.
        """
        last = {name: self[name].readings[-1] for name in self.errors}
        usable = [name for name in last if last[name].status is Status.OK]
        if not usable:
            raise checks.BadInput(f"no model has a finite error: {', '.join(last)}; check them.")
        best = min(usable, key=lambda name: last[name].value)
        level = 1 - (1 - LEVEL) / max(len(usable) - 1, 1)
        return next(n for n in usable if not self.difference(n, best).interval(level)[0] > 0)

    def more_labels(self, labels: int) -> dict[str, tuple[SampleSize, SampleSize]]:
        """Return each learner's error at the largest size, and forecast with `labels` more."""
        checks.whole("labels", labels, at_least=1)
        errors = {}
        for name, draws in self._draws.items():
            today = self._possible(np.exp(draws.logs[:, -1]))
            later = self._possible(draws.extrapolated(float(self.sizes[-1] + labels)))
            errors[name] = (with_interval(today), with_interval(later, Status.EXTRAPOLATED))
        return errors

    def back_test(self) -> dict[str, tuple[SampleSize, Reading]]:
        """Return each learner's (forecast, measured) error at the largest size.

        The forecast is that of `more_labels`, from the smaller sizes only. The result is empty with
        fewer than three sizes.
        """
        if len(self.sizes) < FEWEST_FOR_BACK_TEST:
            return {}
        earlier = self._forecasts(slice(-1))
        return {
            name: (
                with_interval(
                    self._possible(draws.extrapolated(float(self.sizes[-1]))), Status.EXTRAPOLATED
                ),
                self[name].readings[-1],
            )
            for name, draws in earlier.items()
        }

    def _possible(self, errors: np.ndarray) -> np.ndarray:
        """Return draws of an error, with error rates clipped to one."""
        return np.minimum(errors, 1.0) if self.test_rows else errors

    def laws(self) -> dict[str, dict[str, SampleSize]]:
        """Return for each learner the exponent b, scale a and floor c of the law a n^(−b) + c of
        its forecast, and the exponent ("plain_exponent") of a n^(−b) through all sizes."""
        laws = {}
        for name, draws in self._draws.items():
            plain = fit_power_law(draws.sizes, np.exp(draws.logs), np.ones(len(draws.sizes)))
            parameters = {**draws.power_law()._asdict(), "plain_exponent": plain.exponent}
            laws[name] = {key: with_interval(np.asarray(v)) for key, v in parameters.items()}
        return laws

    def __str__(self) -> str:
        curves = {name: self[name] for name in self.errors}
        lines = [
            f"Learning curves: {self.data}; {self.quantity}, mean ± standard error over "
            f"{next(iter(curves.values())).readings[0].count} folds",
            f"{'labels':>8}" + "".join(f"  {name:>20}" for name in curves),
        ]
        for i, size in enumerate(self.sizes):
            cells = (curve.readings[i] for curve in curves.values())
            row = "".join(f"  {_cell(reading):>20}" for reading in cells)
            lines.append(f"{size:>8}{row}")
        if any(self._none_wrong(name).any() for name in self.errors):
            lines.append(f"{0.5 / self.test_rows:.3g} means none of {self.test_rows} wrong")
        for name, law in self.laws().items():
            lines.append(
                f"{name}: the error falls as n^−b, b = {law['exponent']}, to a floor of "
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
        lines.append(f"With {more} more labels ({more} → {2 * more}), forecast:")
        for name, (now, then) in self.more_labels(more).items():
            lines.append(f"  {name}: {now.value:.3g} → {then}")
        if tests := self.back_test():
            lines.append(f"Back-test, the error with {more} labels from the smaller sizes:")
        for name, (expected, measured) in tests.items():
            lines.append(f"  {name}: {expected}; measured {_cell(measured)}")
        return "\n".join(lines)

    def rows(self) -> list[dict[str, Any]]:
        """One row per model and number of labels: the mean error over folds."""
        return [
            {
                "model": name,
                "labels": size,
                "quantity": self.quantity,
                **reading.row(),
                "none_wrong": self.none_wrong_at(name, i),
            }
            for name in self.errors
            for i, (size, reading) in enumerate(zip(self.sizes, self[name].readings, strict=True))
        ]

    def figure(self) -> Figure:
        """Every learner's curve with its forecast, and n(ε) where it crosses the target error."""
        series = []
        for name in self.errors:
            curve = self[name]
            points = [
                r.point(x)
                for x, r in zip(curve.at, curve.readings, strict=True)
                if r.status is Status.OK
            ]
            series.append(Series(name, tuple(points)))
            if len(points) < len(self.sizes):  # if an error is not finite, no law is fitted
                continue
            draws = self._draws[name]
            fitted = self.sizes[used_sizes(draws.sizes, np.array(self.errors[name]).mean(0))]
            line = [
                Point(float(x), float(draws.extrapolated(float(x))[0]))
                for x in np.geomspace(fitted[0], AHEAD * fitted[-1], 48)
            ]
            label = f"law of the forecast, to {AHEAD} times the labels"
            series.append(Series(f"{name}, {label}", tuple(line), line=True, like=name))
        goal = self.target_error
        across = (Point(float(n), goal) for n in (self.sizes[0], self.sizes[-1]))
        series.append(Series(f"ε = {goal:.3g}", tuple(across), line=True))
        for name, size in self.samples().items():
            # An n(ε) outside of the measured sizes appears in the legend, not in the plot.
            reached = size.status is Status.OK and math.isfinite(size.value)
            points = (Point(size.value, goal),) if reached else ()
            series.append(Series(f"{name}: n(ε) = {size}", points, mark=True, like=name))
        title = f"{self.quantity} over labels; n(ε) is the number of labels for error ε"
        return Figure(title, "labels", self.quantity, tuple(series))

    def plot(self) -> Any:
        """The curves as a matplotlib figure."""
        return self.figure().plot()

    @cached_property
    def _draws(self) -> dict[str, ForecastDraws]:
        return self._forecasts(slice(None))

    def _forecasts(self, used: slice) -> dict[str, ForecastDraws]:
        """Return forecasts from some of the sizes."""
        sizes, errors = np.array(self.sizes, float), np.array([*self.errors.values()])
        factors = np.array(self.inflation)[used]
        draws = forecast_draws(sizes[used], errors[..., used], factors, self.test_rows)
        return dict(zip(self.errors, draws, strict=True))

    def _slope(self, name: str) -> Reading:
        draws = self._draws[name]
        law = fit_power_law(draws.sizes, np.exp(draws.logs), np.ones(len(draws.sizes)))
        slopes, folds = -law.exponent, len(self.errors[name])
        # Draws and the reading's interval both use Student's t with folds − 1 degrees of freedom.
        error = implied_error(*interval(slopes[1:]), folds)
        return Reading(float(slopes[0]), error, folds)

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
    scoring: Any = None,
    groups: Any = None,
    ordered: bool = False,
    n_jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> LearningCurves:
    """Test errors of several learners against the number of labels, paired, with n(ε).

        n(ε) = the smallest n with E error(n) ≤ ε;   beyond the largest n, error(n) ≈ a n^(−b) + c,
        with a prior on b and c from other learning curves

    X: rows (n, p), or tokens (n, L, t). If all models are scikit-learn estimators, X may also be a
        DataFrame with categories and missing values, or a list of texts: pipelines receive the rows
        unchanged.
    y: numbers (regression) or classes, one per row.
    models: names of the four models of lens B ("baseline", "known-attention", "self-attention",
        "multi-layer"), or a mapping from your own names to such a name, to a function of a random
        key that returns a network (as for `fit`; it receives standardised inputs in X's shape), or
        to a scikit-learn estimator (it receives X unchanged, tokens flattened).
    sizes: numbers of labels; by default log-spaced, up to the number of training rows of a fold.
    target_error: the ε of n(ε), in the units of the curve (error rate, or squared error as a share
        of the variance of y); by default 10 % above the smallest error that a model reaches, and
        at least one wrong test row.
    task: "regression" or "classification"; by default inferred from y.
    attention: f(X) for known attention, as an array of X's shape or a function that returns one.
    starts: random initialisations per network; the one with the smallest training loss is used.
    training: arguments for `fit`, such as {"steps": 2000, "l2": 1e-3}.
    groups: one group label per row; rows of the same group are tested in the same fold.
    ordered: whether rows are ordered by time. If so, models are trained on the rows directly before
        those on which they are tested.
    scoring, n_jobs, progress: for scikit-learn estimators only. `scoring` is a score such as
        "roc_auc", which is converted to an error; `n_jobs` is the number of parallel jobs, as in
        scikit-learn; `progress` is called with a line of text after each training.

    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(60, 3))
    >>> curves = learning_curve(X, X[:, 0] > 0, models=["baseline"], sizes=(8, 40), folds=3)
    >>> [reading.count for reading in curves["baseline"].readings]
    [3, 3]
    """
    checks.whole("hidden", hidden, at_least=1, at_most=10_000)
    checks.whole("starts", starts, at_least=1, at_most=1_000)
    checks.seed_number("seed", seed)
    if target_error is not None:
        checks.positive("target_error", target_error)
    settings = learners.settings(training)
    rows = pipelines.raw_rows(X, models, scoring, n_jobs, progress)
    data = labelled(X, y, task) if rows is None else rows.labelled(y, task)
    together = None if rows is None or ordered else rows.equal()
    if groups is not None:
        if ordered:
            raise checks.BadInput("groups and ordered cannot both be given; leave one of them out.")
        together = pipelines.check_groups(groups, len(data.inputs))
    parts = (
        pipelines.ordered_folds(data, folds)
        if ordered
        else split_folds(data, folds, seed, together)
    )
    least_share = 0.0 if rows is None else pipelines.LEAST_SHARE
    sizes = usable_sizes(sizes, data, parts, SIZES, least_share)
    at = np.array(sizes, float)
    if ordered:
        pipelines.check_ordered_classes(data, parts, sizes[0])
        factors = pipelines.ordered_inflation(at, parts)
    else:
        factors = inflation(at, len(data.inputs), folds)
    score = None if scoring is None else pipelines.Score.of(scoring)
    if rows is None:
        measure = learners.choose(models, data, attention, hidden)
        measured = learners.measured(measure, parts, sizes, seed, settings, starts)
    else:
        assert isinstance(models, Mapping)
        measured = pipelines.pipeline_errors(
            models, rows, data, parts, sizes, score, n_jobs, progress
        )
    rates = bool(data.classes) and score is None
    tested = sum(len(fold.test) for fold in parts)
    errors = {name: above_zero(table, tested if rates else 0) for name, table in measured.items()}
    quantity = "error rate" if data.classes else "relative squared error"
    return LearningCurves(
        data=str(data) if rows is None else rows.describe(data),
        quantity=quantity if score is None else score.quantity,
        sizes=sizes,
        target_error=default_target(errors, tested if rates else 0)
        if target_error is None
        else target_error,
        errors={name: tuple(map(tuple, table.tolist())) for name, table in errors.items()},
        inflation=tuple(factors.tolist()),
        test_rows=tested if rates else 0,
        none_wrong={
            name: tuple((table == 0).all(0).tolist()) for name, table in measured.items() if rates
        },
    )


def _cell(reading: Reading) -> str:
    if reading.status is not Status.OK:
        return "not finite"
    return f"{reading.value:.3g} ± {reading.standard_error:.1g}"
