"""A world from a NumPyro model whose latent has coordinates that never vary, from its tokens to a
posterior, compared with numerical integration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from attnlens.core.status import Status
from attnlens.worlds import FromModel, Nuts

CONCENTRATION = 1.5


def integrated(tokens: np.ndarray) -> np.ndarray:
    """Posterior means of ρ and √(1 − ρ²) for pairs of variance one and correlation ρ.

    The law of Lewandowski, Kurowicka and Joe (2009) gives ρ the density ∝ (1 − ρ²)^(η − 1). The
    sums over 20,000 points have an error of about 1e-4².
    """
    rho = np.linspace(-1, 1, 20_001)[1:-1]
    x, y = tokens.T
    squares = x @ x + y @ y - 2 * rho * (x @ y)
    logs = (CONCENTRATION - 1 - len(tokens) / 2) * np.log1p(-(rho**2)) - squares / (
        2 * (1 - rho**2)
    )
    weights = np.exp(logs - logs.max())
    return np.array([weights @ rho, weights @ np.sqrt(1 - rho**2)]) / weights.sum()


@pytest.mark.slow  # compiles chains
def test_the_root_of_a_correlation_matrix_has_its_posterior():
    """Of the four entries of the root ((1, 0), (ρ, √(1 − ρ²))) two never vary. The other two are
    within 4.5 standard errors of their exact means (false positives: 1 in 7e4)."""
    # NumPyro mixes types and shapes here.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        world = FromModel(
            dist.LKJCholesky(2, CONCENTRATION),
            lambda root: dist.MultivariateNormal(jnp.zeros(2), scale_tril=root),
            nuts=Nuts(warmup=100, draws=200, particles=256),
        )
        episode = world.sample(jax.random.key(0), 12)
        posterior = world.posterior(episode.tokens)
    assert posterior.status is Status.OK
    mean, error = np.asarray(posterior.mean), np.asarray(posterior.error)
    assert mean[:2].tolist() == [1, 0]
    assert error[:2].tolist() == [0, 0]
    assert np.asarray(posterior.var)[:2].tolist() == [0, 0]
    assert (error[2:] > 0).all()
    exact = integrated(np.asarray(episode.tokens, float))
    assert (np.abs(mean[2:] - exact) < 4.5 * error[2:]).all()
