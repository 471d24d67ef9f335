"""Control worlds: the moments of their tokens, and the order-invariant law of the exchangeable
ones.

Covariances over EPISODES sequences are compared in units of their standard error. The threshold 4.9
has a two-sided false-positive rate of 1e-6, and a test makes at most 30 comparisons.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.worlds import AutoRegressive, DirichletCategorical, Drifting, Equicorrelated, PolyaUrn

EPISODES, LENGTH = 20_000, 4


@eqx.filter_jit
def draws(world):
    keys = jax.random.split(jax.random.key(0), EPISODES)
    return jax.vmap(lambda key: world.sample(key, LENGTH).tokens)(keys)


def moments(world):
    """(second moments between positions, their standard errors)."""
    x = np.asarray(draws(world))[:, :, 0]
    products = x[:, :, None] * x[:, None, :]
    return products.mean(0), products.std(0) / np.sqrt(EPISODES)


def test_auto_regressive_covariance_decreases_with_distance():
    mean, error = moments(AutoRegressive(coefficient=0.5, token_std=2.0))
    apart = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))
    assert (np.abs(mean - 4 * 0.5**apart) < 4.9 * error).all()


def test_drifting_mean_moves_by_the_drift():
    x = np.asarray(draws(Drifting(drift=2.0)))[:, :, 0]
    expected = np.linspace(-1, 1, LENGTH)
    assert (np.abs(x.mean(0) - expected) < 4.9 * x.std(0) / np.sqrt(EPISODES)).all()


@pytest.mark.parametrize("correlation", [-1 / 3, -0.1, 0.0, 0.5])
def test_equicorrelated_tokens_have_the_given_correlation(correlation):
    mean, error = moments(Equicorrelated(correlation=correlation))
    expected = np.where(np.eye(LENGTH, dtype=bool), 1, correlation)
    assert (np.abs(mean - expected) < 4.9 * error).all()


def test_the_polya_urn_has_the_law_of_dirichlet_categorical():
    """The frequency of every sequence of three draws equals its evidence under the Dirichlet."""
    urn = np.asarray(draws(PolyaUrn(classes=2, concentration=[0.5, 1.5])))[:, :3, 0]
    twin = DirichletCategorical(classes=2, concentration=[0.5, 1.5])
    for code in range(8):
        first = np.array([code >> 2 & 1, code >> 1 & 1, code & 1], float)
        tokens = jnp.asarray(np.stack([first, 1 - first], -1))
        chance = float(jnp.exp(twin.log_evidence(tokens)))
        error = np.sqrt(chance * (1 - chance) / EPISODES)
        assert abs((urn == first).all(1).mean() - chance) < 4.9 * error
    # Draws of the urn are exchangeable but far from independent: two draws agree more often than
    # independent draws would.
    both = (urn[:, 0] * urn[:, 1]).mean()
    assert both - urn[:, 0].mean() * urn[:, 1].mean() > 0.05


def test_which_controls_are_exchangeable():
    assert not AutoRegressive.exchangeable
    assert not Drifting.exchangeable
    assert PolyaUrn.exchangeable
    assert Equicorrelated.exchangeable


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: AutoRegressive(coefficient=1.0), "between -1 and 1"),
        (lambda: Equicorrelated(correlation=1.0), "from -1 to below 1"),
        (lambda: Equicorrelated(correlation=-0.5).sample(jax.random.key(0), 4), "at least -1/"),
        (lambda: PolyaUrn(concentration=[1.0, 0.0, 1.0]), "above 0 everywhere; got 0"),
    ],
)
def test_bad_settings_raise_one_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()
