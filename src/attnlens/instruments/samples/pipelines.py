"""Learning curves of scikit-learn pipelines on raw rows: DataFrames with categories and missing
values, and lists of texts.

Networks need finite numbers; a pipeline contains its own encoding, which is fitted on training rows
only. So the rows are passed on unchanged, and only the labels are checked here. Folds, nested
samples and intervals are those of `labelled` and `curves`.

**Groups.** Rows of one group are tested in the same fold, so that no model is tested on a group
that it was trained on. Without groups, equal rows form a group.

**Ordered rows.** If rows are ordered by time, the last half of them is cut into K folds. Each
fold is tested once, by models that are trained on the n rows just before it: samples are nested,
and no model has seen a later row. The training sets of two folds overlap by the share
max(0, 1 − distance/n). With `overlap` the mean of this share over pairs of folds, standard errors
are multiplied by √(1 + K · overlap · test/n), after Nadeau and Bengio (2003), where `test` is the
number of test rows in a fold. Other dependence between folds is not corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attnlens.core import arrays, checks
from attnlens.core.notebook import notebook_line

from . import learners
from .labelled import Fold, Labelled, labelled
from .learners import ErrorTable

LEAST_SHARE = 1 / 32  # the default smallest size / the largest one, because encoders need rows


def is_estimator(model: Any) -> bool:
    """Whether `model` has the methods `fit` and `predict` of a scikit-learn predictor."""
    return hasattr(model, "fit") and hasattr(model, "predict")


def is_raw(X: Any) -> bool:
    """Whether X has rows that only a pipeline can encode: a DataFrame, texts, objects, or numbers
    of which some are missing.

    >>> is_raw(["a text", "another"]), is_raw(np.ones((2, 2)))
    (True, False)
    """
    if _is_frame(X):
        return True
    if hasattr(X, "to_numpy") or not isinstance(X, np.ndarray | list | tuple):
        return hasattr(X, "to_list")  # true for a Series of texts
    try:
        array = np.asarray(X)
    except ValueError:
        return False  # X is ragged; `labelled` raises the error
    if array.ndim == 1 or array.dtype.kind in "OUST":
        return bool(array.size) and array.dtype.kind in "OUST"
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "get_column"))


@dataclass(frozen=True)
class RawRows:
    """Rows as the caller gave them, which a pipeline encodes."""

    X: Any

    @classmethod
    def of(cls, X: Any) -> RawRows:
        """Return X as rows that can be indexed by row numbers; tokens are flattened."""
        if isinstance(X, list | tuple):
            X = np.array([*X], object)
        if isinstance(X, np.ndarray) and X.ndim > 2:
            X = X.reshape(len(X), -1)
        return cls(X)

    def take(self, rows: Int[np.ndarray, " rows"]) -> Any:
        """Return the rows with these numbers, in an object of the same type as X."""
        if hasattr(self.X, "iloc"):
            return self.X.iloc[rows]
        return self.X[rows.tolist()] if hasattr(self.X, "get_column") else self.X[rows]

    def labelled(self, y: Any, task: str | None) -> Labelled:
        """Return the checked labels, with the row numbers as inputs."""
        return labelled(np.arange(float(len(self.X)))[:, None], y, task)

    def equal(self) -> Int[np.ndarray, " rows"]:
        """Return for each row the number of the first row that is equal to it."""
        if _is_frame(self.X):
            columns = [self.X[name].to_list() for name in self.X.columns]
            keys = [*zip(*(map(repr, column) for column in columns), strict=True)]
        else:
            keys = [repr(row) for row in np.asarray(self.X, object).tolist()]
        first: dict[Any, int] = {}
        return np.array([first.setdefault(key, i) for i, key in enumerate(keys)])

    def describe(self, data: Labelled) -> str:
        """Return a description of the data as text."""
        what = f"classification, {data.classes} classes" if data.classes else "regression"
        columns = f"{len(self.X.columns)} columns" if _is_frame(self.X) else "texts or objects"
        return f"{what}{' (inferred)' if data.inferred else ''}, {len(self.X)} rows of {columns}"


def raw_rows(X: Any, models: Any, scoring: Any, n_jobs: Any, progress: Any) -> RawRows | None:
    """Return X as `RawRows`, or None if the learners of `learners` can be used.

    Raw rows are used if all models are estimators, and if X is raw or one of `scoring`, `n_jobs`
    and `progress` is given. These three raise `BadInput` if a model is not an estimator.
    """
    arguments = {"scoring": scoring, "n_jobs": n_jobs, "progress": progress}
    names = [name for name, value in arguments.items() if value is not None]
    pipelines = isinstance(models, Mapping) and len(models) > 0
    pipelines = pipelines and all(is_estimator(model) for model in models.values())
    if not pipelines:
        if names:
            raise checks.BadInput(
                f"{names[0]} is for scikit-learn estimators; give models as a mapping from names "
                f"to estimators, or leave it out."
            )
        return None
    return RawRows.of(X) if names or is_raw(X) else None


def check_groups(groups: Any, rows: int) -> Int[np.ndarray, " rows"]:
    """Check groups, one label per row, and return them as group numbers."""
    values = arrays.labels("groups", groups)
    if values.shape != (rows,):
        raise checks.BadInput(
            f"groups must be one label per row of X, {rows} of them; got the shape {values.shape}."
        )
    return np.unique(values, return_inverse=True)[1]


# -- ordered rows ----------------------------------------------------------------------------------


def ordered_folds(data: Labelled, count: int) -> list[Fold]:
    """Return `count` folds: the test rows are consecutive rows of the last half, the training rows
    are all rows before them, the latest first.

    >>> data = labelled(np.arange(40.0)[:, None], np.arange(40.0), "regression")
    >>> fold = ordered_folds(data, 4)[0]
    >>> fold.test.tolist(), fold.train[:3].tolist()
    ([20, 21, 22, 23, 24], [19, 18, 17])
    """
    rows = len(data.inputs)
    checks.whole("folds", count, at_least=3)
    length = rows // 2 // count
    if length < 2:
        raise checks.BadInput(
            f"ordered folds must have two test rows each in the last half of the rows, so be at "
            f"most {rows // 4} for {rows} rows; got {count}."
        )
    first = rows - count * length
    tests = [np.arange(first + k * length, first + (k + 1) * length) for k in range(count)]
    return [Fold(np.arange(test[0])[::-1], test) for test in tests]


def check_ordered_classes(data: Labelled, parts: Sequence[Fold], smallest: int) -> None:
    """Raise `BadInput` if the smallest sample of a fold has fewer than two classes."""
    if not data.classes:
        return
    for fold in parts:
        if len(np.unique(data.labels[fold.train[:smallest]])) < 2:
            raise checks.BadInput(
                f"the {smallest} rows before row {fold.test[0]} are of one class, from which no "
                f"model learns; give larger sizes."
            )


def ordered_inflation(
    sizes: Float[np.ndarray, " sizes"], parts: Sequence[Fold]
) -> Float[np.ndarray, " sizes"]:
    """Return the factor of standard errors for ordered folds; see the module's docstring."""
    starts, length = [fold.test[0] for fold in parts], len(parts[0].test)
    distances = np.array([abs(a - b) for a, b in combinations(starts, 2)], float)
    overlap = np.maximum(0.0, 1 - distances[:, None] / sizes).mean(0)
    return np.sqrt(1 + len(parts) * overlap * length / sizes)


