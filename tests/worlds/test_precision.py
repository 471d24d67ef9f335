"""Precision in extreme cases: tiny noise, vague priors, points far from the origin, 100,000 tokens,
singular matrices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    LinearRegression,
    NormalInverseGamma,
    NormalMean,
    Pairs,
    RandomFeatures,
)
from attnlens.worlds.laws import log_rising

EPS = float(np.finfo(float).eps)


def exact_regression(key, value, noise, prior):
    """(posterior mean, log evidence) in extended precision (80-bit): 64 bits of fraction."""
    key, value = key.astype(np.longdouble), value.astype(np.longdouble)
    noise, prior = np.longdouble(noise), np.longdouble(prior)
    dim = key.shape[1]
    system = key.T @ key / noise**2 + np.eye(dim, dtype=np.longdouble) / prior**2
    right = key.T @ value / noise**2
    root = np.zeros_like(system)
    for i in range(dim):
        for j in range(i + 1):
            rest = system[i, j] - root[i, :j] @ root[j, :j]
            root[i, j] = np.sqrt(rest) if i == j else rest / root[j, j]
    half = np.zeros(dim, np.longdouble)
    for i in range(dim):
        half[i] = (right[i] - root[i, :i] @ half[:i]) / root[i, i]
    mean = np.zeros(dim, np.longdouble)
    for i in reversed(range(dim)):
        mean[i] = (half[i] - root[i + 1 :, i] @ mean[i + 1 :]) / root[i, i]
    # The residual sum of squares is computed directly, which avoids cancellation here too.
    fit = np.sum((value - key @ mean) ** 2) / noise**2 + mean @ mean / prior**2
    determinant = 2 * np.log(np.diag(root)).sum() + 2 * dim * np.log(prior)
    count = len(value)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    return mean, -(fit + determinant + count * np.log(2 * pi * noise**2)) / 2


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
def test_regression_is_accurate_with_tiny_noise(scale):
    """There are five tokens and three weights. The error of the mean is cond(keys) · ε. The
    evidence contains the squared residuals in units of the noise, each with an error of ε/noise. If
    it were computed as a difference of ‖v‖²/noise² and the explained sum of squares, its error
    would be ε/noise², 2e-4 at 1e-6."""
    world = LinearRegression(3, noise_std=scale)
    tokens = world.sample(jax.random.key(0), 5).tokens
    key, value = np.asarray(tokens.key), np.asarray(tokens.value)[:, 0]
    mean, evidence = exact_regression(key, value, scale, 1.0)
    condition = np.linalg.cond(np.asarray(tokens.key))
    actual = np.asarray(world.posterior(tokens).mean)
    assert np.abs(actual - mean).max() < 100 * EPS * condition
    assert abs(float(world.log_evidence(tokens)) - evidence) < 100 * EPS / scale


@pytest.mark.parametrize("prior", [1e3, 1e6])
def test_regression_with_a_vague_prior_and_too_few_tokens(prior):
    """Two tokens determine two of three directions; the third keeps the variance of the prior. Rows
    of the data have size prior/noise and rows of the prior size one, so the relative error of the
    third direction, and of its variance prior², is ε · prior/noise."""
    world = LinearRegression(3, noise_std=1.0, prior_std=prior)
    tokens = world.sample(jax.random.key(1), 2).tokens
    unseen = np.cross(*np.asarray(tokens.key))
    unseen /= np.linalg.norm(unseen)
    law = world.predict(tokens, jnp.asarray(unseen)[None, :])
    assert abs(float(law.var[0, 0]) / prior**2 - 1) < 100 * EPS * prior
    assert np.isfinite(world.log_evidence(tokens))


def test_normal_mean_with_tiny_noise_and_with_a_vague_prior():
    """Up to rounding, the posterior mean is the mean of the tokens and its variance noise²/n."""
    tokens = jnp.asarray(np.random.default_rng(0).normal(3.0, 1e-8, (7, 1)))
    tiny = NormalMean(1, noise_std=1e-8).posterior(tokens)
    np.testing.assert_allclose(tiny.mean, np.asarray(tokens).mean(0), rtol=4 * EPS)
    np.testing.assert_allclose(tiny.var, 1e-16 / 7, rtol=1e-12)
    vague = NormalMean(1, prior_std=1e12).posterior(tokens)
    np.testing.assert_allclose(vague.mean, np.asarray(tokens).mean(0), rtol=4 * EPS)
    np.testing.assert_allclose(vague.var, 1 / 7, rtol=1e-12)


def test_tokens_far_from_the_origin():
    """Tokens are at 1e8 with noise 1: differences of squares (1e16) would have no correct digit.
    The inputs are rounded to 1e8 ε = 2e-8, which is the expected error."""
    noise = np.random.default_rng(1).normal(size=(50, 1))
    near = NormalInverseGamma(1).posterior(jnp.asarray(noise))
    far = NormalInverseGamma(1, prior_mean=1e8).posterior(jnp.asarray(noise + 1e8))
    np.testing.assert_allclose(far.noise_var, near.noise_var, rtol=1e-7)
    mixture = FiniteMixture(means=[[-1.0], [1.0]])
    moved = FiniteMixture(means=[[1e8 - 1], [1e8 + 1]])
    np.testing.assert_allclose(
        moved.representation(jnp.asarray(noise + 1e8)),
        mixture.representation(jnp.asarray(noise)),
        rtol=1e-6,
    )


def test_log_odds_do_not_underflow():
    """With 100,000 tokens all probabilities but one underflow to zero; log-odds are exact up to
    rounding."""
    world = FiniteMixture(means=[[-1.0], [1.0]])
    tokens = world.sample(jax.random.key(2), 100_000).tokens
    odds = float(world.representation(tokens)[0])
    expected = -2 * np.asarray(tokens).sum()
    assert abs(odds) > 1e5
    np.testing.assert_allclose(odds, expected, rtol=1e-12)
    assert np.isfinite(world.log_evidence(tokens))


@pytest.mark.parametrize("start", [1e-8, 0.3, 8.1, 9.9, 10.0, 15.0, 1e3, 1e12])
def test_log_rising_has_no_cancellation(start):
    """For whole n, `log_rising` is Σ_{i<n} log(a + i): it has a relative error of 1e-13 compared
    with the sum in extended precision, while a difference of two log Γ has an error of 4e-3 at
    1e12. Two halves (n = ½ at a and at a + ½) add up to log a."""
    for count in (0, 1, 3, 10_000):
        terms = np.log(np.longdouble(start) + np.arange(count, dtype=np.longdouble))
        actual = float(log_rising(jnp.asarray(start), float(count)))
        np.testing.assert_allclose(actual, float(terms.sum()), rtol=1e-13, atol=1e-13)
    halves = log_rising(jnp.asarray(start), 0.5) + log_rising(jnp.asarray(start + 0.5), 0.5)
    np.testing.assert_allclose(halves, np.log(start), rtol=1e-13, atol=1e-13)


def test_a_dirichlet_with_tiny_concentration_stays_finite():
    world = DirichletCategorical(3, concentration=1e-6)
    episode = world.sample(jax.random.key(3), 5)
    np.testing.assert_allclose(np.asarray(episode.latent).sum(), 1, rtol=1e-12)
    assert np.isfinite(world.log_evidence(episode.tokens))
    # If all five tokens have one given class, the probability is 1/3 up to the concentration.
    same = jnp.asarray(np.eye(3)[[0] * 5])
    np.testing.assert_allclose(world.log_evidence(same), np.log(1 / 3), atol=1e-5)


LONG = 100_000
FINITE = {
    "normal-mean": NormalMean(2),
    "normal-inverse-gamma": NormalInverseGamma(1),
    "dirichlet": DirichletCategorical(3),
    "mixture": FiniteMixture(means=[[-0.01], [0.01]]),
    "regression": LinearRegression(3),
    "features": LinearRegression(2, key_covariance=np.eye(2), features=RandomFeatures(2, 16)),
}


@pytest.mark.parametrize("world", FINITE.values(), ids=FINITE.keys())
def test_one_update_of_100000_tokens_equals_two_of_half(world):
    """One update with 100,000 tokens equals two updates with the halves; sums of n terms differ by
    about √n ε."""
    tokens = world.sample(jax.random.key(4), LONG).tokens
    half = LONG // 2

    @eqx.filter_jit
    def both_ways(world, tokens):
        first = jax.tree.map(lambda leaf: leaf[:half], tokens)
        rest = jax.tree.map(lambda leaf: leaf[half:], tokens)
        batch = world.posterior(tokens)
        steps = world.update(world.posterior(first), rest)
        return batch, steps, world.log_evidence(tokens)

    batch, steps, evidence = both_ways(world, tokens)
    for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(steps), strict=True):
        # A triangular root is unique up to the signs of its rows.
        a, b = np.abs(np.asarray(a)), np.abs(np.asarray(b))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.max(a))
    assert np.isfinite(evidence)


def test_the_gaussian_process_refuses_too_little_noise_and_too_many_tokens():
    world = GaussianProcess(noise_std=1e-7)
    tokens = Pairs(jnp.zeros((64, 3)), jnp.zeros((64, 1)))
    with pytest.raises(
        BadInput, match=r"noise_std must be at least 1.2e-07 for 64 tokens in float64"
    ):
        world.posterior(tokens)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tokens)
    with pytest.raises(BadInput, match=r"singular to rounding; got 0.002"):
        GaussianProcess(noise_std=0.002).posterior(single)
    long = Pairs(jnp.zeros((8193, 3)), jnp.zeros((8193, 1)))
    with pytest.raises(BadInput, match="up to 8192 tokens; got 8193; use LinearRegression"):
        jax.eval_shape(GaussianProcess().posterior, long)


def test_the_gaussian_process_works_at_the_smallest_allowed_noise():
    """Just above the smallest noise and with repeated keys, the worst case, the factor is finite
    and the prediction at a key is the mean of its two values."""
    noise = 1.01 * np.sqrt(16 * EPS)
    points = np.random.default_rng(5).normal(size=(8, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    key = jnp.asarray(np.concatenate([points, points]))
    value = jnp.asarray(np.random.default_rng(6).normal(size=(16, 1)))
    law = GaussianProcess(temperature=0.05, noise_std=noise).predict(Pairs(key, value), key[:8])
    pairs = np.asarray(value[:8] + value[8:]) / 2
    # The error is cond · ε = (2/16ε) ε: at the limit, about an eighth of the difference of the two
    # values.
    assert np.isfinite(law.mean).all()
    assert np.abs(law.mean - pairs).max() < 0.3
    wide = GaussianProcess(temperature=0.05, noise_std=1e-5).predict(Pairs(key, value), key[:8])
    np.testing.assert_allclose(wide.mean, pairs, atol=1e-4)


@pytest.mark.slow
def test_the_gaussian_process_with_8192_tokens():
    """The posterior variance is below the noise variance, and errors are within five standard
    deviations."""
    world = GaussianProcess(noise_std=0.3)
    episode = world.sample(jax.random.key(7), 8192, 4)
    law = eqx.filter_jit(world.predict)(episode.tokens, episode.query)
    assert (np.asarray(law.var) < 0.3**2).all()
    # An error beyond five posterior standard deviations has a two-sided probability of 6e-7 for
    # each of four queries.
    assert (np.abs(law.mean - episode.answer) < 5 * np.sqrt(law.var) + 1e-4).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: NormalMean(2, noise_covariance=[[1.0, 1.0], [1.0, 1.0]]),
            "must be positive definite",
        ),
        (lambda: NormalMean(2, noise_covariance=[[1.0, 0.5], [0.0, 1.0]]), "it is not symmetric"),
        (lambda: NormalMean(2, noise_std=[1.0, 2.0, 3.0]), "one number or 2 of them"),
        (lambda: NormalMean(1, noise_std=0.0), "noise_std must be above 0 everywhere; got 0"),
        (lambda: NormalMean(1, prior_mean=np.nan), "prior_mean must be finite"),
        (lambda: FiniteMixture(), "needs either means=… .normal tokens. or probabilities=…"),
        (lambda: FiniteMixture(probabilities=[[0.5, 0.5], [1.0, 0.0]]), "by a small number"),
        (
            lambda: FiniteMixture(means=[[0.0], [1.0]], weights=[0.2, 0.3, 0.5]),
            "2 numbers, one per class",
        ),
        (lambda: GaussianProcess(kernel="linear"), "kernel must be one of rbf, laplace"),
        (lambda: GaussianProcess(keys="plane"), "keys must be one of sphere, box"),
        (lambda: LinearRegression(3, features=RandomFeatures(2, 4)), "keys of dimension 3"),
        (
            lambda: LinearRegression(2, key_covariance=np.eye(2)).smoothing(1.0),
            "only for keys on the sphere",
        ),
    ],
)
def test_bad_settings_raise_one_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


@pytest.mark.parametrize(
    ("world", "scale"),
    [
        (LinearRegression, "noise_var"),
        (LinearRegression, "prior_var"),
        (GaussianProcess, "noise_var"),
        (NormalMean, "noise_var"),
        (NormalInverseGamma, "noise_std"),
        (LinearRegression, "sigma"),
    ],
)
def test_variances_and_standard_deviations_cannot_be_confused(world, scale):
    """A setting has the name of a variance or of a standard deviation, and the other name
    raises."""
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        world(**{scale: 0.5})
