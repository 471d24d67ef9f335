"""Learning curves of pipelines, compared with scikit-learn on the same rows."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import mean_absolute_error, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from attnlens import learning_curve
from attnlens.core.checks import BadInput
from attnlens.instruments.samples.labelled import labelled, split_folds
from attnlens.instruments.samples.pipelines import (
    RawRows,
    ordered_folds,
    ordered_inflation,
)

ROWS, FOLDS, SIZES = 90, 3, (20, 50)
random = np.random.default_rng(0)
COLOUR = random.choice(["red", "green", "blue"], ROWS)
WEIGHT = np.where(random.random(ROWS) < 0.2, np.nan, random.normal(size=ROWS))
FRAME = pd.DataFrame({"colour": COLOUR, "weight": WEIGHT})
LABEL = np.where((COLOUR == "red") ^ (random.random(ROWS) < 0.1), "yes", "no")
NUMBER = np.nan_to_num(WEIGHT) + 0.1 * random.normal(size=ROWS)
ENCODER = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["colour"]), (SimpleImputer(), ["weight"])
)
CLASSIFIER = make_pipeline(ENCODER, LogisticRegression())
REGRESSOR = make_pipeline(ENCODER, LinearRegression())


def curves(y: Any, model: Any, X: Any = FRAME, **more: Any):
    settings = {"sizes": SIZES, "folds": FOLDS, **more}
    return learning_curve(X, y, models={"model": model}, **settings)


def by_hand(y: np.ndarray, model: Any, error: Any) -> np.ndarray:
    """The errors (fold, size) on the folds of attnlens; scikit-learn alone fits and scores."""
    rows = RawRows.of(FRAME)
    parts = split_folds(rows.labelled(y, None), FOLDS, 0, rows.equal())
    estimator: Any = clone(model)
    return np.array(
        [
            [
                error(
                    estimator.fit(FRAME.iloc[fold.train[:n]], y[fold.train[:n]]),
                    FRAME.iloc[fold.test],
                    y[fold.test],
                )
                for n in SIZES
            ]
            for fold in parts
        ]
    )


def test_categories_and_missing_values_reach_the_pipeline_as_they_are():
    result = curves(LABEL, CLASSIFIER)
    expected = by_hand(LABEL, CLASSIFIER, lambda m, X, y: np.mean(m.predict(X) != y))
    np.testing.assert_allclose(result.errors["model"], expected, rtol=1e-12)
    assert result.quantity == "error rate"
    assert result.data == "classification, 2 classes (inferred), 90 rows of 2 columns"
    assert result.test_rows == ROWS


def test_a_score_becomes_an_error():
    result = curves(LABEL, CLASSIFIER, scoring="roc_auc")
    expected = by_hand(
        LABEL, CLASSIFIER, lambda m, X, y: 1 - roc_auc_score(y, m.predict_proba(X)[:, 1])
    )
    np.testing.assert_allclose(result.errors["model"], expected, rtol=1e-12)
    assert result.quantity == "1 − roc_auc"
    result = curves(NUMBER, REGRESSOR, scoring="neg_mean_absolute_error")
    expected = by_hand(NUMBER, REGRESSOR, lambda m, X, y: mean_absolute_error(y, m.predict(X)))
    np.testing.assert_allclose(result.errors["model"], expected, rtol=1e-12)
    assert result.quantity == "mean absolute error"


def test_frames_of_polars_are_passed_on():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"colour": COLOUR, "weight": np.nan_to_num(WEIGHT)})
    result = curves(LABEL, CLASSIFIER, frame)
    same = curves(LABEL, CLASSIFIER, frame.to_pandas())
    assert result.errors == same.errors


@pytest.mark.parametrize("kind", [list, np.array, pd.Series], ids=["list", "array", "series"])
def test_texts_reach_the_pipeline_as_they_are(kind: Any):
    texts = [f"{'good' if label == 'yes' else 'bad'} film {i}" for i, label in enumerate(LABEL)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    result = curves(LABEL, model, kind(texts))
    assert result["model"].readings[-1].value < 0.05
    assert result.none_wrong_at("model")


def test_parallel_trainings_give_the_same_errors_and_progress_is_reported():
    lines: list[str] = []
    with joblib.parallel_config("threading"):
        result = curves(LABEL, CLASSIFIER, n_jobs=2, progress=lines.append)
    assert result.errors == curves(LABEL, CLASSIFIER).errors
    assert len(lines) == FOLDS * len(SIZES)
    assert lines[-1] == "6 of 6 trainings: model with 50 rows"


class _Memory(RegressorMixin, BaseEstimator):
    """A model that remembers the groups of its training rows: it predicts 1000 for these groups and
    0 for others."""

    def fit(self, X: pd.DataFrame, y: np.ndarray):
        self.seen_ = set(X["group"])
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return np.array([1e3 * (group in self.seen_) for group in X["group"]])


def test_no_group_is_trained_and_tested_on():
    groups = np.arange(ROWS) // 5
    frame = pd.DataFrame({"group": groups.astype(str), "value": NUMBER})
    split = curves(NUMBER, _Memory(), frame, groups=groups)
    mixed = curves(NUMBER, _Memory(), frame)
    assert max(map(max, split.errors["model"])) < 10
    assert min(map(min, mixed.errors["model"])) > 1e3


def test_equal_rows_are_one_group():
    frame = pd.concat([FRAME.iloc[:30]] * 3, ignore_index=True)
    rows = RawRows.of(frame)
    assert len(set(rows.equal().tolist())) == len(FRAME.iloc[:30].drop_duplicates())
    for fold in split_folds(rows.labelled(np.arange(90.0), None), FOLDS, 0, rows.equal()):
        assert not set(fold.train % 30) & set(fold.test % 30)


def test_ordered_folds_are_tested_on_rows_after_those_they_are_trained_on():
    data = labelled(np.arange(100.0)[:, None], np.arange(100.0), "regression")
    parts = ordered_folds(data, 5)
    assert np.concatenate([fold.test for fold in parts]).tolist() == list(range(50, 100))
    for fold in parts:
        assert fold.train.tolist() == list(range(fold.test[0]))[::-1]
    # Test blocks have 10 rows. Samples of 10 rows do not overlap. Of samples of 20 rows, only
    # neighbours overlap, by a half: 4 of 10 pairs, 0.2 on average, and 1 + 5 · 0.2 · 10/20 = 1.5.
    np.testing.assert_allclose(ordered_inflation(np.array([10.0, 20.0]), parts) ** 2, [1, 1.5])


def test_a_trend_is_predicted_from_the_latest_rows():
    """For y = t, the mean of the n latest rows is (n + 1)/2 behind the first test row."""
    time = np.arange(120.0)
    result = learning_curve(
        time[:, None],
        time,
        models={"mean": DummyRegressor()},
        ordered=True,
        folds=6,
        sizes=(4, 16),
        task="regression",
    )
    expected = [np.mean((np.arange(10) + (n + 1) / 2) ** 2) / time.var() for n in (4, 16)]
    np.testing.assert_allclose(result.errors["mean"], [expected] * 6, rtol=1e-12)


def test_the_recommended_model_is_the_first_that_is_not_shown_to_be_worse(tmp_path: Any):
    models = {"mean": DummyClassifier(), "first": CLASSIFIER, "same": clone(CLASSIFIER)}
    result = learning_curve(FRAME, LABEL, models=models, sizes=SIZES, folds=6)
    assert result.recommended == "first"
    joblib.dump(models[result.recommended].fit(FRAME, LABEL), tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    assert np.mean(loaded.predict(FRAME) == LABEL) > 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scoring": "no_such"}, "scoring must be one of"),
        ({"scoring": 3}, "must be a name that scikit-learn knows"),
        ({"groups": [1, 2]}, "one label per row of X, 90"),
        ({"groups": [1] * ROWS}, "give fewer folds"),
        ({"groups": range(ROWS), "ordered": True}, "cannot both be given"),
        ({"ordered": True, "folds": 40}, "at most 22 for 90 rows"),
        ({"ordered": True, "sizes": (10, 40), "y": ["a"] * 70 + ["b"] * 20}, "are of one class"),
        ({"model": make_pipeline(LogisticRegression())}, "must be able to train on 20 rows"),
    ],
    ids=["score", "number", "short", "one", "both", "blocks", "class", "encoding"],
)
def test_bad_input_raises_one_sentence(changes: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        curves(**{"y": LABEL, "model": CLASSIFIER, **changes})


def test_scores_are_not_for_networks():
    with pytest.raises(BadInput, match="scoring is for scikit-learn estimators"):
        learning_curve(np.ones((30, 2)), LABEL[:30], models=["baseline"], scoring="accuracy")
