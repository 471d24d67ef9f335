"""Episodes with known answers, losses compared with the exact predictor, and the two slopes."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import generalisation
from attnlens.core.checks import BadInput
from attnlens.instruments.inference.episodes import CHUNK, episodes
from attnlens.instruments.inference.learned import (
    FROM_MEANS,
    TEST,
    TRAIN,
    Generalisation,
    draw,
    gap_curve,
    learn,
    reader_for,
)
from attnlens.networks import Reader
from attnlens.worlds import FiniteMixture, GaussianProcess, LinearRegression, NormalMean

NORMAL = NormalMean(dim=2, noise_std=0.5)
EPS = np.finfo(float).eps


@pytest.mark.parametrize("label", ["next", "latent"])
def test_the_exact_prediction_has_the_closed_form(label: str):
    drawn = draw(NORMAL, (0, 1), 50, 4, TRAIN, label)
    # The posterior precision is 1 + 4/0.25 = 17, so the posterior mean is 16/17 of the mean of the
    # tokens.
    shrunk = drawn.inputs.value.mean(2) * 16 / 17
    np.testing.assert_allclose(drawn.exact, shrunk, atol=20 * EPS * 5)
    np.testing.assert_allclose(drawn.uncertainty, 1 / 17, rtol=20 * EPS)


@pytest.mark.parametrize(
    "world", [NORMAL, LinearRegression(key_dim=2), GaussianProcess(key_dim=2, noise_std=0.5)]
)
def test_the_uncertainty_is_the_mean_squared_error_of_the_exact_prediction(world: Any):
    drawn = episodes(world, jax.random.split(jax.random.key(3), 2000), 4)
    noise = 0.25 if world is not NORMAL and hasattr(world, "temperature") else None
    noise_var = 0.25 if world is NORMAL or noise else float(world.noise_std) ** 2
    squared = ((drawn.target - drawn.exact) ** 2).mean(-1) - noise_var
    difference = squared - drawn.uncertainty
    standard_error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert abs(difference.mean()) < 4.5 * standard_error  # false-positive rate 1 in 1.5e5


def test_episodes_do_not_depend_on_chunks():
    keys = jax.random.split(jax.random.key(0), CHUNK + 3)
    whole = episodes(NORMAL, keys, 3)
    tail = episodes(NORMAL, keys[-CHUNK:], 3)
    np.testing.assert_array_equal(whole.target[-CHUNK:], tail.target)
    np.testing.assert_array_equal(whole.exact[-CHUNK:], tail.exact)


class Scaled(eqx.Module):
    """The network factor · (mean token), whose losses have closed forms."""

    factor: Any
    outputs: int = eqx.field(static=True, default=2)

    def __call__(self, inputs):
        return self.factor * inputs.value.mean(0)


def constant(key: Any, factor: float) -> Scaled:
    return Scaled(jnp.asarray(factor) + 0 * jax.random.normal(key))


def zero_rate(step: Any) -> Any:
    return 0.0 * step


def test_losses_of_a_known_network():
    train, test = draw(NORMAL, (0, 1), 64, 4, TRAIN), draw(NORMAL, (0, 1), 3000, 4, TEST)
    make = partial(constant, factor=0.5)
    learned = learn(make, train, test, (0, 1), (16, 64), steps=1, warmup=0, schedule=zero_rate)
    # The expected distance is (0.5 − 16/17)² E x̄², with E x̄² = 1 + 0.25/4 in each coordinate. x̄²
    # has variance 2 (E x̄²)², and a test set holds 6,000 values of it.
    mean_square = 1 + 0.25 / 4
    expected = (0.5 - 16 / 17) ** 2 * mean_square
    assert np.all(np.abs(learned.distance - expected) < 4.5 * expected * np.sqrt(2 / 6000))
    # Without training both seeds have the same network, and its gap is exactly zero.
    np.testing.assert_array_equal(learned.gap, 0)
    rows = train.inputs.value.mean(2)[:, :16]
    direct = ((0.5 * rows - train.target[:, :16]) ** 2).mean((1, 2))
    np.testing.assert_allclose(learned.train[:, 0], direct, rtol=1e-5)  # the network is float32
    exact = ((train.exact - train.target) ** 2).mean((1, 2))
    np.testing.assert_allclose(learned.exact_train[:, 1], exact, rtol=1e-5)
    assert np.all(learned.risk > learned.distance)


def test_a_diverged_network_gives_nan_and_does_not_affect_others():
    seeds = (0, 1, 2)
    train, test = draw(NORMAL, seeds, 32, 4, TRAIN), draw(NORMAL, seeds, 32, 4, TEST)
    train.target[2, 0] = 1e30  # the square of 1e30 overflows float32
    learned = learn(reader_for(NORMAL), train, test, seeds, (32,), steps=20, batch=32, warmup=0)
    # The third network diverged, and the second is compared with it; so both gaps are NaN.
    assert np.isfinite(learned.gap[:1]).all()
    assert np.isnan(learned.gap[1:]).all()


@pytest.mark.parametrize(
    "world", [NORMAL, LinearRegression(key_dim=3), FiniteMixture(means=((0.0,), (1.0,)))]
)
def test_reader_for_fits_the_shapes_of_the_world(world: Any):
    model = eqx.filter_eval_shape(reader_for(world), jax.random.key(0))
    drawn = draw(world, (0,), 2, 3, TRAIN)
    row = jax.tree.map(lambda leaf: leaf[0, 0], drawn.inputs)
    assert isinstance(model, Reader)
    assert jax.eval_shape(lambda m, x: m(x), model, row).shape == drawn.target.shape[2:]


@pytest.mark.slow
def test_the_gap_falls_with_the_number_of_sequences():
    result = generalisation(
        NormalMean(), samples=(16, 256), lengths=(4, 16), seeds=10, training={"steps": 300}
    )
    slope = result.over_samples.slope
    assert slope is not None
    assert slope.status == "ok"
    # The gap is proportional to p/n for p parameters and n sequences, so the expected slope is −1;
    # −0.3 is far from both −1 and 0.
    assert slope.value + 3 * slope.standard_error < -0.3
    assert "twice the sequences multiply the gap by" in result.in_words().lower()
    assert len(result.readings) == 4
    assert [len(figure.axes) for figure in result.plot()] == [1, 1]


@pytest.mark.slow
def test_the_gap_has_the_mean_of_test_minus_train_with_less_noise():
    seeds = range(12)
    train, test = draw(NORMAL, seeds, 64, 4, TRAIN), draw(NORMAL, seeds, 256, 4, TEST)
    learned = learn(reader_for(NORMAL), train, test, seeds, (64,), steps=300)
    plain = learned.test - learned.train
    difference = plain - learned.gap  # test minus train of a network trained on neither
    assert abs(difference.mean()) < 4.5 * difference.std(ddof=1) / np.sqrt(len(seeds))
    assert learned.gap.std() < plain.std()


AT = (64, 256, 1024)


def power_law(power: float) -> np.ndarray:
    return 30.0 * np.array(AT, float) ** power


def test_the_slope_of_means_is_that_of_the_power_law_where_single_gaps_are_negative():
    # The deviations cancel over eight seeds: means lie on the law although two gaps per size are
    # negative.
    deviations = np.array([1.5, -1.5, 1.2, -1.2, 0.4, -0.4, 0.1, -0.1])
    gaps = power_law(-1.25) * (1 + np.stack([np.roll(deviations, i) for i in range(3)], 1))
    assert (gaps < 0).sum() == 6
    curve = gap_curve("sequences", AT, gaps)
    slope = curve.slope
    assert slope is not None
    assert slope.status == "ok"
    assert slope.value == pytest.approx(-1.25, abs=1e-14)  # rounding of three logarithms
    # All points have the same deviations in another order, and so equal weights. Therefore the
    # slope is the difference of the logs of the two end points over log 16. Without seed s, a mean
    # is 1 − d_s/7 times as large.
    logs = np.log(1 - np.roll(deviations, 2) / 7) - np.log(1 - deviations / 7)
    expected = np.sqrt(7 * np.var(logs)) / np.log(16)
    assert slope.standard_error == pytest.approx(expected, rel=1e-12)
    rising = gap_curve("tokens", AT, np.stack([power_law(0.5), 2 * power_law(0.5)]))
    sentence = Generalisation(curve, rising, length=8, sequences=64).in_words()
    assert "multiply the gap by 0.42 (0." in sentence  # 2^−1.25 = 0.4204
    assert FROM_MEANS in sentence.partition("; twice")[0]
    assert FROM_MEANS not in sentence.partition("; twice")[2]


def test_intervals_of_slopes_of_means_have_their_coverage():
    """300 experiments with 24 seeds; the standard deviation of a gap is 0.7 of its mean, so 8 % of
    the gaps are negative. The coverage has standard error √(0.95·0.05/300) = 0.0126; 0.89 is 4.8 of
    them below 0.95."""
    random = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        curve = gap_curve("sequences", AT, power_law(-1) * random.normal(1, 0.7, (24, 3)))
        assert curve.slope is not None
        assert curve.slope_of_means
        low, high = curve.slope.interval()
        covered.append(low <= -1 <= high)
    assert np.mean(covered) >= 0.89


@pytest.mark.parametrize("bad", [-200.0, np.nan])
def test_means_that_are_not_positive_have_no_slope(bad: float):
    gaps = np.tile(power_law(-1), (4, 1))
    gaps[1, 2] = bad
    slope = gap_curve("sequences", AT, gaps).slope
    assert slope is not None
    assert str(slope) == "no number: a mean gap is not positive: use more seeds"


class Weighted(eqx.Module):
    """A linear function of the tokens with one weight per token, for least squares."""

    weights: Any

    def __init__(self, key: Any, length: int):
        self.weights = 0.1 * jax.random.normal(key, (length,))

    def __call__(self, inputs):
        return self.weights @ inputs.value


@pytest.mark.slow
def test_the_gap_of_least_squares_has_the_closed_form():
    """Least squares with n samples, p normal features and noise variance s²: the training loss is
    s² (n − p)/n and the test loss s² (1 + p/(n − p − 1)), so the gap is s² (p/n + p/(n − p − 1)),
    2ps²/n to first order."""
    p, n, seeds = 4, 40, range(48)
    world = NormalMean(dim=1, noise_std=0.5)
    train, test = draw(world, seeds, n, p, TRAIN, exact=False), draw(world, seeds, 512, p, TEST)
    learned = learn(
        partial(Weighted, length=p),
        train,
        test,
        seeds,
        (n,),
        steps=400,
        batch=n,
        learning_rate=5e-2,
    )
    s2 = 0.25 + 1 / (1 + p / 0.25)  # next token: noise plus posterior variance of the mean
    expected = s2 * (p / n + p / (n - p - 1))
    gap = learned.gap[:, 0]
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    assert error < expected / 8
    assert abs(gap.mean() - expected) < 4.5 * error  # false-positive rate 1 in 1.5e5
    x, y = train.inputs.value[..., 0], train.target[..., 0]
    least = [np.linalg.lstsq(a, b, rcond=None)[1][0] / n for a, b in zip(x, y, strict=True)]
    # Training reached the minimum: the tolerance is that of float32 losses of order 0.3.
    np.testing.assert_allclose(learned.train[:, 0], least, atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": (64, 16)}, "increasing"),
        ({"samples": ()}, "increasing"),
        ({"seeds": 1}, "seeds"),
        ({"label": "colour"}, "label"),
        ({"lengths": ()}, "lengths"),
    ],
)
def test_bad_input_raises_one_sentence(wrong: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        generalisation(NORMAL, **wrong)
