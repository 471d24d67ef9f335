"""`learning_curve` where the answer is known: the exact risk of least squares, and the learning
curve of scikit-learn."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from attnlens import learning_curve
from attnlens.core.checks import BadInput
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import inflation, labelled, split_folds
from attnlens.networks import Encoder
from attnlens.worlds import SparseTeacher
from counting import compilations

sklearn = pytest.importorskip("sklearn")
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402 (after importorskip)

ROWS, FEATURES, NOISE = 96, 4, 0.5
QUICK = {"steps": 40}
random = np.random.default_rng(0)
X = random.normal(size=(ROWS, FEATURES))
Y = X[:, 0] - X[:, 1] + NOISE * random.normal(size=ROWS)
CLASSES = np.where(X[:, 0] + 0.3 * random.normal(size=ROWS) > 0.5, "yes", "no")


@pytest.mark.slow
def test_least_squares_has_its_exact_risk_and_intervals_have_their_coverage():
    """With p normal inputs and n > p + 1 rows, E(y − ŷ)² = σ² (1 + p/(n − p − 1)) exactly."""
    sizes, times = (16, 32, 84), 150
    exact = [NOISE**2 * (1 + FEATURES / (n - FEATURES - 1)) for n in sizes]
    hits, means = np.zeros((times, len(sizes)), bool), np.zeros((times, len(sizes)))
    model = {"least squares": LinearRegression(fit_intercept=False)}
    for i in range(times):
        own = np.random.default_rng([1, i])
        x = own.normal(size=(ROWS, FEATURES))
        y = x.sum(1) + NOISE * own.normal(size=ROWS)
        curve = learning_curve(x, y, models=model, sizes=sizes, seed=i)["least squares"]
        for j, reading in enumerate(curve.readings):
            # Convert to units of y, because the curve is a share of the variance of y. The 97.5 %
            # quantile of t with 7 degrees of freedom is 2.365.
            half = 2.365 * reading.standard_error * y.var()
            means[i, j] = reading.value * y.var()
            hits[i, j] = abs(means[i, j] - exact[j]) <= half
    deviations = (means.mean(0) - exact) / (means.std(0) / math.sqrt(times))
    assert np.abs(deviations).max() < 4
    # One coverage has the standard error √(0.95·0.05/150) = 0.018; four of them are allowed. (At
    # n = 8 the variance of the error is barely finite, n − p − 3 = 1, and intervals from 8 folds
    # cover only 0.81.)
    assert (hits.mean(0) >= 0.95 - 4 * 0.018).all(), hits.mean(0)


def test_an_error_without_a_wrong_row_is_written_in_words():
    """A line separates the two classes, so no test row is wrong with 40 labels or more."""
    x = np.concatenate([X - 4, X + 4])
    y = np.repeat(["left", "right"], ROWS)
    curves = learning_curve(
        x, y, models={"line": LogisticRegression()}, sizes=(4, 40, 120), folds=4
    )
    assert curves.none_wrong_at("line")
    assert curves.none_wrong["line"][1:] == (True, True)
    assert curves.error_text("line") == f"none of {2 * ROWS} test rows wrong"
    last = curves["line"].readings[-1]
    # Under the prior of Jeffreys the posterior of the error rate is Beta(½, n + ½), with mean ½/(n
    # + 1) and a standard deviation of about √½/n.
    assert last.value == 0.5 / (2 * ROWS)
    assert last.standard_error == pytest.approx(math.sqrt(0.5) / (2 * ROWS), rel=1e-12)
    assert curves.target_error == 1 / (2 * ROWS)
    assert "means none of 192 wrong" in str(curves)


def test_half_a_wrong_row_is_not_taken_for_none():
    """The flag `none_wrong` decides and not the value, because folds may average to exactly half a
    row."""
    errors = {"line": (((0.5 / 40),), ((0.5 / 40),))}
    some = LearningCurves("made up", "error rate", (8,), 0.1, errors, (1.0,), test_rows=40)
    none = replace(some, none_wrong={"line": (True,)})
    assert not some.none_wrong_at("line")
    assert none.none_wrong_at("line")
    assert none.error_text("line") == "none of 40 test rows wrong"


def test_variance_inflation_grows_with_overlap():
    small, full = inflation(np.array([1.0, 7000.0]), 8000, 8)
    assert small == pytest.approx(1, abs=1e-4)
    # The variance is 1/K + (1/(K−1)) · (K−2)/(K−1), in units of 1/K.
    assert full**2 == pytest.approx(1 + 8 / 7 * 6 / 7)


def test_errors_equal_those_of_scikit_learn_on_the_same_splits():
    from sklearn.model_selection import learning_curve as theirs

    data = labelled(X, CLASSES)
    cv = [(fold.train, fold.test) for fold in split_folds(data, 6, seed=0)]
    sizes: Any = (8, 20, 80)
    model = LogisticRegression()
    _, _, accuracy = theirs(model, X, CLASSES, cv=cv, train_sizes=sizes, scoring="accuracy")[:3]
    ours = learning_curve(X, CLASSES, models={"logistic": model}, sizes=sizes, folds=6)
    assert np.array(ours.errors["logistic"]) == pytest.approx(1 - accuracy.T, abs=1e-12)


def test_networks_learn_and_one_program_serves_every_size():
    settings: dict[str, Any] = {"models": ["baseline"], "training": {"steps": 300}}
    curves = learning_curve(X, Y, sizes=(8, 24, 72), **settings)
    first, _, last = curves["baseline"].readings
    # The best predictor has the error σ²/Var y, about 0.1; predicting the mean has error 1.
    assert last.value < 0.4 < first.value
    before = compilations()
    learning_curve(X, Y, sizes=(12, 36, 72), seed=1, **settings)
    assert compilations() == before


@pytest.mark.slow
def test_known_attention_needs_fewer_labels_on_sparse_data():
    world = SparseTeacher(features=16, attended=2)
    with jax.enable_x64(True):
        episode = world.sample(jax.random.key(0), 400)
        attention = np.asarray(world.attention(episode.latent, episode.tokens.key))
    curves = learning_curve(
        np.asarray(episode.tokens.key),
        np.asarray(episode.tokens.value),
        attention=attention,
        models=["baseline", "known-attention"],
        sizes=(16, 32, 64, 128, 320),
        target_error=0.5,
        folds=5,
    )
    ratio = curves.ratio("baseline", "known-attention")
    assert ratio.low > 1.5
    assert "times the labels of known-attention" in str(curves)


ENCODER = partial(Encoder, token_dim=2, outputs=1, width=4, heads=1)


@pytest.mark.parametrize(
    "networks",
    [
        {"attention": "self-attention"},
        # Compiling the programs of these networks takes fifteen seconds.
        pytest.param(
            {"baseline": "baseline", "layers": "multi-layer", "encoder": ENCODER},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one", "all"],
)
def test_built_in_networks_own_networks_and_estimators_can_be_compared(networks: dict):
    tokens = random.normal(size=(60, 3, 2))
    y = tokens[:, :, 0].max(1)
    before = tokens.copy()
    models = {**networks, "linear": LinearRegression()}
    curves = learning_curve(tokens, y, models=models, sizes=(8, 16, 45), folds=4, training=QUICK)
    assert list(curves) == list(models)
    assert np.isfinite([curves.errors[name] for name in curves]).all()
    assert (tokens == before).all()
    figure = curves.figure()
    assert [series.name for series in figure.series[: 2 * len(models) : 2]] == list(models)
    assert curves.plot().axes
    later = curves.more_labels(48)["linear"]
    assert later[1].low <= later[1].value <= later[1].high


def test_folds_are_disjoint_and_every_prefix_is_stratified():
    labels = np.array(["rare"] * 6 + ["common"] * 54 + ["middle"] * 30)
    data = labelled(np.zeros((90, 1)) + np.arange(90)[:, None], labels)
    parts = split_folds(data, 5, seed=3)
    assert sorted(np.concatenate([fold.test for fold in parts])) == list(range(90))
    for fold in parts:
        assert not set(fold.train) & set(fold.test)
        assert len(fold.train) + len(fold.test) == 90
        assert set(data.labels[fold.train[:3]]) == {0, 1, 2}
        for n in (10, 20, 40):
            prefix = np.bincount(data.labels[fold.train[:n]], minlength=3) / n
            share = np.bincount(data.labels[fold.train]) / len(fold.train)
            # The first row of each class and rounding change a count by at most one row each.
            assert np.abs(prefix - share).max() <= 2 / n


def test_rows_with_equal_inputs_are_tested_in_one_fold():
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, 2))[random.integers(40, size=200)]
    data = labelled(rows, random.integers(2, size=200))
    parts = split_folds(data, 5, seed=1)
    assert sorted(np.concatenate([fold.test for fold in parts])) == [*range(200)]
    for fold in parts:
        train, test = ({row.tobytes() for row in rows[part]} for part in (fold.train, fold.test))
        assert not train & test
        assert len(fold.train) + len(fold.test) == 200
    # Rows that take few values are not treated as copies: with four different rows no fold could be
    # tested.
    few = labelled(random.integers(2, size=(60, 2)), random.integers(2, size=60))
    assert min(len(fold.test) for fold in split_folds(few, 5, seed=1)) == 12


@pytest.mark.parametrize("gap", [None, float("nan"), np.datetime64("NaT")], ids=str)
def test_labels_that_are_missing_raise_one_sentence(gap: object):
    y = np.array(["x", "y"] * 12, object)
    y[5] = gap
    with pytest.raises(BadInput, match=r"a label in every row; got .* in row 5"):
        labelled(np.ones((24, 2)), y)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (["a", "b"] * 12, "classification, 2 classes (inferred)"),
        ([0, 1, 2] * 8, "classification, 3 classes (inferred)"),
        ([True, False] * 12, "classification, 2 classes (inferred)"),
        ([1.0, 2.0] * 12, "classification, 2 classes (inferred)"),
        (list(range(24)), "regression (inferred)"),
        (list(np.linspace(0, 1, 24)), "regression (inferred)"),
    ],
)
def test_the_inferred_task_is_printed(y: list, task: str):
    assert str(labelled(np.ones((24, 2)), y)).startswith(task)


def test_no_wrong_row_counts_as_half_a_wrong_row():
    x = np.repeat([[-1.0], [1.0]], 30, axis=0)
    curves = learning_curve(x, x[:, 0] > 0, models={"m": LogisticRegression()}, folds=4)
    assert set(np.ravel(curves.errors["m"])) == {0.5 / 60}
    assert math.isfinite(curves.samples(0.1)["m"].value)


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.astype(float).copy()
    array[3] = np.nan
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": with_nan(X)}, "X must be finite, but row 3"),
        ({"y": with_nan(Y)}, "y must be finite"),
        ({"X": [[1.0, 2.0], [3.0]]}, "rows of equal length"),
        ({"X": X[:, :, None, None]}, "must have the shape"),
        ({"y": Y[:-1]}, "one label per row"),
        ({"X": X[:10], "y": Y[:10]}, "at least 20 rows"),
        ({"y": ["same"] * ROWS}, "at least two classes"),
        ({"y": ["rare"] + ["common"] * (ROWS - 1)}, "each class needs at least two rows"),
        ({"y": np.ones(ROWS), "task": "regression"}, "y must vary"),
        ({"y": CLASSES, "task": "regression"}, "needs y as numbers"),
        ({"task": "ranking"}, "task must be one of"),
        ({"sizes": (16, 8)}, "increasing whole numbers"),
        ({"sizes": (16,)}, "at least two increasing"),
        ({"sizes": (16, 1000)}, "at most 84, the training rows of each of 8 folds; got 1000"),
        ({"sizes": (1, 16)}, "sizes must be at least 2"),
        ({"folds": 2}, "folds must be a whole number of at least 3"),
        ({"folds": 90}, "two test rows each"),
        ({"models": "baseline"}, "models must be a list of names"),
        ({"models": ["transformer"]}, "each model must be one of baseline"),
        ({"models": ["known-attention"]}, "known-attention needs attention="),
        ({"models": {"mine": 3}}, "must be a name, a function"),
        ({"attention": np.ones(3)}, "attention must be finite numbers in X's shape"),
        ({"target_error": -0.1}, "target_error must be a finite number above 0"),
        ({"hidden": 0}, "hidden must be a whole number"),
        ({"training": {"seeds": (1,)}}, "training may not set 'seeds'"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    settings: dict[str, Any] = {"X": X, "y": Y, "models": ["baseline"], **changes}
    with pytest.raises(BadInput, match=message) as error:
        learning_curve(settings.pop("X"), settings.pop("y"), **settings)
    assert "\n" not in str(error.value)
