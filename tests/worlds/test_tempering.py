"""Particles that are tempered from the prior to the posterior, modes, and the second opinion, on
known densities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.worlds import modes, second_opinion, tempering
from attnlens.worlds.diagnostics import energy_fraction
from attnlens.worlds.nuts import relaxed
from attnlens.worlds.seeding import tokens_key

COUNT = 1024


def two_modes(point):
    """(log prior, log likelihood): a standard normal prior and two equal, distant modes at (±2,
    0)."""
    prior = -0.5 * jnp.sum(point**2)
    centres = jnp.array([[2.0, 0.0], [-2.0, 0.0]])
    squares = jnp.sum((point[None, :] - centres) ** 2, 1)
    return prior, jax.scipy.special.logsumexp(-0.5 * squares / 0.1**2)


@pytest.fixture(scope="module")
def particles():
    start = jax.random.normal(jax.random.key(1), (COUNT, 2))
    with relaxed():  # as in `nuts.run`
        return jax.jit(lambda start: tempering.temper(two_modes, start, jax.random.key(2)))(start)


def test_tempering_reaches_the_posterior(particles):
    """Each mode is normal with variance 1/(1 + 100) and mean 2/1.01; five standard errors are
    allowed."""
    points, ancestor = np.asarray(particles.points), particles.ancestor
    assert float(particles.beta) == 1
    size, var = 2 / 1.01, 1 / 101
    values = np.column_stack([points[:, 0], np.abs(points[:, 0]), points[:, 1], points[:, 1] ** 2])
    errors = np.asarray(tempering.standard_error(jnp.asarray(values), ancestor))
    assert (np.abs(values.mean(0) - [0, size, 0, var]) < 5 * errors).all()
    # The reported errors are not smaller than those of independent draws, up to their own
    # uncertainty.
    assert (errors > 0.5 * values.std(0) / np.sqrt(COUNT)).all()


def test_a_half_of_the_posterior_is_noticed(particles):
    """Chains that visit both modes agree with the particles; chains that visit only one of them do
    not."""
    points = particles.points
    random = np.random.default_rng(0)
    sign = random.choice([-1.0, 1.0], (4, 500, 1))
    draws = jnp.asarray(random.normal(size=(4, 500, 2)) / np.sqrt(101) + sign * [2 / 1.01, 0])
    side = draws.at[..., 0].set(jnp.abs(draws[..., 0]))

    @jax.jit
    def opinion(draws):
        with relaxed():
            result = modes.find(
                lambda point: jnp.add(*two_modes(point)), points[::32], points[::32], jnp.ones(2)
            )
            return second_opinion.opinion(draws, points, particles.ancestor, particles.beta, result)

    good, bad = opinion(draws), opinion(side)
    assert int(good.modes) == int(bad.modes) == 2
    assert bool(good.available)
    assert not bool(good.disagrees)
    assert not bool(good.separate)
    assert bool(bad.disagrees)
    stuck = side.at[0, :, 0].multiply(-1)  # one of four chains is in the other mode
    assert bool(opinion(stuck).separate)


def test_keys_of_tokens():
    """Different tokens have different keys. The order of tokens, masked tokens and the sign of zero
    do not matter."""
    rows, keep = jnp.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), jnp.array([True, True, False])
    all_of_them = jnp.ones(3, bool)

    def key(tokens, mask, seed=0):
        return tuple(np.asarray(jax.random.key_data(tokens_key(seed, tokens, mask))))

    same = {
        key(rows, all_of_them),
        key(rows[::-1], all_of_them),
        key(rows.at[0, 0].set(-0.0), all_of_them),
    }
    assert len(same) == 1
    assert key(rows, keep) == key(rows[:2], keep[:2])
    others = [
        key(rows, all_of_them),
        key(rows, all_of_them, seed=1),
        key(rows[:, ::-1], all_of_them),
        key(rows + 1e-9, all_of_them),
        key(rows, keep),
    ]
    assert len(set(others)) == len(others)


def test_energy_fraction():
    """Chains with independent energies have the fraction 2; a slow walk has nearly 0."""
    noise = np.random.default_rng(0).normal(size=(2, 4000))
    np.testing.assert_allclose(energy_fraction(jnp.asarray(noise)), 2, atol=0.15)
    assert (energy_fraction(jnp.asarray(noise.cumsum(1))) < 0.05).all()
