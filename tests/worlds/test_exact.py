"""Closed forms compared with independent code: SciPy, scikit-learn, numerical integration.

Both sides are float64 algorithms on systems with condition numbers below 1e5, so their relative
difference is about 1e5 · 2.2e-16 = 2e-11; the tolerance EXACT is five times that. The tolerance of
the quadrature is smaller.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from attnlens.core import kernels
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
from attnlens.worlds.gaussian_process import gram

EXACT = 1e-10
LENGTH = 12


def normal(mean: Any, cov: Any) -> Any:
    return scipy.stats.multivariate_normal(mean, cov)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=EXACT, atol=EXACT)


# -- Gaussian process ------------------------------------------------------------------------------

SKLEARN = {
    "rbf": lambda scale: RBF(scale),
    "laplace": lambda scale: Matern(scale, nu=0.5),
    "matern32": lambda scale: Matern(scale, nu=1.5),
    "matern52": lambda scale: Matern(scale, nu=2.5),
}


@pytest.mark.parametrize("keys", ["sphere", "box"])
@pytest.mark.parametrize("kernel", SKLEARN)
def test_gaussian_process_against_scikit_learn(kernel, keys):
    world = GaussianProcess(key_dim=2, temperature=0.3, noise_std=0.2, kernel=kernel, keys=keys)
    episode = world.sample(jax.random.key(0), LENGTH, 5)
    keys_, values = (np.asarray(part) for part in episode.tokens)
    # In scikit-learn the length scale is √τ, and alpha is the noise variance.
    settings: dict[str, Any] = {"alpha": 0.2**2, "optimizer": None}
    model = GaussianProcessRegressor(SKLEARN[kernel](0.3**0.5), **settings)
    model.fit(keys_, values[:, 0])
    mean, std = model.predict(np.asarray(episode.query), return_std=True)[:2]
    law = world.predict(episode.tokens, episode.query)
    # A distance √(‖q‖² + ‖k‖² − 2 q·k) has an error of √ε ≈ 1e-8 if points coincide. No points
    # coincide here, but pairs that are close lose digits: 1e-9 for kernels that are not smooth.
    tolerance = EXACT if kernel == "rbf" else 1e-9
    np.testing.assert_allclose(law.mean[:, 0], mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(law.var[:, 0], np.square(std), rtol=tolerance, atol=tolerance)
    evidence = model.log_marginal_likelihood_value_
    np.testing.assert_allclose(world.log_evidence(episode.tokens), evidence, rtol=tolerance)


def test_bayes_rule_of_the_gaussian_process_at_its_keys():
    """prior(z) likelihood(z) = posterior(z) evidence, where z is the values of the function at the
    keys of the tokens."""
    world = GaussianProcess(temperature=0.1)
    episode = world.sample(jax.random.key(1), 6)
    mean, cov = world.posterior(episode.tokens).joint(episode.tokens.key)
    prior = np.asarray(gram("rbf", episode.tokens.key, world.temperature))
    latent = np.asarray(episode.latent)[:, 0]
    left = normal(np.zeros(6), prior).logpdf(latent)
    left += float(world.log_likelihood(episode.latent, episode.tokens))
    right = normal(np.asarray(mean), np.asarray(cov)).logpdf(latent)
    right += float(world.log_evidence(episode.tokens))
    np.testing.assert_allclose(left, right, rtol=1e-8)  # SciPy inverts a nearly singular prior


def test_a_sampled_function_has_the_kernel_as_covariance():
    """The second moment of the values at two fixed keys, over 20,000 functions, is exact within
    five standard errors; one is √(1 + κ²) / √n for a product of unit normals."""
    world = GaussianProcess(key_dim=2, keys="box", temperature=0.5, noise_std=0.3)
    count = 20_000

    def pair(key):
        episode = world.sample(key, 2)
        return episode.tokens.key, episode.latent[:, 0]

    points, values = jax.vmap(pair)(jax.random.split(jax.random.key(2), count))
    expected = jax.vmap(lambda p: kernels.rbf(p, p, 0.5)[0, 1])(points)
    gap = np.asarray(values[:, 0] * values[:, 1] - expected)
    assert abs(gap.mean()) < 5 * gap.std() / np.sqrt(count)


# -- linear regression -----------------------------------------------------------------------------


@pytest.mark.parametrize("features", [None, RandomFeatures(2, 5, temperature=0.5)])
def test_linear_regression_against_its_dense_joint_law(features):
    world = LinearRegression(
        key_dim=2, noise_std=0.4, prior_std=1.5, key_covariance=np.eye(2), features=features
    )
    episode = world.sample(jax.random.key(3), LENGTH, 4)
    mapped, query = (
        np.asarray(x if features is None else features(x))
        for x in (episode.tokens.key, episode.query)
    )
    value = np.asarray(episode.tokens.value)[:, 0]
    covariance = 1.5**2 * mapped @ mapped.T + 0.4**2 * np.eye(LENGTH)
    joint = normal(np.zeros(LENGTH), covariance)
    assert_close(world.log_evidence(episode.tokens), joint.logpdf(value))
    cross = 1.5**2 * query @ mapped.T
    law = world.predict(episode.tokens, episode.query)
    assert_close(law.mean[:, 0], cross @ np.linalg.solve(covariance, value))
    prior = 1.5**2 * np.sum(query**2, -1)
    assert_close(law.var[:, 0], prior - np.sum(cross * np.linalg.solve(covariance, cross.T).T, -1))
    posterior = world.posterior(episode.tokens)
    precision = mapped.T @ mapped / 0.4**2 + np.eye(world.weights) / 1.5**2
    assert_close(posterior.precision, precision)
    assert_close(posterior.mean, np.linalg.solve(precision, mapped.T @ value / 0.4**2))


def test_keys_and_queries_have_the_given_covariances():
    """The second moments over 50,000 keys are exact within five standard errors; one of the
    covariances is singular."""
    key_covariance, query_covariance = np.array([[1.0, 0.6], [0.6, 0.5]]), np.diag([1.0, 0.0])
    world = LinearRegression(2, key_covariance=key_covariance, query_covariance=query_covariance)
    count = 50_000
    episode = world.sample(jax.random.key(4), count, count)
    drawn = ((episode.tokens.key, key_covariance), (episode.query, query_covariance))
    for points, expected in drawn:
        products = np.asarray(points)[:, :, None] * np.asarray(points)[:, None, :]
        error = products.std(0) / np.sqrt(count)
        assert (np.abs(products.mean(0) - expected) <= 5 * error).all()


def test_random_features_approximate_the_kernel():
    """The approximation is a mean of D terms 2 cos cos with a standard deviation of at most √(1/D),
    because each term lies in [−2, 2] and has a variance of at most 1; five standard deviations are
    allowed."""
    points = jax.random.normal(jax.random.key(5), (6, 3))
    features = RandomFeatures(3, 20_000, temperature=0.7)
    gram_matrix = features(points) @ features(points).T
    assert np.abs(gram_matrix - kernels.rbf(points, points, 0.7)).max() < 5 / np.sqrt(20_000)


# -- conjugate worlds ------------------------------------------------------------------------------


def test_normal_mean_against_its_dense_joint_law():
    noise = np.array([[1.0, 0.6], [0.6, 0.5]])
    prior = np.array([[2.0, -0.5], [-0.5, 1.0]])
    centre = np.array([1.0, -1.0])
    world = NormalMean(2, noise_covariance=noise, prior_covariance=prior, prior_mean=centre)
    tokens = np.asarray(world.sample(jax.random.key(6), LENGTH).tokens)
    joint = np.kron(np.ones((LENGTH, LENGTH)), prior) + np.kron(np.eye(LENGTH), noise)
    law = normal(np.tile(centre, LENGTH), joint)
    assert_close(world.log_evidence(jnp.asarray(tokens)), law.logpdf(tokens.ravel()))
    posterior = world.posterior(jnp.asarray(tokens))
    precision = np.linalg.inv(prior) + LENGTH * np.linalg.inv(noise)
    moment = np.linalg.solve(prior, centre) + np.linalg.solve(noise, tokens.sum(0))
    assert_close(posterior.precision, precision)
    assert_close(posterior.mean, np.linalg.solve(precision, moment))
    following = world.predict(jnp.asarray(tokens))
    assert_close(following.cov, np.linalg.inv(precision) + noise)
    expected = normal(following.mean, following.cov).logpdf(tokens[0])
    assert_close(following.log_prob(jnp.asarray(tokens[0])), expected)


def integral(log_density, low, high):
    """log ∫ exp(log_density) by adaptive quadrature, scaled by its maximum on a grid."""
    grid = np.linspace(low, high, 1001)[1:-1]
    heights = [log_density(x) for x in grid]
    peak, points = max(heights), [grid[int(np.argmax(heights))]]
    value, _ = scipy.integrate.quad(
        lambda x: np.exp(log_density(x) - peak),
        low,
        high,
        points=points,
        limit=500,
        epsabs=0,
        epsrel=1e-11,
    )
    return np.log(value) + peak


def test_normal_mean_evidence_by_integration():
    world = NormalMean(1, noise_std=0.7, prior_std=1.3, prior_mean=0.4)
    tokens = np.asarray(world.sample(jax.random.key(7), 5).tokens)

    def log_joint(z):
        likelihood = scipy.stats.norm.logpdf(tokens, z, 0.7).sum()
        return likelihood - 0.5 * ((z - 0.4) / 1.3) ** 2 - np.log(1.3 * np.sqrt(2 * np.pi))

    assert_close(world.log_evidence(jnp.asarray(tokens)), integral(log_joint, -12, 12))


def test_normal_inverse_gamma_evidence_by_integration():
    """The evidence is an integral over σ²; given σ², the tokens are jointly normal."""
    world = NormalInverseGamma(1, prior_mean=0.3, prior_count=2.0, freedom=5.0, noise_var=0.8)
    tokens = np.asarray(world.sample(jax.random.key(8), 4).tokens)[:, 0]
    shape, scale = 5 / 2, 5 * 0.8 / 2
    precision = np.linalg.inv(np.eye(4) + np.ones((4, 4)) / 2)
    energy = (tokens - 0.3) @ precision @ (tokens - 0.3)
    constant = 0.5 * np.linalg.slogdet(precision)[1] - 2 * np.log(2 * np.pi)

    def log_joint(log_var):
        var = np.exp(log_var)
        prior = scipy.stats.invgamma.logpdf(var, shape, scale=scale) + log_var
        return prior + constant - 2 * log_var - 0.5 * energy / var

    class Fast:  # the formula, because `logpdf` of SciPy is slow for single points
        constant = shape * np.log(scale) - scipy.special.gammaln(shape)

    def quick(log_var):
        var = np.exp(log_var)
        prior = Fast.constant - (shape + 1) * log_var - scale / var + log_var
        return prior + constant - 2 * log_var - 0.5 * energy / var

    assert_close(quick(0.3), log_joint(0.3))
    assert_close(world.log_evidence(jnp.asarray(tokens)[:, None]), integral(quick, -12, 15))


def test_normal_inverse_gamma_laws_against_scipy():
    world = NormalInverseGamma(1, freedom=5.0)
    tokens = world.sample(jax.random.key(9), LENGTH).tokens
    posterior, law = world.posterior(tokens), world.predict(tokens)
    x = np.asarray(tokens)[:, 0]
    count = 1 + LENGTH
    mean = x.sum() / count
    energy = 5 + np.sum((x - x.mean()) ** 2) + LENGTH / count * x.mean() ** 2
    assert_close(posterior.mean[0], mean)
    assert_close(posterior.noise_var[0] * posterior.freedom[0], energy)
    student: Any = scipy.stats.t(
        5 + LENGTH, mean, np.sqrt(energy / (5 + LENGTH) * (count + 1) / count)
    )
    assert_close(law.log_prob(jnp.array([1.7]))[0], student.logpdf(1.7))
    assert_close(law.var[0], student.var())


def test_dirichlet_evidence_against_scipy_and_integration():
    world = DirichletCategorical(2, concentration=[1.5, 2.5])
    tokens = world.sample(jax.random.key(10), 7).tokens
    counts = np.asarray(tokens).sum(0)
    # SciPy has the law of the counts; dividing by the number of orders gives that of a sequence.
    orders = scipy.special.gammaln(8) - scipy.special.gammaln(counts + 1).sum()
    law = scipy.stats.dirichlet_multinomial([1.5, 2.5], 7)
    assert_close(world.log_evidence(tokens), law.logpmf(counts.astype(int)) - orders)

    def log_joint(p):
        return (counts[0] + 0.5) * np.log(p) + (counts[1] + 1.5) * np.log1p(-p)

    normaliser = scipy.special.betaln(1.5, 2.5)
    assert_close(world.log_evidence(tokens), integral(log_joint, 0, 1) - normaliser)


def test_finite_mixture_against_a_plain_sum():
    means, weights = np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 1.5]]), np.array([0.5, 0.3, 0.2])
    world = FiniteMixture(means=means, noise_std=1.2, weights=weights)
    tokens = np.asarray(world.sample(jax.random.key(11), 6).tokens)
    joint = weights * [scipy.stats.norm.pdf(tokens, mean, 1.2).prod() for mean in means]
    assert_close(world.posterior(jnp.asarray(tokens)).probs, joint / joint.sum())
    assert_close(world.log_evidence(jnp.asarray(tokens)), np.log(joint.sum()))
    table = np.array([[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]])
    counted = FiniteMixture(probabilities=table, weights=[0.6, 0.4])
    drawn = np.asarray(counted.sample(jax.random.key(12), 6).tokens)
    joint = np.array([0.6, 0.4]) * np.prod(drawn @ table.T, 0)
    assert_close(counted.posterior(jnp.asarray(drawn)).probs, joint / joint.sum())
    assert_close(counted.log_evidence(jnp.asarray(drawn)), np.log(joint.sum()))


def test_tokens_with_keys_are_pairs():
    assert isinstance(LinearRegression().sample(jax.random.key(0), 2).tokens, Pairs)
