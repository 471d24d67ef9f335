"""The scikit-learn estimators: scikit-learn's own checks, exact answers, weights, ways of use."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import sklearn.base
from sklearn import gaussian_process, kernel_ridge, model_selection
from sklearn.gaussian_process.kernels import RBF
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    parametrize_with_checks,
)

import attnlens
from attnlens import AttentionClassifier, AttentionRegressor, KernelAttentionRegressor
from attnlens.bridges import feature_tokens, rows
from attnlens.bridges.kernel_estimator import Places
from attnlens.checks import BadInput
from counting import compilations

# scikit-learn's annotations are narrower than what it takes.
clone: Any = sklearn.base.clone
GaussianProcessRegressor: Any = gaussian_process.GaussianProcessRegressor
KernelRidge: Any = kernel_ridge.KernelRidge
GridSearchCV: Any = model_selection.GridSearchCV
cross_val_score: Any = model_selection.cross_val_score

EPS = np.finfo(float).eps
random = np.random.default_rng(0)
X = random.normal(size=(40, 3))
Y = X[:, 0] * X[:, 1] + 0.1 * random.normal(size=40)
COLOURS = np.where(Y > 0, "red", "blue")
NEW = random.normal(size=(12, 3))
COUNTS = random.integers(0, 4, size=40)
QUICK: dict[str, Any] = {"steps": 20}
KERNEL = KernelAttentionRegressor(ridge=0.1, temperature=2.0)
ALL = [AttentionClassifier(**QUICK), AttentionRegressor(**QUICK), KERNEL]
# The classifier differs from the regressor in its loss and its labels; its programs cost seconds.
each = pytest.mark.parametrize(
    "estimator",
    [pytest.param(ALL[0], marks=pytest.mark.slow), *ALL[1:]],
    ids=["classifier", "regressor", "kernel"],
)


def labels(estimator: Any) -> np.ndarray:
    return COLOURS if isinstance(estimator, AttentionClassifier) else Y


def answers(estimator: Any, inputs: Any) -> list[np.ndarray]:
    """Everything that an estimator predicts."""
    if isinstance(estimator, AttentionClassifier):
        return [estimator.decision_function(inputs), estimator.predict_proba(inputs)]
    if isinstance(estimator, KernelAttentionRegressor):
        return [*estimator.predict(inputs, return_std=True)]
    return [estimator.predict(inputs)]


# -- scikit-learn's own checks -----------------------------------------------------------------


@parametrize_with_checks([KernelAttentionRegressor()])
def test_the_kernel_estimator_passes_every_check(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        AttentionClassifier(),
        AttentionRegressor(),
        KernelAttentionRegressor(kernel="matern52", ridge="loo", temperature="loo"),
    ]
)
def test_the_others_pass_every_check(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.slow
@each
def test_column_names_are_held_to(estimator: Any):
    pytest.importorskip("pandas")
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


# -- weights -----------------------------------------------------------------------------------


@each
def test_a_weight_is_a_repetition_to_the_last_bit_and_order_does_not_matter(estimator: Any):
    """Rows are merged before anything is computed, so there is no rounding to allow for."""
    y = labels(estimator)
    weighted = clone(estimator).fit(X, y, sample_weight=COUNTS)
    order = np.random.default_rng(11).permutation(COUNTS.sum())
    many, much = np.repeat(X, COUNTS, 0)[order], np.repeat(y, COUNTS)[order]
    repeated = clone(estimator).fit(many, much)
    plain = clone(estimator).fit(X, y)
    for one, other, third in zip(
        *(answers(e, NEW) for e in (weighted, repeated, plain)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert not np.allclose(one, third)  # the weights do something


def test_chosen_settings_do_not_tell_weights_from_repetitions():
    for rule in ("evidence", "loo"):
        estimator = KernelAttentionRegressor(ridge=rule, temperature=rule)
        weighted = clone(estimator).fit(X, Y, sample_weight=COUNTS)
        repeated = clone(estimator).fit(np.repeat(X, COUNTS, 0), np.repeat(Y, COUNTS))
        assert weighted.ridge_ == repeated.ridge_
        assert weighted.temperature_ == repeated.temperature_


def test_means_and_scales_are_weighted():
    """`np.average` sums in another order: each of 40 terms rounds once."""
    model = clone(KERNEL).fit(X, Y, sample_weight=COUNTS)
    mean = np.average(X, axis=0, weights=COUNTS)
    var = np.average((X - mean) ** 2, axis=0, weights=COUNTS)
    np.testing.assert_allclose(model.input_mean_, mean, rtol=0, atol=40 * EPS)
    np.testing.assert_allclose(model.input_scale_, np.sqrt(var), rtol=80 * EPS)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones(39), "one number a row"),
        (-np.ones(40), "at least 0"),
        (np.full(40, np.nan), "finite"),
        (np.zeros(40), "above 0 for at least one row"),
        (["heavy"] * 40, "must be numbers"),
    ],
    ids=["short", "negative", "nan", "zero", "words"],
)
def test_weights_that_cannot_be_used_are_refused(weights: Any, said: str):
    with pytest.raises(BadInput, match=said):
        clone(KERNEL).fit(X, Y, sample_weight=weights)


# -- the kernel estimator against other implementations ------------------------------------------


def bound(ridge: float, count: int) -> float:
    """A Cholesky solve errs by at most about n ε cond(A) relative to the answer (Higham, Accuracy
    and Stability, 2002, section 10.1), and cond(A) ≤ (n + λ)/λ for κ(k, k) = 1."""
    return count * EPS * (count + ridge) / ridge


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_it_is_scikit_learns_gaussian_process(weighted: bool):
    ridge, tau = 0.1, 2.0
    weights = np.random.default_rng(12).uniform(0.2, 3, size=40) if weighted else np.ones(40)
    mine = KernelAttentionRegressor(ridge=ridge, temperature=tau).fit(X, Y, weights)
    mean, std = mine.predict(NEW, return_std=True)
    scaled = (X - mine.input_mean_) / mine.input_scale_
    target = (Y - mine.target_mean_) / mine.target_scale_
    theirs = GaussianProcessRegressor(RBF(tau**0.5), alpha=ridge / weights, optimizer=None)
    theirs.fit(scaled, target)
    want, deviation = theirs.predict((NEW - mine.input_mean_) / mine.input_scale_, return_std=True)
    within = bound(ridge / weights.max(), 40)
    np.testing.assert_allclose(
        (mean - mine.target_mean_) / mine.target_scale_, want, rtol=0, atol=within
    )
    # The variance is a difference of numbers of size one; its root is compared by its square.
    np.testing.assert_allclose((std / mine.target_scale_) ** 2, deviation**2, rtol=0, atol=within)


@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        ("rbf", lambda tau: {"kernel": "rbf", "gamma": 1 / (2 * tau)}),
        ("linear", lambda tau: {"kernel": "linear"}),
        ("polynomial", lambda tau: {"kernel": "poly", "degree": 2, "gamma": 1 / tau, "coef0": 1}),
    ],
    ids=["rbf", "linear", "polynomial"],
)
def test_it_is_scikit_learns_kernel_ridge(kernel: str, theirs: Any):
    ridge, tau = 0.5, 1.0 if kernel == "linear" else 2.0
    weights = np.random.default_rng(13).uniform(0.2, 3, size=40)
    mine = KernelAttentionRegressor(
        kernel=kernel, ridge=ridge, temperature=tau, standardize=False
    ).fit(X, Y, weights)
    target = (Y - mine.target_mean_) / mine.target_scale_
    other = KernelRidge(alpha=ridge, **theirs(tau)).fit(X, target, weights)
    largest = np.linalg.norm(X, axis=1).max() ** 2
    entry = {"rbf": 1.0, "linear": largest, "polynomial": (1 + largest / tau) ** 2}[kernel]
    within = bound(ridge / weights.max() / entry, 40) * 10  # predictions reach a few units
    got = (mine.predict(NEW) - mine.target_mean_) / mine.target_scale_
    np.testing.assert_allclose(got, other.predict(NEW), rtol=0, atol=within)


@pytest.mark.slow
def test_it_is_cme_attention():
    mine = clone(KERNEL).fit(X, Y)
    key, query = ((part - mine.input_mean_) / mine.input_scale_ for part in (X, NEW))
    value = ((Y - mine.target_mean_) / mine.target_scale_)[:, None]
    want = attnlens.attention.cme(
        *map(jax.numpy.asarray, (query, key, value)), ridge=0.1, temperature=2.0
    )
    got = (mine.predict(NEW) - mine.target_mean_) / mine.target_scale_
    np.testing.assert_allclose(got, np.asarray(want)[:, 0], rtol=0, atol=bound(0.1, 40))


def places_of(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with whole weights, some at the same place with other labels."""
    own = np.random.default_rng(14)
    x = np.repeat(own.normal(size=(count, 2)), 2, 0)
    y = np.sin(x[:, 0]) + 0.3 * own.normal(size=2 * count)
    return x, y, own.integers(1, 4, size=2 * count)