# -- scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """A scikit-learn scorer as an error: −score for a negated error ("neg_…"), else 1 − score."""

    scorer: Any
    name: str
    negated: bool

    @classmethod
    def of(cls, scoring: Any) -> Score:
        """Make a `Score` from the name of a scikit-learn score, such as "roc_auc", or a scorer."""
        from sklearn.metrics import get_scorer, get_scorer_names

        if isinstance(scoring, str):
            checks.one_of("scoring", scoring, get_scorer_names())
            negated = scoring.startswith("neg_")
            return cls(get_scorer(scoring), scoring.removeprefix("neg_"), negated)
        if not callable(scoring):
            raise checks.BadInput(
                f"scoring must be a name that scikit-learn knows, such as 'roc_auc', or a scorer; "
                f"got a {type(scoring).__name__}."
            )
        name = getattr(getattr(scoring, "_score_func", scoring), "__name__", "score")
        return cls(scoring, name, getattr(scoring, "_sign", 1) < 0)

    @property
    def quantity(self) -> str:
        """The name of the error, such as "1 − roc_auc"."""
        return self.name.replace("_", " ") if self.negated else f"1 − {self.name}"

    def error(self, model: Any, rows: Any, truth: np.ndarray) -> float:
        """Return the error of a fitted model; NaN if the score is not finite."""
        score = float(self.scorer(model, rows, truth))
        error = -score if self.negated else 1 - score
        if error < -1e-9:
            raise checks.BadInput(
                f"scoring must give scores of at most {'0' if self.negated else '1'}, so that an "
                f"error is above 0; got {score:.3g}; use a scorer of scikit-learn."
            )
        return max(error, 0.0) if math.isfinite(error) else math.nan


# -- training --------------------------------------------------------------------------------------


def pipeline_errors(
    models: Mapping[str, Any],
    rows: RawRows,
    data: Labelled,
    parts: Sequence[Fold],
    sizes: Sequence[int],
    score: Score | None = None,
    n_jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, ErrorTable]:
    """Return test errors (fold, size) of every model; a new clone is fitted per fold and size.

    Without `progress`, a notebook shows a line that is updated after each training.
    """
    from joblib import Parallel, delayed

    progress = notebook_line(progress)
    jobs = [(name, fold, size) for name in models for fold in parts for size in sizes]
    results: Any = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_one_error)(name, models[name], rows, data, fold, size, score)
        for name, fold, size in jobs
    )
    errors: list[float] = []
    for (name, _, size), error in zip(jobs, results, strict=True):
        errors.append(error)
        if progress is not None:
            progress(f"{len(errors)} of {len(jobs)} trainings: {name} with {size:,} rows")
    shape = len(models), len(parts), len(sizes)
    return dict(zip(models, np.array(errors).reshape(shape), strict=True))


def _one_error(
    name: str,
    model: Any,
    rows: RawRows,
    data: Labelled,
    fold: Fold,
    size: int,
    score: Score | None,
) -> float:
    from sklearn.base import clone

    fitted: Any = clone(model)
    train = fold.train[:size]
    tests = rows.take(fold.test)
    try:
        fitted.fit(rows.take(train), data.labels[train])
        if score is not None:
            return score.error(fitted, tests, data.labels[fold.test])
        predicted = learners.predictions(fitted, tests)
    except (ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise checks.BadInput(
            f"model {name!r} must be able to train on {size} rows; it raised: {reason}."
        ) from error
    return learners.test_error(data, fold, predicted)
