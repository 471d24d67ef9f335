"""Latents with bounds: maps to the whole line ("open") and back ("closed")."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from attnlens.instruments.inference.supports import Support, support_of
from attnlens.worlds import FromModel, NormalMean

INF = np.inf
ALL = Support(np.array([-1.0, 0.5, -INF, -INF]), np.array([2.0, INF, 3.0, INF]))


def test_opening_and_closing():
    random = np.random.default_rng(0)
    opened = random.normal(size=(50, 4))
    latent = ALL.closed(opened)
    assert ALL.contains(latent).all()
    np.testing.assert_allclose(ALL.opened(latent), opened, atol=1e-13)
    step = 1e-6
    moved = (ALL.opened(latent + step) - ALL.opened(latent - step)) / (2 * step)
    # The error of the central differences is step² times third derivatives of at most 1e4 here.
    np.testing.assert_allclose(ALL.log_volume(latent), np.log(moved).sum(1), atol=1e-6)
    extreme = ALL.closed(np.full((1, 4), 800.0))
    assert extreme[0, 0] == 2
    assert extreme[0, 2] == 3
    outside = np.array([[2.5, 1.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0]])
    assert not ALL.contains(outside).any()


def hierarchical():
    low = numpyro.sample("low", dist.Uniform(-1.0, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    above = numpyro.sample("above", dist.Uniform(low, 5.0))  # its lower bound is a latent
    return {"a": low, "b": scale, "c": above, "d": jnp.log(scale)}


def test_bounds_come_from_the_sites_of_a_model():
    support = support_of(FromModel(hierarchical, lambda z: dist.Normal(z["a"], z["b"])), 4)
    assert support.low.tolist() == [-1, 0, -INF, -INF]
    assert support.high.tolist() == [2, INF, 5, INF]
    box = dist.Uniform(jnp.array([0.0, -3.0]), jnp.array([1.0, 3.0])).to_event(1)
    assert support_of(FromModel(box, lambda z: dist.Normal(z)), 2).low.tolist() == [0, -3]
    assert support_of(NormalMean(dim=2), 2).high.tolist() == [INF, INF]