def test_the_evidence_is_scikit_learns_for_repeated_rows():
    """−log likelihood of all labels: differences between λ, since constants were left out."""
    x, y, counts = places_of(8)
    model = KernelAttentionRegressor(ridge=0.1, temperature=1.5, standardize=False)
    model.fit(x, y, counts)
    target = (np.repeat(y, counts) - model.target_mean_) / model.target_scale_
    values, wanted = [], []
    for ridge in (0.05, 0.2, 1.0):
        own = clone(model).set_params(ridge=ridge).fit(x, y, counts)
        values.append(own._best_ridge(own._places(), 1.5, "evidence")[0])
        theirs = GaussianProcessRegressor(RBF(1.5**0.5), alpha=ridge, optimizer=None)
        theirs.fit(np.repeat(x, counts, 0), target)
        wanted.append(-theirs.log_marginal_likelihood_value_)
    # Sums of about 32 labels over λ and of logarithms: some hundreds, each term rounded.
    np.testing.assert_allclose(np.diff(values), np.diff(wanted), atol=1e3 * bound(0.05, 32))


def test_the_leave_one_out_error_is_that_of_leaving_places_out():
    x, y, counts = places_of(8)
    model = KernelAttentionRegressor(ridge=0.3, temperature=1.5, standardize=False)
    model.fit(x, y, counts)
    places: Places = model._places()
    total = 0.0
    for i in range(8):
        rest = np.arange(8) != i
        theirs = GaussianProcessRegressor(
            RBF(1.5**0.5), alpha=0.3 / places.weights[rest], optimizer=None
        ).fit(places.inputs[rest], places.labels[rest, 0])
        error = places.labels[i, 0] - theirs.predict(places.inputs[[i]])[0]
        total += places.weights[i] * error**2
    found = model._best_ridge(places, 1.5, "loo")[0]
    np.testing.assert_allclose(found, total / counts.sum(), rtol=100 * bound(0.3 / 6, 8))


