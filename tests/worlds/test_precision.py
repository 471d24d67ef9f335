"""Hard numbers: tiny noise, vague priors, far origins, 100,000 tokens, truly singular problems."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.checks import BadInput
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
    """Posterior mean and log evidence in extended precision (80-bit): 64 bits of fraction."""
    key, value = key.astype(np.longdouble), value.astype(np.longdouble)
    noise, prior = np.longdouble(noise), np.longdouble(prior)
    dim = key.shape[1]
    system = key.T @ key / noise**2 + np.eye(dim, dtype=np.longdouble) / prior**2
    right = key.T @ value / noise**2
    root = np.zeros_like(system)
    for i in range(dim):
        for j in range(i + 1):
            left = system[i, j] - root[i, :j] @ root[j, :j]
            root[i, j] = np.sqrt(left) if i == j else left / root[j, j]
    half = np.zeros(dim, np.longdouble)
    for i in range(dim):
        half[i] = (right[i] - root[i, :i] @ half[:i]) / root[i, i]
    mean = np.zeros(dim, np.longdouble)
    for i in reversed(range(dim)):
        mean[i] = (half[i] - root[i + 1 :, i] @ mean[i + 1 :]) / root[i, i]
    # ‖v‖²/noise² less what the fit explains, without the cancellation even here.
    fit = np.sum((value - key @ mean) ** 2) / noise**2 + mean @ mean / prior**2
    determinant = 2 * np.log(np.diag(root)).sum() + 2 * dim * np.log(prior)
    count = len(value)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    return mean, -(fit + determinant + count * np.log(2 * pi * noise**2)) / 2


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
def test_regression_keeps_its_digits_when_noise_is_tiny(scale):
    """Five tokens, three weights. The mean is known to cond(keys) · ε. The evidence holds the
    squared residuals in units of the noise, each known to ε/noise; as a difference of ‖v‖²/noise²
    and what the fit explains it would be known to ε/noise² only, 2e-4 at 1e-6."""
    world = LinearRegression(3, noise_std=scale)
    tokens = world.sample(jax.random.key(0), 5).tokens
    key, value = np.asarray(tokens.key), np.asarray(tokens.value)[:, 0]
    mean, evidence = exact_regression(key, value, scale, 1.0)
    condition = np.linalg.cond(np.asarray(tokens.key))
    found = np.asarray(world.posterior(tokens).mean)
    assert np.abs(found - mean).max() < 100 * EPS * condition
    assert abs(float(world.log_evidence(tokens)) - evidence) < 100 * EPS / scale


@pytest.mark.parametrize("prior", [1e3, 1e6])
def test_regression_with_a_vague_prior_and_too_few_tokens(prior):
    """Two tokens leave one of three directions to the prior. Rows of size prior/noise stand on
    those of the prior; the unseen direction is known to ε · prior/noise relative to the prior's
    row of size one, so its variance, prior², to that share."""
    world = LinearRegression(3, noise_std=1.0, prior_std=prior)
    tokens = world.sample(jax.random.key(1), 2).tokens
    unseen = np.cross(*np.asarray(tokens.key))
    unseen /= np.linalg.norm(unseen)
    law = world.predict(tokens, jnp.asarray(unseen)[None, :])
    assert abs(float(law.var[0, 0]) / prior**2 - 1) < 100 * EPS * prior
    assert np.isfinite(world.log_evidence(tokens))


def test_normal_mean_with_tiny_noise_and_with_a_vague_prior():
    """The posterior mean tends to the tokens' mean, and its variance to noise²/n, to rounding."""
    tokens = jnp.asarray(np.random.default_rng(0).normal(3.0, 1e-8, (7, 1)))
    tiny = NormalMean(1, noise_std=1e-8).posterior(tokens)
    np.testing.assert_allclose(tiny.mean, np.asarray(tokens).mean(0), rtol=4 * EPS)
    np.testing.assert_allclose(tiny.var, 1e-16 / 7, rtol=1e-12)
    vague = NormalMean(1, prior_std=1e12).posterior(tokens)
    np.testing.assert_allclose(vague.mean, np.asarray(tokens).mean(0), rtol=4 * EPS)
    np.testing.assert_allclose(vague.var, 1 / 7, rtol=1e-12)


def test_far_from_the_origin():
    """Tokens at 1e8 with noise 1: differences of squares (1e16) would leave nothing. Inputs are
    rounded to 1e8 ε = 2e-8, which is what may be lost."""
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
    """At 100,000 tokens all probabilities but one are zero; log-odds are exact to rounding."""
    world = FiniteMixture(means=[[-1.0], [1.0]])
    tokens = world.sample(jax.random.key(2), 100_000).tokens
    odds = float(world.representation(tokens)[0])
    expected = -2 * np.asarray(tokens).sum()
    assert abs(odds) > 1e5
    np.testing.assert_allclose(odds, expected, rtol=1e-12)
    assert np.isfinite(world.log_evidence(tokens))


