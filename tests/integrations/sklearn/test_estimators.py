"""The scikit-learn estimators: scikit-learn's own checks, sample weights, networks, and use with
scikit-learn."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import sklearn.base
from sklearn import model_selection
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    parametrize_with_checks,
)

from attnlens import AttentionClassifier, AttentionRegressor, KernelAttentionRegressor
from attnlens.core.checks import BadInput
from attnlens.integrations.sklearn import feature_attention
from attnlens.integrations.sklearn.weighted_rows import bucket
from counting import compilations
from estimator_cases import ALL, COUNTS, EPS, KERNEL, NEW, QUICK, X, Y, answers, bound, labels

# scikit-learn's annotations are narrower than what it accepts.
clone: Any = sklearn.base.clone
GridSearchCV: Any = model_selection.GridSearchCV
cross_val_score: Any = model_selection.cross_val_score
# The classifier differs from the regressor only in loss and labels, but takes seconds to compile.
each_estimator = pytest.mark.parametrize(
    "estimator",
    [pytest.param(ALL[0], marks=pytest.mark.slow), *ALL[1:]],
    ids=["classifier", "regressor", "kernel"],
)


# -- scikit-learn's own checks -----------------------------------------------------------------


@parametrize_with_checks([KernelAttentionRegressor()])
def test_the_kernel_regressor_passes_every_check(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        AttentionClassifier(),
        AttentionRegressor(),
        KernelAttentionRegressor(kernel="matern52", ridge="loo", temperature="loo"),
    ]
)
def test_the_other_estimators_pass_every_check(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.slow
@each_estimator
def test_column_names_must_be_consistent(estimator: Any):
    pytest.importorskip("pandas")
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


# -- weights -----------------------------------------------------------------------------------


@each_estimator
def test_a_weight_is_exactly_a_repetition_and_order_does_not_matter(estimator: Any):
    """Rows are merged before anything is computed, so results are bitwise equal."""
    y = labels(estimator)
    weighted = clone(estimator).fit(X, y, sample_weight=COUNTS)
    order = np.random.default_rng(11).permutation(COUNTS.sum())
    inputs, targets = np.repeat(X, COUNTS, 0)[order], np.repeat(y, COUNTS)[order]
    repeated = clone(estimator).fit(inputs, targets)
    plain = clone(estimator).fit(X, y)
    for one, other, third in zip(
        *(answers(e, NEW) for e in (weighted, repeated, plain)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert not np.allclose(one, third)  # control: weights have an effect


def test_chosen_settings_are_the_same_for_weights_and_repetitions():
    for rule in ("evidence", "loo"):
        estimator = KernelAttentionRegressor(ridge=rule, temperature=rule)
        weighted = clone(estimator).fit(X, Y, sample_weight=COUNTS)
        repeated = clone(estimator).fit(np.repeat(X, COUNTS, 0), np.repeat(Y, COUNTS))
        assert weighted.ridge_ == repeated.ridge_
        assert weighted.temperature_ == repeated.temperature_


def test_means_and_scales_are_those_of_the_weighted_rows():
    """The reference `np.average` adds 40 terms in another order, and each term rounds once."""
    model = clone(KERNEL).fit(X, Y, sample_weight=COUNTS)
    mean = np.average(X, axis=0, weights=COUNTS)
    var = np.average((X - mean) ** 2, axis=0, weights=COUNTS)
    np.testing.assert_allclose(model.input_mean_, mean, rtol=0, atol=40 * EPS)
    np.testing.assert_allclose(model.input_scale_, np.sqrt(var), rtol=80 * EPS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(39), "one number per row"),
        (-np.ones(40), "at least 0"),
        (np.full(40, np.nan), "finite"),
        (np.zeros(40), "above 0 for at least one row"),
        (["heavy"] * 40, "must be real numbers"),
    ],
    ids=["short", "negative", "nan", "zero", "words"],
)
def test_invalid_weights_raise_one_sentence(weights: Any, message: str):
    with pytest.raises(BadInput, match=message):
        clone(KERNEL).fit(X, Y, sample_weight=weights)


# -- tokens and networks -------------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_may_have_three_axes():
    tokens = np.random.default_rng(18).normal(size=(40, 4, 2))
    model = AttentionRegressor(token_dim=2, **QUICK).fit(tokens, Y)
    flat = AttentionRegressor(token_dim=2, **QUICK).fit(tokens.reshape(40, 8), Y)
    np.testing.assert_array_equal(model.predict(tokens), flat.predict(tokens.reshape(40, 8)))
    assert model.n_features_in_ == 8
    # All tokens share one scale per coordinate.
    assert len(np.unique(model.input_scale_)) == 2
    weights = model.attention(tokens)
    assert weights.shape == (40, 1, 4, 4)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=8 * EPS)
    with pytest.raises(BadInput, match="give token_dim=2"):
        AttentionRegressor(**QUICK).fit(tokens, Y)
    with pytest.raises(BadInput, match="must divide"):
        AttentionRegressor(token_dim=3, **QUICK).fit(tokens.reshape(40, 8), Y)


@pytest.mark.slow
def test_padding_does_not_change_predictions(monkeypatch: pytest.MonkeyPatch):
    """Rows of weight zero add zeros to every sum. XLA may add in another order if the length
    differs, and 20 steps of Adam amplify the rounding. The difference stays far below 1e-9, while
    an error in a weight would be about 1e-2."""
    plain = clone(ALL[1]).fit(X, Y).predict(NEW)
    monkeypatch.setattr(feature_attention, "ROWS", (1, 64))
    assert bucket(40, *feature_attention.ROWS) == 40
    np.testing.assert_allclose(clone(ALL[1]).fit(X, Y).predict(NEW), plain, atol=1e-9)


@each_estimator
def test_other_sizes_need_no_new_compilation(estimator: Any):
    y = labels(estimator)
    clone(estimator).fit(X, y).predict(NEW)
    before = compilations()
    for count in (13, 27, 39):
        for features in (2, 3):
            part = X[:count, :features]
            clone(estimator).fit(part, y[:count]).predict(part[:7])
    assert compilations() == before


def test_the_network_attribute_gives_the_same_predictions():
    model = clone(ALL[1]).fit(X, Y)
    network = jax.tree.map(jax.numpy.asarray, model.network_)
    outputs = np.stack([np.asarray(network(jax.numpy.asarray(t))) for t in model.tokens(NEW)])
    got = outputs[:, 0] * model.target_scale_ + model.target_mean_
    # The network gets one row at a time instead of all at once: it adds a few dozen terms in
    # another order.
    np.testing.assert_allclose(got, model.predict(NEW), rtol=0, atol=1e3 * EPS)
    assert model._shape().parameters == model.vector_.size


@pytest.mark.slow
def test_more_starts_never_increase_the_training_loss():
    one, several = (AttentionRegressor(starts=starts, **QUICK).fit(X, Y) for starts in (1, 3))
    # The first start is the same in both; in a group of three networks it is rounded differently.
    assert several.loss_ <= one.loss_ * (1 + 1e-9)


@pytest.mark.slow
def test_training_in_batches_gives_another_finite_fit():
    model = AttentionRegressor(steps=20, batch_size=8).fit(X, Y, COUNTS)
    full = AttentionRegressor(steps=20).fit(X, Y, COUNTS)
    assert np.isfinite(model.predict(NEW)).all()
    assert not np.allclose(model.predict(NEW), full.predict(NEW))


@pytest.mark.slow
def test_attention_learns_a_product_that_no_linear_model_can():
    """Chance is 0.5, with a standard deviation of 0.025 on 400 test rows: 0.85 is 14 standard
    deviations above it."""
    random = np.random.default_rng(3)
    inputs = random.normal(size=(800, 4))
    classes = inputs[:, 0] * inputs[:, 1] > 0
    model = AttentionClassifier(starts=2).fit(inputs[:400], classes[:400])
    assert model.score(inputs[400:], classes[400:]) > 0.85


# -- use with scikit-learn -------------------------------------------------------------------------


@each_estimator
def test_pipelines_grid_search_and_cross_validation(estimator: Any):
    y = labels(estimator)
    chain = make_pipeline(StandardScaler(), clone(estimator))
    scores = cross_val_score(chain, X, y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    name = "ridge" if "ridge" in estimator.get_params() else "l2"
    grid = GridSearchCV(clone(estimator), {name: np.array([1e-3, 1])}, cv=2, error_score="raise")
    grid.fit(X, y, sample_weight=COUNTS + 1)
    assert grid.best_params_[name] in (1e-3, 1)
    assert clone(grid.best_estimator_).get_params() == grid.best_estimator_.get_params()


@each_estimator
def test_data_frames_and_set_output(estimator: Any):
    pd = pytest.importorskip("pandas")
    y = labels(estimator)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    chain = make_pipeline(StandardScaler(), clone(estimator)).set_output(transform="pandas")
    chain.fit(frame, pd.Series(y))
    assert chain[-1].feature_names_in_.tolist() == ["a", "b", "c"]
    plain = make_pipeline(StandardScaler(), clone(estimator)).fit(frame, y)
    assert not hasattr(plain[-1], "feature_names_in_")
    np.testing.assert_array_equal(chain.predict(frame), plain.predict(frame))
    frame.loc[7, "b"] = np.nan
    with pytest.raises(BadInput, match="row 7 has NaN in column 'b'") as caught:
        clone(estimator).fit(frame, y)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(".") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        ("no", "yes"),
        (False, True),
        (-3, 7),
        (1.0, 2.0),
        (np.uint8(0), np.uint8(255)),
        ("", "a", "ä b"),
    ],
    ids=["text", "booleans", "whole", "fractions", "bytes", "three"],
)
def test_class_labels_of_any_type(kinds: tuple[Any, ...], tmp_path: Any):
    y = np.array(kinds)[np.arange(40) % len(kinds)]
    for form in (y, y.astype(object)) if isinstance(kinds[0], str) else (y,):
        model = clone(ALL[0]).fit(X, form)
        assert model.classes_.dtype.kind == form.dtype.kind
        predicted = model.predict(NEW)
        assert set(predicted) <= set(kinds)
        np.testing.assert_allclose(model.predict_proba(NEW).sum(1), 1, rtol=4 * EPS)
        model.save(tmp_path / "classes")
        again = AttentionClassifier.load(tmp_path / "classes")
        np.testing.assert_array_equal(again.predict(NEW), predicted)
        assert again.classes_.dtype.kind == form.dtype.kind


@pytest.mark.slow
def test_regressors_predict_several_outputs():
    both = np.stack([Y, 3 - Y], 1)
    for estimator in ALL[1:]:
        model = clone(estimator).fit(X, both)
        assert model.predict(NEW).shape == (12, 2)
    mean, std = clone(KERNEL).fit(X, both).predict(NEW, return_std=True)
    single, deviation = clone(KERNEL).fit(X, Y).predict(NEW, return_std=True)
    np.testing.assert_allclose(mean[:, 0], single, rtol=0, atol=bound(0.1, 40))
    np.testing.assert_allclose(std[:, 0], deviation, rtol=0, atol=bound(0.1, 40))
    np.testing.assert_allclose(mean[:, 1], 3 - single, rtol=0, atol=10 * bound(0.1, 40))


@each_estimator
def test_results_are_float64_in_a_float32_process_whose_flag_does_not_change(estimator: Any):
    want = answers(clone(estimator).fit(X, labels(estimator)), NEW)
    with jax.enable_x64(False):
        got = answers(clone(estimator).fit(X, labels(estimator)), NEW)
        assert jax.numpy.ones(()).dtype == np.float32
    for one, other in zip(got, want, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (AttentionRegressor, {"width": 0}, "width must be a whole number"),
        (AttentionRegressor, {"steps": 2.5}, "steps must be a whole number"),
        (AttentionRegressor, {"token_dim": "all"}, "token_dim must be a whole number"),
        (AttentionRegressor, {"l2": -1}, "l2 must be a finite number of at least 0"),
        (AttentionRegressor, {"learning_rate": "fast"}, "learning_rate must be a finite number"),
        (KernelAttentionRegressor, {"kernel": "cubic"}, "kernel must be one of"),
        (KernelAttentionRegressor, {"ridge": 0.0}, "ridge must be a finite number above 0"),
        (KernelAttentionRegressor, {"ridge": "cv"}, "ridge, when it is not a number"),
        (KernelAttentionRegressor, {"ridge": None}, "ridge must be a finite number above 0"),
        (KernelAttentionRegressor, {"ridge": "loo"}, "the same rule"),
        (KernelAttentionRegressor, {"standardize": "yes"}, "standardize must be True or False"),
    ],
)
def test_invalid_settings_raise_one_sentence(kind: Any, setting: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        kind(**setting).fit(X, Y)


@pytest.mark.slow
def test_divergence_raises_one_sentence():
    with pytest.raises(BadInput, match="give a smaller learning_rate"):
        AttentionRegressor(learning_rate=1e200, steps=20).fit(X, Y)


@each_estimator
def test_a_saved_and_loaded_estimator_is_the_same(estimator: Any, tmp_path: Any):
    model = clone(estimator).fit(X, labels(estimator))
    model.save(tmp_path / "model")
    again = type(estimator).load(tmp_path / "model")
    for one, other in zip(answers(again, NEW), answers(model, NEW), strict=True):
        np.testing.assert_array_equal(one, other)
    assert set(vars(again)) == set(vars(model))  # every fitted attribute is restored


@each_estimator
def test_overflow_raises_one_sentence(estimator: Any):
    with pytest.raises(BadInput, match="scale them down"):
        clone(estimator).fit(X * 1e200, labels(estimator))
    fitted = clone(estimator).fit(X, labels(estimator))
    with pytest.raises(BadInput, match="check its units"):
        fitted.predict(np.sign(NEW) * 1e308)