@pytest.mark.parametrize("rule", ["evidence", "loo"])
def test_what_is_chosen_is_better_than_its_neighbours(rule: str):
    # One feature, waves and noise, so that the best is within the grids.
    x = X[:, :1]
    y = np.sin(3 * x[:, 0]) + 0.3 * np.random.default_rng(17).normal(size=40)
    model = KernelAttentionRegressor(ridge=rule, temperature=rule).fit(x, y)
    places = model._places()

    def value(ridge: float, tau: float) -> float:
        return clone(model).set_params(ridge=ridge)._best_ridge(places, tau, rule)[0]

    best = value(model.ridge_, model.temperature_)
    # λ on a grid of steps of 0.025 in log λ after two refinements, τ to a factor of √2.
    for factor in (np.exp(-0.1), np.exp(0.1)):
        assert value(model.ridge_ * factor, model.temperature_) >= best
    for factor in (0.5**0.5, 2**0.5):
        tau = model.temperature_ * factor
        again = KernelAttentionRegressor(ridge=rule, temperature=float(tau)).fit(x, y)
        assert value(again.ridge_, tau) >= best


def test_partial_fit_is_fit_on_everything():
    for estimator in (KERNEL, KernelAttentionRegressor()):
        parts = clone(estimator)
        for block in np.split(np.arange(40), [5, 6, 25]):
            parts.partial_fit(X[block], Y[block], COUNTS[block] + 1)
        whole = clone(estimator).fit(X, Y, COUNTS + 1)
        for one, other in zip(answers(parts, NEW), answers(whole, NEW), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(BadInput, match="1 columns as before"):
        parts.partial_fit(X, np.stack([Y, Y], 1))
    assert not hasattr(AttentionRegressor, "partial_fit")  # and its module says why


# -- tokens and networks -------------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_may_come_in_three_dimensions():
    tokens = np.random.default_rng(18).normal(size=(40, 4, 2))
    model = AttentionRegressor(token_dim=2, **QUICK).fit(tokens, Y)
    flat = AttentionRegressor(token_dim=2, **QUICK).fit(tokens.reshape(40, 8), Y)
    np.testing.assert_array_equal(model.predict(tokens), flat.predict(tokens.reshape(40, 8)))
    assert model.n_features_in_ == 8
    # Alike tokens are scaled alike.
    assert len(np.unique(model.input_scale_)) == 2
    weights = model.attention(tokens)
    assert weights.shape == (40, 1, 4, 4)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=8 * EPS)
    with pytest.raises(BadInput, match="give token_dim=2"):
        AttentionRegressor(**QUICK).fit(tokens, Y)
    with pytest.raises(BadInput, match="must divide"):
        AttentionRegressor(token_dim=3, **QUICK).fit(tokens.reshape(40, 8), Y)


