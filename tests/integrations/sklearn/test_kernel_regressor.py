"""The kernel regressor against other implementations of the same mathematics."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import sklearn.base
from sklearn import gaussian_process, kernel_ridge
from sklearn.gaussian_process.kernels import RBF

import attnlens
from attnlens import AttentionRegressor, KernelAttentionRegressor
from attnlens.core.checks import BadInput
from attnlens.integrations.sklearn.weighted_rows import DistinctInputs
from estimator_cases import COUNTS, KERNEL, NEW, X, Y, answers, bound

# scikit-learn's annotations are narrower than what it accepts.
clone: Any = sklearn.base.clone
GaussianProcessRegressor: Any = gaussian_process.GaussianProcessRegressor
KernelRidge: Any = kernel_ridge.KernelRidge


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_predictions_equal_the_gaussian_process_of_scikit_learn(weighted: bool):
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
    # The variance is a difference of numbers of size one, so the squares of the standard deviations
    # are compared.
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
def test_predictions_equal_the_kernel_ridge_of_scikit_learn(kernel: str, theirs: Any):
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
def test_predictions_equal_cme_attention():
    mine = clone(KERNEL).fit(X, Y)
    key, query = ((part - mine.input_mean_) / mine.input_scale_ for part in (X, NEW))
    value = ((Y - mine.target_mean_) / mine.target_scale_)[:, None]
    want = attnlens.attention.cme(
        *map(jax.numpy.asarray, (query, key, value)), ridge=0.1, temperature=2.0
    )
    got = (mine.predict(NEW) - mine.target_mean_) / mine.target_scale_
    np.testing.assert_allclose(got, np.asarray(want)[:, 0], rtol=0, atol=bound(0.1, 40))


def repeated_inputs(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with whole weights; each input occurs twice, with different labels."""
    random = np.random.default_rng(14)
    x = np.repeat(random.normal(size=(count, 2)), 2, 0)
    y = np.sin(x[:, 0]) + 0.3 * random.normal(size=2 * count)
    return x, y, random.integers(1, 4, size=2 * count)


def test_the_evidence_equals_that_of_scikit_learn_for_repeated_rows():
    """The evidence is the negative log likelihood of all labels up to a constant, so its
    differences between values of λ are compared."""
    x, y, counts = repeated_inputs(8)
    model = KernelAttentionRegressor(ridge=0.1, temperature=1.5, standardize=False)
    model.fit(x, y, counts)
    target = (np.repeat(y, counts) - model.target_mean_) / model.target_scale_
    values, expected = [], []
    for ridge in (0.05, 0.2, 1.0):
        refitted = clone(model).set_params(ridge=ridge).fit(x, y, counts)
        values.append(refitted._best_ridge(refitted._distinct_inputs(), 1.5, "evidence")[0])
        theirs = GaussianProcessRegressor(RBF(1.5**0.5), alpha=ridge, optimizer=None)
        theirs.fit(np.repeat(x, counts, 0), target)
        expected.append(-theirs.log_marginal_likelihood_value_)
    # Both are sums over about 32 labels, divided by λ, and of logarithms: a few hundred terms, each
    # rounded.
    np.testing.assert_allclose(np.diff(values), np.diff(expected), atol=1e3 * bound(0.05, 32))


def test_the_leave_one_out_error_equals_explicit_refits_without_each_input():
    x, y, counts = repeated_inputs(8)
    model = KernelAttentionRegressor(ridge=0.3, temperature=1.5, standardize=False)
    model.fit(x, y, counts)
    distinct: DistinctInputs = model._distinct_inputs()
    total = 0.0
    for i in range(8):
        rest = np.arange(8) != i
        theirs = GaussianProcessRegressor(
            RBF(1.5**0.5), alpha=0.3 / distinct.weights[rest], optimizer=None
        ).fit(distinct.inputs[rest], distinct.labels[rest, 0])
        error = distinct.labels[i, 0] - theirs.predict(distinct.inputs[[i]])[0]
        total += distinct.weights[i] * error**2
    value = model._best_ridge(distinct, 1.5, "loo")[0]
    np.testing.assert_allclose(value, total / counts.sum(), rtol=100 * bound(0.3 / 6, 8))


@pytest.mark.parametrize("rule", ["evidence", "loo"])
def test_chosen_settings_are_better_than_their_neighbours(rule: str):
    # One feature, a sine and noise, so that the best settings are inside the grids.
    x = X[:, :1]
    y = np.sin(3 * x[:, 0]) + 0.3 * np.random.default_rng(17).normal(size=40)
    model = KernelAttentionRegressor(ridge=rule, temperature=rule).fit(x, y)
    distinct = model._distinct_inputs()

    def value(ridge: float, tau: float) -> float:
        return clone(model).set_params(ridge=ridge)._best_ridge(distinct, tau, rule)[0]

    best = value(model.ridge_, model.temperature_)
    # After two refinements the grid of log λ has steps of 0.025, and τ is known to a factor of √2.
    for factor in (np.exp(-0.1), np.exp(0.1)):
        assert value(model.ridge_ * factor, model.temperature_) >= best
    for factor in (0.5**0.5, 2**0.5):
        tau = model.temperature_ * factor
        again = KernelAttentionRegressor(ridge=rule, temperature=float(tau)).fit(x, y)
        assert value(again.ridge_, tau) >= best


def test_partial_fit_equals_fit_on_all_rows():
    for estimator in (KERNEL, KernelAttentionRegressor()):
        parts = clone(estimator)
        for part in np.split(np.arange(40), [5, 6, 25]):
            parts.partial_fit(X[part], Y[part], COUNTS[part] + 1)
        whole = clone(estimator).fit(X, Y, COUNTS + 1)
        for one, other in zip(answers(parts, NEW), answers(whole, NEW), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(BadInput, match="1 columns as before; got 2"):
        parts.partial_fit(X, np.stack([Y, Y], 1))
    assert not hasattr(AttentionRegressor, "partial_fit")  # see the docstring of its module


def test_a_matrix_that_is_not_positive_definite_raises_one_sentence():
    close = np.repeat(np.linspace(0, 1e-9, 40)[:, None], 2, 1)
    model = KernelAttentionRegressor(ridge=1e-30, temperature=1.0, standardize=False)
    with pytest.raises(BadInput, match="raise it"):
        model.fit(close, Y)
