"""Amortised posteriors against closed forms, and their files."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from attnlens import amortised_posterior, calibration
from attnlens.core.checks import BadInput
from attnlens.instruments import AmortisedPosterior, posterior_from_simulations, reference_c2st
from attnlens.instruments.inference.amortised import Scales
from attnlens.instruments.inference.supports import Support
from attnlens.networks import Encoder, Fitted, Member
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.training.steps import TrainingStatus
from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    LinearRegression,
    NormalMean,
    Pairs,
    TokenTeacher,
)

SMALL = {"width": 8, "heads": 2, "layers": 1}
quickly = partial(amortised_posterior, simulations=256, encoder=SMALL, training={"steps": 4})


def untrained(token_dim: int, length: int, support: Support) -> AmortisedPosterior:
    """An amortised posterior of two networks with random parameters. Properties that hold for any
    parameters are tested on it, without training."""
    dim = len(support.low)
    make = partial(Encoder, token_dim=token_dim, outputs=dim, head="mixture", components=2, **SMALL)
    recipe, random = Recipe.of(make), np.random.default_rng(0)
    none = np.zeros((1, 2))
    fitted = Fitted(
        (Member(0, 1), Member(1, 1)),
        0.5 * random.normal(size=(2, Layout.of(recipe).size)).astype(np.float32),
        (TrainingStatus.FINISHED,) * 2,
        *(none[0], none[0], none[0, :1], none, none, none, none[0], recipe),
    )
    scales = Scales(
        token_centre=random.normal(size=token_dim),
        token_scale=np.full(token_dim, 2.0),
        centre=random.normal(size=dim),
        scale=np.full(dim, 1.5),
        support=support,
    )
    return AmortisedPosterior(fitted, length, scales)


@pytest.fixture(scope="module")
def bounded() -> AmortisedPosterior:
    return untrained(1, 3, Support(np.zeros(1), np.full(1, 2.0)))


TOKENS = np.array([1.0, 0.0, 2.0])


def test_the_density_integrates_to_one_between_the_bounds(bounded):
    opened = np.linspace(-40, 40, 40_001)
    inside = bounded.scales.support.closed(opened[:, None])
    logs = bounded.log_prob(inside, TOKENS)
    # ∫ q(z) dz = ∫ q(z(y)) dz/dy dy, by the trapezoidal rule, where y is z moved to the whole line.
    # Where rounding moves z onto a bound, dz/dy is zero.
    volume = bounded.scales.support.log_volume(inside)
    density = np.exp(logs - volume, where=np.isfinite(logs), out=np.zeros_like(logs))
    # Beyond y = 37 rounding moves z onto the upper bound, where the density counts as zero.
    np.testing.assert_allclose(density.sum() * (opened[1] - opened[0]), 1, rtol=1e-5)
    assert bounded.log_prob([2.5], TOKENS) == -np.inf
    assert bounded.log_prob([-0.5], TOKENS) == -np.inf


def test_draws_have_the_density(bounded):
    """The distribution functions of the draws and of the density agree within the bound of
    Kolmogorov: P(√n sup |F_n − F| > 2.5) < 2 e^(−12.5) = 7.5e-6."""
    draws = np.sort(bounded.sample(TOKENS, 2000, seed=1)[:, 0])
    grid = np.linspace(0, 2, 20_001)[1:-1]
    density = np.exp(bounded.log_prob(grid[:, None], TOKENS))
    distribution = np.cumsum(density) * (grid[1] - grid[0])
    at_draws = np.interp(draws, grid, distribution)
    steps = np.arange(1, 2001) / 2000
    assert np.max(np.abs(at_draws - steps)) < 2.5 / np.sqrt(2000) + 1e-3  # 1e-3 for the grid
    assert ((draws > 0) & (draws < 2)).all()


def test_draws_depend_on_the_seed_and_order_of_tokens_does_not_matter(bounded):
    first = bounded.sample(TOKENS, 5)
    np.testing.assert_array_equal(first, bounded.sample(TOKENS, 5))
    assert (first != bounded.sample(TOKENS, 5, seed=1)).any()
    # The small network adds three terms in another order, in float64.
    np.testing.assert_allclose(bounded.sample(TOKENS[::-1], 5), first, rtol=1e-10)


def test_a_saved_posterior_is_the_same(bounded, tmp_path):
    path = tmp_path / "posterior.safetensors"
    bounded.save(path)
    again = AmortisedPosterior.load(path)
    np.testing.assert_array_equal(again.sample(TOKENS, 20), bounded.sample(TOKENS, 20))
    assert again.log_prob([0.7], TOKENS) == bounded.log_prob([0.7], TOKENS)
    assert len(Fitted.load(path)) == 2
    bounded.fitted.save(path)
    with pytest.raises(BadInput, match="AmortisedPosterior"):
        AmortisedPosterior.load(path)


def test_keys_and_latents_of_several_parts():
    nowhere = Support(np.full(2, -np.inf), np.full(2, np.inf))
    posterior = untrained(3, 4, nowhere)
    tokens = Pairs(jnp.ones((4, 2)), jnp.ones((4, 1)))
    assert posterior.sample(tokens, 3).shape == (3, 2)
    assert posterior.log_prob((0.1, 0.2), tokens) == posterior.log_prob([0.1, 0.2], tokens)
    for call in (
        lambda: posterior.sample(np.ones((4, 2)), 3),
        lambda: posterior.sample(Pairs(jnp.ones((5, 2)), jnp.ones((5, 1)))),
        lambda: posterior.log_prob([0.1], tokens),
        lambda: posterior.sample(Pairs(jnp.full((4, 2), jnp.nan), jnp.ones((4, 1)))),
    ):
        with pytest.raises(BadInput):
            call()


@pytest.mark.parametrize(
    "world",
    [
        FiniteMixture(means=[[-1.0], [1.0]]),
        pytest.param(
            DirichletCategorical(classes=3), id="DirichletCategorical", marks=pytest.mark.slow
        ),
        GaussianProcess(key_dim=2),
        TokenTeacher(),
    ],
    ids=lambda world: type(world).__name__,
)
def test_latents_without_a_density_are_refused(world: Any):
    with pytest.raises(BadInput, match="latent"):
        quickly(world, 3)


def test_simulations_that_cannot_be_trained_on_are_refused():
    latent, tokens = np.random.default_rng(0).uniform(size=(64, 2)), np.zeros((64, 3, 1))
    for arguments in (
        (latent[:9], tokens[:9], None),
        (latent, tokens[:-1], None),
        (latent, tokens[..., 0], None),
        (latent, tokens * np.nan, None),
        (latent, tokens, (0.5, np.inf)),
        (latent[:, :1] * [1, -2], tokens, None),
    ):
        with pytest.raises(BadInput):
            posterior_from_simulations(*arguments[:2], bounds=arguments[2])


@pytest.mark.slow
def test_training_that_diverges_is_refused():
    training = {"steps": 4, "learning_rate": 1e30, "warmup": 0, "clip": None}
    with pytest.raises(BadInput, match="training diverged"):
        quickly(LinearRegression(key_dim=2), 2, components=1, training=training)


@pytest.mark.slow
def test_the_fitted_posterior_of_a_conjugate_world_is_close_to_the_closed_form():
    """For z ~ N(0, 1) and four tokens with variance 1 the posterior is N(Σx/5, 1/5)."""
    world = NormalMean(dim=1, noise_std=1.0)
    posterior = amortised_posterior(
        world,
        4,
        simulations=8192,
        components=1,
        encoder={**SMALL, "width": 16},
        training={"steps": 1500, "learning_rate": 1e-2},
    )
    keys = jax.random.split(jax.random.key(9), 64)
    episodes = jax.vmap(lambda key: world.sample(key, 4))(keys)
    tokens, latent = np.asarray(episodes.tokens), np.asarray(episodes.latent)
    mean, deviation = tokens.sum(1) / 5, np.sqrt(0.2)
    law = dist.Normal(jnp.asarray(mean), deviation)
    exact = np.asarray(law.log_prob(jnp.asarray(latent)))[:, 0]
    result = posterior.log_densities(tokens, latent[:, None])[:, 0]
    # A mean that is off by 0.15 and a width that is off by 10 % together cost 0.02 nats.
    assert abs((exact - result).mean()) < 0.02
    drawn = posterior.draws(tokens, keys, 1000)
    assert np.sqrt(((drawn.mean(1) - mean) ** 2).mean()) < 0.15 * deviation
    assert abs(drawn.std(1).mean() / deviation - 1) < 0.1
    assert reference_c2st(posterior, world, episodes=4, draws=500).value < 0.55
    coverage = calibration(posterior, world).coverage
    assert abs(coverage.readings[4].value - 0.5) < 4.5 * coverage.readings[4].standard_error