@pytest.mark.slow
def test_filling_up_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    """Rows of weight zero add zeros to every sum; XLA may order a sum of another length otherwise,
    and 20 steps of Adam carry the rounding on: far below 1e-9, far above a wrong weight's 1e-2."""
    plain = clone(ALL[1]).fit(X, Y).predict(NEW)
    monkeypatch.setattr(feature_tokens, "ROWS", (1, 64))
    assert rows.bucket(40, *feature_tokens.ROWS) == 40
    np.testing.assert_allclose(clone(ALL[1]).fit(X, Y).predict(NEW), plain, atol=1e-9)


@each
def test_new_sizes_need_no_new_programs(estimator: Any):
    y = labels(estimator)
    clone(estimator).fit(X, y).predict(NEW)
    before = compilations()
    for count in (13, 27, 39):
        for features in (2, 3):
            part = X[:count, :features]
            clone(estimator).fit(part, y[:count]).predict(part[:7])
    assert compilations() == before


def test_the_network_is_there_for_instruments():
    model = clone(ALL[1]).fit(X, Y)
    network = jax.tree.map(jax.numpy.asarray, model.network_)
    outputs = np.stack([np.asarray(network(jax.numpy.asarray(t))) for t in model.tokens(NEW)])
    got = outputs[:, 0] * model.target_scale_ + model.target_mean_
    # One row at a time instead of all: sums of a few dozen terms in another order.
    np.testing.assert_allclose(got, model.predict(NEW), rtol=0, atol=1e3 * EPS)
    assert model._shape().parameters == model.vector_.size


@pytest.mark.slow
def test_more_starts_are_at_least_as_good_by_training_loss():
    one, several = (AttentionRegressor(starts=starts, **QUICK).fit(X, Y) for starts in (1, 3))
    # The first start is the same; in a block of three it rounds otherwise.
    assert several.loss_ <= one.loss_ * (1 + 1e-9)


@pytest.mark.slow
def test_batches_train_too():
    model = AttentionRegressor(steps=20, batch_size=8).fit(X, Y, COUNTS)
    full = AttentionRegressor(steps=20).fit(X, Y, COUNTS)
    assert np.isfinite(model.predict(NEW)).all()
    assert not np.allclose(model.predict(NEW), full.predict(NEW))


@pytest.mark.slow
def test_attention_learns_a_product_that_no_linear_model_can():
    """Chance is 0.5 and 400 test rows leave a standard deviation of 0.025 about it: 0.85 is 14 of
    them away."""
    own = np.random.default_rng(3)
    inputs = own.normal(size=(800, 4))
    classes = inputs[:, 0] * inputs[:, 1] > 0
    model = AttentionClassifier(starts=2).fit(inputs[:400], classes[:400])
    assert model.score(inputs[400:], classes[400:]) > 0.85


# -- ways of use -----------------------------------------------------------------------------------


