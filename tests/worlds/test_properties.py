"""Properties over shapes, scales, masks and lengths, with examples chosen by Hypothesis.

Each world is held against a dense calculation in NumPy that shares no code with it, with tokens
drawn by NumPy. Scales run over six orders of magnitude. Both sides lose at most about
(prior/noise)² · ε where they condition a dense covariance (the world itself loses less), so the
tolerance is 100 ε (1 + (prior/noise)²), which at the extreme ratio of 1e3 is 2e-8.
"""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    LinearRegression,
    NormalInverseGamma,
    NormalMean,
    Pairs,
)

EPS = float(np.finfo(float).eps)
LONGEST = 5

dims = st.integers(1, 2)
stds = st.floats(-1.5, 1.5).map(lambda exponent: 10**exponent)
masks = st.lists(st.booleans(), min_size=LONGEST, max_size=LONGEST).map(np.array)
seeds = st.integers(0, 2**31)


def conditioned(prior, cross, own, value):
    """Mean and covariance of a normal vector given another, densely."""
    gain = cross @ np.linalg.inv(own) if len(own) else np.zeros_like(cross)
    return gain @ value, prior - gain @ cross.T


def log_normal(value, covariance):
    if not len(value):
        return 0.0
    sign, determinant = np.linalg.slogdet(covariance)
    assert sign > 0
    fit = value @ np.linalg.solve(covariance, value)
    return -0.5 * (fit + determinant + len(value) * np.log(2 * np.pi))


def near(found, expected, ratio, scale=1.0):
    size = scale + np.max(np.abs(expected), initial=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=100 * EPS * (1 + ratio**2) * size)


@given(dims, stds, stds, masks, seeds)
def test_normal_mean(dim, noise, prior, mask, seed):
    world = NormalMean(dim, noise_std=noise, prior_std=prior)
    tokens = noise * np.random.default_rng(seed).normal(size=(LONGEST, dim))
    seen, count = tokens[mask], int(mask.sum())
    own = noise**2 * np.eye(count) + prior**2
    posterior = world.posterior(jnp.asarray(tokens), jnp.asarray(mask))
    evidence, ratio = 0.0, prior / noise
    for i in range(dim):
        cross = np.full((1, count), prior**2)
        mean, cov = conditioned(np.array([[prior**2]]), cross, own, seen[:, i])
        near(posterior.mean[i], mean[0], ratio, noise)
        near(posterior.var[i], cov[0, 0], ratio, prior**2)
        evidence += log_normal(seen[:, i], own)
    near(world.log_evidence(jnp.asarray(tokens), jnp.asarray(mask)), evidence, ratio)


@given(dims, stds, stds, masks, seeds)
def test_linear_regression(dim, noise, prior, mask, seed):
    world = LinearRegression(dim, noise, prior, key_covariance=np.eye(dim))
    draws = np.random.default_rng(seed)
    key, value = draws.normal(size=(LONGEST, dim)), noise * draws.normal(size=(LONGEST, 1))
    query = draws.normal(size=(2, dim))
    tokens = Pairs(jnp.asarray(key), jnp.asarray(value))
    law = world.predict(tokens, jnp.asarray(query), jnp.asarray(mask))
    seen, answers = key[mask], value[mask, 0]
    own = prior**2 * seen @ seen.T + noise**2 * np.eye(len(seen))
    mean, cov = conditioned(prior**2 * query @ query.T, prior**2 * query @ seen.T, own, answers)
    ratio = prior / noise * (1 + np.linalg.norm(key))
    near(law.mean[:, 0], mean, ratio, noise)
    near(law.var[:, 0], np.diag(cov), ratio, prior**2)
    near(world.log_evidence(tokens, jnp.asarray(mask)), log_normal(answers, own), ratio)


