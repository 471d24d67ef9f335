"""Measures of layers and heads with known values, without any library of models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnlens
from attnlens.core import BadInput
from attnlens.instruments.layers import (
    attention_rows,
    conditional_mean,
    head_landscape,
    token_subsets,
)
from attnlens.instruments.layers.layer_measures import probe_errors, probe_reading

RANDOM = np.random.default_rng(0)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_rows_of_a_uniform_and_of_an_identity_head():
    weights = np.stack([np.full((6, 6), 1 / 6), np.eye(6)])
    measures = attention_rows.row_measures(weights, causal=False)
    assert measures["effective tokens"].tolist() == pytest.approx([6, 1], abs=1e-12)
    assert measures["own token"].tolist() == pytest.approx([1 / 6, 1])
    assert measures["distance"].tolist() == pytest.approx([35 / 18, 0])  # (n² − 1)/(3 n), n = 6
    assert attention_rows.distance_profile(weights).sum(1).tolist() == pytest.approx([1, 1])


def test_what_stays_and_what_follows_a_shuffle():
    order = np.array([2, 0, 3, 1])
    by_position = np.roll(np.eye(4), 1, 1)[None]
    content = softmax(RANDOM.normal(size=(1, 4, 4)))
    assert attention_rows.shuffle_measures(by_position, by_position, order)["stays"][0] == 1
    moved = content[:, order][:, :, order]
    assert attention_rows.shuffle_measures(content, moved, order)["follows"][0] == pytest.approx(1)


def test_the_ridge_estimate_is_that_of_scikit_learn():
    from sklearn.kernel_ridge import KernelRidge

    keys, queries = RANDOM.normal(size=(2, 1, 12, 3))
    values, scale = RANDOM.normal(size=(1, 12, 2)), 0.7
    weights = softmax(scale * queries @ keys.swapaxes(1, 2))
    result = conditional_mean.distance_to_cme(weights, queries, keys, values, scale, causal=False)
    assert result is not None
    gram = conditional_mean.gaussian(keys[0], keys[0], scale)
    ridge = conditional_mean.leave_one_out_ridge(gram, values[0])
    centred = values[0] - values[0].mean(0)
    model: Any = KernelRidge(kernel="rbf", gamma=scale / 2).set_params(alpha=ridge)
    fitted = model.fit(keys[0], centred)
    places = token_subsets.measured_queries(12, False, conditional_mean.LEAST)
    difference = (weights[0] @ centred)[places] - fitted.predict(queries[0])[places]
    expected = (difference**2).sum(-1).mean() / (centred**2).sum(-1).mean()
    assert result[0] == pytest.approx(expected, rel=1e-9)


def test_the_ridge_is_that_of_the_smallest_leave_one_out_error():
    keys, values = RANDOM.normal(size=(10, 2)), RANDOM.normal(size=(10, 1))
    gram, centred = conditional_mean.gaussian(keys, keys, 1.0), values - values.mean(0)

    def error(ridge: float) -> float:
        total = 0.0
        for i in range(10):
            rest = np.arange(10) != i
            solved = np.linalg.solve(gram[np.ix_(rest, rest)] + ridge * np.eye(9), centred[rest])
            total += float(((centred[i] - gram[i, rest] @ solved) ** 2).sum())
        return total

    best = min(conditional_mean.RIDGES, key=error)
    assert conditional_mean.leave_one_out_ridge(gram, values) == best


def test_heads_that_smooth_and_heads_that_interpolate():
    values = RANDOM.normal(size=(2, 16, 3))
    weights = np.stack([np.full((16, 16), 1 / 16), np.eye(16)])
    passed = conditional_mean.passed_share(weights, values, causal=False)
    assert passed is not None
    assert passed[0] == pytest.approx(0, abs=1e-12)
    # For the identity, the share is the mean over eight of the values in units of the variance of
    # all sixteen.
    assert 0.4 < passed[1] < 2.5


def test_subsets_of_a_uniform_head_have_the_error_of_a_sample_mean():
    """The mean of m of n values without replacement has the variance σ²/m · (n − m)/(n − 1).
    `subset_errors` divides by the last factor and reports errors in units of σ."""
    values = RANDOM.normal(size=(1, 32, 4))
    errors = token_subsets.subset_errors(
        np.full((1, 32, 32), 1 / 32), values, RANDOM, causal=False, draws=2000
    )
    assert errors is not None
    # Each error is from 8 queries × 2,000 draws of 4 dimensions: a relative error of about 1/√(2 ·
    # 16,000).
    assert errors[0] == pytest.approx(1 / np.sqrt(token_subsets.SIZES), rel=0.04)
    assert token_subsets.subset_errors(np.eye(8)[None], values[:, :8], RANDOM, causal=False) is None


def test_a_probe_of_noise_errs_by_chance():
    features, labels = RANDOM.normal(size=(200, 5)), np.arange(200) % 2
    reading = probe_reading(probe_errors(features, labels))
    low, high = reading.interval()
    assert low < 0.5 < high
    assert probe_errors(np.eye(2)[labels], labels).max() == 0


def test_the_hessian_of_a_head_is_that_of_jax_at_the_optimum_of_scikit_learn():
    import jax
    import jax.numpy as jnp
    from sklearn.linear_model import LogisticRegression

    x, ridge = RANDOM.normal(size=(60, 3)), head_landscape.RIDGE
    y = (x @ RANDOM.normal(size=(3, 3))).argmax(1)
    fitted = LogisticRegression(C=1 / (ridge * 60), fit_intercept=False, tol=1e-10, max_iter=5000)
    optimum = fitted.fit(x, y).coef_.ravel()

    def loss(w: Any) -> Any:
        logits = jax.nn.log_softmax(x @ w.reshape(3, 3).T)
        return -jnp.mean(jnp.take_along_axis(logits, y[:, None], 1))

    expected = np.asarray(jax.hessian(loss)(jnp.asarray(optimum)))
    # scikit-learn stops at a gradient of 1e−10; the error of the optimum is this over the smallest
    # curvature, 0.01.
    np.testing.assert_allclose(head_landscape.class_hessian(x, y), expected, atol=1e-6)


def test_a_head_on_independent_features_has_a_small_condition_number():
    """If the labels are numbers, the Hessian of the head is the correlation matrix of the features.
    It is the identity for these features; for one strong direction it would be singular but for the
    ridge."""
    labels = RANDOM.normal(size=400)
    easy = RANDOM.normal(size=(400, 4))
    result = head_landscape.probe_hessians(easy, labels)
    assert result is not None
    # Sample covariances of 100 rows have eigenvalues within (1 ± √(5/100))² of one.
    assert result[:, 0].max() < (1 + 0.05**0.5) ** 2 + 0.2
    assert result[:, 1].max() < 0.7
    few = head_landscape.probe_hessians(easy, np.arange(400) // 399)
    assert few is None  # the second class has one input only


def position_head(x: np.ndarray) -> dict[str, list[np.ndarray]]:
    """A model with one head that attends to the first token only, whatever its value is."""
    weights = np.zeros((len(x), 1, x.shape[1], x.shape[1]))
    weights[..., 0] = 1
    return {"hidden": [x, x + x[:, :1]], "weights": [weights], "values": [x[:, None]]}


def test_a_label_that_no_layer_knows_is_not_predicted():
    labels, random = np.arange(80) % 2, np.random.default_rng(2)
    noise = attnlens.inspect(position_head, random.normal(size=(80, 5, 3)), labels)
    assert noise.sentences[4].startswith("No layer is shown to predict the label")
    inputs = random.normal(size=(80, 5, 3)) + labels[:, None, None]
    known = attnlens.inspect(position_head, inputs, labels)
    assert known.sentences[4].startswith("For the label take layer")
    assert "largest curvature of the head" in known


def test_a_function_is_inspected():
    inputs = RANDOM.normal(size=(10, 26, 3))
    result = attnlens.inspect(position_head, inputs)
    assert result["attention on the first token"].by_head[0][0].value == 1
    assert result["attention that stays"].by_head[0][0].value == 1
    assert result["order"].by_layer[0].value < 1e-12
    assert result["order"].by_layer[1].interval()[0] > 0.1
    assert {"pairs", "induction", "probes"} <= set(dict(result.missing))
    (profile,) = result.profiles
    # Queries 0 … 25 attend to token 0, so query i has distance i; bins of distances start at 0, 1,
    # 2, 4, 8 and 16.
    shares = [round(26 * reading.value) for reading in profile.readings]
    assert shares == [1, 1, 2, 4, 8, 10]
    with pytest.raises(BadInput, match="layers must be from 1 to 1"):
        attnlens.inspect(position_head, inputs, layers=[2])
    with pytest.raises(BadInput, match="must return a mapping with `hidden`"):
        attnlens.inspect(lambda x: x, inputs)
