"""The mixture of a posterior head: against SciPy, quadrature, and its own draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_normal

from attnlens.networks import LOSSES, FullMixture
from attnlens.networks.mixture import row_size

EPS = np.finfo(float).eps


def outputs(components: int, dim: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(components, row_size(dim))))


def test_the_density_is_that_of_scipy():
    law = FullMixture.of(outputs(3, 3), 3)
    weights, roots = np.exp(law.log_weights), np.asarray(law.roots)
    assert np.array_equal(roots, np.tril(roots))
    np.testing.assert_allclose(weights.sum(), 1, rtol=4 * EPS)
    points = np.random.default_rng(1).normal(size=(20, 3))
    covariances = [np.linalg.inv(root @ root.T) for root in roots]
    terms = [
        multivariate_normal(np.asarray(mean), covariance).logpdf(points)
        for mean, covariance in zip(law.means, covariances, strict=True)
    ]
    expected = np.log((np.exp(terms) * weights[:, None]).sum(0))
    condition = max(map(np.linalg.cond, covariances))
    result = np.array([law.log_prob(jnp.asarray(point)) for point in points])
    # SciPy's covariances are inverses; their relative error is the condition number times rounding.
    np.testing.assert_allclose(result, expected, rtol=30 * condition * EPS, atol=1e-12)
    assert float(LOSSES["mixture"](outputs(3, 3), jnp.asarray(points[0]))) == -float(result[0])


def test_the_density_integrates_to_one():
    law = FullMixture.of(outputs(4, 1), 1)
    spread = float(1 / law.roots.min())
    low, high = float(law.means.min()) - 12 * spread, float(law.means.max()) + 12 * spread
    grid = np.linspace(low, high, 40_001)
    density = np.exp(np.asarray(jax.vmap(law.log_prob)(jnp.asarray(grid[:, None]))))
    # The trapezoidal rule converges exponentially for sums of Gaussians.
    np.testing.assert_allclose(density.sum() * (grid[1] - grid[0]), 1, rtol=1e-12)
    np.testing.assert_allclose(
        (grid * density).sum() * (grid[1] - grid[0]), float(law.mean[0]), rtol=1e-11
    )


def test_draws_have_the_density():
    """The first and second moments of 40,000 draws are exact within 4.5 standard errors (false
    positives: 1 in 1.5e5 per number), and so is the mean weight of importance sampling from the
    mixture."""
    law, dim, count = FullMixture.of(outputs(3, 2, seed=2), 2), 2, 40_000
    keys = jax.random.split(jax.random.key(0), count)
    draws = np.asarray(jax.jit(jax.vmap(law.sample))(keys))
    weights, means = np.exp(law.log_weights), np.asarray(law.means)
    covariances = np.array([np.linalg.inv(r @ r.T) for r in np.asarray(law.roots)])
    second = np.einsum("c,cij->ij", weights, covariances + means[:, :, None] * means[:, None])
    places = ((0, 0), (0, 1), (1, 1))
    features = np.column_stack([draws, *(draws[:, i] * draws[:, j] for i, j in places)])
    exact = np.array([*(weights @ means), second[0, 0], second[0, 1], second[1, 1]])
    errors = features.std(0) / np.sqrt(count)
    assert np.all(np.abs(features.mean(0) - exact) < 4.5 * errors)
    assert draws.shape == (count, dim)
    # Importance sampling with the density q of the mixture as proposal: E_q[p/q] = 1 for any normal
    # density p inside q.
    logs = np.asarray(jax.jit(jax.vmap(law.log_prob))(jnp.asarray(draws)))
    inside = multivariate_normal(means[0], 0.25 * covariances[0]).logpdf(draws)
    ratios = np.exp(inside - logs)
    assert abs(ratios.mean() - 1) < 4.5 * ratios.std() / np.sqrt(count)