@given(st.sampled_from(["rbf", "matern52"]), stds, masks, seeds)
def test_gaussian_process(kernel, noise, mask, seed):
    world = GaussianProcess(2, 0.5, max(noise, 0.05), kernel=kernel, keys="box")
    draws = np.random.default_rng(seed)
    key, value = draws.uniform(-1, 1, (LONGEST, 2)), draws.normal(size=(LONGEST, 1))
    query = draws.uniform(-1, 1, (2, 2))

    def kappa(a, b):
        distance = np.linalg.norm(a[:, None] - b[None], axis=-1)
        if kernel == "rbf":
            return np.exp(-(distance**2))  # 2τ = 1
        s = np.sqrt(5 / 0.5) * distance
        return (1 + s + s**2 / 3) * np.exp(-s)

    tokens = Pairs(jnp.asarray(key), jnp.asarray(value))
    law = world.predict(tokens, jnp.asarray(query), jnp.asarray(mask))
    seen = key[mask]
    own = kappa(seen, seen) + world.noise_std**2 * np.eye(len(seen))
    mean, cov = conditioned(kappa(query, query), kappa(query, seen), own, value[mask, 0])
    # Squared distances that cancel are exact to 4 ε; their root to 1e-8 near zero, where the
    # Matérn kernel is flat: its error is the square of that.
    ratio = 10 / world.noise_std
    near(law.mean[:, 0], mean, ratio)
    near(law.var[:, 0], np.diag(cov), ratio)
    near(world.log_evidence(tokens, jnp.asarray(mask)), log_normal(value[mask, 0], own), ratio)


@given(stds, st.floats(0.5, 50), st.floats(0.1, 10), masks, seeds)
def test_normal_inverse_gamma(scale, freedom, count, mask, seed):
    """The joint law of the tokens is a multivariate t: with S = s²(I + 11ᵀ/κ),
    log Γ((ν + n)/2)/Γ(ν/2) − ½ log det(ν π S) − ((ν + n)/2) log(1 + xᵀS⁻¹x/ν)."""
    world = NormalInverseGamma(1, prior_count=count, freedom=freedom, noise_var=scale**2)
    tokens = scale * np.random.default_rng(seed).normal(size=(LONGEST, 1))
    seen = tokens[mask, 0]
    shape = scale**2 * (np.eye(len(seen)) + 1 / count)
    fit = seen @ np.linalg.solve(shape, seen) if len(seen) else 0.0
    total = (freedom + len(seen)) / 2
    expected = (
        gammaln(total)
        - gammaln(freedom / 2)
        - 0.5 * (np.linalg.slogdet(shape)[1] + len(seen) * np.log(freedom * np.pi))
        - total * np.log1p(fit / freedom)
    )
    found = world.log_evidence(jnp.asarray(tokens), jnp.asarray(mask))
    near(found, expected, 10.0)


@given(st.lists(stds, min_size=3, max_size=3), masks, seeds)
def test_dirichlet_categorical(concentration, mask, seed):
    """Token by token: each is as likely as the urn says."""
    world = DirichletCategorical(3, concentration=concentration)
    drawn = np.random.default_rng(seed).integers(0, 3, LONGEST)
    urn, expected = np.array(concentration), 0.0
    for colour in drawn[mask]:
        expected += np.log(urn[colour] / urn.sum())
        urn[colour] += 1
    tokens = jnp.asarray(np.eye(3)[drawn])
    near(world.log_evidence(tokens, jnp.asarray(mask)), expected, 10.0)
    near(world.representation(tokens, jnp.asarray(mask)), urn, 1.0)
    near(world.predict(tokens, None, jnp.asarray(mask)).mean, urn / urn.sum(), 1.0)


@given(stds, masks, seeds)
def test_finite_mixture(noise, mask, seed):
    draws = np.random.default_rng(seed)
    means, weights = draws.normal(size=(3, 2)), draws.dirichlet(np.ones(3)) * 0.97 + 0.01
    world = FiniteMixture(means=means, noise_std=noise, weights=weights)
    tokens = means[0] + noise * draws.normal(size=(LONGEST, 2))
    gaps = (tokens[mask][None] - means[:, None]) / noise
    scores = np.log(weights) - 0.5 * np.sum(gaps**2, (1, 2))
    scores -= int(mask.sum()) * np.log(2 * np.pi * noise**2)
    found = world.representation(jnp.asarray(tokens), jnp.asarray(mask))
    near(found, scores[:-1] - scores[-1], 10.0, np.abs(scores).max())
    evidence = np.logaddexp.reduce(scores)
    near(world.log_evidence(jnp.asarray(tokens), jnp.asarray(mask)), evidence, 10.0, 1 / noise)
