"""Sampled posteriors compared with public references and closed forms: none with status `ok` is
wrong.

The models and the references are in tests/support/reference_models.py. Two samples are compared by
C2ST: the share of held-out points for which a classifier names the right sample. With 2 × 800
points its standard error around 0.5 is 0.5/√1600 = 0.0125, so 0.55 is four standard errors above.
"""

from __future__ import annotations

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from attnlens.core.status import Status
from attnlens.instruments import c2st
from attnlens.worlds import FromModel, Nuts
from reference_models import (
    EFFECTS,
    eight_schools,
    from_sbibm,
    gaussian_mixture,
    slcp,
    two_moons,
    two_moons_draws,
    weighted_prior,
)

pytestmark = pytest.mark.slow  # compiles chains

C2ST_LIMIT, COMPARED = 0.55, 800
REFUSALS = (Status.NOT_CONVERGED, Status.DIVERGENT, Status.LOW_ENERGY, Status.SEPARATE_MODES)
# The density of two moons jumps to zero inside of its crescents, so trajectories of NUTS must
# diverge there.
JUMP = Status.DIVERGENT

# -- standard errors ---------------------------------------------------------------------------

FAST = Nuts(warmup=100, draws=200, particles=256)


class SharedDraws(FromModel):
    """Control: all episodes share the same draws from the prior."""

    def prior_draws(self, key):
        return super().prior_draws(jax.random.key(0))


def coverage(kind: type[FromModel], length: int, repeats: int) -> float:
    """The share of 95 % intervals of the risk, each over eight episodes, that contain the exact
    risk 1/(1 + length)."""
    world = kind(dist.Normal(0.0, 1.0), lambda z: dist.Normal(z, 1.0), nuts=FAST)
    inside = 0
    for seed in range(repeats):
        low, high = world.risk(length, episodes=8, seed=seed).interval()
        inside += low <= 1 / (1 + length) <= high
    return inside / repeats


def test_standard_errors_contain_the_error_of_the_references():
    """The posterior variance is 0.2 in every episode, so the chains are the only source of errors.

    The coverage of 600 intervals has a standard error of 0.9 %: 93 to 97 % is ±2.2 of them.
    """
    assert 0.93 <= coverage(FromModel, 4, 600) <= 0.97
    assert coverage(FromModel, 0, 100) > 0.85  # 4.6 standard errors below 95 %
    assert coverage(SharedDraws, 0, 4) < 0.5


# -- several modes -----------------------------------------------------------------------------


@eqx.filter_jit
def episode_and_posterior(world, key, length):
    tokens = world.sample(key, length).tokens
    return tokens, world.posterior(tokens)


def thinned(posterior) -> np.ndarray:
    draws = np.asarray(posterior.pooled())
    return draws[:: max(1, len(draws) // COMPARED)][:COMPARED]


@pytest.mark.parametrize(
    ("make", "length", "count", "status"),
    [
        pytest.param(two_moons, 1, 0, JUMP, id="two-moons"),
        pytest.param(gaussian_mixture, 1, 4_000_000, Status.OK, id="gaussian-mixture"),
        pytest.param(slcp, 4, 4_000_000, Status.OK, id="slcp"),
    ],
)
def test_draws_are_those_of_the_reference_or_refused(make, length, count, status):
    world = make(nuts=Nuts(draws=1000))
    for seed in (0, 4):
        tokens, posterior = episode_and_posterior(world, jax.random.key(seed), length)
        assert posterior.status is status, posterior.reason
        if status is not Status.OK:
            assert np.isnan(posterior.pooled()).all()
            continue
        reference, effective = weighted_prior(world, tokens, count, COMPARED)
        assert effective > 2 * COMPARED  # so few draws are repeated
        assert c2st(thinned(posterior), reference).value <= C2ST_LIMIT


def test_the_halves_of_slcp_with_one_mirror():
    """With θ₄ > 0 the posterior is symmetric in θ₃, so the share of θ₃ > 0 is exactly one half.
    Wherever there are numbers, it is within 4 standard errors: ten comparisons, of which one fails
    by chance with a probability of 6e-4."""
    world, accepted = slcp(mirror=False), 0
    for seed in range(10):
        posterior = episode_and_posterior(world, jax.random.key(seed), 4)[1]
        draws = posterior.latent[..., 2:3]
        if posterior.status in REFUSALS:
            assert np.isnan(draws).all()
            continue
        share = posterior.moments((draws > 0).astype(float))
        assert abs(float(share.mean[0]) - 0.5) < 4 * float(share.error[0])
        accepted += posterior.status is Status.OK
    assert accepted >= 5


# -- eight schools -------------------------------------------------------------------------------


def test_eight_schools():
    """The centred model is refused, with the advice to reparametrise. In the non-centred model the
    effect of the first school is about 6.2 (posteriordb, eight_schools_noncentered) within 5
    standard errors."""
    rows = EFFECTS[None]
    centred = eight_schools(centred=True).posterior(rows)
    assert centred.status in (Status.DIVERGENT, Status.LOW_ENERGY)
    assert "reparametrise" in centred.reason
    assert np.isnan(centred.mean).all()
    other = eight_schools(centred=False).posterior(rows)
    assert other.status is Status.OK, other.reason
    assert abs(float(other.mean[0]) - 6.2) < 5 * float(other.error[0])


# -- public reference samples ----------------------------------------------------------------------


@pytest.mark.skipif(
    "ATTNLENS_SBIBM" not in os.environ, reason="ATTNLENS_SBIBM must name the wheel of sbibm"
)
@pytest.mark.parametrize(
    ("name", "make"),
    [("slcp", slcp), ("two_moons", two_moons), ("gaussian_mixture", gaussian_mixture)],
    ids=["slcp", "two-moons", "gaussian-mixture"],
)
def test_against_sbibm(name, make):
    """For two observations of each task the posterior is right or is refused. The exact draws of
    `two_moons_draws` agree with the reference too."""
    world = make(nuts=Nuts(draws=1000))
    for number in (1, 2):
        tokens, reference = from_sbibm(name, number)
        reference = reference[:COMPARED]
        if name == "two_moons":
            exact = two_moons_draws(tokens, COMPARED)
            assert c2st(exact, reference).value <= C2ST_LIMIT
        posterior = world.posterior(jnp.asarray(tokens))
        if posterior.status in REFUSALS:
            continue
        assert posterior.status is Status.OK, posterior.reason
        assert c2st(thinned(posterior), reference).value <= C2ST_LIMIT