@pytest.mark.parametrize("start", [1e-8, 0.3, 8.1, 9.9, 10.0, 15.0, 1e3, 1e12])
def test_log_rising_has_no_cancellation(start):
    """For whole n it is Σ_{i<n} log(a + i), summed in extended precision: 1e-13 relative, where
    the plain difference of log Γ at 1e12 is off by 4e-3. Halves add up to wholes."""
    for count in (0, 1, 3, 10_000):
        terms = np.log(np.longdouble(start) + np.arange(count, dtype=np.longdouble))
        found = float(log_rising(jnp.asarray(start), float(count)))
        np.testing.assert_allclose(found, float(terms.sum()), rtol=1e-13, atol=1e-13)
    halves = log_rising(jnp.asarray(start), 0.5) + log_rising(jnp.asarray(start + 0.5), 0.5)
    np.testing.assert_allclose(halves, np.log(start), rtol=1e-13, atol=1e-13)


def test_a_spiky_dirichlet_stays_finite():
    world = DirichletCategorical(3, concentration=1e-6)
    episode = world.sample(jax.random.key(3), 5)
    np.testing.assert_allclose(np.asarray(episode.latent).sum(), 1, rtol=1e-12)
    assert np.isfinite(world.log_evidence(episode.tokens))
    # All five tokens of one class: the chance of that is 1/3 up to the concentration.
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
def test_a_hundred_thousand_tokens(world):
    """One pass over 100,000 tokens equals two halves; sums of n terms differ by about √n ε."""
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


def test_the_process_refuses_what_it_cannot_do():
    world = GaussianProcess(noise_std=1e-7)
    tokens = Pairs(jnp.zeros((64, 3)), jnp.zeros((64, 1)))
    with pytest.raises(
        BadInput, match=r"noise_std must be at least 1.2e-07 for 64 tokens in float64"
    ):
        world.posterior(tokens)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tokens)
    with pytest.raises(BadInput, match=r"singular to rounding, but 0.002 came"):
        GaussianProcess(noise_std=0.002).posterior(single)
    long = Pairs(jnp.zeros((8193, 3)), jnp.zeros((8193, 1)))
    with pytest.raises(BadInput, match="up to 8192 tokens, but 8193 came; use LinearRegression"):
        jax.eval_shape(GaussianProcess().posterior, long)


def test_the_process_works_down_to_the_noise_it_allows():
    """Just above the limit, with repeated keys (the worst case), the factor is finite and the
    prediction at a key is the mean of its two values."""
    noise = 1.01 * np.sqrt(16 * EPS)
    points = np.random.default_rng(5).normal(size=(8, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    key = jnp.asarray(np.concatenate([points, points]))
    value = jnp.asarray(np.random.default_rng(6).normal(size=(16, 1)))
    law = GaussianProcess(temperature=0.05, noise_std=noise).predict(Pairs(key, value), key[:8])
    pairs = np.asarray(value[:8] + value[8:]) / 2
    # Known to cond · ε = (2/16ε) ε: about an eighth of the values' own difference at the limit.
    assert np.isfinite(law.mean).all()
    assert np.abs(law.mean - pairs).max() < 0.3
    wide = GaussianProcess(temperature=0.05, noise_std=1e-5).predict(Pairs(key, value), key[:8])
    np.testing.assert_allclose(wide.mean, pairs, atol=1e-4)


@pytest.mark.slow
def test_the_process_at_its_longest():
    """8,192 tokens at once. The prediction at a token's key lies between prior and value, and the
    variance below that of the noise."""
    world = GaussianProcess(noise_std=0.3)
    episode = world.sample(jax.random.key(7), 8192, 4)
    law = eqx.filter_jit(world.predict)(episode.tokens, episode.query)
    assert (np.asarray(law.var) < 0.3**2).all()
    # Five posterior standard deviations: two-sided 6e-7 for each of four queries.
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
        (lambda: NormalMean(1, noise_std=0.0), "noise_std must be above 0 everywhere, but 0 came"),
        (lambda: NormalMean(1, prior_mean=np.nan), "prior_mean must be finite"),
        (lambda: FiniteMixture(), "needs either means=… .normal tokens. or probabilities=…"),
        (lambda: FiniteMixture(probabilities=[[0.5, 0.5], [1.0, 0.0]]), "a small floor"),
        (lambda: FiniteMixture(means=[[0.0], [1.0]], weights=[0.2, 0.3, 0.5]), "2 numbers, one a"),
        (lambda: GaussianProcess(kernel="linear"), "kernel must be one of rbf, laplace"),
        (lambda: GaussianProcess(keys="plane"), "keys must be one of sphere, box"),
        (lambda: LinearRegression(3, features=RandomFeatures(2, 4)), "keys of dimension 3"),
        (
            lambda: LinearRegression(2, key_covariance=np.eye(2)).smoothing(1.0),
            "for keys on the sphere",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(make, sentence):
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
def test_a_scale_of_the_wrong_kind_is_caught_by_its_name(world, scale):
    """A variance cannot be passed for a standard deviation: each name says which it is."""
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        world(**{scale: 0.5})
