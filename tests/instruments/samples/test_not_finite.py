"""Learning curves of learners that diverge, and of data without a label, a variance or a number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlens import learning_curve
from attnlens.core.checks import BadInput
from attnlens.core.status import Status

sklearn = pytest.importorskip("sklearn")
from sklearn.dummy import DummyClassifier, DummyRegressor  # noqa: E402 (after importorskip)


class Broken(DummyRegressor):
    """A learner that predicts `bad`, for all test rows or for the first `rows` of them."""

    def __init__(self, bad: float = math.nan, rows: int | None = None):
        super().__init__()
        self.bad, self.rows = bad, rows

    def predict(self, X, return_std=False):
        predicted = np.zeros(len(X))
        predicted[: self.rows] = self.bad
        return predicted


@pytest.mark.parametrize("broken", [Broken(), Broken(math.inf), Broken(rows=1), Broken(1e200)])
@pytest.mark.parametrize("classes", [False, True])
def test_a_learner_without_finite_errors_has_no_number(broken: Broken, classes: bool):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 2)), random.normal(size=60)
    if classes:
        y = y > 0
        if broken.bad == 1e200:
            return  # 1e200 is only a wrong class
    good = DummyClassifier() if classes else DummyRegressor()
    curves = learning_curve(X, y, models={"bad": broken, "good": good}, sizes=(8, 16, 32), folds=3)
    assert [r.status for r in curves["bad"].readings] == [Status.NOT_FINITE] * 3
    assert all(math.isnan(r.value) for r in curves["bad"].readings)
    assert all(r.status is Status.OK and r.value > 0.1 for r in curves["good"].readings)
    assert curves.samples()["bad"].status is Status.NOT_FINITE
    assert curves.samples()["good"].status is not Status.NOT_FINITE
    assert curves.ratio("good", "bad").status is Status.NOT_FINITE
    assert curves.more_labels(10)["bad"][0].status is Status.NOT_FINITE
    assert math.isfinite(curves.target_error)
    assert "not finite" in str(curves)
    curves.figure()


def test_without_any_finite_learner_one_sentence_is_raised():
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(BadInput, match="finite predictions; got none from bad"):
        learning_curve(X, X[:, 0], models={"bad": Broken()}, sizes=(8, 16), folds=3)


class Masked(DummyRegressor):
    """A learner whose predictions are masked arrays with some entries hidden."""

    def predict(self, X, return_std=False):
        predicted = super().predict(X)
        return np.ma.masked_array(predicted, np.arange(len(X)) == 0)


@pytest.mark.parametrize("pipeline", [False, True])
def test_masked_predictions_are_never_taken_for_numbers(pipeline: bool):
    X = np.random.default_rng(0).normal(size=(60, 2))
    rows = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b"]) if pipeline else X
    with pytest.raises(BadInput, match="must have no masked entries"):
        learning_curve(rows, X[:, 0], models={"masked": Masked()}, sizes=(8, 16), folds=3)


def test_a_network_that_diverges_has_no_number():
    X = np.random.default_rng(0).normal(size=(60, 2))
    for y in (X[:, 0] * X[:, 1], X[:, 0] > 0):
        curves = learning_curve(
            X,
            y,
            models={"bad": "baseline", "good": DummyRegressor()},
            sizes=(8, 16),
            folds=3,
            training={"steps": 40, "learning_rate": 1e30},
        )
        assert curves["bad"].readings[-1].status is Status.NOT_FINITE


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-320, 1e307])
def test_labels_or_inputs_whose_variance_leaves_float64_raise(scale: float):
    X = np.random.default_rng(0).normal(size=(60, 2))
    for inputs, labels in ((X, scale * X[:, 0]), (scale * X, X[:, 0])):
        with pytest.raises(BadInput, match=r"vary|between 1e-100 and 1e100|finite"):
            learning_curve(inputs, labels, models=["baseline"], sizes=(8, 16), folds=3)


def test_a_perfect_regression_is_not_reported_as_half_a_wrong_row():
    X = np.arange(60.0).repeat(2)[:, None]
    curves = learning_curve(
        X, X[:, 0] / 2, models={"copy": Copy()}, sizes=(8, 32), folds=3, task="regression"
    )
    assert curves["copy"].readings[-1].value == np.finfo(float).eps ** 2
    assert not curves.none_wrong_at("copy")


class Copy(DummyRegressor):
    """A learner that predicts the target exactly: half of the first column."""

    def predict(self, X, return_std=False):
        return X[:, 0] / 2


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_label_is_no_class(missing: float | None):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array(["a", "b"] * 30, object)
    y[7] = missing
    with pytest.raises(BadInput, match="in row 7"):
        learning_curve(X, y, models=["baseline"])


def test_masked_entries_raise():
    X = np.random.default_rng(0).normal(size=(60, 2))
    mask = np.zeros(X.shape, bool)
    mask[3, 1] = True
    with pytest.raises(BadInput, match="no masked entries"):
        learning_curve(np.ma.masked_array(X, mask), X[:, 0] > 0)
    with pytest.raises(BadInput, match="no masked entries"):
        learning_curve(X, np.ma.masked_array(X[:, 0], mask[:, 1]))


@pytest.mark.parametrize("kind", [str, complex])
def test_predictions_that_are_no_numbers_are_not_counted_as_wrong(kind: type):
    """The text "1" is not equal to the class 1, so every row would count as wrong."""

    class Text(DummyClassifier):
        def predict(self, X):
            return np.asarray(super().predict(X)).astype(kind)

    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(BadInput, match="predictions of a model must be real numbers"):
        learning_curve(X, X[:, 0] > 0, models={"text": Text()}, sizes=(10, 20), folds=3)