@each
def test_pipelines_grids_and_folds(estimator: Any):
    y = labels(estimator)
    chain = make_pipeline(StandardScaler(), clone(estimator))
    scores = cross_val_score(chain, X, y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    name = "ridge" if "ridge" in estimator.get_params() else "l2"
    grid = GridSearchCV(clone(estimator), {name: np.array([1e-3, 1])}, cv=2, error_score="raise")
    grid.fit(X, y, sample_weight=COUNTS + 1)
    assert grid.best_params_[name] in (1e-3, 1)
    assert clone(grid.best_estimator_).get_params() == grid.best_estimator_.get_params()


@each
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
        ("no", "yes"), (False, True), (-3, 7), (1.0, 2.0), (np.uint8(0), np.uint8(255)),
        ("", "a", "ä b"),
    ],
    ids=["text", "booleans", "whole", "fractions", "bytes", "three"],
)  # fmt: skip
def test_classes_of_any_kind(kinds: tuple[Any, ...], tmp_path: Any):
    y = np.array(kinds)[np.arange(40) % len(kinds)]
    for given in (y, y.astype(object)) if isinstance(kinds[0], str) else (y,):
        model = clone(ALL[0]).fit(X, given)
        assert model.classes_.dtype.kind == given.dtype.kind
        predicted = model.predict(NEW)
        assert set(predicted) <= set(kinds)
        np.testing.assert_allclose(model.predict_proba(NEW).sum(1), 1, rtol=4 * EPS)
        model.save(tmp_path / "classes")
        again = AttentionClassifier.load(tmp_path / "classes")
        np.testing.assert_array_equal(again.predict(NEW), predicted)
        assert again.classes_.dtype.kind == given.dtype.kind


@pytest.mark.slow
def test_several_outputs():
    both = np.stack([Y, 3 - Y], 1)
    for estimator in ALL[1:]:
        model = clone(estimator).fit(X, both)
        assert model.predict(NEW).shape == (12, 2)
    mean, std = clone(KERNEL).fit(X, both).predict(NEW, return_std=True)
    single, deviation = clone(KERNEL).fit(X, Y).predict(NEW, return_std=True)
    np.testing.assert_allclose(mean[:, 0], single, rtol=0, atol=bound(0.1, 40))
    np.testing.assert_allclose(std[:, 0], deviation, rtol=0, atol=bound(0.1, 40))
    np.testing.assert_allclose(mean[:, 1], 3 - single, rtol=0, atol=10 * bound(0.1, 40))


@each
def test_a_process_in_single_precision_gets_double_and_keeps_its_flag(estimator: Any):
    want = answers(clone(estimator).fit(X, labels(estimator)), NEW)
    with jax.enable_x64(False):
        got = answers(clone(estimator).fit(X, labels(estimator)), NEW)
        assert jax.numpy.ones(()).dtype == np.float32
    for one, other in zip(got, want, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "setting", "said"),
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
def test_settings_that_cannot_be_used_are_refused(kind: Any, setting: dict[str, Any], said: str):
    with pytest.raises(BadInput, match=said):
        kind(**setting).fit(X, Y)


@pytest.mark.slow
def test_a_network_that_diverges_says_so():
    with pytest.raises(BadInput, match="give a smaller learning_rate"):
        AttentionRegressor(learning_rate=1e200, steps=20).fit(X, Y)


@each
def test_a_fitted_estimator_is_the_same_after_its_file(estimator: Any, tmp_path: Any):
    model = clone(estimator).fit(X, labels(estimator))
    model.save(tmp_path / "model")
    again = type(estimator).load(tmp_path / "model")
    for one, other in zip(answers(again, NEW), answers(model, NEW), strict=True):
        np.testing.assert_array_equal(one, other)
    assert set(vars(again)) == set(vars(model))  # every fitted attribute came back


@each
def test_numbers_that_overflow_are_refused(estimator: Any):
    with pytest.raises(BadInput, match="scale them down"):
        clone(estimator).fit(X * 1e200, labels(estimator))
    fitted = clone(estimator).fit(X, labels(estimator))
    with pytest.raises(BadInput, match="check its units"):
        fitted.predict(np.sign(NEW) * 1e308)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    close = np.repeat(np.linspace(0, 1e-9, 40)[:, None], 2, 1)
    model = KernelAttentionRegressor(ridge=1e-30, temperature=1.0, standardize=False)
    with pytest.raises(BadInput, match="raise it"):
        model.fit(close, Y)
